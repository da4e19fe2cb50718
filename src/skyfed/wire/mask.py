"""Masks as bytes: a bitmap, places, differences from a guess that both sides can make, or a list of channels."""

import struct

import numpy as np

from skyfed.types import Bools, Update
from skyfed.wire.entropy import few, pack_places, places_of, unpack_bits, unpack_places
from skyfed.wire.reader import DecodeError, Reader, number
from skyfed.wire.reference_model import Reference

NONE, BITMAP, PLACES, GUESS, CHANNELS = range(5)
_THRESHOLD = struct.Struct("<f")


def pack_mask(update: Update, reference: Reference, form: int | None = None) -> tuple[int, bytes]:
    """Pack a mask in the shortest form, or in the form asked for.

    PLACES  of the kept or of the pruned entries, whichever are fewer
    GUESS   threshold, number of differences from the mask that it gives on w^t, their places
    """
    mask = update.mask
    if mask is None:
        return NONE, b""
    if update.channels is not None and form in (None, CHANNELS):
        return CHANNELS, np.packbits(update.channels).tobytes()
    packed = {}
    if form in (None, BITMAP):
        packed[BITMAP] = np.packbits(mask).tobytes()
    if form == PLACES or (form is None and min(update.kept, len(mask) - update.kept) <= few(len(mask))):
        packed[PLACES] = pack_places(places_of(mask if 2 * update.kept <= len(mask) else ~mask))
    if form == GUESS or (form is None and 0 <= update.threshold <= float(np.finfo(np.float32).max)):
        flips = places_of(reference.guess(update.threshold) != mask)
        if form == GUESS or len(flips) <= few(len(mask)):
            packed[GUESS] = _THRESHOLD.pack(abs(update.threshold)) + number(len(flips)) + pack_places(flips)
    best = min(packed, key=lambda key: len(packed[key]))
    return best, packed[best]


def unpack_mask(
    form: int, data: memoryview, kept: int, reference: Reference
) -> tuple[Bools | None, float, Bools | None]:
    """Read a mask that keeps so many entries; returns it with its threshold and its channels."""
    reader, size = Reader(data), reference.size
    threshold, channels = float("nan"), None
    if form == NONE:
        reader.end()
        if kept != size:
            raise DecodeError(f"no mask, but {kept} of {size} entries kept")
        return None, threshold, None
    if form == BITMAP:
        mask = unpack_bits(reader, size).astype(bool)
    elif form == PLACES:
        fewer = 2 * kept <= size
        if min(kept, size - kept) > few(size):
            raise DecodeError("a bitmap would be shorter than so many places")
        mask = np.full(size, not fewer)
        mask[unpack_places(reader, kept if fewer else size - kept, size)] = fewer
    elif form == GUESS:
        (threshold,) = _THRESHOLD.unpack(reader.take(4))
        if not 0 <= threshold < np.inf or np.signbit(threshold):
            raise DecodeError("the mask's threshold is negative or not finite")
        mask = reference.guess(threshold)
        flips = unpack_places(reader, reader.number(few(size)), size)
        mask[flips] = ~mask[flips]
    elif form == CHANNELS and reference.channels is not None:
        channels = unpack_bits(reader, reference.channels.count).astype(bool)
        mask = reference.channels.mask(channels)
    else:
        raise DecodeError(f"a mask in form {form}")
    reader.end()
    if int(np.count_nonzero(mask)) != kept:
        raise DecodeError(f"the mask keeps {int(np.count_nonzero(mask))}, the header says {kept}")
    return mask, threshold, channels
