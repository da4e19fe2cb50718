"""Batch-norm buffers as a few bits each: rotated differences from those that both sides know.

A running mean is measured in the standard deviations of its channel, a running variance in itself, so that all
differences are of one size. EDEN sends them without bias. What one upload loses, the mean over the vehicles mostly
gets back.
"""

import struct

import numpy as np

from skyfed.types import Quantised, Singles
from skyfed.wire.buckets import bucket_starts
from skyfed.wire.eden import Eden
from skyfed.wire.floats import pack_floats, unpack_floats
from skyfed.wire.levels import CODERS, pack_levels, pack_norms, unpack_levels, unpack_norms
from skyfed.wire.reader import DecodeError, Reader, number
from skyfed.wire.reference_model import Reference

ROTATED = 2  # form of the section; 0 and 1 are exact
BLOCK = 256  # entries that are rotated together
_HEAD = struct.Struct("<BBBQ")  # levels above zero, forms of levels and norms, seed
_FLOOR = 1e-2  # of the median variance is added to each: a dead channel may come to life
_LEAST = 0.05  # of a variance that is left at least


def quantise_buffers(buffers: Singles, reference: Reference, s: int, rng: np.random.Generator) -> Quantised:
    """Return the differences from the reference's buffers as levels."""
    apart = ((buffers.astype(np.float64) - reference.buffers) / _units(reference)).astype(np.float32)
    levels, norms, seed = Eden().quantise(apart, _starts(reference), s, "l2", rng)
    return Quantised("eden", levels, norms, s, BLOCK, seed)


def restored(code: Quantised, reference: Reference) -> Singles:
    """Return the buffers that levels stand for; variances stay above 0."""
    apart = Eden().dequantise(code.levels, code.norms, _starts(reference), code.s, code.seed)
    buffers = reference.buffers + apart.astype(np.float64) * _units(reference)
    own = reference.variance_of == np.arange(len(buffers))
    buffers[own] = np.maximum(buffers[own], _LEAST * reference.buffers[own])
    return np.asarray(buffers, np.float32)


def pack_buffers(
    buffers: Singles, code: Quantised | None, reference: Reference, form: int | None = None
) -> tuple[int, bytes]:
    """Pack buffers exactly, or as the levels that they were made from."""
    if code is None:
        return pack_floats(buffers, reference.buffers, form)
    levels_form, levels = pack_levels(code.levels, code.s, None, CODERS["range"])
    norms_form, norms = pack_norms(code.norms)
    return ROTATED, _HEAD.pack(code.s, levels_form, norms_form, code.seed) + number(len(norms)) + norms + levels


def unpack_buffers(form: int, data: memoryview, reference: Reference) -> tuple[Singles, Quantised | None]:
    """Read what `pack_buffers` wrote: the buffers, and their levels where there are any."""
    if form != ROTATED:
        return unpack_floats(form, data, reference.buffers), None
    if not len(reference.buffers):
        raise DecodeError("levels of buffers, but the model has none")
    reader = Reader(data)
    s, levels_form, norms_form, seed = _HEAD.unpack(reader.take(_HEAD.size))
    if not Eden.fits(BLOCK, s):
        raise DecodeError(f"buffers of {s} levels")
    starts = _starts(reference)
    norms = unpack_norms(norms_form, reader.take(reader.number(len(data))), len(starts) - 1)
    levels = unpack_levels(levels_form, reader.rest(), Eden().count(starts), s, None)
    if not levels.all():
        raise DecodeError("a level is 0 where none can be")
    code = Quantised("eden", levels, norms, s, BLOCK, seed)
    if pack_buffers(np.empty(0, np.float32), code, reference)[1] != data:
        raise DecodeError("buffers are not packed in the shortest form")
    with np.errstate(over="ignore", invalid="ignore"):
        return restored(code, reference), code


def _starts(reference: Reference) -> np.ndarray:
    return bucket_starts(len(reference.buffers), BLOCK, reference.starts, None)


def _units(reference: Reference) -> np.ndarray:
    """Return what each buffer's difference is measured in; 1 for a buffer that has no variance."""
    places, values = reference.variance_of, reference.buffers.astype(np.float64)
    own = places == np.arange(len(values))
    floor = _FLOOR * max(0.0, float(np.median(values[own]))) + 1e-12 if own.any() else 0.0
    variances = np.maximum(values[places], 0) + floor
    return np.where(own, variances, np.where(places >= 0, np.sqrt(variances), 1.0))
