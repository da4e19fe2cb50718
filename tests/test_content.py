"""What is sent down: any named arrays, whole or as differences, and whatever else comes is refused."""

import struct

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from skyfed.types import Arrays, same_arrays
from skyfed.wire import DecodeError, Reference, decode_content, digest_of, encode_content, encode_model
from wire_cases import traced

ROUND, MODEL, MOST = 5, (400, 6), 3000
HEAD, ENTRY, SUM = 26, 51, 8
DTYPES = ["float32", "uint8", "int8", "int32", "int64", "float64", "bool"]


def model(seed: int = 0) -> Arrays:
    rng = np.random.default_rng(seed)
    return {"weights": rng.normal(size=400).astype(np.float32), "buffers": rng.normal(size=6).astype(np.float32)}


def content(seed: int = 0) -> Arrays:
    rng = np.random.default_rng(seed)
    return {
        **model(seed),
        "control": rng.normal(size=(20, 10)).astype(np.float32),
        "table": rng.integers(-9, 9, (3, 2, 2, 2)),
        "flags": rng.random(9) < 0.5,
        "one": np.array(2.5),
        "none": np.empty((0, 4), np.int32),
    }


def near(arrays: Arrays) -> Arrays:
    """Arrays that differ little, as those of the next round."""
    return {
        name: array * np.float32(1.0001) if array.dtype == np.float32 else array.copy()
        for name, array in arrays.items()
    }


def read(data: bytes, base: Arrays | None = None, round: int = ROUND, most: int = MOST) -> Arrays:
    return decode_content(data, round, MODEL, most, base)


def sealed(data: bytes) -> bytes:
    return data[:-SUM] + struct.pack("<Q", xxhash.xxh3_64_intdigest(data[:-SUM]))


def refused(data: bytes, words: str = "", base: Arrays | None = None, **more: int) -> None:
    with pytest.raises(DecodeError) as caught:
        read(data, base, **more)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


# round trips


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_what_is_sent_arrives_bit_for_bit(seed, alone):
    last = model(seed) if alone else content(seed)
    sent = near(last)
    for base in (None, last):
        found = read(encode_content(ROUND, sent, base), base)
        assert same_arrays(found, sent)
        assert list(found) == list(sent)


def test_a_model_alone_keeps_the_bytes_of_version_1():
    last, sent = model(), near(model())
    known, base = (Reference(m["weights"], m["buffers"], np.array([0, 400])) for m in (sent, last))
    assert encode_content(ROUND, sent, None) == encode_model(ROUND, known, None)
    assert encode_content(ROUND, sent, last) == encode_model(ROUND, known, base)
    assert (digest_of(sent), digest_of(last)) == (known.digest, base.digest)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (7,), (0,), (3, 4), (2, 0, 3), (2, 3, 4, 5)])
def test_every_type_and_shape_arrives(dtype, shape):
    array = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    for base in (None, {"x": array}, {"x": array[..., None]}, {"y": array}, {"x": array.astype(np.float64)}):
        found = read(encode_content(ROUND, {"x": array}, base), base)
        assert same_arrays(found, {"x": np.asarray(array)})
        assert found["x"].flags.writeable


def test_arrays_that_lie_otherwise_in_memory_arrive():
    whole = np.arange(24, dtype=np.float32).reshape(4, 6)
    for array in (whole.T, whole[::2], whole[:, 1:3], np.asfortranarray(whole)):
        found = read(encode_content(ROUND, {"x": array}, None))["x"]
        assert np.array_equal(found, array)


def test_a_difference_is_shorter_than_the_whole():
    rng = np.random.default_rng(0)
    last = {"control": rng.normal(size=2000).astype(np.float32), "weights": rng.normal(size=400).astype(np.float32)}
    sent = near(last)
    assert len(encode_content(ROUND, sent, last)) < 0.7 * len(encode_content(ROUND, sent, None))


def test_digests_tell_names_types_and_shapes_apart():
    one = np.arange(6, dtype=np.int32)
    different = [
        {"a": one},
        {"b": one},
        {"a": one.astype(np.int64)},
        {"a": one.reshape(2, 3)},
        {"a": one[:1]},
        {"a": one[0]},
    ]
    assert len({digest_of(arrays) for arrays in different}) == len(different)
    assert digest_of({"a": one, "b": one}) == digest_of({"b": one, "a": one})


def test_from_a_model_to_more_and_back():
    """A vehicle may have a model alone and get more, or have more and get a model alone."""
    for last, sent in ((model(), content(1)), (content(1), content(2))):
        assert same_arrays(read(encode_content(ROUND, sent, last), last), sent)
    for last in (
        content(),
        {"x": np.zeros(3)},
        {"weights": np.zeros(7, np.float32), "buffers": np.zeros(6, np.float32)},
    ):
        assert same_arrays(read(encode_content(ROUND, model(1), last), last), model(1))
    large = {**content(), "weights": near(model(1))["weights"], "buffers": model(1)["buffers"]}
    assert len(encode_content(ROUND, model(1), large)) < 0.8 * len(encode_content(ROUND, model(1), None))


# what cannot be sent


@pytest.mark.parametrize(
    "arrays",
    [{"x": np.zeros(3, np.float16)}, {"x": np.zeros(3, ">f4")}, {"x": np.zeros(3, ">i8")},
     {"x": np.zeros(3, np.complex64)}, {"x": np.array(["a"])}, {"": np.zeros(1)},
     {"x" * 25: np.zeros(1)}, {"é": np.zeros(1)}, {"x": np.zeros((1, 1, 1, 1, 1))}],
)  # fmt: skip
def test_arrays_that_cannot_be_sent_are_named(arrays):
    with pytest.raises(ValueError, match="cannot be sent; allowed"):
        encode_content(ROUND, arrays, None)


def test_too_many_arrays_cannot_be_sent():
    few = {f"a{k}": np.zeros(1) for k in range(32)}
    assert len(read(encode_content(ROUND, few, None))) == 32
    with pytest.raises(ValueError, match="33 arrays"):
        encode_content(ROUND, {**few, "more": np.zeros(1)}, None)


# what cannot be read


def test_another_round_or_base_is_refused():
    last, sent = content(), near(content())
    data = encode_content(ROUND, sent, last)
    refused(data, "round 6", last, round=6)
    for base in (None, sent, model(), {**last, "more": np.zeros(1)}, {}):
        refused(data, "a difference from another model", base)
    refused(encode_content(ROUND, sent, None), "a difference from another model", last)
    refused(encode_content(ROUND, model(1), model()), "a difference from another model", content(2))
    small = {name: array[:3] for name, array in model().items()}
    refused(encode_content(ROUND, model(1), model()), "a difference from another model", small)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_that_are_not_finite_are_refused(value, dtype):
    arrays = {"x": np.array([1, value, 2], dtype)}
    refused(encode_content(ROUND, arrays, None), "an entry of 'x' is not finite")


def test_truth_values_are_0_and_1():
    data = bytearray(encode_content(ROUND, {"x": np.array([True, False])}, None))
    data[HEAD + ENTRY] = 2
    refused(sealed(bytes(data)), "truth values")


@pytest.mark.parametrize("base", [None, "last"])
def test_every_truncation_and_every_changed_bit_is_refused(base):
    last = content() if base else None
    data = encode_content(ROUND, near(content()), last)
    for length in range(0, len(data), 7):
        refused(data[:length], "", last)
        if length > HEAD + SUM:
            refused(sealed(data[:length]), "", last)
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1 << (place % 8)
        refused(bytes(changed), "", last)


def renamed(data: bytes, name: bytes, arrays: Arrays) -> bytes:
    """Name the first array otherwise; `arrays` are what is sent then."""
    changed = data[:18] + struct.pack("<Q", digest_of(arrays)) + name.ljust(24, b"\0") + data[HEAD + 24 :]
    return sealed(changed)


def test_an_array_without_a_name_is_refused():
    array = np.arange(3)
    data = encode_content(ROUND, {"x": array}, None)
    assert same_arrays(read(renamed(data, b"y", {"y": array})), {"y": array})
    refused(renamed(data, b"", {"": array}), "no name of its own")


def test_a_model_alone_does_not_come_as_named_arrays():
    """Its sizes would not be looked at."""
    arrays = {"heights": np.zeros(5, np.float32), "buffers": np.zeros(2, np.float32)}
    wrong = {"weights": arrays["heights"], "buffers": arrays["buffers"]}
    refused(renamed(encode_content(ROUND, arrays, None), b"weights", wrong), "a model alone, but as named arrays")


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_axes_that_numpy_cannot_hold_are_refused(dtype):
    """Without entries they are within every limit."""
    data = bytearray(encode_content(ROUND, {"x": np.empty((0, 1, 1, 1), dtype)}, None))
    data[HEAD + 27 : HEAD + 43] = struct.pack("<4I", 0, 2**32 - 1, 2**32 - 1, 2**32 - 1)
    refused(sealed(bytes(data)), "array 'x' has axes that are too long")


def test_a_short_message_takes_no_memory_for_what_it_promises():
    most = 50_000_000
    data = bytearray(encode_content(ROUND, {"x": np.zeros(1, np.float32)}, None))
    data[HEAD + 27 : HEAD + 31] = struct.pack("<I", most)
    refused(sealed(bytes(data)), "array 'x' has 4 bytes, expected 200000000", most=most)
    assert traced(lambda: read(sealed(bytes(data)), most=most)) < 20_000


def test_the_limit_is_on_the_sum_of_all_entries():
    arrays = {"a": np.zeros(60), "b": np.zeros((4, 10), np.uint8)}
    data = encode_content(ROUND, arrays, None)
    assert same_arrays(read(data, most=100), arrays)
    refused(data, "larger than allowed", most=99)


def test_limits_are_kept_before_anything_is_allocated():
    """An entry may say that it is huge, in any way."""
    data = encode_content(ROUND, {"x": np.zeros(8, np.float32)}, None)
    shape = HEAD + 24 + 3
    for lengths in (
        (2**31, 0, 0, 0),
        (2**16, 2**16, 0, 0),
        (2**32 - 1, 2**32 - 1, 2**32 - 1, 2**32 - 1),
        (3001, 0, 0, 0),
    ):
        axes = sum(length > 0 for length in lengths)
        for kind in range(len(DTYPES)):
            hostile = bytearray(data)
            hostile[HEAD + 24 : HEAD + 26] = bytes([kind, axes])
            hostile[shape : shape + 16] = struct.pack("<4I", *lengths)
            hostile = sealed(bytes(hostile))
            assert traced(lambda hostile=hostile: read(hostile)) < 100_000
            refused(hostile, "larger than allowed")


def test_negative_room_does_not_come_back_with_a_later_array():
    """The first is too large, a later one has an axis of length 0."""
    arrays = {"a": np.zeros(200), "b": np.empty((0, 3))}
    refused(encode_content(ROUND, arrays, None), "larger than allowed", most=100)


@settings(max_examples=2000, deadline=None)
@given(st.integers(0, 2**32))
def test_what_is_changed_and_sealed_again_is_refused_or_whole(seed):
    """Nothing but DecodeError comes, and what is accepted has the digest that the message says."""
    rng = np.random.default_rng(seed)
    last = content(seed % 3) if seed % 2 else None
    changed = bytearray(encode_content(ROUND, near(content(seed % 3)), last))
    for _ in range(int(rng.integers(1, 4))):
        kind, at = rng.integers(4), int(rng.integers(min(len(changed), 500)))
        if kind == 0:
            changed[at] = int(rng.integers(256))
        elif kind == 1:
            changed[at : at + 8] = rng.bytes(8)
        elif kind == 2:
            del changed[at : at + int(rng.integers(1, 40))]
        else:
            changed[at:at] = rng.bytes(int(rng.integers(1, 40)))
    data = sealed(bytes(changed))
    try:
        found = read(data, last)
    except DecodeError:
        return
    assert sum(array.size for array in found.values()) <= MOST
    assert digest_of(found) == struct.unpack_from("<Q", data, HEAD - 8)[0]


@settings(max_examples=1000, deadline=None)
@given(st.binary(max_size=400), st.integers(0, 40))
def test_garbage_is_refused(data, count):
    refused(data)
    refused(b"SKYM\x02" + bytes([count]) + struct.pack("<I", ROUND) + data)
    refused(sealed(b"SKYM\x02" + bytes([count]) + struct.pack("<IQ", ROUND, 0) + data + bytes(SUM)))
