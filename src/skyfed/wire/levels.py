"""Levels and norms as bytes."""

from collections.abc import Iterable

import numpy as np

from skyfed.types import Bools, Levels, Singles
from skyfed.wire import entropy
from skyfed.wire.floats import panics
from skyfed.wire.reader import DecodeError, Reader, number

PLAIN, RANGE, ZSTD = 0, 1, 2
CODERS = {"plain": PLAIN, "range": RANGE, "zstd": ZSTD}
_ZSTD_LEVEL = 3


def pack_levels(
    levels: Levels, s: int, context: entropy.Symbols | None, coder: int, form: int | None = None
) -> tuple[int, bytes]:
    """Pack levels by this coder, or as bit planes where these are shorter; `form` leaves no choice.

    RANGE  for each context: how many levels are not 0, and if few their places and the levels there, else all levels
    PLAIN  level + s as bit planes, lowest bit first        ZSTD  the same, compressed
    """
    wanted = coder if form is None else form
    if wanted == RANGE:
        packed = b"".join(_pack_group(levels[where], s) for where in _wheres(len(levels), context))
    elif wanted == ZSTD:
        packed = _zstd_pack(_pack_planes(levels, s))
    if wanted != PLAIN and (form is not None or len(packed) < plain_length(len(levels), s)):
        return wanted, packed
    return PLAIN, _pack_planes(levels, s)


def unpack_levels(form: int, data: memoryview, count: int, s: int, context: entropy.Symbols | None) -> Levels:
    """Read `count` levels."""
    if form == RANGE:
        reader = Reader(data)
        levels = np.empty(count, np.int8)
        for where in _wheres(count, context):
            levels[where] = _unpack_group(reader, len(levels[where]), s)
        reader.end()
        return levels
    if form not in (PLAIN, ZSTD):
        raise DecodeError(f"levels in form {form}")
    return _unpack_planes(data if form == PLAIN else _zstd_unpack(data, plain_length(count, s)), count, s)


def plain_length(count: int, s: int) -> int:
    """Bytes of `count` levels as bit planes."""
    return int((2 * s).bit_length() * -(-count // 8))


def pack_norms(norms: Singles, form: int | None = None) -> tuple[int, bytes]:
    """Pack norms, which are bfloat16 numbers, as they are or as differences from one to the next."""
    bits = np.ascontiguousarray(norms, np.float32).view(np.uint32)
    if (bits & 0xFFFF).any():
        raise ValueError("norms must be bfloat16 numbers")
    upper = (bits >> 16).astype(np.uint16)
    plain = upper.astype("<u2").tobytes()
    if form == PLAIN or not len(norms):
        return PLAIN, plain
    steps = np.diff(upper, prepend=np.uint16(0)).view(np.int16)
    packed = entropy.pack_numbers(((steps << 1) ^ (steps >> 15)).view(np.uint16).astype(np.uint32))
    return (RANGE, packed) if form == RANGE or len(packed) < len(plain) else (PLAIN, plain)


def unpack_norms(form: int, data: memoryview, count: int) -> Singles:
    """Read `count` norms; they are finite and not negative."""
    if form == PLAIN:
        if len(data) != 2 * count:
            raise DecodeError(f"{len(data)} bytes of norms, {2 * count} expected")
        upper = np.frombuffer(data, "<u2").astype(np.uint16)
    elif form == RANGE and count:
        reader = Reader(data)
        folded = entropy.unpack_numbers(reader, count)
        reader.end()
        if int(folded.max()) > 0xFFFF:
            raise DecodeError("a norm is out of range")
        steps = (folded >> 1).astype(np.uint16) ^ (-(folded & 1).astype(np.int32)).astype(np.uint16)
        upper = np.cumsum(steps, dtype=np.uint16)
    else:
        raise DecodeError(f"norms in form {form}")
    norms = (upper.astype(np.uint32) << 16).view(np.float32)
    if not (np.isfinite(norms) & ~np.signbit(norms)).all():
        raise DecodeError("a norm is negative or not finite")
    return norms


def _wheres(count: int, context: entropy.Symbols | None) -> Iterable[slice | Bools]:
    """Return where the levels of each context are, in ascending order; all together where there is none."""
    if context is None or not count:
        return [slice(None)]
    return (context == value for value in range(int(context.max()) + 1))


def _pack_group(levels: Levels, s: int) -> bytes:
    flags = levels != 0
    count = int(np.count_nonzero(flags))
    if count > entropy.few(len(levels)):
        return number(count) + entropy.pack_symbols((levels.astype(np.int16) + s).astype(np.uint8))
    places = entropy.places_of(flags)
    nonzero = levels[places]
    symbols = (nonzero + s - (nonzero > 0)).astype(np.uint8)
    return number(count) + entropy.pack_places(places) + entropy.pack_symbols(symbols)


def _unpack_group(reader: Reader, size: int, s: int) -> Levels:
    count = reader.number(size)
    if count > entropy.few(size):
        levels = (entropy.unpack_symbols(reader, size, 2 * s + 1).astype(np.int16) - s).astype(np.int8)
        if int(np.count_nonzero(levels)) != count:
            raise DecodeError(f"not the {count} levels that were said not to be 0")
        return levels
    places = entropy.unpack_places(reader, count, size)
    symbols = entropy.unpack_symbols(reader, count, 2 * s).astype(np.int16)
    levels = np.zeros(size, np.int8)
    levels[places] = symbols - s + (symbols >= s)
    return levels


def _pack_planes(levels: Levels, s: int) -> bytes:
    shifted = (levels.astype(np.int16) + s).astype(np.uint8)
    return b"".join(np.packbits((shifted >> plane) & 1).tobytes() for plane in range((2 * s).bit_length()))


def _unpack_planes(data: bytes | memoryview, count: int, s: int) -> Levels:
    reader = Reader(data)
    shifted = np.zeros(count, np.uint8)
    for plane in range((2 * s).bit_length()):
        shifted |= entropy.unpack_bits(reader, count) << plane
    reader.end()
    if count and int(shifted.max()) > 2 * s:
        raise DecodeError(f"a level is above {s}")
    return (shifted.astype(np.int16) - s).astype(np.int8)


def _zstd_pack(plain: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(plain)


def _zstd_unpack(data: memoryview, length: int) -> bytes:
    import zstandard

    with panics("zstd-packed levels are damaged"):
        said = zstandard.get_frame_parameters(data).content_size
    if said != length:  # before anything is allocated
        raise DecodeError(f"levels unpack to {said} bytes, {length} expected")
    with panics("zstd-packed levels are damaged"):
        plain = zstandard.ZstdDecompressor().decompress(data, max_output_size=length)
    if _zstd_pack(plain) != data:
        raise DecodeError("levels are not as this version of zstd packs them")
    return plain
