"""Uploads as bytes: what goes in comes out, and whatever is not a valid upload raises DecodeError and nothing else."""

import importlib
import json
import struct
import sys
import tracemalloc
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from pcodec import ChunkConfig, DeltaSpec, ModeSpec, standalone

from skyfed.records import Quantised, Raw, Update
from skyfed.wire import (
    Common,
    DecodeError,
    Expected,
    accumulated,
    bucket_starts,
    corrected_bits,
    decode,
    decode_model,
    encode,
    encode_model,
    entries,
    paper_bits,
    read_header,
)
from skyfed.wire.quantise import QUANTISERS
from skyfed.wire.reader import Reader, number
from skyfed.wire.symbols import (
    entropy_bits,
    pack_numbers,
    pack_places,
    pack_symbols,
    places_of,
    unpack_numbers,
    unpack_places,
    unpack_symbols,
)

sys.path.append(str(Path(__file__).parents[1] / "fuzz"))
mutate = importlib.import_module("mutate")
vectors = importlib.import_module("vectors")

MASK, BODY, NORMS, BUFFERS = range(4)
MASKS, BODIES, SCHEMES = list(mutate.MASKS), list(mutate.BODIES), list(mutate.SCHEMES)
CODERS = {"plain": 0, "range": 1, "zstd": 2}
SIZES = [0, 1, 7, 8, 9, 63, 64, 65, 1000]
CHUNK = 2**18  # symbols that share a table, floats packed together
LARGE = 300_000  # more than one chunk
NAN, INF = float("nan"), float("inf")
PACKING = ChunkConfig(compression_level=6, delta_spec=DeltaSpec.no_op(), mode_spec=ModeSpec.classic())

model = cache(mutate.model)
upload, forced, joined, sealed, split = mutate.upload, mutate.forced, mutate.joined, mutate.sealed, mutate.split


def few(size: int) -> int:
    """How many places of masks, of differences from a guess, and of levels in a range-coded part are at most sent."""
    return max(64, size // 8)


def expected(common: Common, **changes: object) -> Expected:
    return replace(Expected(mutate.ROUND, mutate.VEHICLE, common, mutate.RATE), **changes)


def bits(value: object) -> object:
    """What makes two parts of an update the same, bit for bit."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    return struct.pack("<d", value) if isinstance(value, float) else value


def same(found: Raw | Quantised, sent: Raw | Quantised) -> bool:
    def parts(body: Raw | Quantised) -> dict[str, object]:
        known = {name: bits(value) for name, value in vars(body).items()}
        if isinstance(body, Raw):
            known["rate"] = bits(float(np.float32(body.rate)))
        return known

    return type(found) is type(sent) and parts(found) == parts(sent)


def dense(update: Update, common: Common) -> np.ndarray:
    whole = np.zeros(update.size, np.float32)
    whole[slice(None) if update.mask is None else update.mask] = entries(update, common)
    return whole


def there_and_back(update: Update, common: Common) -> Update:
    """Send an upload, check that it is the same one and has one encoding only, and return what was read."""
    data = encode(update, common)
    found = decode(data, expected(common, rate=None))
    assert encode(found, common) == data
    assert (found.round, found.vehicle, found.size, found.coder) == (
        update.round, update.vehicle, update.size, update.coder
    )  # fmt: skip
    assert bits(found.buffers) == bits(update.buffers)
    if found.mask is None and update.mask is not None:  # it was left out
        assert dense(found, common).tobytes() == dense(update, common).tobytes()
        return found
    assert bits(found.mask) == bits(update.mask)
    assert same(found.body, update.body)
    if found.forms[MASK] == mutate.MASKS["guess"]:
        assert found.threshold == np.float32(update.threshold)
    if found.forms[MASK] == mutate.MASKS["channels"]:
        assert bits(found.channels) == bits(update.channels)
    return found


def tampered(data: bytes, new: dict[int, bytes] | None = None, **fields: object) -> bytes:
    """Replace sections and rewrite fields of the header; lengths and checksum are made to fit."""
    head, sections = split(data)
    for section, content in (new or {}).items():
        sections[section] = content
    return joined(head._replace(**fields), sections)


def refused(data: bytes, common: Common, message: str, **changes: object) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(data, expected(common, **changes))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


every_body = pytest.mark.parametrize("body", BODIES)
every_scheme = pytest.mark.parametrize("scheme", SCHEMES)
every_mask = pytest.mark.parametrize("mask", MASKS)
every_coder = pytest.mark.parametrize("coder", CODERS)


# there and back


@every_mask
@pytest.mark.parametrize(("body", "coder"), [("raw", "range"), ("exact", "range"), *product(SCHEMES, CODERS)])
def test_what_was_sent_is_what_is_read_in_every_form(body, coder, mask):
    for size in SIZES:
        common = model(size)
        update = upload(common, body, mask, coder)
        there_and_back(update, common)
        form = None if isinstance(update.body, Raw) else CODERS[coder]
        found = there_and_back(forced(update, mask, form), common)
        assert found.forms[MASK] == mutate.MASKS[mask]
        assert form is None or found.forms[BODY] == form
        assert found.quantised == (body in SCHEMES)


@every_body
@pytest.mark.parametrize("mask", ["dense", "guess"])
def test_messages_longer_than_a_chunk_come_back(body, mask):
    common = model(LARGE)
    there_and_back(upload(common, body, mask), common)


@pytest.mark.parametrize("mask", ["bitmap", "places", "guess", "channels"])
def test_long_masks_come_back_in_every_form_that_is_allowed(mask):
    common = model(LARGE)
    update = upload(common, "qsgd", mask)
    for form in ("bitmap", "places", *([mask] if mask in ("guess", "channels") else [])):
        if form != "places" or mask == "places":
            assert there_and_back(forced(update, form), common).forms[MASK] == mutate.MASKS[form]
        else:
            refused(encode(forced(update, form), common), common, "a bitmap would be shorter than so many places")


ODD = [0.0, -0.0, 1e-45, -1e-45, 1e-39, -1.1754942e-38, 1.1754944e-38, 1e-20, 0.1, -1.0, 3.0, 1e20, -3e38, 3.4028235e38]


@pytest.mark.parametrize("rate", [0.05, 1.0, 1e-3, 7.0, 1e-30, 1e30])
def test_exact_values_come_back_bit_for_bit(rate):
    start, trained = (np.array(side, np.float32) for side in zip(*product(ODD, ODD), strict=True))
    with np.errstate(over="ignore"):
        fine = np.isfinite(accumulated(start, trained, rate))
    start, trained = start[fine], trained[fine]
    assert len(start) > 100
    common = Common(start, np.array(ODD, np.float32), np.array([0, len(start)]))
    values = accumulated(start, trained, rate)
    update = Update(7, 3, len(start), None, Raw(values, trained, rate), np.array(ODD[::-1], np.float32))
    found = there_and_back(update, common)
    assert found.body.values.tobytes() == values.tobytes()
    assert found.body.trained.tobytes() == trained.tobytes()
    decode(encode(update, common), expected(common, rate=rate))


def test_plain_values_come_back_bit_for_bit():
    common = mutate.model(len(ODD))
    values = np.array(ODD, np.float32)
    found = there_and_back(Update(7, 3, len(ODD), None, Raw(values), common.buffers), common)
    assert found.body.values.tobytes() == values.tobytes()
    assert found.body.trained is None


def test_an_exact_upload_of_which_nothing_was_kept_comes_back():
    common, nothing = model(9), np.empty(0, np.float32)
    update = Update(7, 3, 9, np.zeros(9, bool), Raw(nothing, nothing, 0.05), common.buffers)
    data = encode(update, common)
    assert (read_header(data).rate, read_header(data).body_form) == (0, 0)
    found = decode(data, expected(common))
    assert found.kept == len(found.body.values) == 0
    assert encode(found, common) == data


@every_coder
def test_raw_uploads_come_back_whatever_levels_would_be_packed_by(coder):
    common = model(9)
    for body in ("raw", "exact"):
        update = upload(common, body)
        data = encode(replace(update, coder=coder), common)
        assert data == encode(update, common)
        assert same(decode(data, expected(common)).body, update.body)


@every_scheme
def test_uploads_that_keep_nothing_or_everything_come_back(scheme):
    about = mutate.SCHEMES[scheme]
    for size in (1, 7, 64, 65):
        common = model(size)
        for mask in (np.zeros(size, bool), np.ones(size, bool)):
            for body_form, mask_form in product((None, 0, 1, 2), (None, 1, 2)):
                update = replace(upload(common, scheme), mask=mask, body=mutate._body(common, about, mask))
                forms = (mask_form, body_form, None, None)
                found = there_and_back(replace(update, forms=None if forms == (None,) * 4 else forms), common)
                assert found.kept == int(mask.sum())


def test_a_message_may_have_thousands_of_empty_tensors():
    size = 5000
    common = Common(np.ones(size, np.float32), np.empty(0, np.float32), np.arange(size + 1))
    mask = np.arange(size) == 3
    norms = (np.random.default_rng(0).integers(0, 0x7F00, size).astype(np.uint32) << 16).view(np.float32)
    body = Quantised("dither", np.ones(1, np.int8), norms, 3, -1, 1)
    there_and_back(Update(7, 3, size, mask, body, common.buffers), common)


def test_what_is_read_is_the_reader_s_own():
    common = model(65)
    for body in BODIES:
        data = bytearray(encode(upload(common, body, "guess"), common))
        found = decode(data, expected(common))
        before = dense(found, common).tobytes(), found.buffers.tobytes()
        data[:] = bytes(len(data))
        assert (dense(found, common).tobytes(), found.buffers.tobytes()) == before


SINGLE = st.floats(width=32, allow_nan=False, allow_infinity=False)


@st.composite
def updates(draw: st.DrawFn) -> tuple[Update, Common]:
    size = draw(st.integers(0, 80))
    inner = np.sort(draw(arrays.arrays(np.int64, 3, elements=st.integers(0, size))))
    weights, buffers, moved = (
        draw(arrays.arrays(np.float32, count, elements=SINGLE)) for count in (size, *[draw(st.integers(0, 4))] * 2)
    )
    scope = draw(st.none() | arrays.arrays(bool, size))
    common = Common(weights, buffers, np.concatenate([[0], inner, [size]]), scope)
    mask = draw(st.none() | arrays.arrays(bool, size))
    kept = size if mask is None else int(mask.sum())
    threshold = draw(st.just(NAN) | st.floats(0, 2.0**100, width=32))
    mask_form = "dense"
    if mask is not None:
        mask_form = draw(st.sampled_from(allowed(with_mask(common, mask, threshold), common)))
    forms = (mutate.MASKS[mask_form], draw(st.integers(0, 2)), None, draw(st.integers(0, 1)))
    scheme = draw(st.sampled_from(["raw", "exact", "qsgd", "dither", "eden"]))
    body: Raw | Quantised
    if scheme == "raw" or (scheme == "exact" and not kept):
        body = Raw(draw(arrays.arrays(np.float32, kept, elements=SINGLE)))
    elif scheme == "exact":
        near = weights if mask is None else weights[mask]
        trained, rate = draw(arrays.arrays(np.float32, kept, elements=SINGLE)), draw(st.sampled_from([1e-3, 0.1, 1.0]))
        with np.errstate(over="ignore"):
            body = Raw(accumulated(near, trained, rate), trained, rate)
        assume(np.isfinite(body.values).all())
    else:
        s = draw(st.sampled_from([1, 2, 4]) if scheme == "eden" else st.integers(1, 127))
        bucket = draw(st.sampled_from([64, 128, 65536] if scheme == "eden" else [0, -1, 8, 9, 512]))
        starts = bucket_starts(kept, bucket, common.starts, mask)
        found = st.integers(-s, s)
        levels = draw(arrays.arrays(np.int8, QUANTISERS[scheme].count(starts), elements=found))
        if scheme == "eden" and s > 1:
            levels[levels == 0] = s
        upper = draw(arrays.arrays(np.uint32, len(starts) - 1, elements=st.integers(0, 0x7E00)))
        body = Quantised(
            scheme, levels, (upper << 16).view(np.float32), s, bucket,
            0 if scheme == "qsgd" else draw(st.integers(0, 2**64 - 1)),
        )  # fmt: skip
    if isinstance(body, Raw) or (scheme == "dither" and body.s > 31):  # many tables are longer than a body may be
        forms = (forms[0], None, None, forms[3])
    if not len(moved):
        forms = (*forms[:3], 0)
    coder = draw(st.sampled_from(list(CODERS))) if isinstance(body, Quantised) else "range"
    return Update(7, 3, size, mask, body, moved, threshold, None, coder, draw(st.none() | st.just(forms))), common


@settings(max_examples=300, deadline=None)
@given(updates())
def test_any_update_comes_back_bit_for_bit(case):
    there_and_back(*case)


# the header


@every_body
def test_the_header_says_what_is_in_a_message(body):
    common = model(1000)
    update = forced(upload(common, body, "guess"), "guess")
    data = encode(update, common)
    head, found = read_header(data), update.body
    levels = isinstance(found, Quantised)
    assert data[:4] == head.magic == b"SKYF"
    assert head.version == 2
    assert head.scheme == ["raw", "qsgd", "dither", "eden"].index(found.scheme if levels else "raw")
    assert (head.round, head.vehicle, head.size, head.kept) == (7, 3, 1000, update.kept)
    assert head.digest == common.digest
    assert (head.s, head.bucket, head.seed) == ((found.s, found.bucket, found.seed) if levels else (0, 0, 0))
    assert head.rate == (np.float32(mutate.RATE) if body == "exact" else 0)
    assert (head.mask_form, head.coder) == (3, 1)
    assert head == mutate.Header(*mutate.HEAD.unpack_from(data))  # the layout, spelt out there a second time
    assert len(data) == 80 + sum(head.sections) + 8


@every_body
@every_mask
def test_the_header_bounds_the_length_of_d_tightly(body, mask):
    common = model(1000)
    update = upload(common, body, mask)
    length = float(np.sqrt((entries(update, common).astype(np.float64) ** 2).sum()))
    head = read_header(encode(update, common))
    assert length <= head.length * (1 + 1e-6 * body.startswith("qsgd"))  # whose norm is found in another way
    assert head.length <= length * (1 + 1e-6)
    assert decode(encode(update, common), expected(common, longest=head.length)).length == head.length


def test_the_size_of_a_message_by_hand():
    """80 bytes of header and 8 of checksum around the mask, the body, the norms and the buffers."""
    common, mask = model(20), np.arange(20) < 10
    raw = Update(7, 3, 20, mask, Raw(np.ones(10, np.float32)), common.buffers, forms=(1, 0, 0, 0))
    assert len(encode(raw, common)) == 80 + 3 + 4 * 10 + 4 * 3 + 8
    levels = Quantised("qsgd", np.ones(10, np.int8), np.ones(2, np.float32), 3, 9)  # 7 levels: 3 planes of 2 bytes
    plain = Update(7, 3, 20, mask, levels, common.buffers, coder="plain", forms=(1, 0, 0, 0))
    assert len(encode(plain, common)) == 80 + 3 + 3 * 2 + 2 * 2 + 4 * 3 + 8
    for update in (raw, plain):
        there_and_back(update, common)


def test_range_coded_levels_by_hand():
    """Of 80 levels at most 64 go as places and symbols without a 0, more as symbols with one."""
    common = model(80)
    for count in (0, 1, 64, 65, 80):
        levels = np.zeros(80, np.int8)
        levels[:count] = np.resize([3, -1, -3, 1, 2], count)
        body = Quantised("qsgd", levels, np.ones(1, np.float32), 3, 0)
        found = there_and_back(Update(7, 3, 80, None, body, common.buffers, forms=(0, 1, 0, 0)), common)
        content = split(encode(found, common))[1][BODY]
        if count <= 64:
            symbols = np.resize([5, 2, 0, 3, 4], count).astype(np.uint8)
            assert content == number(count) + pack_places(np.arange(count)) + pack_symbols(symbols)
        else:
            assert content == number(count) + pack_symbols((levels + 3).astype(np.uint8))


@pytest.mark.parametrize("count", [1, CHUNK - 1, CHUNK, CHUNK + 1])
def test_packed_floats_by_hand(count):
    """In chunks of 2**18: the length of a chunk, then pcodec's bytes of the steps from one float to the other."""
    start = np.linspace(-1, 1, count).astype(np.float32)
    trained = np.nextafter(start, np.float32(2))
    common = Common(start, np.ones(1, np.float32), np.array([0, count]))
    update = Update(7, 3, count, None, Raw(accumulated(start, trained, 0.5), trained, 0.5), common.buffers)
    found = there_and_back(update, common)
    assert found.body.trained.tobytes() == trained.tobytes()
    steps = [np.ones(min(CHUNK, count - first), np.int32) for first in range(0, count, CHUNK)]
    assert split(encode(update, common))[1][BODY] == b"".join(map(packed, steps))


def test_the_digest_stands_for_weights_and_buffers():
    common = model(20)
    weights, buffers = common.weights.copy(), common.buffers.copy()
    assert Common(weights, buffers, np.array([0, 20])).digest == common.digest
    weights[3] = -weights[3]
    assert Common(weights, common.buffers, common.starts).digest != common.digest
    buffers[0] += 1
    assert Common(common.weights, buffers, common.starts).digest != common.digest


# the shortest form


def mask_bytes(update: Update, common: Common, form: str) -> int:
    return read_header(encode(forced(update, form), common)).mask_bytes


def with_mask(common: Common, mask: np.ndarray, threshold: float = NAN) -> Update:
    return Update(
        7, 3, common.size, mask, Raw(np.zeros(int(mask.sum()), np.float32)), common.buffers, threshold
    )  # fmt: skip


def allowed(update: Update, common: Common) -> list[str]:
    """Forms that a mask may go in, in the order in which the sender prefers them."""
    kept, size = update.kept, update.size
    forms = ["bitmap"] + ["places"] * (min(kept, size - kept) <= few(size))
    if 0 <= update.threshold < INF:
        forms += ["guess"] * (int((common.guess(update.threshold) ^ update.mask).sum()) <= few(size))
    return forms


@pytest.mark.parametrize("share", [0.0, 0.001, 0.02, 0.12, 0.13, 0.3, 0.5, 0.8, 0.88, 0.98, 1.0])
@pytest.mark.parametrize("size", [1, 100, 3000, 50_000])
@pytest.mark.parametrize("flips", [None, 0.0, 0.005, 0.1, 0.2])
def test_the_sender_picks_the_shortest_mask(share, size, flips):
    common, rng = model(size), np.random.default_rng(1)
    mask, threshold = rng.random(size) < share, NAN
    if flips is not None:
        threshold = float(np.quantile(np.abs(common.weights), 1 - share))
        mask = common.guess(threshold) ^ (rng.random(size) < flips)
    update = with_mask(common, mask, threshold)
    lengths = {form: mask_bytes(update, common, form) for form in allowed(update, common)}
    head = read_header(encode(update, common))
    assert head.mask_bytes == min(lengths.values())
    assert head.mask_form == mutate.MASKS[min(lengths, key=lengths.get)]
    found = there_and_back(update, common)
    for form in lengths:
        assert bits(there_and_back(forced(update, form), common).mask) == bits(found.mask)


@pytest.mark.parametrize("size", [20, 64, 65, 130, 511, 520, 1000])
def test_only_few_places_are_sent_and_read(size):
    """At most 64 of them, or an eighth of all entries: kept ones, pruned ones, differences from a guess."""
    common, most = model(size), min(few(size), size)
    guess = common.guess(0.02)
    for count in {most, most + 1} & set(range(size + 1)):
        some = np.random.default_rng(count).permutation(size) < count
        for mask in (some, ~some):
            update = with_mask(common, mask)
            if min(count, size - count) <= few(size):
                assert there_and_back(forced(update, "places"), common).forms[MASK] == mutate.MASKS["places"]
            else:
                assert read_header(encode(update, common)).mask_form == mutate.MASKS["bitmap"]
                refused(encode(forced(update, "places"), common), common, "a bitmap would be shorter than so many")
        update = with_mask(common, guess ^ some, 0.02)
        if count <= few(size):
            assert there_and_back(forced(update, "guess"), common).forms[MASK] == mutate.MASKS["guess"]
        else:
            message = f"a number is {count}, at most {most} is possible"
            refused(encode(forced(update, "guess"), common), common, message)


def test_each_form_of_mask_is_chosen_where_it_is_the_shortest():
    common, rng = model(50_000), np.random.default_rng(2)
    guess = common.guess(0.03) ^ (rng.random(50_000) < 0.001)
    channels = rng.random(common.channels.count) < 0.5
    cases = {
        "bitmap": with_mask(common, rng.random(50_000) < 0.5),
        "places": with_mask(common, rng.random(50_000) < 0.01),
        "guess": with_mask(common, guess, 0.03),
        "channels": replace(with_mask(common, common.channels.mask(channels)), channels=channels),
    }
    for form, update in cases.items():
        head = read_header(encode(update, common))
        assert head.mask_form == mutate.MASKS[form]
        others = set(allowed(update, common)) - {form}
        assert others or form == "bitmap"
        for other in others:
            assert head.mask_bytes < mask_bytes(update, common, other)


@pytest.mark.parametrize("kept", [6250, 43_750, 6251, 43_749])
def test_a_mask_with_one_edge_goes_as_gaps_where_these_are_few(kept):
    common = model(50_000)
    head = read_header(encode(with_mask(common, np.arange(50_000) < kept), common))
    if kept in (6250, 43_750):
        assert head.mask_form == mutate.MASKS["places"]
        assert head.mask_bytes < 200
    else:
        assert (head.mask_form, head.mask_bytes) == (mutate.MASKS["bitmap"], 6250)


@every_scheme
@pytest.mark.parametrize("coder", ["range", "zstd"])
def test_levels_are_packed_only_where_that_is_shorter(scheme, coder):
    for size in SIZES:
        common = model(size)
        update = upload(common, scheme, "dense", coder)
        packed, plain = (read_header(encode(forced(update, "dense", form), common)) for form in (CODERS[coder], 0))
        head = read_header(encode(update, common))
        assert head.body_bytes == min(packed.body_bytes, plain.body_bytes)
        assert head.body_form == (CODERS[coder] if packed.body_bytes < plain.body_bytes else 0)
        assert head.coder == CODERS[coder]


def test_norms_and_buffers_are_packed_only_where_that_is_shorter():
    rng = np.random.default_rng(3)
    common = Common(np.ones(8000, np.float32), rng.normal(size=500).astype(np.float32), np.array([0, 8000]))
    alike, apart = np.ones(1000, np.uint32) * 0x3F80, rng.integers(0, 0x7E00, 1000).astype(np.uint32)
    wild = rng.integers(0, 0x7F00_0000, 500).astype(np.uint32).view(np.float32)
    for upper, norms_form in ((alike, 1), (apart, 0)):
        for buffers, buffers_form in ((common.buffers, 1), (wild, 0)):
            body = Quantised("qsgd", np.ones(8000, np.int8), (upper << 16).view(np.float32), 3, 8)
            update = Update(7, 3, 8000, None, body, buffers)
            there_and_back(update, common)
            head = read_header(encode(update, common))
            assert (head.norms_form, head.buffers_form) == (norms_form, buffers_form)
            others = read_header(encode(replace(update, forms=(0, None, 1 - norms_form, 1 - buffers_form)), common))
            assert head.norms_bytes < others.norms_bytes
            assert head.buffers_bytes < others.buffers_bytes


def few_levels(
    coder: str, s: int = 3, bucket: int = 0, share: float = 0.6, how: str = "drawn", size: int = 2000
) -> tuple[Update, Common]:
    """A qsgd upload of which most levels are 0, with a mask that was drawn, guessed or follows from channels."""
    common, rng = model(size), np.random.default_rng(4)
    mask, threshold, channels = rng.random(size) < share, NAN, None
    if how == "guessed":
        threshold = float(np.float32(np.quantile(np.abs(common.weights), 1 - share)))
        mask = common.guess(threshold) ^ (rng.random(size) < 0.002)
    elif how == "by channels":
        channels = rng.random(common.channels.count) < share
        mask = common.channels.mask(channels)
    values = rng.normal(size=int(mask.sum())).astype(np.float32)
    starts = bucket_starts(len(values), bucket, common.starts, mask)
    levels, norms, _ = QUANTISERS["qsgd"].quantise(values, starts, s, "l2", rng)
    body = Quantised("qsgd", levels, norms, s, bucket)
    return Update(7, 3, size, mask, body, common.buffers, threshold, channels, coder), common


@pytest.mark.parametrize("bucket", [0, -1])
def test_a_mask_is_left_out_where_nearly_all_levels_are_zero(bucket):
    update, common = few_levels("range", bucket=bucket, size=20_000)
    found = there_and_back(update, common)
    assert found.mask is None
    assert found.kept == 20_000
    assert len(encode(update, common)) < 0.5 * len(encode(forced(update, "bitmap"), common))


def without_mask(update: Update) -> Update:
    levels = np.zeros(update.size, np.int8)
    levels[update.mask] = update.body.levels
    return replace(update, mask=None, channels=None, threshold=NAN, body=replace(update.body, levels=levels))


@every_coder
@pytest.mark.parametrize("bucket", [0, -1])
@pytest.mark.parametrize("s", [1, 3, 127])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.05, 0.3, 0.6, 0.95, 0.999, 1.0])
@pytest.mark.parametrize("mask", ["drawn", "guessed", "by channels"])
def test_a_mask_is_left_out_exactly_where_that_is_shorter(coder, s, bucket, share, mask):
    update, common = few_levels(coder, s, bucket, share, mask)
    forms = ["channels"] if mask == "by channels" else allowed(update, common)
    with_it = min(len(encode(forced(update, form), common)) for form in forms)
    without = len(encode(without_mask(update), common))
    data = encode(update, common)
    assert len(data) == min(with_it, without)
    assert (read_header(data).mask_form == 0) == (without < with_it)
    if s == 3:
        there_and_back(update, common)


def test_the_cases_above_have_masks_that_go_and_masks_that_stay():
    for coder in CODERS:
        found = [few_levels(coder, s, 0, share) for s, share in product((1, 127), (0.02, 0.6, 0.999))]
        assert {read_header(encode(update, common)).mask_form > 0 for update, common in found} == {True, False}


def test_a_mask_is_sent_where_levels_or_buckets_depend_on_it():
    update, common = few_levels("range")
    values = np.random.default_rng(5).normal(size=update.kept).astype(np.float32)
    for scheme, bucket in (("qsgd", 512), ("dither", 0), ("dither", -1), ("eden", 64)):
        s = 1 if scheme == "eden" else 3
        starts = bucket_starts(update.kept, bucket, common.starts, update.mask)
        levels, norms, seed = QUANTISERS[scheme].quantise(values, starts, s, "l2", np.random.default_rng(6))
        body = Quantised(scheme, levels, norms, s, bucket, seed)
        assert there_and_back(replace(update, body=body), common).mask is not None
    assert there_and_back(replace(update, body=Raw(values)), common).mask is not None


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_the_range_coder_comes_close_to_the_entropy(share):
    rng = np.random.default_rng(7)
    levels = np.where(rng.random(200_000) < share, rng.choice([-2, -1, -1, 1, 1, 2], 200_000), 0).astype(np.int8)
    common = Common(np.ones(200_000, np.float32), np.empty(0, np.float32), np.array([0, 200_000]))
    body = Quantised("qsgd", levels, np.ones(1, np.float32), 2, 0)
    update = Update(7, 3, 200_000, None, body, common.buffers)
    assert 8 * read_header(encode(update, common)).body_bytes <= 1.02 * entropy_bits(levels) + 2000


# symbols, numbers and places


@settings(max_examples=200, deadline=None)
@given(arrays.arrays(np.uint8, st.integers(0, 300), elements=st.integers(0, 255)))
def test_any_symbols_come_back(symbols):
    reader = Reader(pack_symbols(symbols))
    assert unpack_symbols(reader, len(symbols), 256).tolist() == symbols.tolist()
    reader.end()


@settings(max_examples=200, deadline=None)
@given(arrays.arrays(np.uint32, st.integers(0, 60), elements=st.integers(0, 2**32 - 1) | st.integers(0, 40)))
def test_any_numbers_come_back(values):
    reader = Reader(pack_numbers(values))
    assert unpack_numbers(reader, len(values)).tolist() == values.tolist()
    reader.end()


def test_numbers_around_every_power_of_two_come_back():
    values = np.array(sorted({max(0, min(2**32 - 1, 2**k + d)) for k in range(33) for d in (-1, 0, 1)}), np.uint32)
    assert unpack_numbers(Reader(pack_numbers(values)), len(values)).tolist() == values.tolist()


@settings(max_examples=200, deadline=None)
@given(arrays.arrays(bool, st.integers(0, 200)))
def test_any_places_come_back(flags):
    places = places_of(flags)
    assert places.tolist() == np.flatnonzero(flags).tolist()
    assert unpack_places(Reader(pack_places(places)), len(places), len(flags)).tolist() == places.tolist()


@pytest.mark.parametrize("count", [2**18 - 1, 2**18, 2**18 + 1, 2**19 + 5])
def test_symbols_come_back_around_the_length_of_a_chunk(count):
    symbols = np.random.default_rng(8).geometric(0.3, count).clip(0, 255).astype(np.uint8)
    symbols[2**18 :] = 3  # a chunk with a single symbol
    reader = Reader(pack_symbols(symbols))
    assert np.array_equal(unpack_symbols(reader, count, 256), symbols)
    reader.end()


@given(st.integers(0, 2**63 - 1))
def test_any_number_comes_back_in_its_shortest_form(value):
    packed = number(value)
    reader = Reader(packed)
    assert reader.number(value) == value
    reader.end()
    assert len(packed) == max(1, -(-value.bit_length() // 7))
    if value:
        with pytest.raises(DecodeError, match="at most"):
            Reader(packed).number(value - 1)


# damage


def plain_upload(scheme: str = "qsgd", mask: str = "bitmap", size: int = 20) -> tuple[bytes, Common]:
    """A message whose sections are all in their plain forms, which is easy to change."""
    common = model(size)
    return encode(forced(upload(common, scheme, mask, "plain"), mask, None, 0, 0), common), common


def range_upload(scheme: str = "qsgd", mask: str = "places", size: int = 65) -> tuple[bytes, Common]:
    """A message whose levels, norms and mask are range-coded."""
    common = model(size)
    return encode(forced(upload(common, scheme, mask), mask, 1, 1, 0), common), common


@every_body
@every_mask
def test_a_message_cut_off_anywhere_is_refused(body, mask):
    common = model(20)
    data = encode(forced(upload(common, body, mask), mask), common)
    for length in range(len(data)):
        refused(data[:length], common, "")
        if length != len(data) - 8:  # which is the message
            refused(sealed(data[:length]), common, "")


def test_less_than_a_header_is_truncated():
    refused(b"", model(20), "truncated: 0 bytes")
    refused(plain_upload()[0][:87], model(20), "truncated: 87 bytes")


@every_body
@every_mask
def test_a_message_with_any_byte_changed_is_refused(body, mask):
    common = model(20)
    data = encode(forced(upload(common, body, mask), mask), common)
    for at in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            refused(data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :], common, "")


def test_a_wrong_checksum_is_refused():
    data, common = plain_upload()
    refused(data[:-1] + bytes([data[-1] ^ 1]), common, "checksum differs")
    refused(data[:90] + bytes([data[90] ^ 1]) + data[91:], common, "checksum differs")


@every_body
@pytest.mark.parametrize("extra", [b"\0", b"junk", bytes(1000)])
def test_trailing_bytes_are_refused(body, extra):
    common = model(20)
    data = encode(upload(common, body, "guess"), common)
    refused(data + extra, common, "bytes, the header says")
    refused(sealed(data[:-8] + extra), common, "bytes, the header says")
    refused(sealed(data + extra), common, "bytes, the header says")


@pytest.mark.parametrize("section", ["mask", "body", "norms", "buffers"])
@pytest.mark.parametrize("off", [-1, 1, 1000])
def test_section_lengths_that_do_not_add_up_are_refused(section, off):
    data, common = range_upload()
    head, sections = split(data)
    wrong = head._replace(**{f"{section}_bytes": getattr(head, f"{section}_bytes") + off})
    refused(sealed(mutate.HEAD.pack(*wrong) + b"".join(sections)), common, "bytes, the header says")


@pytest.mark.parametrize(("longer", "shorter"), [(a, b) for a in range(4) for b in range(4) if a != b])
def test_sections_that_reach_into_each_other_are_refused(longer, shorter):
    for data, common in (plain_upload(), range_upload()):
        head, sections = split(data)
        lengths = list(head.sections)
        lengths[longer] += 1
        lengths[shorter] -= 1
        wrong = mutate.Header(*head[:-4], *lengths)
        refused(sealed(mutate.HEAD.pack(*wrong) + b"".join(sections)), common, "")


@pytest.mark.parametrize("section", range(4))
def test_sections_longer_than_they_can_be_are_refused(section):
    data, common = plain_upload()
    refused(tampered(data, {section: bytes(10_000)}), common, "a section is longer than it can be")


@pytest.mark.parametrize("section", [MASK, BODY, NORMS])
def test_bytes_after_a_range_coded_part_are_refused(section):
    data, common = range_upload()
    content = split(data)[1][section]
    refused(tampered(data, {section: content + b"\0"}), common, "1 bytes too many")
    refused(tampered(data, {section: content[:-1]}), common, "truncated")


# what was not expected


@pytest.mark.parametrize("field", ["round", "vehicle"])
def test_an_upload_of_another_round_or_vehicle_is_refused(field):
    data, common = plain_upload()
    awaited = getattr(expected(common), field)
    refused(data, common, f"{field} is {awaited}, expected {awaited + 1}", **{field: awaited + 1})
    refused(tampered(data, **{field: 2**32 - 1}), common, f"{field} is 4294967295, expected {awaited}")


def test_an_upload_of_another_size_is_refused():
    data, common = plain_upload()
    refused(data, model(21), "size is 20, expected 21")
    for size in (0, 19, 2**40, 2**64 - 1):
        refused(tampered(data, size=size), common, f"size is {size}, expected 20")


def test_an_upload_made_from_another_model_is_refused():
    data, common = plain_upload()
    refused(data, mutate.model(20, seed=1), "digest of the received model is")
    refused(tampered(data, digest=common.digest ^ 1), common, "digest of the received model is")


def test_another_kind_of_message_is_refused():
    data, common = plain_upload()
    refused(tampered(data, magic=b"SKYX"), common, "not an upload")
    refused(encode_model(7, model(64), None), common, "not an upload")


@pytest.mark.parametrize("version", [0, 1, 3, 255])
def test_another_version_is_refused(version):
    data, common = plain_upload()
    refused(tampered(data, version=version), common, f"an upload of version {version}; this is version 2")


def test_an_upload_trained_at_another_rate_is_refused():
    common = model(20)
    data = encode(upload(common, "exact"), common)
    refused(data, common, "learning rate is 0.05", rate=0.1)
    refused(tampered(data, rate=0.1), common, "expected 0.05")
    assert decode(data, expected(common, rate=None)).body.rate == np.float32(0.05)


@pytest.mark.parametrize("rate", [0.0, -0.0, -0.05, NAN, INF, -INF])
def test_learning_rates_that_cannot_be_are_refused(rate):
    common = model(20)
    data = encode(upload(common, "exact"), common)
    refused(tampered(data, rate=rate), common, "learning rate is", rate=None)


@pytest.mark.parametrize("rate", [-0.0, 0.05, -1.0, 1e-45, NAN, INF])
def test_a_learning_rate_that_nobody_needs_is_refused(rate):
    common = model(20)
    for body in ("raw", *SCHEMES):
        refused(tampered(encode(upload(common, body), common), rate=rate), common, "learning rate is")


@every_body
def test_d_longer_than_its_header_allows_is_refused(body):
    common = model(65)
    data = encode(upload(common, body, "guess"), common)
    length = read_header(data).length
    assert decode(tampered(data, length=1.01 * length), expected(common)).length == np.float32(1.01 * length)
    for less in (0.99 * length, 0.0):
        refused(tampered(data, length=less), common, "d is longer than the")


@every_body
def test_a_header_that_allows_more_than_the_station_is_refused(body):
    common = model(65)
    data = encode(upload(common, body), common)
    length = read_header(data).length
    refused(data, common, "is accepted", longest=0.99 * length)
    refused(tampered(data, length=INF), common, "d may be as long as inf, at most 1e+06 is accepted", longest=1e6)


@pytest.mark.parametrize("length", [NAN, -1.0, -INF, -1e-45])
def test_lengths_that_cannot_be_are_refused(length):
    data, common = plain_upload()
    refused(tampered(data, length=length), common, "d may be as long as")


# what cannot be


@pytest.mark.parametrize(
    "fields",
    [{"scheme": 4}, {"scheme": 255}, {"coder": 3}, {"coder": 255}, {"kept": 21}, {"kept": 2**64 - 1}, {"s": 0},
     {"s": 128}, {"s": 255}],
)  # fmt: skip
def test_headers_out_of_range_are_refused(fields):
    data, common = plain_upload()
    refused(tampered(data, **fields), common, "header out of range")


@pytest.mark.parametrize("bucket", [-(2**31), -2, *range(1, 8)])
def test_buckets_that_are_too_small_are_refused(bucket):
    common = model(20)
    for body in BODIES:
        refused(tampered(encode(upload(common, body), common), bucket=bucket), common, f"buckets of {bucket}")


@pytest.mark.parametrize("scheme", ["qsgd", "dither"])
@pytest.mark.parametrize("bucket", [8, 9, 15, 16, 2**31 - 1])
def test_buckets_of_eight_and_more_come_back(scheme, bucket):
    for size in (0, 1, 8, 9, 16, 17, 1000):
        about = mutate.Scheme(QUANTISERS[scheme], scheme, 3, bucket)
        for mask in (np.ones(size, bool), np.arange(size) % 3 > 0):
            body = mutate._body(model(size), about, mask)
            assert len(body.norms) == -(-int(mask.sum()) // bucket)
            there_and_back(replace(upload(model(size), scheme), mask=mask, body=body), model(size))


@pytest.mark.parametrize("form", [5, 6, 255])
def test_unknown_forms_of_masks_are_refused(form):
    data, common = plain_upload()
    refused(tampered(data, mask_form=form), common, f"a mask in form {form}")


@pytest.mark.parametrize("form", [3, 4, 255])
def test_unknown_forms_of_levels_are_refused(form):
    data, common = plain_upload()
    refused(tampered(data, body_form=form), common, f"levels in form {form}")


@pytest.mark.parametrize("form", [2, 3, 255])
def test_unknown_forms_of_values_norms_and_buffers_are_refused(form):
    data, common = plain_upload()
    refused(tampered(data, norms_form=form), common, f"norms in form {form}")
    refused(tampered(data, buffers_form=form), common, f"floats in form {form}")
    refused(tampered(encode(upload(common, "raw"), common), body_form=form), common, f"floats in form {form}")


def test_forms_that_need_something_are_refused_where_there_is_nothing():
    common = model(0)
    head, sections = split(encode(upload(common, "qsgd"), common))
    refused(joined(head._replace(norms_form=1), sections), common, "norms in form 1")
    bare = Common(common.weights, np.empty(0, np.float32), common.starts)
    refused(tampered(encode(Update(7, 3, 0, None, Raw(np.empty(0, np.float32)), bare.buffers), bare), buffers_form=1),
            bare, "floats in form 1")  # fmt: skip


def test_an_empty_range_coded_part_is_read_for_every_scheme():
    """Nothing is kept, so that no level has a context; a sender would use bit planes."""
    common = model(9)
    for scheme in ("qsgd", "qsgd all", "dither", "dither linf", "eden 1"):
        update = upload(common, scheme)
        mask = np.zeros(9, bool)
        body = mutate._body(common, mutate.SCHEMES[scheme], mask)
        data = encode(replace(update, mask=mask, body=body, forms=(2, 1, None, None)), common)
        assert read_header(data).body_form == 1
        found = decode(data, expected(common))
        assert found.kept == len(found.body.levels) == 0
        assert encode(found, common) == data


def test_channels_that_nobody_knows_are_refused():
    common = model(20)
    data = encode(forced(upload(common, "qsgd", "channels"), "channels"), common)
    bare = replace(common, channels=None)
    assert bare.digest == common.digest
    refused(data, bare, "a mask in form 4")


@pytest.mark.parametrize(
    "fields", [{"s": 1}, {"bucket": 8}, {"bucket": -1}, {"seed": 1}, {"norms_form": 1}, {"coder": 0}, {"coder": 2}]
)
def test_raw_uploads_with_what_only_levels_need_are_refused(fields):
    common = model(20)
    for body in ("raw", "exact"):
        refused(tampered(encode(upload(common, body), common), **fields), common, "a raw upload with what only levels")


def test_norms_in_a_raw_upload_are_refused():
    common = model(20)
    refused(
        tampered(encode(upload(common, "raw"), common), {NORMS: b"\x80\x3f"}), common, "a raw upload with what only"
    )


def test_a_seed_in_a_qsgd_upload_is_refused():
    data, common = plain_upload()
    refused(tampered(data, seed=1), common, "a seed that nobody needs")


@pytest.mark.parametrize(
    "fields",
    [{"bucket": 0}, {"bucket": -1}, {"bucket": 32}, {"bucket": 63}, {"bucket": 65}, {"bucket": 96}, {"bucket": 131072},
     {"bucket": 2**31 - 1}, {"s": 3}, {"s": 5}, {"s": 127}],
)  # fmt: skip
def test_eden_with_blocks_or_levels_that_cannot_be_is_refused(fields):
    common = model(65)
    for scheme in ("eden 1", "eden 2", "eden 4"):
        refused(tampered(encode(upload(common, scheme), common), **fields), common, "blocks that cannot be rotated")


@pytest.mark.parametrize("scheme", ["eden 2", "eden 4"])
def test_eden_with_a_level_of_0_where_none_can_be_is_refused(scheme):
    common = model(65)
    update = upload(common, scheme)
    levels = update.body.levels.copy()
    levels[-1] = 0
    update = replace(update, body=replace(update.body, levels=levels))
    for form in range(3):
        refused(encode(replace(update, forms=(0, form, None, None)), common), common, "a level is 0 where none can be")


# masks


@pytest.mark.parametrize("mask", ["bitmap", "places", "guess", "channels"])
@pytest.mark.parametrize("off", [-1, 1])
def test_a_mask_that_keeps_another_number_is_refused(mask, off):
    common = model(130)
    data = encode(forced(upload(common, "raw", mask), mask), common)
    kept = read_header(data).kept
    message = "" if mask == "places" else f"the mask keeps {kept}, the header says {kept + off}"
    refused(tampered(data, kept=kept + off), common, message)


def test_a_bit_more_or_less_in_a_mask_is_refused():
    data, common = plain_upload()
    content = split(data)[1][MASK]
    refused(tampered(data, {MASK: bytes([content[0] ^ 0x80]) + content[1:]}), common, "the mask keeps")


def test_no_mask_where_not_all_is_kept_is_refused():
    data, common = plain_upload()
    kept = read_header(data).kept
    refused(tampered(data, {MASK: b""}, mask_form=0), common, f"no mask, but {kept} of 20 entries kept")
    refused(tampered(plain_upload(mask="dense")[0], {MASK: b"\0"}), common, "1 bytes too many")


def test_padding_of_masks_and_channels_must_be_zero():
    for mask, size in (("bitmap", 20), ("channels", 20)):
        data, common = plain_upload(mask=mask, size=size)
        content = split(data)[1][MASK]
        for bit in range(4):
            wrong = content[:-1] + bytes([content[-1] | 1 << bit])
            refused(tampered(data, {MASK: wrong}), common, "padding is not zero")


def test_a_place_beyond_the_end_is_refused():
    common = model(1000)
    data = encode(forced(upload(common, "raw", "places"), "places"), common)
    kept = read_header(data).kept
    fewer = min(kept, 1000 - kept)
    gaps = np.zeros(fewer, np.uint32)
    for last in (1001 - fewer, 2**32 - 1):
        gaps[-1] = last
        refused(tampered(data, {MASK: pack_numbers(gaps)}), common, "1000 are possible")
    refused(tampered(data, {MASK: pack_numbers(np.full(fewer, 2**32 - 1, np.uint32))}), common, "1000 are possible")


@pytest.mark.parametrize("threshold", [NAN, -1.0, -0.0, -1e-45, INF, -INF])
def test_thresholds_that_cannot_be_are_refused(threshold):
    data, common = range_upload(mask="guess")
    content = split(data)[1][MASK]
    wrong = struct.pack("<f", threshold) + content[4:]
    refused(tampered(data, {MASK: wrong}), common, "the mask's threshold is negative or not finite")


def test_more_differences_from_a_guess_than_a_few_are_refused():
    data, common = range_upload(mask="guess")
    content = split(data)[1][MASK]
    refused(tampered(data, {MASK: content[:4] + number(65)}), common, "a number is 65, at most 64 is possible")
    refused(tampered(data, {MASK: content[:3]}), common, "truncated")
    common = model(1000)
    data = encode(forced(upload(common, "raw", "guess"), "guess"), common)
    wrong = split(data)[1][MASK][:4] + number(126)
    refused(tampered(data, {MASK: wrong}), common, "a number is 126, at most 125 is possible")


def test_a_sender_does_not_send_a_threshold_that_would_be_refused():
    common = model(LARGE)
    for threshold in (-0.0, INF):
        update = with_mask(common, common.guess(threshold), threshold)
        assert there_and_back(update, common).forms[MASK] != mutate.MASKS["guess"]
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
    data, common = range_upload(mask="dense")
    refused(tampered(data, {BODY: content}), common, message)


def ones(count: int) -> tuple[bytes, Common, bytes, int]:
    """65 levels of which so many are 1 or -1, range-coded: message, model, content, and where the symbols begin.

    Up to 64 of them go as their places, all gaps being 0, and two symbols; 65 go as three symbols, of which one is
    not there. A table of counts and the words of the coder follow.
    """
    common = model(65)
    levels = np.where(np.arange(65) % 3 > 0, 1, -1).astype(np.int8)
    levels[count:] = 0
    body = Quantised("qsgd", levels, np.ones(1, np.float32), 1, 0)
    data = encode(Update(7, 3, 65, None, body, common.buffers, forms=(0, 1, 0, 0)), common)
    content = split(data)[1][BODY]
    known = bytes([65]) if count == 65 else bytes([count, 1, count])
    assert content.startswith(known + TABLES[count])
    assert content[len(known) + len(TABLES[count])] == (len(content) - len(known) - len(TABLES[count]) - 1) // 4
    return data, common, content, len(known)


TABLES = {65: bytes([3, 22, 0, 43]), 63: bytes([2, 21, 42])}
every_count = pytest.mark.parametrize("count", TABLES)


WRONG = {
    65: [[3, 21, 0, 43], [3, 22, 1, 43], [3, 0, 0, 0], [3, 65, 0, 65], [0], [1, 64], [2, 65, 0], [3, 22, 43, 0]],
    63: [[2, 20, 42], [2, 21, 43], [2, 0, 0], [2, 63, 63], [0], [1, 62], [2, 63, 0], [2, 62, 0]],
}


def with_table(count: int, table: list[int]) -> tuple[bytes, Common]:
    data, common, content, at = ones(count)
    return tampered(data, {BODY: content[:at] + bytes(table) + content[at + len(TABLES[count]) :]}), common


@pytest.mark.parametrize(("count", "table"), [(count, table) for count in TABLES for table in WRONG[count]])
def test_counts_that_do_not_add_up_are_refused(count, table):
    refused(*with_table(count, table), f"counts do not add up to {count} symbols")


def test_other_counts_that_add_up_are_refused():
    for count, table in ((65, [3, 23, 0, 42]), (65, [3, 22, 1, 42]), (63, [2, 22, 41])):
        refused(*with_table(count, table), "a range-coded part is damaged")
    refused(*with_table(65, [2, 22, 43]), "not the 65 levels that were said not to be 0")  # -1 and 0, not -1 and 1


@every_count
def test_range_coded_levels_above_s_are_refused(count):
    data, common, content, at = ones(count)
    most = TABLES[count][0]
    wrong = content[:at] + bytes([most + 1, *TABLES[count][1:], 1]) + content[at + len(TABLES[count]) :]
    refused(tampered(data, {BODY: wrong}), common, f"a number is {most + 1}, at most {most} is possible")


@pytest.mark.parametrize("levels", [[0] * 65, [0] + [1] * 64, [1] * 130, [1] * 66 + [0] * 64, [1] * 67 + [0] * 63])
def test_another_number_of_levels_than_was_said_is_refused(levels):
    size = len(levels)
    common = model(size)
    body = Quantised("qsgd", np.array(levels, np.int8), np.ones(1, np.float32), 1, 0)
    data = encode(Update(7, 3, size, None, body, common.buffers, forms=(0, 1, 0, 0), length=INF), common)
    symbols = pack_symbols(np.array(levels, np.uint8) + 1)
    for said in range(65, min(size, 70) + 1):
        wrong = tampered(data, {BODY: number(said) + symbols})
        if said == sum(levels):
            assert wrong == data
        else:
            refused(wrong, common, f"not the {said} levels that were said not to be 0")
    if sum(levels) <= 64:  # which have to go as places
        refused(tampered(data, {BODY: number(sum(levels)) + symbols}), common, "")


@every_count
def test_damaged_words_are_refused(count):
    data, common, content, at = ones(count)
    for place in range(at + len(TABLES[count]) + 1, len(content)):
        for flip in (1, 0x10, 0x80):
            wrong = content[:place] + bytes([content[place] ^ flip]) + content[place + 1 :]
            refused(tampered(data, {BODY: wrong}), common, "a range-coded part is damaged")


@every_count
def test_words_that_are_missing_or_too_many_are_refused(count):
    data, common, content, at = ones(count)
    at += len(TABLES[count])
    before, words, after = content[:at], content[at], content[at + 1 :]
    refused(tampered(data, {BODY: before + b"\0"}), common, "a range-coded part is damaged")
    refused(tampered(data, {BODY: before + bytes([words - 1]) + after[:-4]}), common, "a range-coded part is damaged")
    for extra in (b"\0\0\0\0", b"\1\0\0\0"):
        wrong = before + bytes([words + 1]) + after + extra
        refused(tampered(data, {BODY: wrong}), common, "a range-coded part is damaged")
    wrong = before + bytes([count + 3]) + bytes(4 * (count + 3))
    refused(tampered(data, {BODY: wrong}), common, f"at most {count + 2} is possible")
    refused(tampered(data, {BODY: before + bytes([words]) + after[:-1]}), common, "truncated")


def test_padding_of_low_bits_must_be_zero():
    """One gap of 20 has a low bit of its own, in a byte of which seven bits are to spare."""
    common = model(65)
    body = Quantised("qsgd", (np.arange(65) == 20).astype(np.int8), np.ones(1, np.float32), 1, 0)
    data = encode(Update(7, 3, 65, None, body, common.buffers, forms=(0, 1, 0, 0)), common)
    content = split(data)[1][BODY]
    low = 1 + len(pack_symbols(np.array([18], np.uint8)))
    assert content[low] == 0
    for bit in range(7):
        wrong = content[:low] + bytes([1 << bit]) + content[low + 1 :]
        refused(tampered(data, {BODY: wrong}), common, "padding is not zero")
    found = decode(tampered(data, {BODY: content[:low] + b"\x80" + content[low + 1 :]}), expected(common))
    assert np.flatnonzero(found.body.levels).tolist() == [21]


# levels


@pytest.mark.parametrize("s", [1, 2, 3, 5, 100, 127])
@pytest.mark.parametrize("form", ["plain", "zstd"])
def test_a_level_beyond_s_is_refused(s, form):
    common = model(20)
    body = Quantised("qsgd", np.zeros(20, np.int8), np.ones(1, np.float32), s, 0)
    data = encode(Update(7, 3, 20, None, body, common.buffers, forms=(0, 0, 0, 0)), common)
    planes = bytearray(split(data)[1][BODY])
    assert len(planes) == 3 * (2 * s).bit_length()
    for plane in range(0, len(planes), 3):  # the first entry gets the highest number its bits can hold
        planes[plane] |= 0x80
    new = bytes(planes) if form == "plain" else zstandard.ZstdCompressor(level=3).compress(bytes(planes))
    data = tampered(data, {BODY: new}, body_form=CODERS[form], length=INF)
    if 2 ** (2 * s).bit_length() - 1 == 2 * s:
        assert decode(data, expected(common)).body.levels[0] == s
    else:
        refused(data, common, f"a level is above {s}")


def test_padding_of_levels_must_be_zero():
    data, common = plain_upload(mask="dense")
    content = split(data)[1][BODY]
    for plane in range(3):
        for bit in range(4):
            wrong = bytearray(content)
            wrong[3 * plane + 2] |= 1 << bit
            refused(tampered(data, {BODY: bytes(wrong)}), common, "padding is not zero")


def test_bit_planes_that_are_too_short_or_too_long_are_refused():
    data, common = plain_upload()
    content = split(data)[1][BODY]
    refused(tampered(data, {BODY: content[:-1]}), common, "truncated")
    refused(tampered(data, {BODY: content + b"\0"}), common, "1 bytes too many")


def zstd_upload() -> tuple[bytes, Common, bytes]:
    common = model(65)
    data = encode(forced(upload(common, "qsgd", "dense", "zstd"), "dense", 2, 0, 0), common)
    plain = zstandard.ZstdDecompressor().decompress(split(data)[1][BODY])
    return data, common, plain


def test_a_zstd_frame_that_says_to_be_huge_is_refused_unopened():
    data, common, _ = zstd_upload()
    bomb = zstandard.ZstdCompressor().compress(bytes(10**7))
    assert len(bomb) < 1000
    refused(tampered(data, {BODY: bomb}), common, "levels unpack to 10000000 bytes, 27 expected")
    lie = b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 2**62) + b"\x01\x00\x00"
    assert zstandard.get_frame_parameters(lie).content_size == 2**62
    refused(tampered(data, {BODY: lie}), common, f"levels unpack to {2**62} bytes, 27 expected")


def test_a_zstd_frame_that_does_not_say_its_size_is_refused():
    data, common, plain = zstd_upload()
    for content in (plain, bytes(10**7)):
        frame = zstandard.ZstdCompressor(level=3, write_content_size=False).compress(content)
        refused(tampered(data, {BODY: frame}), common, "27 expected")


def test_a_zstd_frame_that_lies_about_its_size_is_refused():
    data, common, _ = zstd_upload()
    for inside in (bytes(26), bytes(28), bytes(10**7)):
        frame = bytearray(zstandard.ZstdCompressor(level=3).compress(inside))
        said = zstandard.get_frame_parameters(bytes(frame))
        body = bytes(frame[zstandard.frame_header_size(bytes(frame)) :])
        assert said.content_size == len(inside)
        refused(tampered(data, {BODY: b"\x28\xb5\x2f\xfd\x20\x1b" + body}), common, "damaged")


def test_levels_packed_by_zstd_in_another_way_are_refused():
    common = model(1000)
    data = encode(forced(upload(common, "qsgd all", "dense", "zstd"), "dense", 2, 0, 0), common)
    ours = split(data)[1][BODY]
    plain = zstandard.ZstdDecompressor().decompress(ours)
    stored = b"\x28\xb5\x2f\xfd\x20" + bytes([len(plain)]) + struct.pack("<I", len(plain) << 3 | 1)[:3] + plain
    others = [zstandard.ZstdCompressor(level=3, write_checksum=True).compress(plain), stored]
    others += [zstandard.ZstdCompressor(level=level).compress(plain) for level in (-100, 19)]
    for frame in others:
        assert zstandard.ZstdDecompressor().decompress(frame) == plain
        if frame != ours:
            refused(tampered(data, {BODY: frame}), common, "levels are not as this version of zstd packs them")
    assert sum(frame != ours for frame in others) >= 3


def test_whatever_follows_a_zstd_frame_is_refused():
    data, common, _ = zstd_upload()
    frame = split(data)[1][BODY]
    for extra in (b"\0", frame, b"\x50\x2a\x4d\x18\0\0\0\0"):
        refused(tampered(data, {BODY: frame + extra}), common, "levels are not as this version of zstd packs them")


def test_levels_that_are_not_zstd_are_refused():
    data, common, _ = zstd_upload()
    for content in (b"", b"\0", b"\x28\xb5\x2f\xfd", bytes(27), split(data)[1][BODY][:-1]):
        refused(tampered(data, {BODY: content}), common, "zstd-packed levels are damaged")


# norms


@pytest.mark.parametrize("upper", [0x7F80, 0x7F81, 0x7FC0, 0x7FFF, 0x8000, 0xBF80, 0xFF80, 0xFFC0, 0xFFFF])
@pytest.mark.parametrize("form", [0, 1])
def test_norms_that_cannot_be_are_refused(upper, form):
    """Infinity, NaNs, negative numbers, -0: as bfloat16, plain and as differences."""
    common = model(20)
    for at in range(3):
        norms = np.full(3, 0x3F80, np.uint32)
        norms[at] = upper
        body = Quantised("qsgd", np.zeros(20, np.int8), (norms << 16).view(np.float32), 3, 8)
        with np.errstate(invalid="ignore"):
            data = encode(Update(7, 3, 20, None, body, common.buffers, forms=(0, 0, form, 0), length=1.0), common)
        refused(data, common, "a norm is negative or not finite")


def test_the_number_of_norms_must_be_that_of_the_buckets():
    data, common = plain_upload(mask="dense")
    content = split(data)[1][NORMS]
    assert len(content) == 2 * -(-20 // 9)
    refused(tampered(data, {NORMS: content[:-2]}), common, "bytes of norms")
    refused(tampered(data, {NORMS: content + content[:2]}), common, "bytes of norms")
    refused(tampered(data, {NORMS: content[:-1]}), common, "bytes of norms")
    for bucket in (0, 100):
        refused(tampered(data, bucket=bucket), common, "6 bytes of norms, 2 expected")


@pytest.mark.parametrize("form", [None, 0, 1])
def test_norms_that_are_not_bfloat16_are_not_sent(form):
    common = model(20)
    for norm in (0.1, 1 + 2.0**-8, 1e-45):
        norms = np.array([1.0, norm, 0.5], np.float32)
        body = Quantised("qsgd", np.zeros(20, np.int8), norms, 3, 8)
        with pytest.raises(ValueError, match="norms must be bfloat16 numbers"):
            encode(Update(7, 3, 20, None, body, common.buffers, forms=(0, 0, form, 0)), common)
    fine = np.array([1 + 2.0**-7, 2.0**-133, 0.0], np.float32)
    body = Quantised("qsgd", np.ones(20, np.int8), fine, 3, 8)
    there_and_back(Update(7, 3, 20, None, body, common.buffers, forms=(0, 0, form, 0)), common)


def test_a_step_between_norms_beyond_16_bits_is_refused():
    data, common = range_upload(mask="dense")
    count = -(-65 // 9)
    for step in (0x10000, 2**32 - 1):
        steps = np.zeros(count, np.uint32)
        steps[-1] = step
        refused(tampered(data, {NORMS: pack_numbers(steps)}), common, "a norm is out of range")


@every_scheme
def test_huge_norms_are_refused_unless_the_header_allows_them(scheme):
    common = model(65)
    update = upload(common, scheme)
    norms = np.full(len(update.body.norms), 2.0**100, np.float32)
    data = encode(replace(update, body=replace(update.body, norms=norms)), common)
    assert read_header(data).length > 1e28
    decode(data, expected(common))
    refused(data, common, "is accepted", longest=1e6)
    refused(tampered(data, length=1e6), common, "d is longer than the 1e+06 its header allows", longest=1e6)


@pytest.mark.parametrize("scheme", ["dither", "dither linf", "eden 1", "eden 2", "eden 4"])
def test_norms_for_which_an_entry_would_not_be_finite_are_refused(scheme):
    common = model(65)
    update = upload(common, scheme)
    levels = np.random.default_rng(0).choice([-1, 1], len(update.body.levels)).astype(np.int8) * update.body.s
    most = np.full(len(update.body.norms), 0x7F7F0000, np.uint32).view(np.float32)
    update = replace(update, length=INF, body=replace(update.body, levels=levels, norms=most))
    refused(encode(update, common), common, "finite")


def test_the_largest_norm_is_fine_for_qsgd():
    common = model(65)
    most = np.full(1, 0x7F7F0000, np.uint32).view(np.float32)
    body = Quantised("qsgd", np.full(65, -127, np.int8), most, 127, 0)
    found = there_and_back(Update(7, 3, 65, None, body, common.buffers), common)
    assert found.length == INF
    assert np.isfinite(entries(found, common)).all()


# floats


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_values_and_buffers_that_are_not_finite_are_refused(value):
    common = model(20)
    wrong = np.ones(20, np.float32)
    wrong[7] = value
    data = encode(forced(upload(common, "raw"), "dense", None, None, 0), common)
    refused(tampered(data, {BODY: wrong.tobytes()}), common, "a value is not finite")
    refused(tampered(data, {BUFFERS: wrong[5:8].tobytes()}), common, "a buffer is not finite")
    steps = packed(_places(wrong) - _places(common.weights))
    refused(tampered(encode(upload(common, "exact"), common), {BODY: steps}), common, "a value is not finite")
    steps = packed(_places(wrong[5:8]) - _places(common.buffers))
    refused(tampered(data, {BUFFERS: steps}, buffers_form=1), common, "a buffer is not finite")


def _places(values: np.ndarray) -> np.ndarray:
    found = values.view(np.int32)
    return np.where(found < 0, np.int32(-1) - (found & np.int32(0x7FFFFFFF)), found)


def packed(steps: np.ndarray, config: ChunkConfig = PACKING) -> bytes:
    """A chunk of floats: its length, then pcodec's bytes."""
    found = standalone.simple_compress(steps, config)
    return number(len(found)) + found


def chunk(content: bytes) -> bytes:
    """What pcodec wrote of a single chunk."""
    reader = Reader(content)
    found = bytes(reader.take(reader.number(2**20)))
    reader.end()
    return found


def test_trained_weights_whose_d_overflows_are_refused():
    common = Common(np.full(9, -3e38, np.float32), np.empty(0, np.float32), np.array([0, 9]))
    trained = np.full(9, 3e38, np.float32)
    update = Update(7, 3, 9, None, Raw(np.ones(9, np.float32), trained, 1.0), common.buffers)
    refused(encode(update, common), common, "a value is not finite", rate=1.0)


def test_floats_of_another_length_are_refused():
    common = model(20)
    data = encode(forced(upload(common, "raw"), "dense", None, None, 0), common)
    content = split(data)[1]
    for section in (BODY, BUFFERS):
        for wrong in (b"", content[section][:-1], content[section][:-4], content[section] + bytes(4)):
            refused(tampered(data, {section: wrong}), common, "bytes of floats")


LOOK = DeltaSpec.try_lookback()


def exact_upload(size: int = 65) -> tuple[bytes, Common, np.ndarray]:
    common = model(size)
    data = encode(upload(common, "exact"), common)
    return data, common, standalone.simple_decompress(chunk(split(data)[1][BODY]))


@pytest.mark.parametrize("count", [1, 64, 66, 1000, 10**6])
def test_packed_floats_of_another_number_are_refused(count):
    data, common, _ = exact_upload()
    wrong = packed(np.zeros(count, np.int32))
    assert len(wrong) < 100
    refused(tampered(data, {BODY: wrong}), common, "packed floats, 65 expected")


def test_packed_floats_that_lie_about_their_number_are_refused():
    """The number stands three bytes after the type: 24 bits, less one."""
    data, common, steps = exact_upload()
    wrong = bytearray(standalone.simple_compress(steps, PACKING))
    at = wrong.index(bytes([64, 0, 0]), 5)
    for count in (0, 63, 65, 10**6, 2**24 - 1):
        wrong[at : at + 3] = count.to_bytes(3, "little")
        refused(tampered(data, {BODY: number(len(wrong)) + wrong}), common, "packed floats")


def test_floats_packed_in_another_way_are_refused():
    data, common, steps = exact_upload()
    ours = split(data)[1][BODY]
    none, classic = DeltaSpec.no_op(), ModeSpec.classic()
    configs = [ChunkConfig(compression_level=level, delta_spec=none, mode_spec=classic) for level in (0, 1, 12)]
    configs += [ChunkConfig(6, delta_spec=delta, mode_spec=classic) for delta in (DeltaSpec.try_consecutive(1), LOOK)]
    configs += [ChunkConfig(6, delta_spec=none, mode_spec=ModeSpec.try_int_mult(7))]
    others = {packed(steps, config) for config in configs} - {ours}
    assert len(others) >= 4
    content = chunk(ours)
    for wrong in (*others, number(len(content) + 1) + content + b"\0"):
        refused(tampered(data, {BODY: wrong}), common, "packed floats are not as this version of pcodec packs them")


def test_floats_packed_with_a_huge_window_are_refused():
    """Mode and kind of delta are four bits each, then come five for the window: far more than pcodec itself uses."""
    data, common, steps = exact_upload(1000)
    config = ChunkConfig(mode_spec=ModeSpec.classic(), delta_spec=LOOK)
    wrong = bytearray(standalone.simple_compress(np.resize(steps[:50], 1000), config))
    at = wrong.index(b"\x03" + (999).to_bytes(3, "little"), 6) + 4
    assert wrong[at] == 0x20
    for log in (16, 24, 25, 32):
        wrong[at + 1] = wrong[at + 1] & 0xE0 | log - 1
        refused(tampered(data, {BODY: number(len(wrong)) + wrong}), common, "packed floats are")


def test_packed_floats_of_another_type_are_refused():
    data, common, steps = exact_upload()
    for kind in (np.float32, np.uint32, np.int64):
        refused(tampered(data, {BODY: packed(steps.astype(kind))}), common, "packed floats")


def test_packed_floats_that_are_none_are_refused():
    data, common, _ = exact_upload()
    content = chunk(split(data)[1][BODY])
    for wrong in (b"", b"\0", b"pco!", bytes(100), content[:-1], content[:20], content[1:]):
        refused(tampered(data, {BODY: number(len(wrong)) + wrong}), common, "packed floats")


def test_the_length_of_a_chunk_must_be_that_of_its_bytes():
    data, common, steps = exact_upload()
    content = chunk(split(data)[1][BODY])
    length = len(content)
    assert length > 127
    refused(tampered(data, {BODY: b""}), common, "truncated")
    refused(tampered(data, {BODY: number(length + 1) + content}), common, f"truncated: {length + 1} bytes wanted")
    refused(tampered(data, {BODY: number(length - 1) + content}), common, "packed floats")
    refused(tampered(data, {BODY: number(0) + content}), common, "packed floats")
    refused(tampered(data, {BODY: number(length) + content + b"\0"}), common, "1 bytes too many")
    long = bytes([length & 127 | 128, length >> 7 | 128, 0])
    refused(tampered(data, {BODY: long + content}), common, f"a number is {length}, at most")
    refused(tampered(data, {BODY: number(2**40) + content}), common, f"a number is {2**40}, at most 4616 is possible")
    twice = packed(steps[:30]) + packed(steps[30:])
    refused(tampered(data, {BODY: twice}), common, "30 packed floats, 65 expected")
    refused(tampered(data, {BODY: number(length) + content + packed(steps[:1])}), common, "bytes too many")


def test_chunks_of_floats_in_other_numbers_or_lengths_are_refused():
    common = model(LARGE)
    data = encode(upload(common, "exact"), common)
    content = split(data)[1][BODY]
    reader = Reader(content)
    chunks = [bytes(reader.take(reader.number(2**22))) for _ in range(2)]
    reader.end()
    first, second = (number(len(part)) + part for part in chunks)
    assert first + second == content
    steps = np.concatenate([standalone.simple_decompress(part) for part in chunks])
    refused(tampered(data, {BODY: first}), common, "truncated")
    refused(tampered(data, {BODY: first + second + second}), common, "bytes too many")
    refused(tampered(data, {BODY: second + first}), common, f"{LARGE - CHUNK} packed floats, {CHUNK} expected")
    refused(tampered(data, {BODY: packed(steps)}), common, f"{CHUNK} packed floats, {CHUNK} expected")
    wrong = packed(steps[: CHUNK - 1]) + packed(steps[CHUNK - 1 :])
    refused(tampered(data, {BODY: wrong}), common, f"{CHUNK - 1} packed floats, {CHUNK} expected")


# memory


GREAT = 2_000_000
SPARE = 5_000_000  # eden rotates up to 2**18 entries at a time, however few there are


def peak(data: bytes, common: Common) -> int:
    """Bytes allocated at most while a message is read, accepted or not."""
    assert common.digest
    tracemalloc.start()
    try:
        decode(data, expected(common))
    except DecodeError:
        pass
    finally:
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return found


def limit(size: int) -> int:
    """Twice the longest message, of four bytes an entry, and the update that it stands for, of five with its mask."""
    return 2 * (4 + 4 + 1) * size


@pytest.mark.parametrize("body", [body for body in BODIES if body != "eden variance"])  # which is read as eden is
def test_reading_a_large_message_takes_no_more_than_twice_it_and_its_update(body):
    common = model(GREAT)
    for mask in ("dense", "guess"):
        assert peak(encode(upload(common, body, mask), common), common) <= limit(GREAT)


@pytest.mark.parametrize("body", ["raw", "exact", "qsgd", "dither"])
@pytest.mark.parametrize("form", ["bitmap", "places", "guess", "channels"])
def test_masks_that_keep_all_take_no_more_memory_either(body, form):
    common = model(GREAT)
    mask, channels = np.ones(GREAT, bool), np.ones(common.channels.count, bool)
    update = replace(dense_upload(body), mask=mask, threshold=0.0, channels=channels if form == "channels" else None)
    assert peak(encode(forced(update, form, 1, 1), common), common) <= limit(GREAT)


@cache
def dense_upload(body: str) -> Update:
    return upload(model(GREAT), body)


@pytest.mark.parametrize("size", [0, 1000, 65_537, 196_609, CHUNK])
def test_messages_of_any_size_take_little_more(size):
    common, everything = model(size), np.ones(size, bool)
    spare = SPARE if size > 1000 else 30_000
    for body in ("exact", "qsgd", "dither", "eden 4"):
        assert peak(encode(upload(common, body), common), common) <= limit(size) + spare
    for s, bucket in ((4, 64), (4, 65_536)):
        body = mutate._body(common, mutate.Scheme(QUANTISERS["eden"], "eden", s, bucket), everything)
        update = Update(7, 3, size, everything, body, common.buffers)
        assert peak(encode(update, common), common) <= limit(size) + spare


@pytest.mark.parametrize("scheme", ["qsgd", "dither"])
def test_one_large_tensor_among_thousands_takes_no_more_memory(scheme):
    known = model(GREAT)
    common = Common(known.weights, known.buffers, np.append(np.arange(2000), GREAT))
    levels = np.random.default_rng(0).integers(-3, 4, GREAT).astype(np.int8)
    body = Quantised(scheme, levels, np.ones(2000, np.float32), 3, -1, int(scheme == "dither"))
    data = encode(Update(7, 3, GREAT, None, body, common.buffers), common)
    assert peak(data, common) <= limit(GREAT)
    decode(data, expected(common))


def hostile(kind: str) -> tuple[bytes, bool]:
    """A short message that unpacks to as much as it can, and whether it is a valid one."""
    common, some = model(GREAT), few(GREAT)
    guess, accepted = common.guess(0.05), False
    body = Quantised("qsgd", np.zeros(GREAT, np.int8), np.ones(1, np.float32), 1, 0)
    empty = Update(7, 3, GREAT, None, body, common.buffers, forms=(0, 1, 0, 0), length=INF)
    one = np.ones(1, np.float32).tobytes()[2:]
    new: dict[int, bytes] = {}
    fields: dict[str, object] = {}
    if kind == "every entry differs from the guess":
        new[MASK] = struct.pack("<f", 0.05) + number(GREAT) + pack_places(np.arange(GREAT))
        fields = {"mask_form": 3, "kept": GREAT - int(guess.sum())}
    elif kind == "as many entries as may be differ from the guess":
        accepted, guess[:some] = True, ~guess[:some]
        new[MASK] = struct.pack("<f", 0.05) + number(some) + pack_places(np.arange(some))
        fields = {"mask_form": 3, "kept": int(guess.sum())}
    elif kind == "wild differences from the guess":
        new[MASK] = struct.pack("<f", 0.05) + number(some) + pack_symbols(np.full(some, 239, np.uint8))
        fields = {"mask_form": 3, "kept": GREAT // 2}
    elif kind == "every second place":
        new[MASK] = pack_places(np.arange(0, GREAT, 2))
        fields = {"mask_form": 2, "kept": GREAT // 2}
    elif kind == "as many places as may be":
        accepted, new[MASK] = True, pack_places(np.arange(some))
        fields = {"mask_form": 2, "kept": GREAT - some}
    elif kind == "all levels but one as places":
        new[BODY] = number(GREAT - 1) + pack_places(np.arange(GREAT - 1)) + pack_symbols(np.zeros(GREAT - 1, np.uint8))
    elif kind == "all levels but one":
        levels = np.full(GREAT, 2, np.uint8)
        levels[-1], accepted = 1, True
        new[BODY] = number(GREAT - 1) + pack_symbols(levels)
    elif kind == "as many levels as may be as places":
        accepted = True
        new[BODY] = number(some) + pack_places(np.arange(some)) + pack_symbols(np.zeros(some, np.uint8))
    elif kind == "levels under noise":
        accepted, new[BODY] = True, b"".join([number(0)] * 26)
        fields = {"scheme": 2, "seed": 1}
    elif kind == "a norm for every entry":
        new[NORMS] = pack_numbers(np.zeros(GREAT, np.uint32))
        fields = {"bucket": 1, "norms_form": 1}
    elif kind == "as many norms as may be":
        accepted, new[NORMS] = True, pack_numbers(np.zeros(GREAT // 8, np.uint32))
        fields = {"bucket": 8, "norms_form": 1}
    elif kind == "wild norms":
        new[NORMS] = pack_symbols(np.full(GREAT // 8, 200, np.uint8))
        fields = {"bucket": 8, "norms_form": 1}
    elif kind == "a mask over tensors":
        accepted = True
        new |= {MASK: pack_places(np.arange(some)), NORMS: one * (len(common.starts) - 1)}
        fields = {"mask_form": 2, "kept": GREAT - some, "bucket": -1}
    elif kind == "rotated blocks":
        accepted, count = True, -(-GREAT // 65_536) * 65_536
        new |= {BODY: number(count) + pack_symbols(np.full(count, 8, np.uint8)), NORMS: one * (count // 65_536)}
        fields = {"scheme": 3, "s": 4, "bucket": 65_536}
    elif kind == "zstd that is too long":
        new[BODY] = zstandard.ZstdCompressor(level=3).compress(bytes(10 * GREAT))
        fields = {"body_form": 2}
    elif kind == "zstd":
        accepted, new[BODY] = True, zstandard.ZstdCompressor(level=3).compress(bytes(GREAT))
        fields = {"body_form": 2, "s": 127}
    elif kind == "pcodec that is too long":
        new[BUFFERS] = packed(np.zeros(10 * GREAT, np.int32))
        fields = {"buffers_form": 1}
    elif kind == "pcodec":
        chunks = [np.zeros(min(CHUNK, GREAT - first), np.int32) for first in range(0, GREAT, CHUNK)]
        accepted, new = True, {MASK: b"", BODY: b"".join(map(packed, chunks)), NORMS: b""}
        fields = {"scheme": 0, "s": 0, "rate": mutate.RATE}
    data = tampered(encode(empty, common), new, **fields)
    assert len(data) < 10_000
    return data, accepted


@pytest.mark.parametrize(
    "kind",
    ["every entry differs from the guess", "as many entries as may be differ from the guess",
     "wild differences from the guess", "every second place", "as many places as may be",
     "all levels but one as places", "all levels but one", "as many levels as may be as places", "levels under noise",
     "a norm for every entry", "as many norms as may be", "wild norms", "a mask over tensors", "rotated blocks",
     "zstd that is too long", "zstd", "pcodec that is too long", "pcodec"],
)  # fmt: skip
def test_a_short_hostile_message_takes_no_more_memory_than_a_long_one(kind):
    data, accepted = hostile(kind)
    reason = mutate.check(data, expected(model(GREAT)))
    assert (reason is None) == accepted, reason
    assert peak(data, model(GREAT)) <= (limit(GREAT) if accepted else limit(GREAT) // 2)


def test_sizes_are_checked_before_anything_is_allocated():
    """However much a header promises, next to nothing is taken before it is refused."""
    data, common = plain_upload()
    for fields in ({"size": 2**60}, {"kept": 2**60}, {"bucket": 2**31 - 1}, {"body_bytes": 2**32 - 1}):
        head, sections = split(data)
        wrong = mutate.HEAD.pack(*head._replace(**fields))
        assert peak(sealed(wrong + b"".join(sections)), common) < 20_000


# any bytes at all


def test_damaged_messages_are_refused_or_read_and_nothing_else(tmp_path):
    summary = mutate.fuzz(20_000, 0, tmp_path)
    assert summary.inputs == 20_000
    assert summary.accepted > 3000
    assert len(summary.reasons) > 30  # the damage reaches most checks


def test_the_fuzzer_notices_broken_promises(tmp_path, monkeypatch, capsys):
    common = model(20)
    data = encode(upload(common, "qsgd"), common)
    assert mutate.check(data, expected(common)) is None
    assert mutate.check(data[:-8] + bytes(8), expected(common)) == "checksum differs"

    def broken(data: bytes, awaited: Expected) -> Update:
        raise IndexError("out of range")

    monkeypatch.setattr(mutate, "decode", broken)
    assert mutate.main(["--inputs", "5", "--seed", "1", "--out", str(tmp_path)]) == 1
    assert "IndexError" in capsys.readouterr().err
    (written,) = tmp_path.iterdir()
    assert written.read_bytes() == mutate.corpus()[0].data
    monkeypatch.setattr(mutate, "decode", lambda data, awaited: decode(encode(upload(common, "raw"), common), awaited))
    with pytest.raises(mutate.Violation, match="other bytes"):
        mutate.check(data, expected(common))


def test_the_fuzzer_sums_up_in_one_line(capsys, tmp_path):
    assert mutate.main(["--inputs", "50", "--out", str(tmp_path)]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("50 inputs, 50 accepted, 0 refused")


HEADS = {size: split(encode(upload(model(size), "qsgd"), model(size)))[0] for size in (0, 9, 65)}


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(sorted(HEADS)),
    st.tuples(*[st.binary(max_size=40)] * 4),
    st.fixed_dictionaries(
        {
            "scheme": st.integers(0, 3), "s": st.sampled_from([0, 1, 2, 3, 4, 127]), "mask_form": st.integers(0, 4),
            "body_form": st.integers(0, 2), "norms_form": st.integers(0, 1), "buffers_form": st.integers(0, 1),
            "coder": st.integers(0, 2), "bucket": st.sampled_from([-1, 0, 7, 8, 64, 128]), "kept": st.integers(0, 65),
            "seed": st.sampled_from([0, 1]), "rate": st.sampled_from([0.0, 0.05]),
        }
    ),
)  # fmt: skip
def test_any_sections_under_any_header_are_refused_or_read(size, sections, fields):
    mutate.check(joined(HEADS[size]._replace(length=INF, **fields), sections), expected(model(size)))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_refused(data):
    refused(data, model(9), "")
    refused(b"SKYF\x02" + data, model(9), "")


# the same bytes everywhere


def test_the_vectors_are_what_the_script_writes():
    assert vectors.PLACE.read_text() == vectors.text(vectors.build())


VECTORS = json.loads(vectors.PLACE.read_text())


@pytest.mark.parametrize("vector", VECTORS["uploads"], ids=lambda vector: vector["name"])
def test_uploads_in_the_vectors_are_packed_and_read_as_they_say(vector):
    update, awaited = vectors.read(vector)
    message = bytes.fromhex(vector["message"])
    assert encode(update, awaited.common).hex() == vector["message"]
    found = decode(message, awaited)
    assert same(found.body, update.body)
    assert bits(found.mask) == bits(update.mask)
    assert found.buffers.tolist() == vector["update"]["buffers"]
    d = dense(found, awaited.common)
    if vector["update"]["body"].get("scheme") in ("dither", "eden"):
        assert d == pytest.approx(vector["d"], rel=1e-5, abs=1e-8)
    else:
        assert d.tobytes() == np.array(vector["d"], np.float32).tobytes()


@pytest.mark.parametrize("vector", VECTORS["models"], ids=lambda vector: vector["name"])
def test_models_in_the_vectors_are_packed_and_read_as_they_say(vector):
    sent, base = vectors.read_model(vector["model"]), vectors.read_model(vector["base"])
    assert encode_model(vector["round"], sent, base).hex() == vector["message"]
    sizes = sent.size, len(sent.buffers)
    weights, buffers = decode_model(bytes.fromhex(vector["message"]), vector["round"], sizes, base)
    assert weights.tobytes() == sent.weights.tobytes()
    assert buffers.tobytes() == sent.buffers.tobytes()


def test_the_vectors_cover_every_scheme_and_every_form():
    heads = [read_header(bytes.fromhex(vector["message"])) for vector in VECTORS["uploads"]]
    assert {head.scheme for head in heads} == {0, 1, 2, 3}
    assert {head.mask_form for head in heads} == {0, 1, 2, 3, 4}
    assert {head.body_form for head in heads if head.scheme} == {0, 1, 2}
    assert {head.body_form for head in heads if not head.scheme} == {0, 1}
    bodies = [vector["update"]["body"] for vector in VECTORS["uploads"]]
    coded = [body["levels"] for body, head in zip(bodies, heads, strict=True) if head.scheme and head.body_form == 1]
    assert {np.count_nonzero(levels) > few(len(levels)) for levels in coded} == {True, False}  # as places, and not
    assert {head.norms_form for head in heads} == {head.buffers_form for head in heads} == {0, 1}


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
