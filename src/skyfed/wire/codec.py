"""Uploads as bytes and back (docs/wire.md). Anything that is not a valid upload raises DecodeError and nothing else.

A message is a header of fixed length, the four sections mask, body, norms, buffers, and a checksum. Whatever `decode`
accepts, `encode` turns into the same bytes again. All sizes are checked before anything is allocated.
"""

import math
import struct
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from skyfed.types import Bools, Levels, Quantised, Raw, Singles, Update
from skyfed.wire.buckets import SMALLEST, TENSOR, bucket_starts, spread, up_to_float32
from skyfed.wire.buffers import pack_buffers, unpack_buffers
from skyfed.wire.eden import Eden
from skyfed.wire.entropy import few, places_of
from skyfed.wire.floats import DIFFERENCES, accumulated, pack_floats, unpack_floats
from skyfed.wire.levels import CODERS, pack_levels, pack_norms, unpack_levels, unpack_norms
from skyfed.wire.mask import NONE, pack_mask, unpack_mask
from skyfed.wire.quantise import QUANTISERS
from skyfed.wire.reader import SUM, DecodeError, Reader, chunks, seal, unpack_head, unseal
from skyfed.wire.reference_model import Expected, Reference

MAGIC, VERSION = b"SKYF", 2
SCHEMES, RAW = ("raw", *QUANTISERS), 0
_HEAD = struct.Struct("<4s8BiIIQQQQff4I")
_MANY = 1000  # levels from which on what their places take is hardly left to chance
_SPARE = 4096  # bytes that tables of counts may take in a section beyond its plain length
_LENIENT = 1 + 2.0**-20  # sums of squares may differ that much between processors


class Header(NamedTuple):
    """A message's first bytes, in order; docs/wire.md has their meaning."""

    magic: bytes
    version: int
    scheme: int
    s: int
    mask_form: int
    body_form: int
    norms_form: int
    buffers_form: int
    coder: int
    bucket: int
    round: int
    vehicle: int
    size: int
    kept: int
    digest: int
    seed: int
    rate: float
    length: float
    mask_bytes: int
    body_bytes: int
    norms_bytes: int
    buffers_bytes: int

    @property
    def sections(self) -> tuple[int, int, int, int]:
        """Bytes of each section."""
        return self[-4:]


def encode(update: Update, reference: Reference) -> bytes:
    """Pack an update; both sides know `reference`."""
    forms = update.forms or (None, None, None, None)
    mask_form, mask = pack_mask(update, reference, forms[0])
    scheme, coder, norms_form, norms, seed, rate, s, bucket = "raw", "range", 0, b"", 0, 0.0, 0, 0
    body = update.body
    if isinstance(body, Quantised):
        scheme, coder, s, bucket, seed = body.scheme, update.coder, body.s, body.bucket, body.seed
        starts = bucket_starts(update.kept, bucket, reference.starts, update.mask)
        context = QUANTISERS[scheme].context(starts, seed)
        body_form, packed = pack_levels(body.levels, s, context, CODERS[coder], forms[1])
        norms_form, norms = pack_norms(body.norms, forms[2])
        levels = _without_mask(update, body, len(mask))
        if levels is not None:
            other_form, other = pack_levels(levels, s, None, CODERS[coder])
            if len(other) < len(mask) + len(packed):
                update = replace(update, mask=None, body=replace(body, levels=levels))
                mask_form, mask, body_form, packed = NONE, b"", other_form, other
    elif body.trained is None:
        body_form, packed = 0, np.ascontiguousarray(body.values, "<f4").tobytes()
    else:
        rate = body.rate if update.kept else 0.0
        near = reference.weights if update.mask is None else reference.weights[update.mask]
        body_form, packed = pack_floats(body.trained, near, forms[1] or DIFFERENCES)
    buffers_form, buffers = pack_buffers(update.buffers, update.code, reference, forms[3])
    sections = (mask, packed, norms, buffers)
    head = Header(
        MAGIC, VERSION, SCHEMES.index(scheme), s,
        mask_form, body_form, norms_form, buffers_form, CODERS[coder], bucket, update.round, update.vehicle,
        update.size, update.kept, reference.digest, seed, rate,
        float(up_to_float32(np.float64(_length(update, reference)))) if update.length is None else update.length,
        *map(len, sections),
    )  # fmt: skip
    return seal(_HEAD.pack(*head), *sections)


def decode(data: bytes, expected: Expected) -> Update:
    """Read an upload, or say what is wrong with it."""
    head = read_header(data)
    reference = expected.reference
    _check_header(head, len(data), expected)
    reader = Reader(unseal(data)[_HEAD.size :])
    mask_data, body_data, norms_data, buffers_data = (reader.take(length) for length in head.sections)
    mask, threshold, channels = unpack_mask(head.mask_form, mask_data, head.kept, reference)
    body = _read_body(head, body_data, norms_data, mask, reference)
    buffers, code = unpack_buffers(head.buffers_form, buffers_data, reference)
    if not np.isfinite(buffers).all():
        raise DecodeError("a buffer is not finite")
    if (buffers[reference.variance_of == np.arange(len(buffers))] < 0).any():
        raise DecodeError("a running variance is below 0")
    forms = (head.mask_form, head.body_form, head.norms_form, head.buffers_form)
    coder = list(CODERS)[head.coder]
    update = Update(
        head.round, head.vehicle, head.size, mask, body, buffers, threshold, channels, coder, forms, head.length, code
    )
    with np.errstate(over="ignore", invalid="ignore"):
        length = _length(update, reference)
    if not np.isfinite(length):
        raise DecodeError("an entry of d is not finite")
    if not length <= head.length * _LENIENT:
        raise DecodeError(f"d is longer than the {head.length:g} its header allows")
    return update


def read_header(data: bytes) -> Header:
    """Read a message's header, unchecked but for what it is."""
    head = Header(*unpack_head(_HEAD, data))
    if head.magic != MAGIC:
        raise DecodeError("not an upload")
    if head.version != VERSION:
        raise DecodeError(f"an upload of version {head.version}; this is version {VERSION}")
    return head


def _check_header(head: Header, length: int, expected: Expected) -> None:
    reference = expected.reference
    for name, value, wanted in (
        ("round", head.round, expected.round), ("vehicle", head.vehicle, expected.vehicle),
        ("size", head.size, reference.size), ("digest of the received model", head.digest, reference.digest),
    ):  # fmt: skip
        if value != wanted:
            raise DecodeError(f"{name} is {value}, expected {wanted}")
    raw = head.scheme == RAW
    exact = raw and head.body_form == DIFFERENCES
    if expected.rate is not None and exact and head.rate != np.float32(expected.rate):
        raise DecodeError(f"learning rate is {head.rate}, expected {expected.rate}")
    if head.scheme >= len(SCHEMES) or head.coder >= len(CODERS) or head.kept > head.size:
        raise DecodeError("header out of range")
    if head.bucket not in (TENSOR, 0) and head.bucket < SMALLEST:
        raise DecodeError(f"buckets of {head.bucket}")
    if raw and (head.s or head.bucket or head.seed or head.norms_form or head.norms_bytes or head.coder != 1):
        raise DecodeError("a raw upload with what only levels need")
    if not raw and not 1 <= head.s <= 127:
        raise DecodeError("header out of range")
    if SCHEMES[head.scheme] == "eden" and not Eden.fits(head.bucket, head.s):
        raise DecodeError("blocks that cannot be rotated")
    if SCHEMES[head.scheme] == "qsgd" and head.seed:
        raise DecodeError("a seed that nobody needs")
    if not 0 < head.rate < np.inf if exact else (head.rate != 0 or np.signbit(head.rate)):
        raise DecodeError(f"learning rate is {head.rate}")
    if not 0 <= head.length <= expected.longest:
        raise DecodeError(f"d may be as long as {head.length:g}, at most {expected.longest:g} is accepted")
    norms = 4 * (head.kept + len(reference.starts))
    filled = 8 * head.bucket if SCHEMES[head.scheme] == "eden" else 0  # the last block is filled up
    body = 4 * head.kept + head.kept // 4096 + filled
    longest = (reference.size // 8, body, norms, 4 * len(reference.buffers))
    if any(size > most + _SPARE for size, most in zip(head.sections, longest, strict=True)):
        raise DecodeError("a section is longer than it can be")
    announced = _HEAD.size + sum(head.sections) + SUM.size
    if announced != length:
        raise DecodeError(f"{length} bytes, the header says {announced}")


def _read_body(
    head: Header, data: memoryview, norms_data: memoryview, mask: Bools | None, reference: Reference
) -> Raw | Quantised:
    if head.scheme:
        scheme, starts = SCHEMES[head.scheme], bucket_starts(head.kept, head.bucket, reference.starts, mask)
        norms = unpack_norms(head.norms_form, norms_data, len(starts) - 1)
        count, context = QUANTISERS[scheme].count(starts), QUANTISERS[scheme].context(starts, head.seed)
        levels = unpack_levels(head.body_form, data, count, head.s, context)
        if scheme == "eden" and head.s > 1 and not levels.all():
            raise DecodeError("a level is 0 where none can be")
        return Quantised(scheme, levels, norms, head.s, head.bucket, head.seed)
    near = reference.weights if mask is None else reference.weights[mask]
    values, trained = unpack_floats(head.body_form, data, near), None
    if head.body_form == DIFFERENCES:
        trained = values
        with np.errstate(over="ignore", invalid="ignore"):
            values = accumulated(near, trained, head.rate)
    if not np.isfinite(values).all():
        raise DecodeError("a value is not finite")
    return Raw(values, trained, head.rate)


def entries(update: Update, reference: Reference) -> Singles:
    """Return the entries of d that an update stands for, those under its mask."""
    body = update.body
    if isinstance(body, Raw):
        return body.values
    starts = bucket_starts(update.kept, body.bucket, reference.starts, update.mask)
    return QUANTISERS[body.scheme].dequantise(body.levels, body.norms, starts, body.s, body.seed)


def _length(update: Update, reference: Reference) -> float:
    """Return the l2 norm of d as it will be decoded."""
    body, total = update.body, 0.0
    if isinstance(body, Quantised) and body.scheme == "qsgd":  # without going through every entry as float32
        starts = bucket_starts(update.kept, body.bucket, reference.starts, update.mask)
        factors = body.norms / np.float32(body.s)
        flags = body.levels != 0
        if np.count_nonzero(flags) <= few(len(flags)):
            places = places_of(flags)
            sparse = factors[np.searchsorted(starts, places, "right") - 1].astype(np.float64) * body.levels[places]
            return float(np.sqrt(np.add.reduce(sparse * sparse)))
        runs = spread(factors, starts)
        parts = (np.multiply(body.levels[start:stop], factor, dtype=np.float64) for start, stop, factor in runs)
    else:
        values = entries(update, reference)
        parts = (values[part].astype(np.float64) for part in chunks(len(values)))
    for wide in parts:
        total += float(np.add.reduce(np.square(wide, out=wide)))
    return math.sqrt(total)


def _without_mask(update: Update, body: Quantised, cost: int) -> Levels | None:
    """Return the levels of all entries, 0 for what was pruned, if they may be shorter than a mask of `cost` bytes.

    The mask can go where zeros stay zeros and buckets do not depend on it. Then the places of levels that are not 0
    are sent among all entries instead of the kept ones. That takes about log2(size / kept) more bits per level: with
    many levels never less than three quarters of that, with few perhaps half.
    """
    if update.forms is not None or update.mask is None or body.scheme != "qsgd" or body.bucket > 0:
        return None
    count = int(np.count_nonzero(body.levels))
    more = count * np.log2(max(1, update.size) / max(1, update.kept))
    if 8 * cost <= (0.75 if count > _MANY else 0.5) * more:
        return None
    levels = np.zeros(update.size, np.int8)
    places = places_of(body.levels != 0)
    levels[update.places[places]] = body.levels[places]
    return levels
