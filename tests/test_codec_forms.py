"""Uploads as bytes: the sender takes the shortest form of every part."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from skyfed.records import Quantised, Raw, Update
from skyfed.wire import Common, bucket_starts, encode, read_header
from skyfed.wire.quantise import QUANTISERS
from skyfed.wire.symbols import entropy_bits
from wire_cases import (
    CODERS,
    MASK,
    NAN,
    SIZES,
    allowed,
    bits,
    every_coder,
    every_scheme,
    few,
    forced,
    model,
    mutate,
    refused,
    there_and_back,
    upload,
    with_mask,
)

# the shortest form


def mask_bytes(update: Update, common: Common, form: str) -> int:
    return read_header(encode(forced(update, form), common)).mask_bytes


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
