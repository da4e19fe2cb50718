"""Uploads as bytes: the sender takes the shortest form of every part."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from skyfed.types import Quantised, Raw, Update
from skyfed.wire import Reference, bucket_starts, encode, read_header
from skyfed.wire.entropy import entropy_bits
from skyfed.wire.quantise import QUANTISERS
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
    refused,
    there_and_back,
    upload,
    uploads,
    with_mask,
)

# the shortest form


def mask_bytes(update: Update, reference: Reference, form: str) -> int:
    return read_header(encode(forced(update, form), reference)).mask_bytes


@pytest.mark.parametrize("share", [0.0, 0.001, 0.02, 0.12, 0.13, 0.3, 0.5, 0.8, 0.88, 0.98, 1.0])
@pytest.mark.parametrize("size", [1, 100, 3000, 50_000])
@pytest.mark.parametrize("flips", [None, 0.0, 0.005, 0.1, 0.2])
def test_the_sender_picks_the_shortest_mask(share, size, flips):
    reference, rng = model(size), np.random.default_rng(1)
    mask, threshold = rng.random(size) < share, NAN
    if flips is not None:
        threshold = float(np.quantile(np.abs(reference.weights), 1 - share))
        mask = reference.guess(threshold) ^ (rng.random(size) < flips)
    update = with_mask(reference, mask, threshold)
    lengths = {form: mask_bytes(update, reference, form) for form in allowed(update, reference)}
    head = read_header(encode(update, reference))
    assert head.mask_bytes == min(lengths.values())
    assert head.mask_form == uploads.MASKS[min(lengths, key=lengths.get)]
    found = there_and_back(update, reference)
    for form in lengths:
        assert bits(there_and_back(forced(update, form), reference).mask) == bits(found.mask)


@pytest.mark.parametrize("size", [20, 64, 65, 130, 511, 520, 1000])
def test_only_few_places_are_sent_and_read(size):
    """At most 64 of them, or an eighth of all entries: kept ones, pruned ones, differences from a guess."""
    reference, most = model(size), min(few(size), size)
    guess = reference.guess(0.02)
    for count in {most, most + 1} & set(range(size + 1)):
        some = np.random.default_rng(count).permutation(size) < count
        for mask in (some, ~some):
            update = with_mask(reference, mask)
            if min(count, size - count) <= few(size):
                assert there_and_back(forced(update, "places"), reference).forms[MASK] == uploads.MASKS["places"]
            else:
                assert read_header(encode(update, reference)).mask_form == uploads.MASKS["bitmap"]
                refused(
                    encode(forced(update, "places"), reference), reference, "a bitmap would be shorter than so many"
                )
        update = with_mask(reference, guess ^ some, 0.02)
        if count <= few(size):
            assert there_and_back(forced(update, "guess"), reference).forms[MASK] == uploads.MASKS["guess"]
        else:
            message = f"a number is {count}, at most {most} is possible"
            refused(encode(forced(update, "guess"), reference), reference, message)


def test_each_form_of_mask_is_chosen_where_it_is_the_shortest():
    reference, rng = model(50_000), np.random.default_rng(2)
    guess = reference.guess(0.03) ^ (rng.random(50_000) < 0.001)
    channels = rng.random(reference.channels.count) < 0.5
    cases = {
        "bitmap": with_mask(reference, rng.random(50_000) < 0.5),
        "places": with_mask(reference, rng.random(50_000) < 0.01),
        "guess": with_mask(reference, guess, 0.03),
        "channels": replace(with_mask(reference, reference.channels.mask(channels)), channels=channels),
    }
    for form, update in cases.items():
        head = read_header(encode(update, reference))
        assert head.mask_form == uploads.MASKS[form]
        others = set(allowed(update, reference)) - {form}
        assert others or form == "bitmap"
        for other in others:
            assert head.mask_bytes < mask_bytes(update, reference, other)


@pytest.mark.parametrize("kept", [6250, 43_750, 6251, 43_749])
def test_a_mask_with_one_edge_goes_as_gaps_where_these_are_few(kept):
    reference = model(50_000)
    head = read_header(encode(with_mask(reference, np.arange(50_000) < kept), reference))
    if kept in (6250, 43_750):
        assert head.mask_form == uploads.MASKS["places"]
        assert head.mask_bytes < 200
    else:
        assert (head.mask_form, head.mask_bytes) == (uploads.MASKS["bitmap"], 6250)


@every_scheme
@pytest.mark.parametrize("coder", ["range", "zstd"])
def test_levels_are_packed_only_where_that_is_shorter(scheme, coder):
    for size in SIZES:
        reference = model(size)
        update = upload(reference, scheme, "dense", coder)
        packed, plain = (read_header(encode(forced(update, "dense", form), reference)) for form in (CODERS[coder], 0))
        head = read_header(encode(update, reference))
        assert head.body_bytes == min(packed.body_bytes, plain.body_bytes)
        assert head.body_form == (CODERS[coder] if packed.body_bytes < plain.body_bytes else 0)
        assert head.coder == CODERS[coder]


def test_norms_and_buffers_are_packed_only_where_that_is_shorter():
    rng = np.random.default_rng(3)
    reference = Reference(np.ones(8000, np.float32), rng.normal(size=500).astype(np.float32), np.array([0, 8000]))
    alike, apart = np.ones(1000, np.uint32) * 0x3F80, rng.integers(0, 0x7E00, 1000).astype(np.uint32)
    wild = rng.integers(0, 0x7F00_0000, 500).astype(np.uint32).view(np.float32)
    for upper, norms_form in ((alike, 1), (apart, 0)):
        for buffers, buffers_form in ((reference.buffers, 1), (wild, 0)):
            body = Quantised("qsgd", np.ones(8000, np.int8), (upper << 16).view(np.float32), 3, 8)
            update = Update(7, 3, 8000, None, body, buffers)
            there_and_back(update, reference)
            head = read_header(encode(update, reference))
            assert (head.norms_form, head.buffers_form) == (norms_form, buffers_form)
            others = read_header(encode(replace(update, forms=(0, None, 1 - norms_form, 1 - buffers_form)), reference))
            assert head.norms_bytes < others.norms_bytes
            assert head.buffers_bytes < others.buffers_bytes


def few_levels(
    coder: str, s: int = 3, bucket: int = 0, share: float = 0.6, how: str = "drawn", size: int = 2000
) -> tuple[Update, Reference]:
    """A qsgd upload of which most levels are 0, with a mask that was drawn, guessed or follows from channels."""
    reference, rng = model(size), np.random.default_rng(4)
    mask, threshold, channels = rng.random(size) < share, NAN, None
    if how == "guessed":
        threshold = float(np.float32(np.quantile(np.abs(reference.weights), 1 - share)))
        mask = reference.guess(threshold) ^ (rng.random(size) < 0.002)
    elif how == "by channels":
        channels = rng.random(reference.channels.count) < share
        mask = reference.channels.mask(channels)
    values = rng.normal(size=int(mask.sum())).astype(np.float32)
    starts = bucket_starts(len(values), bucket, reference.starts, mask)
    levels, norms, _ = QUANTISERS["qsgd"].quantise(values, starts, s, "l2", rng)
    body = Quantised("qsgd", levels, norms, s, bucket)
    return Update(7, 3, size, mask, body, reference.buffers, threshold, channels, coder), reference


@pytest.mark.parametrize("bucket", [0, -1])
def test_a_mask_is_left_out_where_nearly_all_levels_are_zero(bucket):
    update, reference = few_levels("range", bucket=bucket, size=20_000)
    found = there_and_back(update, reference)
    assert found.mask is None
    assert found.kept == 20_000
    assert len(encode(update, reference)) < 0.5 * len(encode(forced(update, "bitmap"), reference))


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
    update, reference = few_levels(coder, s, bucket, share, mask)
    forms = ["channels"] if mask == "by channels" else allowed(update, reference)
    with_it = min(len(encode(forced(update, form), reference)) for form in forms)
    without = len(encode(without_mask(update), reference))
    data = encode(update, reference)
    assert len(data) == min(with_it, without)
    assert (read_header(data).mask_form == 0) == (without < with_it)
    if s == 3:
        there_and_back(update, reference)


def test_the_cases_above_have_masks_that_go_and_masks_that_stay():
    for coder in CODERS:
        found = [few_levels(coder, s, 0, share) for s, share in product((1, 127), (0.02, 0.6, 0.999))]
        assert {read_header(encode(update, reference)).mask_form > 0 for update, reference in found} == {True, False}


def test_a_mask_is_sent_where_levels_or_buckets_depend_on_it():
    update, reference = few_levels("range")
    values = np.random.default_rng(5).normal(size=update.kept).astype(np.float32)
    for scheme, bucket in (("qsgd", 512), ("dither", 0), ("dither", -1), ("eden", 64)):
        s = 1 if scheme == "eden" else 3
        starts = bucket_starts(update.kept, bucket, reference.starts, update.mask)
        levels, norms, seed = QUANTISERS[scheme].quantise(values, starts, s, "l2", np.random.default_rng(6))
        body = Quantised(scheme, levels, norms, s, bucket, seed)
        assert there_and_back(replace(update, body=body), reference).mask is not None
    assert there_and_back(replace(update, body=Raw(values)), reference).mask is not None


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_the_range_coder_comes_close_to_the_entropy(share):
    rng = np.random.default_rng(7)
    levels = np.where(rng.random(200_000) < share, rng.choice([-2, -1, -1, 1, 1, 2], 200_000), 0).astype(np.int8)
    reference = Reference(np.ones(200_000, np.float32), np.empty(0, np.float32), np.array([0, 200_000]))
    body = Quantised("qsgd", levels, np.ones(1, np.float32), 2, 0)
    update = Update(7, 3, 200_000, None, body, reference.buffers)
    assert 8 * read_header(encode(update, reference)).body_bytes <= 1.02 * entropy_bits(levels) + 2000
