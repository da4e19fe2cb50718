"""Whatever bytes come: bounded memory, an update or a DecodeError, and one encoding only."""

import struct
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from skyfed.types import Quantised, Update
from skyfed.wire import Reference, decode, encode
from skyfed.wire.entropy import pack_numbers, pack_places, pack_symbols
from skyfed.wire.quantise import QUANTISERS
from skyfed.wire.reader import number
from wire_cases import (
    BODIES,
    BODY,
    BUFFERS,
    CHUNK,
    INF,
    MASK,
    NORMS,
    expected,
    few,
    forced,
    joined,
    model,
    packed,
    plain_upload,
    refused,
    sealed,
    split,
    tampered,
    traced,
    upload,
    uploads,
)

# memory


GREAT = 2_000_000
SPARE = 5_000_000  # eden rotates up to 2**18 entries at a time, however few there are


def peak(data: bytes, reference: Reference) -> int:
    """Bytes allocated at most while a message is read, accepted or not."""
    assert reference.digest
    return traced(lambda: decode(data, expected(reference)))


def limit(size: int) -> int:
    """Twice the longest message, of four bytes an entry, and the update that it stands for, of five with its mask."""
    return 2 * (4 + 4 + 1) * size


@pytest.mark.parametrize("body", [body for body in BODIES if body != "eden variance"])  # which is read as eden is
def test_reading_a_large_message_takes_no_more_than_twice_it_and_its_update(body):
    reference = model(GREAT)
    for mask in ("dense", "guess"):
        assert peak(encode(upload(reference, body, mask), reference), reference) <= limit(GREAT)


@pytest.mark.parametrize("body", ["raw", "exact", "qsgd", "dither"])
@pytest.mark.parametrize("form", ["bitmap", "places", "guess", "channels"])
def test_masks_that_keep_all_take_no_more_memory_either(body, form):
    reference = model(GREAT)
    mask, channels = np.ones(GREAT, bool), np.ones(reference.channels.count, bool)
    update = replace(dense_upload(body), mask=mask, threshold=0.0, channels=channels if form == "channels" else None)
    assert peak(encode(forced(update, form, 1, 1), reference), reference) <= limit(GREAT)


@cache
def dense_upload(body: str) -> Update:
    return upload(model(GREAT), body)


@pytest.mark.parametrize("size", [0, 1000, 65_537, 196_609, CHUNK])
def test_messages_of_any_size_take_little_more(size):
    reference, everything = model(size), np.ones(size, bool)
    spare = SPARE if size > 1000 else 30_000
    for body in ("exact", "qsgd", "dither", "eden 4"):
        assert peak(encode(upload(reference, body), reference), reference) <= limit(size) + spare
    for s, bucket in ((4, 64), (4, 65_536)):
        body = uploads._body(reference, uploads.Scheme(QUANTISERS["eden"], "eden", s, bucket), everything)
        update = Update(7, 3, size, everything, body, reference.buffers)
        assert peak(encode(update, reference), reference) <= limit(size) + spare


@pytest.mark.parametrize("scheme", ["qsgd", "dither"])
def test_one_large_tensor_among_thousands_takes_no_more_memory(scheme):
    known = model(GREAT)
    reference = Reference(known.weights, known.buffers, np.append(np.arange(2000), GREAT))
    levels = np.random.default_rng(0).integers(-3, 4, GREAT).astype(np.int8)
    body = Quantised(scheme, levels, np.ones(2000, np.float32), 3, -1, int(scheme == "dither"))
    data = encode(Update(7, 3, GREAT, None, body, reference.buffers), reference)
    assert peak(data, reference) <= limit(GREAT)
    decode(data, expected(reference))


def hostile(kind: str) -> tuple[bytes, bool]:
    """A short message that unpacks to as much as it can, and whether it is a valid one."""
    reference, some = model(GREAT), few(GREAT)
    guess, accepted = reference.guess(0.05), False
    body = Quantised("qsgd", np.zeros(GREAT, np.int8), np.ones(1, np.float32), 1, 0)
    empty = Update(7, 3, GREAT, None, body, reference.buffers, forms=(0, 1, 0, 0), length=INF)
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
        new |= {MASK: pack_places(np.arange(some)), NORMS: one * (len(reference.starts) - 1)}
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
        fields = {"scheme": 0, "s": 0, "rate": uploads.RATE}
    data = tampered(encode(empty, reference), new, **fields)
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
    reason = uploads.check(data, expected(model(GREAT)))
    assert (reason is None) == accepted, reason
    assert peak(data, model(GREAT)) <= (limit(GREAT) if accepted else limit(GREAT) // 2)


def test_sizes_are_checked_before_anything_is_allocated():
    """However much a header promises, next to nothing is taken before it is refused."""
    data, reference = plain_upload()
    for fields in ({"size": 2**60}, {"kept": 2**60}, {"bucket": 2**31 - 1}, {"body_bytes": 2**32 - 1}):
        head, sections = split(data)
        wrong = uploads.HEAD.pack(*head._replace(**fields))
        assert peak(sealed(wrong + b"".join(sections)), reference) < 20_000


# any bytes at all


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
    uploads.check(joined(HEADS[size]._replace(length=INF, **fields), sections), expected(model(size)))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_refused(data):
    refused(data, model(9), "")
    refused(b"SKYF\x02" + data, model(9), "")
