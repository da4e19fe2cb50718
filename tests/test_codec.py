"""Uploads as bytes: what goes in comes out, and whatever is not a valid upload raises DecodeError and nothing else."""

import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from learning_cases import raw_update, same_update
from skyfed.records import Update
from skyfed.rng import stream
from skyfed.wire import DecodeError, Expected, bucket_starts, corrected_bits, decode, encode, paper_bits, quantise

HEAD = struct.Struct("<4sBBBiIIQQIQ")
FIELDS = ("magic", "version", "scheme", "s", "bucket", "round", "vehicle", "size", "kept", "norms", "buffers")
TENSORS = np.array([0, 5, 5, 11, 19])
SIZE = 19


def expected(update: Update, starts: np.ndarray = TENSORS) -> Expected:
    return Expected(update.round, update.vehicle, update.size, starts, len(update.buffers))


def update_of(
    values: np.ndarray, mask: np.ndarray | None, kind: str, s: int = 3, bucket: int = 0, buffers: int = 2,
    starts: np.ndarray = TENSORS,
) -> Update:  # fmt: skip
    """Return an upload of round 7 by vehicle 3."""
    plain = raw_update(values, mask, np.linspace(-1, 1, buffers), round=7, vehicle=3, s=s, bucket=bucket)
    if kind == "raw":
        return plain
    buckets = bucket_starts(len(plain.values), bucket, starts, mask)
    levels, norms = quantise(plain.values, buckets, s, "l2", stream(0, "q"))
    return replace(plain, values=None, levels=levels, norms=norms)


def some(kind: str = "qsgd", masked: bool = True, **about: int) -> Update:
    rng = np.random.default_rng(0)
    mask = rng.random(SIZE) < 0.7 if masked else None
    return update_of(rng.normal(size=SIZE if mask is None else int(mask.sum())), mask, kind, **about)


def sealed(body: bytes) -> bytes:
    """Give tampered bytes a checksum that fits."""
    return body + struct.pack("<I", zlib.crc32(body))


def with_header(data: bytes, **changes: object) -> bytes:
    """Rewrite fields of the header and seal again."""
    fields = dict(zip(FIELDS, HEAD.unpack_from(data), strict=True)) | changes
    return sealed(HEAD.pack(*fields.values()) + data[HEAD.size : -4])


def with_bytes(data: bytes, at: int, new: bytes) -> bytes:
    return sealed(data[:at] + new + data[at + len(new) : -4])


def refused(data: bytes, awaited: Expected, message: str = "") -> None:
    with pytest.raises(DecodeError) as caught:
        decode(data, awaited)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


every_kind = pytest.mark.parametrize("kind", ["raw", "qsgd"])
every_mask = pytest.mark.parametrize("masked", [False, True], ids=["dense", "masked"])


# there and back


@every_kind
@every_mask
@pytest.mark.parametrize("bucket", [0, -1, 1, 7, 512])
@pytest.mark.parametrize("s", [1, 2, 3, 7, 15, 127])
def test_what_was_sent_is_what_is_read(kind, masked, bucket, s):
    update = some(kind, masked, s=s, bucket=bucket)
    data = encode(update)
    found = decode(data, expected(update))
    assert same_update(found, update)
    assert encode(found) == data
    assert found.kept == update.kept
    assert found.quantised == (kind == "qsgd")


@st.composite
def updates(draw: st.DrawFn) -> tuple[Update, np.ndarray]:
    size = draw(st.integers(0, 40))
    starts = np.concatenate([[0], np.sort(draw(arrays.arrays(np.int64, 3, elements=st.integers(0, size)))), [size]])
    mask = draw(st.none() | arrays.arrays(bool, size))
    kept = size if mask is None else int(mask.sum())
    s, bucket = draw(st.integers(1, 127)), draw(st.sampled_from([0, -1, 1, 7, 512]))
    single = st.floats(width=32, allow_nan=False, allow_infinity=False)
    buffers = draw(arrays.arrays(np.float32, draw(st.integers(0, 5)), elements=single))
    values = levels = norms = None
    if draw(st.booleans()):
        values = draw(arrays.arrays(np.float32, kept, elements=single))
    else:
        levels = draw(arrays.arrays(np.int8, kept, elements=st.integers(-s, s)))
        count = len(bucket_starts(kept, bucket, starts, mask)) - 1
        positive = st.floats(0, np.finfo(np.float32).max, width=32)
        norms = draw(arrays.arrays(np.float32, count, elements=positive))
    head = draw(st.integers(0, 2**32 - 1)), draw(st.integers(0, 2**32 - 1))
    return Update(*head, size, mask, values, levels, norms, s, bucket, buffers), starts


@settings(max_examples=300, deadline=None)
@given(updates())
def test_any_update_comes_back_bit_for_bit(case):
    update, starts = case
    data = encode(update)
    found = decode(data, expected(update, starts))
    assert same_update(found, update)
    assert encode(found) == data


def test_what_is_read_is_the_reader_s_own():
    data = bytearray(encode(some("raw")))
    found = decode(bytes(data), expected(some("raw")))
    assert found.values.flags.writeable
    assert found.buffers.flags.writeable


def test_the_size_of_a_message_by_hand():
    """A header of 47 bytes and a checksum of 4 around the mask, the entries, the norms and the buffers."""
    assert HEAD.size == 47
    mask = np.arange(SIZE) < 10
    raw = update_of(np.ones(10), mask, "raw")
    assert len(encode(raw)) == 47 + 3 + 4 * 10 + 4 * 2 + 4
    quantised = update_of(np.ones(10), mask, "qsgd", s=3, bucket=7)  # 7 levels: 3 planes of 2 bytes; 2 norms
    assert len(encode(quantised)) == 47 + 3 + 3 * 2 + 4 * 2 + 4 * 2 + 4
    dense = update_of(np.ones(SIZE), None, "raw", buffers=0)
    assert len(encode(dense)) == 47 + 4 * SIZE + 4


# damage


@every_kind
@every_mask
def test_a_message_cut_off_anywhere_is_refused(kind, masked):
    update = some(kind, masked)
    data = encode(update)
    for length in range(len(data)):
        refused(data[:length], expected(update))


@every_kind
@every_mask
def test_a_message_with_any_byte_changed_is_refused(kind, masked):
    update = some(kind, masked)
    data = encode(update)
    for at in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            refused(data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :], expected(update))


@every_kind
@pytest.mark.parametrize("extra", [b"\0", b"junk", bytes(1000)])
def test_trailing_bytes_are_refused(kind, extra):
    update = some(kind)
    data = encode(update)
    refused(data + extra, expected(update), "bytes, its header says")
    refused(sealed(data[:-4] + extra), expected(update), "bytes, its header says")


@pytest.mark.parametrize("change", ["round", "vehicle", "size", "buffers"])
def test_an_upload_that_is_not_the_expected_one_is_refused(change):
    update = some()
    awaited = expected(update)
    refused(encode(update), replace(awaited, **{change: getattr(awaited, change) + 1}), f"{change} is ")


@pytest.mark.parametrize(
    "changes",
    [
        {"magic": b"SKYX"},
        {"version": 0},
        {"version": 2},
        {"scheme": 4},
        {"scheme": 255},
        {"s": 0},
        {"s": 128},
        {"s": 255},
        {"bucket": -2},
        {"bucket": -(2**31)},
        {"kept": SIZE + 1},
        {"kept": 0},
        {"kept": 2**64 - 1},
        {"norms": 0},
        {"norms": 2},
        {"norms": 2**32 - 1},
        {"size": 0},
        {"size": 2**64 - 1},
        {"buffers": 2**64 - 1},
        {"scheme": 0},
        {"scheme": 1},
        {"scheme": 2},
        {"s": 1},
        {"s": 127},
        {"bucket": 1},
        {"bucket": -1},
    ],
)
def test_a_header_that_does_not_fit_is_refused_even_with_a_checksum_that_does(changes):
    update = some()
    refused(with_header(encode(update), **changes), expected(update))


def test_sizes_are_checked_before_anything_is_allocated():
    update = some()
    awaited = replace(expected(update), size=2**40)
    data = with_header(encode(update), size=2**40, kept=2**40)
    refused(data, awaited, "bytes, its header says")


def test_padding_of_the_mask_must_be_zero():
    update = some()
    data = encode(update)
    at = HEAD.size + 2  # 19 bits: the third byte has five to spare
    refused(with_bytes(data, at, bytes([data[at] | 1])), expected(update), "padding of the mask")


def test_padding_of_the_levels_must_be_zero():
    update = some("qsgd", masked=False)
    data = encode(update)
    for plane in range(3):
        at = HEAD.size + 3 * plane + 2
        refused(with_bytes(data, at, bytes([data[at] | 1])), expected(update), "padding of the levels")


def test_a_mask_that_keeps_another_number_is_refused():
    update = some("raw")
    data = encode(update)
    refused(with_bytes(data, HEAD.size, bytes([data[HEAD.size] ^ 0x80])), expected(update), "mask keeps")


@pytest.mark.parametrize("s", [1, 2, 3, 5, 100])
def test_a_level_beyond_s_is_refused(s):
    update = some("qsgd", masked=False, s=s)
    data = encode(update)
    planes = (2 * s).bit_length()
    for plane in range(planes):  # the first entry gets the highest number its bits can hold
        at = HEAD.size + 3 * plane
        data = with_bytes(data, at, bytes([data[at] | 0x80]))
    if 2**planes - 1 == 2 * s:
        assert decode(data, expected(update)).levels[0] == s
    else:
        refused(data, expected(update), f"a level is above {s}")


NOT_FINITE = [float("nan"), float("inf"), -float("inf")]


@pytest.mark.parametrize("value", [*NOT_FINITE, -1.0, -1e-45])
@pytest.mark.parametrize("bucket", [0, -1, 7])
def test_norms_that_cannot_be_are_refused(value, bucket):
    update = some("qsgd", bucket=bucket)
    data = encode(update)
    for k in range(len(update.norms)):
        at = len(data) - 4 - 4 * len(update.buffers) - 4 * (k + 1)
        refused(with_bytes(data, at, struct.pack("<f", value)), expected(update), "a norm is negative or not finite")


@pytest.mark.parametrize("value", NOT_FINITE)
def test_values_and_buffers_that_are_not_finite_are_refused(value):
    update = some("raw")
    data = encode(update)
    packed = struct.pack("<f", value)
    refused(with_bytes(data, HEAD.size + 3, packed), expected(update), "a value is not finite")
    refused(with_bytes(data, len(data) - 8, packed), expected(update), "a buffer is not finite")


def test_norms_in_a_raw_upload_are_refused():
    update = some("raw", buffers=1)
    data = encode(update)
    with_norm = with_header(sealed(data[:-4] + struct.pack("<f", 1.0)), norms=1)
    refused(with_norm, expected(update), "norms in a raw upload")


def test_random_bytes_raise_decode_error_and_nothing_else():
    rng = np.random.default_rng(0)
    update = some()
    data, awaited = encode(update), expected(update)
    for trial in range(20_000):
        if trial % 2:
            junk = rng.bytes(int(rng.integers(0, 120)))
        else:  # a real message with a stretch overwritten, a fitting checksum, so that all checks are reached
            at, length = int(rng.integers(0, len(data) - 4)), int(rng.integers(1, 9))
            junk = sealed((data[:at] + rng.bytes(length) + data[at + length :])[: len(data) - 4])
        try:
            found = decode(junk, awaited)
        except DecodeError:
            continue
        assert encode(found) == junk
        assert found.size == SIZE
        assert np.abs(found.levels if found.quantised else [0]).max() <= found.s


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=80), st.integers(0, 3), st.integers(0, 2**32 - 1), st.integers(0, 30), st.integers(-1, 9))
def test_any_body_behind_a_fitting_header_is_read_or_refused(body, scheme, norms, kept, bucket):
    head = HEAD.pack(b"SKYF", 1, scheme, 3, bucket, 7, 3, SIZE, kept, norms % 9, 2)
    awaited = Expected(7, 3, SIZE, TENSORS, 2)
    data = sealed(head + body)
    try:
        found = decode(data, awaited)
    except DecodeError:
        return
    assert encode(found) == data


# the paper's bits


@pytest.mark.parametrize("size", [1000, 11_181_642])
def test_paper_bits_by_hand(size):
    assert paper_bits(size, 0.0, 3, raw=True) == 34 * size  # AFL
    assert paper_bits(size, 0.0, 3, raw=False) == 4 * size + 32  # AFL-Quant: sign, 2 bits of level, mask; one norm
    assert paper_bits(size, 0.4, 3, raw=True) == pytest.approx(33 * 0.6 * size + size)  # AFL-Prune
    assert paper_bits(size, 0.4, 3, raw=False) == pytest.approx(3 * 0.6 * size + 32 + size)  # 2CEOAFL


@pytest.mark.parametrize(("s", "level_bits"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (7, 3), (8, 3), (9, 4)])
def test_paper_bits_of_a_level(s, level_bits):
    assert paper_bits(100, 0.0, s, raw=False) == 100 * (1 + level_bits) + 32 + 100


def test_corrected_bits_by_hand():
    assert corrected_bits(100, 60, 3, raw=True, norms=0, masked=True) == 32 * 60 + 100
    assert corrected_bits(100, 100, 3, raw=True, norms=0, masked=False) == 3200
    assert corrected_bits(100, 60, 3, raw=False, norms=2, masked=True) == 60 * 3 + 64 + 100
    assert corrected_bits(100, 60, 4, raw=False, norms=1, masked=False) == 60 * 4 + 32  # five levels: 3 bits
