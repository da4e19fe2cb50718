"""Every part of an upload that could be written otherwise, or by nobody, is refused."""

import struct
from dataclasses import replace

import numpy as np
import pytest
import zstandard
from pcodec import ChunkConfig, DeltaSpec, ModeSpec, standalone

from skyfed.types import Quantised, Raw, Update
from skyfed.wire import Reference, decode, encode, entries, read_header
from skyfed.wire.entropy import pack_numbers, pack_symbols
from skyfed.wire.reader import Reader, number
from wire_cases import (
    BODY,
    BUFFERS,
    CHUNK,
    CODERS,
    INF,
    LARGE,
    MASK,
    NAN,
    NORMS,
    PACKING,
    bits,
    every_scheme,
    expected,
    forced,
    model,
    packed,
    plain_upload,
    range_upload,
    refused,
    split,
    tampered,
    there_and_back,
    upload,
    uploads,
    with_mask,
)

# masks


@pytest.mark.parametrize("mask", ["bitmap", "places", "guess", "channels"])
@pytest.mark.parametrize("off", [-1, 1])
def test_a_mask_that_keeps_another_number_is_refused(mask, off):
    reference = model(130)
    data = encode(forced(upload(reference, "raw", mask), mask), reference)
    kept = read_header(data).kept
    message = "" if mask == "places" else f"the mask keeps {kept}, the header says {kept + off}"
    refused(tampered(data, kept=kept + off), reference, message)


def test_a_bit_more_or_less_in_a_mask_is_refused():
    data, reference = plain_upload()
    content = split(data)[1][MASK]
    refused(tampered(data, {MASK: bytes([content[0] ^ 0x80]) + content[1:]}), reference, "the mask keeps")


def test_no_mask_where_not_all_is_kept_is_refused():
    data, reference = plain_upload()
    kept = read_header(data).kept
    refused(tampered(data, {MASK: b""}, mask_form=0), reference, f"no mask, but {kept} of 20 entries kept")
    refused(tampered(plain_upload(mask="dense")[0], {MASK: b"\0"}), reference, "1 bytes too many")


def test_padding_of_masks_and_channels_must_be_zero():
    for mask, size in (("bitmap", 20), ("channels", 20)):
        data, reference = plain_upload(mask=mask, size=size)
        content = split(data)[1][MASK]
        for bit in range(4):
            wrong = content[:-1] + bytes([content[-1] | 1 << bit])
            refused(tampered(data, {MASK: wrong}), reference, "padding is not zero")


def test_a_place_beyond_the_end_is_refused():
    reference = model(1000)
    data = encode(forced(upload(reference, "raw", "places"), "places"), reference)
    kept = read_header(data).kept
    fewer = min(kept, 1000 - kept)
    gaps = np.zeros(fewer, np.uint32)
    for last in (1001 - fewer, 2**32 - 1):
        gaps[-1] = last
        refused(tampered(data, {MASK: pack_numbers(gaps)}), reference, "1000 are possible")
    refused(tampered(data, {MASK: pack_numbers(np.full(fewer, 2**32 - 1, np.uint32))}), reference, "1000 are possible")


@pytest.mark.parametrize("threshold", [NAN, -1.0, -0.0, -1e-45, INF, -INF])
def test_thresholds_that_cannot_be_are_refused(threshold):
    data, reference = range_upload(mask="guess")
    content = split(data)[1][MASK]
    wrong = struct.pack("<f", threshold) + content[4:]
    refused(tampered(data, {MASK: wrong}), reference, "the mask's threshold is negative or not finite")


def test_more_differences_from_a_guess_than_a_few_are_refused():
    data, reference = range_upload(mask="guess")
    content = split(data)[1][MASK]
    refused(tampered(data, {MASK: content[:4] + number(65)}), reference, "a number is 65, at most 64 is possible")
    refused(tampered(data, {MASK: content[:3]}), reference, "truncated")
    reference = model(1000)
    data = encode(forced(upload(reference, "raw", "guess"), "guess"), reference)
    wrong = split(data)[1][MASK][:4] + number(126)
    refused(tampered(data, {MASK: wrong}), reference, "a number is 126, at most 125 is possible")


def test_a_sender_does_not_send_a_threshold_that_would_be_refused():
    reference = model(LARGE)
    for threshold in (-0.0, INF):
        update = with_mask(reference, reference.guess(threshold), threshold)
        assert there_and_back(update, reference).forms[MASK] != uploads.MASKS["guess"]
    update = with_mask(model(65), np.arange(65) > 3, -0.0)
    found = there_and_back(forced(update, "guess"), model(65))
    assert bits(found.threshold) == bits(0.0)


# numbers and range-coded parts


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x80\x00", "a number is 0"),
        (b"\x81\x00", "a number is 1"),
        (b"\x81\x80\x00", "a number is 1"),
        (b"\xc1\x00", "a number is 65"),
        (b"\x42", "a number is 66, at most 65 is possible"),
        (b"\xff\xff\xff\xff\x0f", "at most 65 is possible"),
        (b"\xff" * 9 + b"\x7f", "at most 65 is possible"),
        (b"\x80" * 20, "a number is too long"),
        (b"\x80", "truncated"),
        (b"", "truncated"),
    ],
)
def test_numbers_in_other_than_their_shortest_form_are_refused(content, message):
    data, reference = range_upload(mask="dense")
    refused(tampered(data, {BODY: content}), reference, message)


def ones(count: int) -> tuple[bytes, Reference, bytes, int]:
    """65 levels of which so many are 1 or -1, range-coded: message, model, content, and where the symbols begin.

    Up to 64 of them go as their places, all gaps being 0, and two symbols; 65 go as three symbols, of which one is
    not there. A table of counts and the words of the coder follow.
    """
    reference = model(65)
    levels = np.where(np.arange(65) % 3 > 0, 1, -1).astype(np.int8)
    levels[count:] = 0
    body = Quantised("qsgd", levels, np.ones(1, np.float32), 1, 0)
    data = encode(Update(7, 3, 65, None, body, reference.buffers, forms=(0, 1, 0, 0)), reference)
    content = split(data)[1][BODY]
    known = bytes([65]) if count == 65 else bytes([count, 1, count])
    assert content.startswith(known + TABLES[count])
    assert content[len(known) + len(TABLES[count])] == (len(content) - len(known) - len(TABLES[count]) - 1) // 4
    return data, reference, content, len(known)


TABLES = {65: bytes([3, 22, 0, 43]), 63: bytes([2, 21, 42])}
every_count = pytest.mark.parametrize("count", TABLES)
WRONG = {
    65: [[3, 21, 0, 43], [3, 22, 1, 43], [3, 0, 0, 0], [3, 65, 0, 65], [0], [1, 64], [2, 65, 0], [3, 22, 43, 0]],
    63: [[2, 20, 42], [2, 21, 43], [2, 0, 0], [2, 63, 63], [0], [1, 62], [2, 63, 0], [2, 62, 0]],
}


def with_table(count: int, table: list[int]) -> tuple[bytes, Reference]:
    data, reference, content, at = ones(count)
    return tampered(data, {BODY: content[:at] + bytes(table) + content[at + len(TABLES[count]) :]}), reference


@pytest.mark.parametrize(("count", "table"), [(count, table) for count in TABLES for table in WRONG[count]])
def test_counts_that_do_not_add_up_are_refused(count, table):
    refused(*with_table(count, table), f"counts do not add up to {count} symbols")


def test_other_counts_that_add_up_are_refused():
    for count, table in ((65, [3, 23, 0, 42]), (65, [3, 22, 1, 42]), (63, [2, 22, 41])):
        refused(*with_table(count, table), "a range-coded part is damaged")
    refused(*with_table(65, [2, 22, 43]), "not the 65 levels that were said not to be 0")  # -1 and 0, not -1 and 1


@every_count
def test_range_coded_levels_above_s_are_refused(count):
    data, reference, content, at = ones(count)
    most = TABLES[count][0]
    wrong = content[:at] + bytes([most + 1, *TABLES[count][1:], 1]) + content[at + len(TABLES[count]) :]
    refused(tampered(data, {BODY: wrong}), reference, f"a number is {most + 1}, at most {most} is possible")


@pytest.mark.parametrize("levels", [[0] * 65, [0] + [1] * 64, [1] * 130, [1] * 66 + [0] * 64, [1] * 67 + [0] * 63])
def test_another_number_of_levels_than_was_said_is_refused(levels):
    size = len(levels)
    reference = model(size)
    body = Quantised("qsgd", np.array(levels, np.int8), np.ones(1, np.float32), 1, 0)
    data = encode(Update(7, 3, size, None, body, reference.buffers, forms=(0, 1, 0, 0), length=INF), reference)
    symbols = pack_symbols(np.array(levels, np.uint8) + 1)
    for said in range(65, min(size, 70) + 1):
        wrong = tampered(data, {BODY: number(said) + symbols})
        if said == sum(levels):
            assert wrong == data
        else:
            refused(wrong, reference, f"not the {said} levels that were said not to be 0")
    if sum(levels) <= 64:  # which have to go as places
        refused(tampered(data, {BODY: number(sum(levels)) + symbols}), reference, "")


@every_count
def test_damaged_words_are_refused(count):
    data, reference, content, at = ones(count)
    for place in range(at + len(TABLES[count]) + 1, len(content)):
        for flip in (1, 0x10, 0x80):
            wrong = content[:place] + bytes([content[place] ^ flip]) + content[place + 1 :]
            refused(tampered(data, {BODY: wrong}), reference, "a range-coded part is damaged")


@every_count
def test_words_that_are_missing_or_too_many_are_refused(count):
    data, reference, content, at = ones(count)
    at += len(TABLES[count])
    before, words, after = content[:at], content[at], content[at + 1 :]
    refused(tampered(data, {BODY: before + b"\0"}), reference, "a range-coded part is damaged")
    refused(
        tampered(data, {BODY: before + bytes([words - 1]) + after[:-4]}), reference, "a range-coded part is damaged"
    )
    for extra in (b"\0\0\0\0", b"\1\0\0\0"):
        wrong = before + bytes([words + 1]) + after + extra
        refused(tampered(data, {BODY: wrong}), reference, "a range-coded part is damaged")
    wrong = before + bytes([count + 3]) + bytes(4 * (count + 3))
    refused(tampered(data, {BODY: wrong}), reference, f"at most {count + 2} is possible")
    refused(tampered(data, {BODY: before + bytes([words]) + after[:-1]}), reference, "truncated")


def test_padding_of_low_bits_must_be_zero():
    """One gap of 20 has a low bit of its own, in a byte of which seven bits are to spare."""
    reference = model(65)
    body = Quantised("qsgd", (np.arange(65) == 20).astype(np.int8), np.ones(1, np.float32), 1, 0)
    data = encode(Update(7, 3, 65, None, body, reference.buffers, forms=(0, 1, 0, 0)), reference)
    content = split(data)[1][BODY]
    low = 1 + len(pack_symbols(np.array([18], np.uint8)))
    assert content[low] == 0
    for bit in range(7):
        wrong = content[:low] + bytes([1 << bit]) + content[low + 1 :]
        refused(tampered(data, {BODY: wrong}), reference, "padding is not zero")
    found = decode(tampered(data, {BODY: content[:low] + b"\x80" + content[low + 1 :]}), expected(reference))
    assert np.flatnonzero(found.body.levels).tolist() == [21]


# levels


@pytest.mark.parametrize("s", [1, 2, 3, 5, 100, 127])
@pytest.mark.parametrize("form", ["plain", "zstd"])
def test_a_level_beyond_s_is_refused(s, form):
    reference = model(20)
    body = Quantised("qsgd", np.zeros(20, np.int8), np.ones(1, np.float32), s, 0)
    data = encode(Update(7, 3, 20, None, body, reference.buffers, forms=(0, 0, 0, 0)), reference)
    planes = bytearray(split(data)[1][BODY])
    assert len(planes) == 3 * (2 * s).bit_length()
    for plane in range(0, len(planes), 3):  # the first entry gets the highest number its bits can hold
        planes[plane] |= 0x80
    new = bytes(planes) if form == "plain" else zstandard.ZstdCompressor(level=3).compress(bytes(planes))
    data = tampered(data, {BODY: new}, body_form=CODERS[form], length=INF)
    if 2 ** (2 * s).bit_length() - 1 == 2 * s:
        assert decode(data, expected(reference)).body.levels[0] == s
    else:
        refused(data, reference, f"a level is above {s}")


def test_padding_of_levels_must_be_zero():
    data, reference = plain_upload(mask="dense")
    content = split(data)[1][BODY]
    for plane in range(3):
        for bit in range(4):
            wrong = bytearray(content)
            wrong[3 * plane + 2] |= 1 << bit
            refused(tampered(data, {BODY: bytes(wrong)}), reference, "padding is not zero")


def test_bit_planes_that_are_too_short_or_too_long_are_refused():
    data, reference = plain_upload()
    content = split(data)[1][BODY]
    refused(tampered(data, {BODY: content[:-1]}), reference, "truncated")
    refused(tampered(data, {BODY: content + b"\0"}), reference, "1 bytes too many")


def zstd_upload() -> tuple[bytes, Reference, bytes]:
    reference = model(65)
    data = encode(forced(upload(reference, "qsgd", "dense", "zstd"), "dense", 2, 0, 0), reference)
    plain = zstandard.ZstdDecompressor().decompress(split(data)[1][BODY])
    return data, reference, plain


def test_a_zstd_frame_that_says_to_be_huge_is_refused_unopened():
    data, reference, _ = zstd_upload()
    bomb = zstandard.ZstdCompressor().compress(bytes(10**7))
    assert len(bomb) < 1000
    refused(tampered(data, {BODY: bomb}), reference, "levels unpack to 10000000 bytes, 27 expected")
    lie = b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 2**62) + b"\x01\x00\x00"
    assert zstandard.get_frame_parameters(lie).content_size == 2**62
    refused(tampered(data, {BODY: lie}), reference, f"levels unpack to {2**62} bytes, 27 expected")


def test_a_zstd_frame_that_does_not_say_its_size_is_refused():
    data, reference, plain = zstd_upload()
    for content in (plain, bytes(10**7)):
        frame = zstandard.ZstdCompressor(level=3, write_content_size=False).compress(content)
        refused(tampered(data, {BODY: frame}), reference, "27 expected")


def test_a_zstd_frame_that_lies_about_its_size_is_refused():
    data, reference, _ = zstd_upload()
    for inside in (bytes(26), bytes(28), bytes(10**7)):
        frame = bytearray(zstandard.ZstdCompressor(level=3).compress(inside))
        said = zstandard.get_frame_parameters(bytes(frame))
        body = bytes(frame[zstandard.frame_header_size(bytes(frame)) :])
        assert said.content_size == len(inside)
        refused(tampered(data, {BODY: b"\x28\xb5\x2f\xfd\x20\x1b" + body}), reference, "damaged")


def test_levels_packed_by_zstd_in_another_way_are_refused():
    reference = model(1000)
    data = encode(forced(upload(reference, "qsgd all", "dense", "zstd"), "dense", 2, 0, 0), reference)
    ours = split(data)[1][BODY]
    plain = zstandard.ZstdDecompressor().decompress(ours)
    stored = b"\x28\xb5\x2f\xfd\x20" + bytes([len(plain)]) + struct.pack("<I", len(plain) << 3 | 1)[:3] + plain
    others = [zstandard.ZstdCompressor(level=3, write_checksum=True).compress(plain), stored]
    others += [zstandard.ZstdCompressor(level=level).compress(plain) for level in (-100, 19)]
    for frame in others:
        assert zstandard.ZstdDecompressor().decompress(frame) == plain
        if frame != ours:
            refused(tampered(data, {BODY: frame}), reference, "levels are not as this version of zstd packs them")
    assert sum(frame != ours for frame in others) >= 3


def test_whatever_follows_a_zstd_frame_is_refused():
    data, reference, _ = zstd_upload()
    frame = split(data)[1][BODY]
    for extra in (b"\0", frame, b"\x50\x2a\x4d\x18\0\0\0\0"):
        refused(tampered(data, {BODY: frame + extra}), reference, "levels are not as this version of zstd packs them")


def test_levels_that_are_not_zstd_are_refused():
    data, reference, _ = zstd_upload()
    for content in (b"", b"\0", b"\x28\xb5\x2f\xfd", bytes(27), split(data)[1][BODY][:-1]):
        refused(tampered(data, {BODY: content}), reference, "zstd-packed levels are damaged")


# norms


@pytest.mark.parametrize("upper", [0x7F80, 0x7F81, 0x7FC0, 0x7FFF, 0x8000, 0xBF80, 0xFF80, 0xFFC0, 0xFFFF])
@pytest.mark.parametrize("form", [0, 1])
def test_norms_that_cannot_be_are_refused(upper, form):
    """Infinity, NaNs, negative numbers, -0: as bfloat16, plain and as differences."""
    reference = model(20)
    for at in range(3):
        norms = np.full(3, 0x3F80, np.uint32)
        norms[at] = upper
        body = Quantised("qsgd", np.zeros(20, np.int8), (norms << 16).view(np.float32), 3, 8)
        with np.errstate(invalid="ignore"):
            data = encode(Update(7, 3, 20, None, body, reference.buffers, forms=(0, 0, form, 0), length=1.0), reference)
        refused(data, reference, "a norm is negative or not finite")


def test_the_number_of_norms_must_be_that_of_the_buckets():
    data, reference = plain_upload(mask="dense")
    content = split(data)[1][NORMS]
    assert len(content) == 2 * -(-20 // 9)
    refused(tampered(data, {NORMS: content[:-2]}), reference, "bytes of norms")
    refused(tampered(data, {NORMS: content + content[:2]}), reference, "bytes of norms")
    refused(tampered(data, {NORMS: content[:-1]}), reference, "bytes of norms")
    for bucket in (0, 100):
        refused(tampered(data, bucket=bucket), reference, "6 bytes of norms, 2 expected")


@pytest.mark.parametrize("form", [None, 0, 1])
def test_norms_that_are_not_bfloat16_are_not_sent(form):
    reference = model(20)
    for norm in (0.1, 1 + 2.0**-8, 1e-45):
        norms = np.array([1.0, norm, 0.5], np.float32)
        body = Quantised("qsgd", np.zeros(20, np.int8), norms, 3, 8)
        with pytest.raises(ValueError, match="norms must be bfloat16 numbers"):
            encode(Update(7, 3, 20, None, body, reference.buffers, forms=(0, 0, form, 0)), reference)
    fine = np.array([1 + 2.0**-7, 2.0**-133, 0.0], np.float32)
    body = Quantised("qsgd", np.ones(20, np.int8), fine, 3, 8)
    there_and_back(Update(7, 3, 20, None, body, reference.buffers, forms=(0, 0, form, 0)), reference)


def test_a_step_between_norms_beyond_16_bits_is_refused():
    data, reference = range_upload(mask="dense")
    count = -(-65 // 9)
    for step in (0x10000, 2**32 - 1):
        steps = np.zeros(count, np.uint32)
        steps[-1] = step
        refused(tampered(data, {NORMS: pack_numbers(steps)}), reference, "a norm is out of range")


@every_scheme
def test_huge_norms_are_refused_unless_the_header_allows_them(scheme):
    reference = model(65)
    update = upload(reference, scheme)
    norms = np.full(len(update.body.norms), 2.0**100, np.float32)
    data = encode(replace(update, body=replace(update.body, norms=norms)), reference)
    assert read_header(data).length > 1e28
    decode(data, expected(reference))
    refused(data, reference, "is accepted", longest=1e6)
    refused(tampered(data, length=1e6), reference, "d is longer than the 1e+06 its header allows", longest=1e6)


@pytest.mark.parametrize("scheme", ["dither", "dither linf", "eden 1", "eden 2", "eden 4"])
def test_norms_for_which_an_entry_would_not_be_finite_are_refused(scheme):
    reference = model(65)
    update = upload(reference, scheme)
    levels = np.random.default_rng(0).choice([-1, 1], len(update.body.levels)).astype(np.int8) * update.body.s
    most = np.full(len(update.body.norms), 0x7F7F0000, np.uint32).view(np.float32)
    update = replace(update, length=INF, body=replace(update.body, levels=levels, norms=most))
    refused(encode(update, reference), reference, "finite")


def test_the_largest_norm_is_fine_for_qsgd():
    reference = model(65)
    most = np.full(1, 0x7F7F0000, np.uint32).view(np.float32)
    body = Quantised("qsgd", np.full(65, -127, np.int8), most, 127, 0)
    found = there_and_back(Update(7, 3, 65, None, body, reference.buffers), reference)
    assert found.length == INF
    assert np.isfinite(entries(found, reference)).all()


# floats


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_values_and_buffers_that_are_not_finite_are_refused(value):
    reference = model(20)
    wrong = np.ones(20, np.float32)
    wrong[7] = value
    data = encode(forced(upload(reference, "raw"), "dense", None, None, 0), reference)
    refused(tampered(data, {BODY: wrong.tobytes()}), reference, "a value is not finite")
    refused(tampered(data, {BUFFERS: wrong[5:8].tobytes()}), reference, "a buffer is not finite")
    steps = packed(_places(wrong) - _places(reference.weights))
    refused(tampered(encode(upload(reference, "exact"), reference), {BODY: steps}), reference, "a value is not finite")
    steps = packed(_places(wrong[5:8]) - _places(reference.buffers))
    refused(tampered(data, {BUFFERS: steps}, buffers_form=1), reference, "a buffer is not finite")


def _places(values: np.ndarray) -> np.ndarray:
    found = values.view(np.int32)
    return np.where(found < 0, np.int32(-1) - (found & np.int32(0x7FFFFFFF)), found)


def chunk(content: bytes) -> bytes:
    """What pcodec wrote of a single chunk."""
    reader = Reader(content)
    found = bytes(reader.take(reader.number(2**20)))
    reader.end()
    return found


def test_trained_weights_whose_d_overflows_are_refused():
    reference = Reference(np.full(9, -3e38, np.float32), np.empty(0, np.float32), np.array([0, 9]))
    trained = np.full(9, 3e38, np.float32)
    update = Update(7, 3, 9, None, Raw(np.ones(9, np.float32), trained, 1.0), reference.buffers)
    refused(encode(update, reference), reference, "a value is not finite", rate=1.0)


def test_floats_of_another_length_are_refused():
    reference = model(20)
    data = encode(forced(upload(reference, "raw"), "dense", None, None, 0), reference)
    content = split(data)[1]
    for section in (BODY, BUFFERS):
        for wrong in (b"", content[section][:-1], content[section][:-4], content[section] + bytes(4)):
            refused(tampered(data, {section: wrong}), reference, "bytes of floats")


LOOK = DeltaSpec.try_lookback()


def exact_upload(size: int = 65) -> tuple[bytes, Reference, np.ndarray]:
    reference = model(size)
    data = encode(upload(reference, "exact"), reference)
    return data, reference, standalone.simple_decompress(chunk(split(data)[1][BODY]))


@pytest.mark.parametrize("count", [1, 64, 66, 1000, 10**6])
def test_packed_floats_of_another_number_are_refused(count):
    data, reference, _ = exact_upload()
    wrong = packed(np.zeros(count, np.int32))
    assert len(wrong) < 100
    refused(tampered(data, {BODY: wrong}), reference, "packed floats, 65 expected")


def test_packed_floats_that_lie_about_their_number_are_refused():
    """The number stands three bytes after the type: 24 bits, less one."""
    data, reference, steps = exact_upload()
    wrong = bytearray(standalone.simple_compress(steps, PACKING))
    at = wrong.index(bytes([64, 0, 0]), 5)
    for count in (0, 63, 65, 10**6, 2**24 - 1):
        wrong[at : at + 3] = count.to_bytes(3, "little")
        refused(tampered(data, {BODY: number(len(wrong)) + wrong}), reference, "packed floats")


def test_floats_packed_in_another_way_are_refused():
    data, reference, steps = exact_upload()
    ours = split(data)[1][BODY]
    none, classic = DeltaSpec.no_op(), ModeSpec.classic()
    configs = [ChunkConfig(compression_level=level, delta_spec=none, mode_spec=classic) for level in (0, 1, 12)]
    configs += [ChunkConfig(6, delta_spec=delta, mode_spec=classic) for delta in (DeltaSpec.try_consecutive(1), LOOK)]
    configs += [ChunkConfig(6, delta_spec=none, mode_spec=ModeSpec.try_int_mult(7))]
    others = {packed(steps, config) for config in configs} - {ours}
    assert len(others) >= 4
    content = chunk(ours)
    for wrong in (*others, number(len(content) + 1) + content + b"\0"):
        refused(tampered(data, {BODY: wrong}), reference, "packed floats are not as this version of pcodec packs them")


def test_floats_packed_with_a_huge_window_are_refused():
    """Mode and kind of delta are four bits each, then come five for the window: far more than pcodec itself uses."""
    data, reference, steps = exact_upload(1000)
    config = ChunkConfig(mode_spec=ModeSpec.classic(), delta_spec=LOOK)
    wrong = bytearray(standalone.simple_compress(np.resize(steps[:50], 1000), config))
    at = wrong.index(b"\x03" + (999).to_bytes(3, "little"), 6) + 4
    assert wrong[at] == 0x20
    for log in (16, 24, 25, 32):
        wrong[at + 1] = wrong[at + 1] & 0xE0 | log - 1
        refused(tampered(data, {BODY: number(len(wrong)) + wrong}), reference, "packed floats are")


def test_packed_floats_of_another_type_are_refused():
    data, reference, steps = exact_upload()
    for kind in (np.float32, np.uint32, np.int64):
        refused(tampered(data, {BODY: packed(steps.astype(kind))}), reference, "packed floats")


def test_packed_floats_that_are_none_are_refused():
    data, reference, _ = exact_upload()
    content = chunk(split(data)[1][BODY])
    for wrong in (b"", b"\0", b"pco!", bytes(100), content[:-1], content[:20], content[1:]):
        refused(tampered(data, {BODY: number(len(wrong)) + wrong}), reference, "packed floats")


def test_the_length_of_a_chunk_must_be_that_of_its_bytes():
    data, reference, steps = exact_upload()
    content = chunk(split(data)[1][BODY])
    length = len(content)
    assert length > 127
    refused(tampered(data, {BODY: b""}), reference, "truncated")
    refused(tampered(data, {BODY: number(length + 1) + content}), reference, f"truncated: {length + 1} bytes wanted")
    refused(tampered(data, {BODY: number(length - 1) + content}), reference, "packed floats")
    refused(tampered(data, {BODY: number(0) + content}), reference, "packed floats")
    refused(tampered(data, {BODY: number(length) + content + b"\0"}), reference, "1 bytes too many")
    long = bytes([length & 127 | 128, length >> 7 | 128, 0])
    refused(tampered(data, {BODY: long + content}), reference, f"a number is {length}, at most")
    refused(
        tampered(data, {BODY: number(2**40) + content}), reference, f"a number is {2**40}, at most 4616 is possible"
    )
    twice = packed(steps[:30]) + packed(steps[30:])
    refused(tampered(data, {BODY: twice}), reference, "30 packed floats, 65 expected")
    refused(tampered(data, {BODY: number(length) + content + packed(steps[:1])}), reference, "bytes too many")


def test_chunks_of_floats_in_other_numbers_or_lengths_are_refused():
    reference = model(LARGE)
    data = encode(upload(reference, "exact"), reference)
    content = split(data)[1][BODY]
    reader = Reader(content)
    chunks = [bytes(reader.take(reader.number(2**22))) for _ in range(2)]
    reader.end()
    first, second = (number(len(part)) + part for part in chunks)
    assert first + second == content
    steps = np.concatenate([standalone.simple_decompress(part) for part in chunks])
    refused(tampered(data, {BODY: first}), reference, "truncated")
    refused(tampered(data, {BODY: first + second + second}), reference, "bytes too many")
    refused(tampered(data, {BODY: second + first}), reference, f"{LARGE - CHUNK} packed floats, {CHUNK} expected")
    refused(tampered(data, {BODY: packed(steps)}), reference, f"{CHUNK} packed floats, {CHUNK} expected")
    wrong = packed(steps[: CHUNK - 1]) + packed(steps[CHUNK - 1 :])
    refused(tampered(data, {BODY: wrong}), reference, f"{CHUNK - 1} packed floats, {CHUNK} expected")
