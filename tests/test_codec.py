"""Uploads as bytes: what goes in comes out, bit for bit, with the header that the page describes."""

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from skyfed.types import Quantised, Raw, Update
from skyfed.wire import (
    Reference,
    accumulated,
    bucket_starts,
    decode,
    decode_model,
    encode,
    encode_model,
    entries,
    paper_bits,
    read_header,
)
from skyfed.wire.entropy import pack_places, pack_symbols
from skyfed.wire.quantise import QUANTISERS
from skyfed.wire.reader import number
from wire_cases import (
    BODIES,
    BODY,
    CHUNK,
    CODERS,
    LARGE,
    MASK,
    NAN,
    SCHEMES,
    SIZES,
    allowed,
    bits,
    dense,
    every_body,
    every_coder,
    every_mask,
    every_scheme,
    expected,
    few,
    forced,
    model,
    packed,
    refused,
    same,
    split,
    there_and_back,
    upload,
    uploads,
    vectors,
    with_mask,
)

# there and back


@every_mask
@pytest.mark.parametrize(("body", "coder"), [("raw", "range"), ("exact", "range"), *product(SCHEMES, CODERS)])
def test_what_was_sent_is_what_is_read_in_every_form(body, coder, mask):
    for size in SIZES:
        reference = model(size)
        update = upload(reference, body, mask, coder)
        there_and_back(update, reference)
        form = None if isinstance(update.body, Raw) else CODERS[coder]
        found = there_and_back(forced(update, mask, form), reference)
        assert found.forms[MASK] == uploads.MASKS[mask]
        assert form is None or found.forms[BODY] == form
        assert found.quantised == (body in SCHEMES)


@every_body
@pytest.mark.parametrize("mask", ["dense", "guess"])
def test_messages_longer_than_a_chunk_come_back(body, mask):
    reference = model(LARGE)
    there_and_back(upload(reference, body, mask), reference)


@pytest.mark.parametrize("mask", ["bitmap", "places", "guess", "channels"])
def test_long_masks_come_back_in_every_form_that_is_allowed(mask):
    reference = model(LARGE)
    update = upload(reference, "qsgd", mask)
    for form in ("bitmap", "places", *([mask] if mask in ("guess", "channels") else [])):
        if form != "places" or mask == "places":
            assert there_and_back(forced(update, form), reference).forms[MASK] == uploads.MASKS[form]
        else:
            refused(encode(forced(update, form), reference), reference, "a bitmap would be shorter than so many places")


ODD = [0.0, -0.0, 1e-45, -1e-45, 1e-39, -1.1754942e-38, 1.1754944e-38, 1e-20, 0.1, -1.0, 3.0, 1e20, -3e38, 3.4028235e38]


@pytest.mark.parametrize("rate", [0.05, 1.0, 1e-3, 7.0, 1e-30, 1e30])
def test_exact_values_come_back_bit_for_bit(rate):
    start, trained = (np.array(side, np.float32) for side in zip(*product(ODD, ODD), strict=True))
    with np.errstate(over="ignore"):
        fine = np.isfinite(accumulated(start, trained, rate))
    start, trained = start[fine], trained[fine]
    assert len(start) > 100
    reference = Reference(start, np.array(ODD, np.float32), np.array([0, len(start)]))
    values = accumulated(start, trained, rate)
    update = Update(7, 3, len(start), None, Raw(values, trained, rate), np.array(ODD[::-1], np.float32))
    found = there_and_back(update, reference)
    assert found.body.values.tobytes() == values.tobytes()
    assert found.body.trained.tobytes() == trained.tobytes()
    decode(encode(update, reference), expected(reference, rate=rate))


def test_plain_values_come_back_bit_for_bit():
    reference = uploads.model(len(ODD))
    values = np.array(ODD, np.float32)
    found = there_and_back(Update(7, 3, len(ODD), None, Raw(values), reference.buffers), reference)
    assert found.body.values.tobytes() == values.tobytes()
    assert found.body.trained is None


def test_an_exact_upload_of_which_nothing_was_kept_comes_back():
    reference, nothing = model(9), np.empty(0, np.float32)
    update = Update(7, 3, 9, np.zeros(9, bool), Raw(nothing, nothing, 0.05), reference.buffers)
    data = encode(update, reference)
    assert (read_header(data).rate, read_header(data).body_form) == (0, 0)
    found = decode(data, expected(reference))
    assert found.kept == len(found.body.values) == 0
    assert encode(found, reference) == data


@every_coder
def test_raw_uploads_come_back_whatever_levels_would_be_packed_by(coder):
    reference = model(9)
    for body in ("raw", "exact"):
        update = upload(reference, body)
        data = encode(replace(update, coder=coder), reference)
        assert data == encode(update, reference)
        assert same(decode(data, expected(reference)).body, update.body)


@every_scheme
def test_uploads_that_keep_nothing_or_everything_come_back(scheme):
    about = uploads.SCHEMES[scheme]
    for size in (1, 7, 64, 65):
        reference = model(size)
        for mask in (np.zeros(size, bool), np.ones(size, bool)):
            for body_form, mask_form in product((None, 0, 1, 2), (None, 1, 2)):
                update = replace(upload(reference, scheme), mask=mask, body=uploads._body(reference, about, mask))
                forms = (mask_form, body_form, None, None)
                found = there_and_back(replace(update, forms=None if forms == (None,) * 4 else forms), reference)
                assert found.kept == int(mask.sum())


def test_a_message_may_have_thousands_of_empty_tensors():
    size = 5000
    reference = Reference(np.ones(size, np.float32), np.empty(0, np.float32), np.arange(size + 1))
    mask = np.arange(size) == 3
    norms = (np.random.default_rng(0).integers(0, 0x7F00, size).astype(np.uint32) << 16).view(np.float32)
    body = Quantised("dither", np.ones(1, np.int8), norms, 3, -1, 1)
    there_and_back(Update(7, 3, size, mask, body, reference.buffers), reference)


def test_what_is_read_is_the_reader_s_own():
    reference = model(65)
    for body in BODIES:
        data = bytearray(encode(upload(reference, body, "guess"), reference))
        found = decode(data, expected(reference))
        before = dense(found, reference).tobytes(), found.buffers.tobytes()
        data[:] = bytes(len(data))
        assert (dense(found, reference).tobytes(), found.buffers.tobytes()) == before


SINGLE = st.floats(width=32, allow_nan=False, allow_infinity=False)


@st.composite
def updates(draw: st.DrawFn) -> tuple[Update, Reference]:
    size = draw(st.integers(0, 80))
    inner = np.sort(draw(arrays.arrays(np.int64, 3, elements=st.integers(0, size))))
    weights, buffers, moved = (
        draw(arrays.arrays(np.float32, count, elements=SINGLE)) for count in (size, *[draw(st.integers(0, 4))] * 2)
    )
    scope = draw(st.none() | arrays.arrays(bool, size))
    reference = Reference(weights, buffers, np.concatenate([[0], inner, [size]]), scope)
    mask = draw(st.none() | arrays.arrays(bool, size))
    kept = size if mask is None else int(mask.sum())
    threshold = draw(st.just(NAN) | st.floats(0, 2.0**100, width=32))
    mask_form = "dense"
    if mask is not None:
        mask_form = draw(st.sampled_from(allowed(with_mask(reference, mask, threshold), reference)))
    forms = (uploads.MASKS[mask_form], draw(st.integers(0, 2)), None, draw(st.integers(0, 1)))
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
        starts = bucket_starts(kept, bucket, reference.starts, mask)
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
    return Update(7, 3, size, mask, body, moved, threshold, None, coder, draw(st.none() | st.just(forms))), reference


@settings(max_examples=300, deadline=None)
@given(updates())
def test_any_update_comes_back_bit_for_bit(case):
    there_and_back(*case)


# the header


@every_body
def test_the_header_says_what_is_in_a_message(body):
    reference = model(1000)
    update = forced(upload(reference, body, "guess"), "guess")
    data = encode(update, reference)
    head, found = read_header(data), update.body
    levels = isinstance(found, Quantised)
    assert data[:4] == head.magic == b"SKYF"
    assert head.version == 2
    assert head.scheme == ["raw", "qsgd", "dither", "eden"].index(found.scheme if levels else "raw")
    assert (head.round, head.vehicle, head.size, head.kept) == (7, 3, 1000, update.kept)
    assert head.digest == reference.digest
    assert (head.s, head.bucket, head.seed) == ((found.s, found.bucket, found.seed) if levels else (0, 0, 0))
    assert head.rate == (np.float32(uploads.RATE) if body == "exact" else 0)
    assert (head.mask_form, head.coder) == (3, 1)
    assert head == uploads.Header(*uploads.HEAD.unpack_from(data))  # the layout, spelt out there a second time
    assert len(data) == 80 + sum(head.sections) + 8


@every_body
@every_mask
def test_the_header_bounds_the_length_of_d_tightly(body, mask):
    reference = model(1000)
    update = upload(reference, body, mask)
    length = float(np.sqrt((entries(update, reference).astype(np.float64) ** 2).sum()))
    head = read_header(encode(update, reference))
    assert length <= head.length * (1 + 1e-6 * body.startswith("qsgd"))  # whose norm is found in another way
    assert head.length <= length * (1 + 1e-6)
    assert decode(encode(update, reference), expected(reference, longest=head.length)).length == head.length


def test_the_size_of_a_message_by_hand():
    """80 bytes of header and 8 of checksum around the mask, the body, the norms and the buffers."""
    reference, mask = model(20), np.arange(20) < 10
    raw = Update(7, 3, 20, mask, Raw(np.ones(10, np.float32)), reference.buffers, forms=(1, 0, 0, 0))
    assert len(encode(raw, reference)) == 80 + 3 + 4 * 10 + 4 * 3 + 8
    levels = Quantised("qsgd", np.ones(10, np.int8), np.ones(2, np.float32), 3, 9)  # 7 levels: 3 planes of 2 bytes
    plain = Update(7, 3, 20, mask, levels, reference.buffers, coder="plain", forms=(1, 0, 0, 0))
    assert len(encode(plain, reference)) == 80 + 3 + 3 * 2 + 2 * 2 + 4 * 3 + 8
    for update in (raw, plain):
        there_and_back(update, reference)


def test_range_coded_levels_by_hand():
    """Of 80 levels at most 64 go as places and symbols without a 0, more as symbols with one."""
    reference = model(80)
    for count in (0, 1, 64, 65, 80):
        levels = np.zeros(80, np.int8)
        levels[:count] = np.resize([3, -1, -3, 1, 2], count)
        body = Quantised("qsgd", levels, np.ones(1, np.float32), 3, 0)
        found = there_and_back(Update(7, 3, 80, None, body, reference.buffers, forms=(0, 1, 0, 0)), reference)
        content = split(encode(found, reference))[1][BODY]
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
    reference = Reference(start, np.ones(1, np.float32), np.array([0, count]))
    update = Update(7, 3, count, None, Raw(accumulated(start, trained, 0.5), trained, 0.5), reference.buffers)
    found = there_and_back(update, reference)
    assert found.body.trained.tobytes() == trained.tobytes()
    steps = [np.ones(min(CHUNK, count - first), np.int32) for first in range(0, count, CHUNK)]
    assert split(encode(update, reference))[1][BODY] == b"".join(map(packed, steps))


def test_the_digest_stands_for_weights_and_buffers():
    reference = model(20)
    weights, buffers = reference.weights.copy(), reference.buffers.copy()
    assert Reference(weights, buffers, np.array([0, 20])).digest == reference.digest
    weights[3] = -weights[3]
    assert Reference(weights, reference.buffers, reference.starts).digest != reference.digest
    buffers[0] += 1
    assert Reference(reference.weights, buffers, reference.starts).digest != reference.digest


# the same bytes everywhere


def test_the_vectors_are_what_the_script_writes():
    assert vectors.PLACE.read_text() == vectors.text(vectors.build())


VECTORS = json.loads(vectors.PLACE.read_text())


@pytest.mark.parametrize("vector", VECTORS["uploads"], ids=lambda vector: vector["name"])
def test_uploads_in_the_vectors_are_packed_and_read_as_they_say(vector):
    update, awaited = vectors.read(vector)
    message = bytes.fromhex(vector["message"])
    assert encode(update, awaited.reference).hex() == vector["message"]
    found = decode(message, awaited)
    assert same(found.body, update.body)
    assert bits(found.mask) == bits(update.mask)
    assert found.buffers.tolist() == vector["update"]["buffers"]
    d = dense(found, awaited.reference)
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
