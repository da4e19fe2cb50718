"""The station's broadcast as bytes: exact, dense or as a difference; anything else raises DecodeError."""

import struct
from dataclasses import replace

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from pcodec import ChunkConfig, DeltaSpec, ModeSpec, standalone

from skyfed.types import Raw, Update
from skyfed.wire import DecodeError, Reference, decode_model, encode, encode_model
from skyfed.wire.reader import Reader, number
from wire_cases import traced

HEAD = struct.Struct("<4sBBBIQQQQQ")
FIELDS = ("magic", "version", "weights_form", "buffers_form", "round", "before", "after", "size", "buffers", "length")
ODD = [0.0, -0.0, 1e-45, -1e-45, 1e-39, -1.1754942e-38, 1e-20, 0.1, -1.0, 1e20, -3e38, 3.4028235e38]
NAN, INF = float("nan"), float("inf")
CHUNK = 2**18  # floats packed together
PACKING = ChunkConfig(compression_level=6, delta_spec=DeltaSpec.no_op(), mode_spec=ModeSpec.classic())


def model(weights: object, buffers: object = ()) -> Reference:
    found = np.asarray(weights, np.float32)
    return Reference(found, np.asarray(buffers, np.float32), np.array([0, len(found)]))


def two_models(size: int = 200, buffers: int = 6) -> tuple[Reference, Reference]:
    """A model and the one after a small step."""
    rng = np.random.default_rng([size, buffers])
    base = model(rng.normal(size=size) * 0.05, rng.random(buffers))
    return base, model(base.weights - 1e-4 * rng.normal(size=size), base.buffers * np.float32(1.01))


def read(data: bytes, sent: Reference, base: Reference | None, round: int = 4) -> tuple[np.ndarray, np.ndarray]:
    return decode_model(data, round, (sent.size, len(sent.buffers)), base)


def there_and_back(sent: Reference, base: Reference | None) -> bytes:
    data = encode_model(4, sent, base)
    weights, buffers = read(data, sent, base)
    assert weights.dtype == buffers.dtype == np.float32
    assert weights.tobytes() == sent.weights.tobytes()
    assert buffers.tobytes() == sent.buffers.tobytes()
    return data


def sealed(body: bytes) -> bytes:
    return body + struct.pack("<Q", xxhash.xxh3_64_intdigest(body))


def fields(data: bytes) -> dict[str, object]:
    return dict(zip(FIELDS, HEAD.unpack_from(data), strict=True))


def tampered(data: bytes, body: bytes | None = None, **changes: object) -> bytes:
    """Rewrite the body and fields of the header; the checksum is made to fit."""
    content = data[HEAD.size : -8] if body is None else body
    return sealed(HEAD.pack(*(fields(data) | changes).values()) + content)


def refused(data: bytes, sent: Reference, base: Reference | None, message: str, round: int = 4) -> None:
    with pytest.raises(DecodeError) as caught:
        read(data, sent, base, round)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def packed(steps: np.ndarray) -> bytes:
    """A chunk of differences: its length, then pcodec's bytes."""
    found = standalone.simple_compress(steps, PACKING)
    return number(len(found)) + found


def chunks(data: bytes, count: int) -> list[bytes]:
    """Pcodec's bytes of the chunks of weights."""
    reader = Reader(data[HEAD.size :][: fields(data)["length"]])
    found = [bytes(reader.take(reader.number(2**24))) for _ in range(count)]
    reader.end()
    return found


every_base = pytest.mark.parametrize("known", [False, True], ids=["dense", "difference"])


# there and back


@every_base
@pytest.mark.parametrize("size", [0, 1, 7, 64, 1000, 300_000])
@pytest.mark.parametrize("buffers", [0, 1, 50])
def test_a_model_comes_back_exactly(size, buffers, known):
    base, sent = two_models(size, buffers)
    there_and_back(sent, base if known else None)


@every_base
def test_odd_numbers_come_back_bit_for_bit(known):
    sent, base = model(np.repeat(ODD, len(ODD)), ODD), model(np.tile(ODD, len(ODD)), ODD[::-1])
    there_and_back(sent, base if known else None)


SINGLE = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(max_examples=100, deadline=None)
@given(st.data(), st.integers(0, 40), st.integers(0, 5), st.booleans())
def test_any_model_comes_back_bit_for_bit(data, size, buffers, known):
    sent, base = (
        model(*(data.draw(arrays.arrays(np.float32, count, elements=SINGLE)) for count in (size, buffers)))
        for _ in range(2)
    )
    there_and_back(sent, base if known else None)


def test_a_dense_model_has_the_length_of_its_numbers():
    _, sent = two_models()
    data = there_and_back(sent, None)
    assert len(data) == 51 + 4 * 200 + 4 * 6 + 8
    assert data[51 : 51 + 800] == sent.weights.tobytes()


def test_a_difference_is_shorter_after_a_small_step():
    base, sent = two_models(20_000, 200)
    assert len(there_and_back(sent, base)) < 0.8 * len(there_and_back(sent, None))
    assert len(there_and_back(base, base)) < 300


def test_a_difference_that_would_be_longer_goes_as_it_is():
    rng = np.random.default_rng(0)
    sent, base = (
        model(rng.integers(0, 0x7F00_0000, 500).astype(np.uint32).view(np.float32), [1.0]) for _ in range(2)
    )  # fmt: skip
    data = there_and_back(sent, base)
    assert fields(data)["weights_form"] == 0
    assert len(data) <= len(encode_model(4, sent, None))


def test_the_header_says_what_is_in_a_message():
    base, sent = two_models(1000)
    found = fields(there_and_back(sent, base))
    assert (found["magic"], found["version"], found["round"]) == (b"SKYM", 1, 4)
    assert (found["before"], found["after"]) == (base.digest, sent.digest)
    assert (found["size"], found["buffers"]) == (1000, 6)
    assert found["weights_form"] == 1
    assert fields(there_and_back(sent, None))["before"] == 0


def test_what_is_read_is_the_reader_s_own():
    base, sent = two_models()
    for known in (base, None):
        data = bytearray(encode_model(4, sent, known))
        weights, buffers = read(data, sent, known)
        data[:] = bytes(len(data))
        assert weights.tobytes() == sent.weights.tobytes()
        assert buffers.tobytes() == sent.buffers.tobytes()
        assert not np.shares_memory(weights, base.weights)


# refusals


@every_base
def test_a_model_cut_off_anywhere_is_refused(known):
    base, sent = two_models(20, 3)
    near = base if known else None
    data = encode_model(4, sent, near)
    for length in range(len(data)):
        refused(data[:length], sent, near, "")
        if length != len(data) - 8:  # which is the message
            refused(sealed(data[:length]), sent, near, "")
    refused(data[:58], sent, near, "truncated: 58 bytes")


@every_base
def test_a_model_with_any_byte_changed_is_refused(known):
    base, sent = two_models(20, 3)
    near = base if known else None
    data = encode_model(4, sent, near)
    for at in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            wrong = data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :]
            refused(wrong, sent, near, "")
            if at < len(data) - 8:
                refused(sealed(wrong[:-8]), sent, near, "")
    refused(data[:60] + bytes([data[60] ^ 1]) + data[61:], sent, near, "checksum differs")


@every_base
@pytest.mark.parametrize("extra", [b"\0", bytes(4), bytes(1000)])
def test_trailing_bytes_are_refused(known, extra):
    base, sent = two_models()
    near = base if known else None
    data = encode_model(4, sent, near)
    refused(data + extra, sent, near, "checksum differs")
    refused(sealed(data[:-8] + extra), sent, near, "floats")


def test_another_kind_of_message_is_refused():
    base, sent = two_models()
    data = encode_model(4, sent, base)
    refused(tampered(data, magic=b"SKYF"), sent, base, "not a model of version 1")
    refused(encode(Update(4, 0, 200, None, Raw(sent.weights), sent.buffers), base), sent, base, "not a model")
    for version in (0, 2, 255):
        refused(tampered(data, version=version), sent, base, "not a model of version 1")


def test_a_model_of_another_round_or_size_is_refused():
    base, sent = two_models()
    data = encode_model(4, sent, base)
    refused(data, sent, base, "round 4 and sizes 200, 6; expected 5 and 200, 6", round=5)
    for changes in ({"round": 3}, {"size": 199}, {"size": 2**60}, {"buffers": 7}, {"buffers": 2**60}):
        refused(tampered(data, **changes), sent, base, "expected 4 and 200, 6")


def test_a_difference_from_another_model_is_refused():
    base, sent = two_models()
    data = encode_model(4, sent, base)
    refused(data, sent, sent, "a difference from another model")
    refused(data, sent, None, "a difference from another model")
    refused(encode_model(4, sent, None), sent, base, "a difference from another model")
    refused(tampered(data, before=base.digest ^ 1), sent, base, "a difference from another model")


def test_a_difference_from_nothing_is_refused():
    base, sent = two_models()
    data = tampered(encode_model(4, sent, base), before=0)
    refused(data, sent, None, "a difference from nothing")
    for part in ("weights_form", "buffers_form"):
        refused(tampered(encode_model(4, sent, None), **{part: 1}), sent, None, "a difference from nothing")


def test_a_message_longer_than_it_can_be_is_refused():
    base, sent = two_models()
    refused(sealed(encode_model(4, sent, base)[:-8] + bytes(10_000)), sent, base, "longer than it can be")


@pytest.mark.parametrize("form", [2, 255])
def test_unknown_forms_are_refused(form):
    base, sent = two_models()
    data = encode_model(4, sent, base)
    refused(tampered(data, weights_form=form), sent, base, f"floats in form {form}")
    refused(tampered(data, buffers_form=form), sent, base, f"floats in form {form}")


@pytest.mark.parametrize("buffers", [0, 6])
@every_base
def test_a_length_that_lies_is_refused(buffers, known):
    base, sent = two_models(200, buffers)
    near = base if known else None
    data = encode_model(4, sent, near)
    length = fields(data)["length"]
    for wrong in {0, 1, length - 1, length + 1, length + 4, len(data), 2**63, 2**64 - 1} - {length}:
        refused(tampered(data, length=wrong), sent, near, "")


@every_base
def test_a_model_that_is_not_the_one_that_was_sent_is_refused(known):
    base, sent = two_models()
    near = base if known else None
    data = encode_model(4, sent, near)
    refused(tampered(data, after=sent.digest ^ 1), sent, near, "not the model that was sent")
    other = encode_model(4, base, near)
    wrong = tampered(data, other[HEAD.size : -8], length=fields(other)["length"], buffers_form=other[6])
    refused(wrong, sent, near, "not the model that was sent")


@every_base
@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_numbers_that_are_not_finite_are_refused(known, value):
    base, sent = two_models()
    near = base if known else None
    for part in ("weights", "buffers"):
        wrong = getattr(sent, part).copy()
        wrong[2] = value
        data = encode_model(4, replace(sent, **{part: wrong}), near)
        refused(data, sent, near, "a weight or buffer is not finite")


@pytest.mark.parametrize("count", [1, 199, 201, 10**6])
def test_packed_weights_of_another_number_are_refused(count):
    base, sent = two_models()
    data = encode_model(4, sent, base)
    assert fields(data)["weights_form"] == 1
    wrong = packed(np.zeros(count, np.int32))
    rest = data[HEAD.size + fields(data)["length"] : -8]
    refused(tampered(data, wrong + rest, length=len(wrong)), sent, base, "packed floats, 200 expected")


def test_the_length_of_a_chunk_must_be_that_of_its_bytes():
    base, sent = two_models()
    data = encode_model(4, sent, base)
    (content,) = chunks(data, 1)
    rest = data[HEAD.size + fields(data)["length"] : -8]
    length = len(content)
    assert length > 127
    steps = standalone.simple_decompress(content)
    for wrong, message in (
        (b"", "truncated"),
        (number(length + 1) + content, f"truncated: {length + 1} bytes wanted"),
        (number(length - 1) + content, "packed floats"),
        (number(length) + content + b"\0", "1 bytes too many"),
        (bytes([length & 127 | 128, length >> 7 | 128, 0]) + content, f"a number is {length}, at most"),
        (number(2**40) + content, "at most 5696 is possible"),
        (number(length + 1) + content + b"\0", "not as this version of pcodec packs them"),
        (packed(steps[:50]) + packed(steps[50:]), "50 packed floats, 200 expected"),
    ):
        refused(tampered(data, wrong + rest, length=len(wrong)), sent, base, message)


def test_chunks_of_weights_in_other_numbers_or_lengths_are_refused():
    base, sent = two_models(300_000, 0)
    data = encode_model(4, sent, base)
    first, second = chunks(data, 2)
    steps = np.concatenate([standalone.simple_decompress(part) for part in (first, second)])
    assert packed(steps[:CHUNK]) + packed(steps[CHUNK:]) == data[HEAD.size : -8]
    for wrong, message in (
        (packed(steps[:CHUNK]), "truncated"),
        (packed(steps[CHUNK:]) + packed(steps[:CHUNK]), f"{300_000 - CHUNK} packed floats, {CHUNK} expected"),
        (packed(steps), f"{CHUNK} packed floats, {CHUNK} expected"),
        (packed(steps[: CHUNK - 1]) + packed(steps[CHUNK - 1 :]), f"{CHUNK - 1} packed floats, {CHUNK} expected"),
        (packed(steps[:CHUNK]) + packed(steps[CHUNK:]) + packed(steps[:1]), "bytes too many"),
    ):
        refused(tampered(data, wrong, length=len(wrong)), sent, base, message)


# memory


def peak(data: bytes, sent: Reference, base: Reference | None) -> int:
    """Bytes allocated at most while a model is read, accepted or not."""
    assert base is None or base.digest
    return traced(lambda: read(data, sent, base))


def test_reading_a_large_model_takes_no_more_than_twice_it_and_its_message():
    base, sent = two_models(2_000_000, 50)
    limit = 2 * (4 + 4) * 2_000_000
    for near in (None, base):
        assert peak(encode_model(4, sent, near), sent, near) <= limit
    same = encode_model(4, base, base)
    assert len(same) < 1000
    assert peak(same, base, base) <= limit
    bomb = packed(np.zeros(20_000_000, np.int32))
    assert len(bomb) < 10_000
    assert peak(tampered(same, bomb, length=len(bomb)), base, base) <= limit // 2


@pytest.mark.parametrize("changes", [{"size": 2**60}, {"buffers": 2**60}, {"length": 2**63}])
def test_sizes_are_checked_before_anything_is_allocated(changes):
    base, sent = two_models()
    assert peak(tampered(encode_model(4, sent, base), **changes), sent, base) < 20_000


# any bytes at all


def test_damaged_models_are_refused_and_nothing_else():
    """A checksum that fits does not help: 64 bits of the model itself go along."""
    rng = np.random.default_rng(1)
    cases = []
    for size, buffers in ((0, 0), (9, 0), (20, 3), (200, 40)):
        base, sent = two_models(size, buffers)
        cases += [(encode_model(4, sent, near), sent, near) for near in (None, base)]
    for trial in range(4000):
        data, sent, near = cases[trial % len(cases)]
        body = bytearray(data[:-8])
        for _ in range(int(rng.integers(1, 4))):
            at = int(rng.integers(0, HEAD.size if rng.random() < 0.5 else len(body)))
            count = int(rng.integers(1, 5))
            if rng.random() < 0.2:
                body[at : at + count] = b""
            else:
                body[at : at + count] = rng.bytes(count)
        wrong = sealed(bytes(body))
        if wrong != data:
            refused(wrong, sent, near, "")


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60), st.booleans(), st.integers(0, 2), st.integers(0, 2), st.integers(0, 60))
def test_any_body_under_a_fitting_header_is_refused(body, known, weights_form, buffers_form, length):
    base, sent = two_models(5, 2)
    near = base if known else None
    data = encode_model(4, sent, near)
    wrong = tampered(data, body, weights_form=weights_form, buffers_form=buffers_form, length=length)
    if wrong != data:
        refused(wrong, sent, near, "")
