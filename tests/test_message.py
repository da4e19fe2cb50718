"""Uploads of one vector and of several: what goes in comes out, and whatever else comes is refused."""

import re
import struct

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from skyfed.types import Quantised, Raw, Update
from skyfed.wire import (
    MODEL,
    DecodeError,
    Expected,
    Message,
    Reference,
    check_sizes,
    decode_parts,
    encode,
    encode_parts,
)
from wire_cases import bits, same, traced

ROUND, VEHICLE, SIZE = 7, 3, 300
HEAD, ENTRY, SUM = 14, 32, 8  # bytes of the header, of an entry of the table of contents, and of the checksum
SIZES = {"update": MODEL, "trend": MODEL, "count": 5, "loss": 1}
NUMBERS = {"count": 5, "loss": 1}


def known(seed: int = 0) -> Reference:
    rng = np.random.default_rng(seed)
    return Reference(rng.normal(size=SIZE).astype(np.float32), np.ones(4, np.float32), np.array([0, 100, SIZE]))


COMMON = known()
EXPECTED = Expected(ROUND, VEHICLE, COMMON)


def update(seed: int = 0, buffers: int = 4, quantised: bool = False, masked: bool = True) -> Update:
    rng = np.random.default_rng(seed)
    mask = rng.random(SIZE) < 0.6 if masked else None
    kept = SIZE if mask is None else int(mask.sum())
    body: Raw | Quantised = Raw(rng.normal(size=kept).astype(np.float32))
    if quantised:
        norms = np.ones(-(-kept // 64), np.float32)
        body = Quantised("qsgd", rng.integers(-3, 4, kept).astype(np.int8), norms, 3, 64)
    return Update(ROUND, VEHICLE, SIZE, mask, body, rng.normal(size=buffers).astype(np.float32))


def parts(seed: int = 0) -> dict[str, Update | np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "update": update(seed),
        "trend": update(seed + 1, 0, quantised=True),
        "count": rng.normal(size=5).astype(np.float32),
        "loss": np.array([0.25], np.float32),
    }


def message(seed: int = 0) -> bytes:
    return encode_parts(parts(seed), SIZES, ROUND, VEHICLE, COMMON)


def sealed(data: bytes) -> bytes:
    """The same bytes with a checksum that fits."""
    return data[:-SUM] + struct.pack("<Q", xxhash.xxh3_64_intdigest(data[:-SUM]))


def refused(data: bytes, words: str = "", sizes: dict[str, int] = SIZES, expected: Expected = EXPECTED) -> None:
    with pytest.raises(DecodeError) as caught:
        decode_parts(data, sizes, expected)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def equal(found: Update | np.ndarray, sent: Update | np.ndarray) -> bool:
    if isinstance(sent, np.ndarray):
        return bits(found) == bits(sent)
    mask = bits(found.mask) == bits(sent.mask)
    return mask and same(found.body, sent.body) and bits(found.buffers) == bits(sent.buffers)


# round trips


@pytest.mark.parametrize("quantised", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_one_vector_keeps_the_bytes_of_version_2(quantised, masked):
    one = update(quantised=quantised, masked=masked)
    data = encode_parts({"any name": one}, {"any name": MODEL}, ROUND, VEHICLE, COMMON)
    assert data == encode(one, COMMON)
    assert data[:5] == b"SKYF\x02"
    assert equal(decode_parts(data, {"other": MODEL}, EXPECTED)["other"], one)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6))
def test_several_vectors_come_out_as_they_went_in_and_have_one_encoding(seed):
    sent = parts(seed)
    data = message(seed)
    assert data[:6] == b"SKYF\x03\x04"
    found = decode_parts(data, SIZES, EXPECTED)
    assert list(found) == list(SIZES)
    for name, part in sent.items():
        assert equal(found[name], part), name
    assert encode_parts(found, SIZES, ROUND, VEHICLE, COMMON) == data


def test_numbers_alone_need_no_vector_over_the_model():
    sent = {name: part for name, part in parts().items() if name in NUMBERS}
    data = encode_parts(sent, NUMBERS, ROUND, VEHICLE, COMMON)
    assert len(data) == HEAD + 2 * ENTRY + 4 * 6 + SUM
    found = decode_parts(data, NUMBERS, EXPECTED)
    assert all(equal(found[name], part) for name, part in sent.items())
    assert all(part.dtype == np.float32 and part.flags.writeable for part in found.values())


def test_a_message_gives_vectors_by_name_and_the_first_over_the_model_by_default():
    found = Message(VEHICLE, ROUND, decode_parts(message(), SIZES, EXPECTED), COMMON)
    first = parts()["update"]
    assert found.values().tolist() == first.body.values.tolist()
    assert found.vector()[first.mask].tolist() == first.body.values.tolist()
    assert not found.vector()[~first.mask].any()
    assert found.vector("count").tolist() == found.values("count").tolist() == parts()["count"].tolist()
    assert len(found.vector("trend")) == SIZE
    with pytest.raises(ValueError, match="no vector over the model's weights among loss"):
        Message(VEHICLE, ROUND, {"loss": parts()["loss"]}, COMMON).values()


def test_only_the_first_vector_over_the_model_brings_buffers():
    sent = parts()
    assert len(decode_parts(message(), SIZES, EXPECTED)["trend"].buffers) == 0
    with pytest.raises(ValueError, match=r"vector 'trend' has .* buffers, expected 0: the first vector"):
        encode_parts({**sent, "trend": update(1, 4)}, SIZES, ROUND, VEHICLE, COMMON)


@pytest.mark.parametrize("dtype", [np.float64, np.int64, bool])
def test_plain_vectors_of_other_types_are_sent_as_single_precision(dtype):
    values = np.array([1, 0, 1, 1, 0]).astype(dtype)
    data = encode_parts({**parts(), "count": values}, SIZES, ROUND, VEHICLE, COMMON)
    assert decode_parts(data, SIZES, EXPECTED)["count"].tolist() == [1, 0, 1, 1, 0]


# what cannot be sent


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"count": np.zeros(4, np.float32)}, "declared are 5 entries"),
        ({"count": np.zeros((5, 1), np.float32)}, "of shape (5, 1)"),
        ({"count": update()}, "over the model's weights"),
        ({"trend": np.zeros(SIZE, np.float32)}, "declared is one over the model's weights"),
        ({"more": np.zeros(1, np.float32)}, "the message has"),
    ],
)
def test_parts_that_are_not_as_declared_cannot_be_sent(changes, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        encode_parts({**parts(), **changes}, SIZES, ROUND, VEHICLE, COMMON)


def test_parts_in_another_order_or_missing_cannot_be_sent():
    for names in (["trend", "update", "count", "loss"], ["update", "trend", "count"], []):
        with pytest.raises(ValueError, match="declared are"):
            encode_parts({name: parts()[name] for name in names}, SIZES, ROUND, VEHICLE, COMMON)


@pytest.mark.parametrize(
    "sizes",
    [{}, {f"v{k}": 1 for k in range(17)}, {"": 1}, {"x" * 25: 1}, {"é": 1}, {"a\n": 1}, {"a": 0}, {"a": -2},
     {"a": 2**31 + 1}],
)  # fmt: skip
def test_declarations_that_cannot_be_are_refused(sizes):
    with pytest.raises(ValueError, match="allowed"):
        check_sizes(sizes)
    check_sizes({**SIZES, "x" * 24: 2**31})


# what cannot be read


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"update": MODEL, "trend": MODEL, "loss": 1, "count": 5}, "is not named"),
        ({"update": MODEL, "trend": MODEL, "counts": 5, "loss": 1}, "is not named"),
        ({"update": MODEL, "trend": MODEL, "coun": 5, "loss": 1}, "is not named"),
        ({"update": MODEL, "trend": MODEL, "count": 4, "loss": 2}, "has 20 bytes, expected 16"),
        ({"update": MODEL, "trend": 300, "count": 5, "loss": 1}, "expected 1200"),
        ({"update": MODEL, "trend": MODEL, "count": MODEL, "loss": 1}, "truncated"),
        ({"update": MODEL, "trend": MODEL, "count": 5}, "4 vectors"),
        ({"update": MODEL}, "version 3"),
    ],
)
def test_other_names_and_sizes_than_declared_are_refused(sizes, words):
    refused(message(), words, sizes)


def test_a_message_of_one_vector_is_none_of_several():
    refused(encode(update(), COMMON), "", SIZES)


def test_other_rounds_vehicles_and_models_are_refused():
    refused(message(), "expected 4, 8 and 3", expected=Expected(8, VEHICLE, COMMON))
    refused(message(), "expected 4, 7 and 4", expected=Expected(ROUND, 4, COMMON))
    refused(message(), "digest of the received model", expected=Expected(ROUND, VEHICLE, known(1)))


def test_the_round_and_vehicle_inside_count_too():
    """The header may lie about what the vectors in it are."""
    inner = encode_parts({**parts(), "update": update(5)}, SIZES, ROUND + 1, VEHICLE, COMMON)
    refused(inner, "round", expected=Expected(ROUND + 1, VEHICLE, COMMON))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(value):
    data = encode_parts({**parts(), "loss": np.array([value], np.float32)}, SIZES, ROUND, VEHICLE, COMMON)
    refused(data, "an entry of 'loss' is not finite")


def test_every_truncation_is_refused():
    data = message()
    for length in range(len(data)):
        refused(data[:length])
        if length > SUM:
            refused(sealed(data[:length]))


def test_bytes_too_many_are_refused():
    data = message()
    refused(data + b"\0")
    refused(sealed(data + b"\0"), "bytes that belong to no vector")
    for k in range(len(SIZES)):  # a length that is too large, too small, or beyond everything
        at = HEAD + k * ENTRY + 24
        (length,) = struct.unpack_from("<Q", data, at)
        for other in (length + 1, length - 1, 0, 2**63, 2**64 - 1):
            refused(sealed(data[:at] + struct.pack("<Q", other) + data[at + 8 :]))


def test_every_changed_bit_is_refused():
    data = message()
    for place in range(len(data)):
        for bit in (1, 128):
            changed = bytearray(data)
            changed[place] ^= bit
            refused(bytes(changed))


@settings(max_examples=2000, deadline=None)
@given(st.integers(0, 2**32))
def test_what_is_changed_and_sealed_again_is_refused_or_another_valid_message(seed):
    """Whoever seals a message can say what it likes, but only in the one encoding, and without another exception."""
    rng = np.random.default_rng(seed)
    changed = bytearray(message(seed % 5))
    for _ in range(int(rng.integers(1, 4))):
        kind, at = rng.integers(4), int(rng.integers(len(changed)))
        if kind == 0:
            changed[at] = int(rng.integers(256))
        elif kind == 1:
            changed[at : at + 8] = rng.bytes(len(changed[at : at + 8]))
        elif kind == 2:
            del changed[at : at + int(rng.integers(1, 40))]
        else:
            changed[at:at] = rng.bytes(int(rng.integers(1, 40)))
    data = sealed(bytes(changed))
    try:
        found = decode_parts(data, SIZES, EXPECTED)
    except DecodeError:
        return
    assert encode_parts(found, SIZES, ROUND, VEHICLE, COMMON) == data


@settings(max_examples=1000, deadline=None)
@given(st.binary(max_size=600))
def test_garbage_is_refused(data):
    refused(data)
    refused(b"SKYF\x03\x04" + struct.pack("<II", ROUND, VEHICLE) + data)
    refused(data, sizes=NUMBERS)


def test_little_memory_is_taken_whatever_a_message_says():
    data = message()
    for k in range(len(SIZES)):
        at = HEAD + k * ENTRY + 24
        hostile = sealed(data[:at] + struct.pack("<Q", 2**40) + data[at + 8 :])
        assert traced(lambda hostile=hostile: decode_parts(hostile, SIZES, EXPECTED)) < 200_000
