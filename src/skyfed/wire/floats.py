"""Floats that both sides nearly know: exact, as differences of their places in the order of all floats."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray
from pcodec import ChunkConfig, DeltaSpec, ModeSpec, standalone

from skyfed.types import Singles
from skyfed.wire.reader import DecodeError, Reader, chunks, number

PLAIN, DIFFERENCES = 0, 1
_HOW = ChunkConfig(compression_level=6, delta_spec=DeltaSpec.no_op(), mode_spec=ModeSpec.classic())


def accumulated(start: Singles, trained: Singles, rate: float) -> Singles:
    """Return d = (start - trained) / rate in float32, on the vehicle and at the station alike."""
    return np.asarray((start - trained) / start.dtype.type(rate))


def pack_floats(values: Singles, near: Singles | None, form: int | None = None) -> tuple[int, bytes]:
    """Pack values as differences from `near` if there is any, or as they are: the shorter, or the form asked for."""
    plain = 4 * len(values)
    if near is not None and form != PLAIN and plain:
        packed = b"".join(_pack_chunk(values[part], near[part]) for part in chunks(len(values)))
        if form == DIFFERENCES or len(packed) < plain:
            return DIFFERENCES, packed
    return PLAIN, np.ascontiguousarray(values, "<f4").tobytes()


def unpack_floats(form: int, data: memoryview, near: Singles) -> Singles:
    """Read what `pack_floats` wrote: as many values as there are in `near`."""
    if form == PLAIN:
        if len(data) != 4 * len(near):
            raise DecodeError(f"{len(data)} bytes of floats, {4 * len(near)} expected")
        return np.frombuffer(data, "<f4").astype(np.float32)
    if form != DIFFERENCES or not len(near):
        raise DecodeError(f"floats in form {form}")
    values, reader = np.empty(len(near), np.float32), Reader(data)
    for part in chunks(len(near)):
        start = _ordered(near[part])
        packed, differences = bytes(reader.take(reader.number(8 * len(start) + 4096))), np.empty_like(start)
        with panics("packed floats are damaged"):
            progress = standalone.simple_decompress_into(packed, differences)
        if progress.n_processed != len(start) or not progress.finished:
            raise DecodeError(f"{progress.n_processed} packed floats, {len(start)} expected")
        if standalone.simple_compress(differences, _HOW) != packed:
            raise DecodeError("packed floats are not as this version of pcodec packs them")
        values[part] = _mirrored(differences + start).view(np.float32)
    reader.end()
    return values


def _pack_chunk(values: Singles, near: Singles) -> bytes:
    packed: bytes = standalone.simple_compress(_ordered(values) - _ordered(near), _HOW)
    return number(len(packed)) + packed


@contextmanager
def panics(what: str) -> Iterator[None]:
    """Turn whatever a library does on damaged bytes into a DecodeError."""
    try:
        yield
    except BaseException as error:  # a panic of compiled code is no Exception
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise DecodeError(f"{what} ({error})") from None


def _ordered(values: Singles) -> NDArray[np.int32]:
    """Number the floats in their order; -0 comes right before 0."""
    return _mirrored(np.ascontiguousarray(values, np.float32).view(np.int32))


def _mirrored(bits: NDArray[np.int32]) -> NDArray[np.int32]:
    """Turn the order of the negative ones around, from bits of floats to numbers in order and back."""
    return bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))
