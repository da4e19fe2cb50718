"""What the station sends down as bytes: the model alone (`downlink.py`, version 1), or any named arrays (version 2).

Arrays of float32 travel as exact differences from those that the vehicle has, others as they are. A message says how
large its arrays are; the receiver sets the limit. Anything else raises DecodeError.
"""

import struct
from math import prod
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from skyfed.types import Arrays
from skyfed.wire.downlink import MAGIC, decode_model, encode_model
from skyfed.wire.floats import PLAIN, pack_floats, unpack_floats
from skyfed.wire.reader import DecodeError
from skyfed.wire.reference_model import Reference

NAMED = 2  # version
_DTYPES = ("<f4", "|u1", "|i1", "<i4", "<i8", "<f8", "|b1")
_MOST_ARRAYS, _MOST_AXES, _NAME = 32, 4, 24
_HEAD = struct.Struct("<4sBBIQQ")  # magic, version, arrays, round, digest of what the vehicle has, and of what it gets
_ENTRY = struct.Struct(f"<{_NAME}sBBB{_MOST_AXES}IQ")  # name, type, axes, form, lengths of the axes, bytes
_SUM = struct.Struct("<Q")


def is_model(arrays: Arrays) -> bool:
    """Tell whether arrays are a model and nothing else."""
    return set(arrays) == {"weights", "buffers"} and all(
        array.dtype == np.float32 and array.ndim == 1 for array in arrays.values()
    )


def digest_of(arrays: Arrays) -> int:
    """Return 64 bits that stand for named arrays (XXH3); those of a model are its `Reference`'s."""
    if is_model(arrays):
        return _common(arrays).digest
    hashed = xxhash.xxh3_64()
    for name in sorted(arrays):
        array = np.asarray(arrays[name], order="C")  # np.ascontiguousarray would give a single number an axis
        hashed.update(f"{name}|{array.dtype.str}|{array.shape}|".encode())
        hashed.update(array.data if array.size else b"")
    return int(hashed.intdigest())


def encode_content(round: int, arrays: Arrays, base: Arrays | None) -> bytes:
    """Pack what a vehicle gets in a round, given what it has; raises ValueError for what cannot be sent."""
    if is_model(arrays):
        return encode_model(round, _common(arrays), _model_in(base, len(arrays["weights"]), len(arrays["buffers"])))
    if len(arrays) > _MOST_ARRAYS:
        raise ValueError(f"{len(arrays)} arrays; allowed: at most {_MOST_ARRAYS}")
    entries, parts = [], []
    for name, array in arrays.items():
        entry, data = _pack(name, array, None if base is None else base.get(name))
        entries.append(entry)
        parts.append(data)
    before = 0 if base is None else digest_of(base)
    message = b"".join([_HEAD.pack(MAGIC, NAMED, len(arrays), round, before, digest_of(arrays)), *entries, *parts])
    return message + _SUM.pack(xxhash.xxh3_64_intdigest(message))


def decode_content(data: bytes, round: int, model: tuple[int, int], most: int, base: Arrays | None) -> Arrays:
    """Read what the station sent: a model of these sizes, or arrays of at most so many entries in all."""
    version = data[4] if len(data) > 4 else 0
    if version != NAMED:
        weights, buffers = decode_model(data, round, model, _model_in(base, *model))
        return {"weights": weights, "buffers": buffers}
    if len(data) < _HEAD.size + _SUM.size:
        raise DecodeError(f"truncated: {len(data)} bytes")
    magic, _, count, t, before, after = _HEAD.unpack_from(data)
    at = _HEAD.size + count * _ENTRY.size
    if magic != MAGIC or t != round or count > _MOST_ARRAYS or len(data) < at + _SUM.size:
        raise DecodeError(f"not what is sent down in round {round}")
    if before != (0 if base is None else digest_of(base)):
        raise DecodeError("a difference from another model")
    if xxhash.xxh3_64_intdigest(memoryview(data)[: -_SUM.size]) != _SUM.unpack(data[-_SUM.size :])[0]:
        raise DecodeError("checksum differs")
    found: Arrays = {}
    view, end = memoryview(data), len(data) - _SUM.size
    for k in range(count):
        raw, kind, axes, form, *rest = _ENTRY.unpack_from(data, _HEAD.size + k * _ENTRY.size)
        length, shape = rest[-1], tuple(rest[:-1][: min(axes, _MOST_AXES)])
        name = raw.rstrip(b"\0").decode("ascii", "replace")
        most -= prod(shape)
        if kind >= len(_DTYPES) or axes > _MOST_AXES or any(rest[:-1][axes:]) or most < 0 or length > end - at:
            raise DecodeError(f"array {k} is larger than allowed, or of an unknown kind")
        if name in found or not name.isprintable() or raw != name.encode("ascii", "replace").ljust(_NAME, b"\0"):
            raise DecodeError(f"array {k} has no name of its own")
        found[name] = _unpack(name, kind, shape, form, view[at : at + length], None if base is None else base.get(name))
        at += length
    if at != end:
        raise DecodeError("bytes that belong to no array")
    if digest_of(found) != after:
        raise DecodeError("not what was sent")
    return found


def _pack(name: str, array: NDArray[Any], base: NDArray[Any] | None) -> tuple[bytes, bytes]:
    code = array.dtype.str
    if code not in _DTYPES or array.ndim > _MOST_AXES or not name.isascii() or not 1 <= len(name) <= _NAME:
        raise ValueError(
            f"array {name!r} of {array.dtype} with {array.ndim} axes cannot be sent; allowed: names of 1 to {_NAME} "
            f"ASCII letters, at most {_MOST_AXES} axes, float32, float64, int8, uint8, int32, int64, bool"
        )
    form, data = PLAIN, b""
    if code == "<f4":
        near = base if base is not None and (base.dtype, base.shape) == (array.dtype, array.shape) else None
        flat = np.ascontiguousarray(array).reshape(-1)
        form, data = pack_floats(flat, flat if near is None else near.reshape(-1), PLAIN if near is None else None)
    else:
        data = np.ascontiguousarray(array).tobytes()
    shape = [*array.shape, *[0] * (_MOST_AXES - array.ndim)]
    return _ENTRY.pack(name.encode(), _DTYPES.index(code), array.ndim, form, *shape, len(data)), data


def _unpack(
    name: str, kind: int, shape: tuple[int, ...], form: int, data: memoryview, base: NDArray[Any] | None
) -> NDArray[Any]:
    dtype, size = np.dtype(_DTYPES[kind]), prod(shape)
    if kind == 0:
        if form != PLAIN and (base is None or base.dtype != np.float32 or base.shape != shape):
            raise DecodeError(f"array {name!r} is a difference from what is not here")
        near = np.zeros(size, np.float32) if base is None or form == PLAIN else base.reshape(-1)
        values: NDArray[Any] = unpack_floats(form, data, near)
    else:
        if form != PLAIN or len(data) != size * dtype.itemsize:
            raise DecodeError(f"array {name!r} has {len(data)} bytes, expected {size * dtype.itemsize}")
        if _DTYPES[kind] == "|b1" and size and np.frombuffer(data, np.uint8).max() > 1:
            raise DecodeError(f"array {name!r} has truth values other than 0 and 1")
        values = np.frombuffer(data, dtype).copy()
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise DecodeError(f"an entry of {name!r} is not finite")
    return values.reshape(shape)


def _model_in(base: Arrays | None, size: int, buffers: int) -> Reference | None:
    """Return the model among the arrays that a vehicle has, if there is one of these sizes."""
    wanted = {"weights": (size,), "buffers": (buffers,)}
    found = {name: array for name, array in (base or {}).items() if array.shape == wanted.get(name)}
    return _common(found) if is_model(found) else None


def _common(arrays: Arrays) -> Reference:
    weights = arrays["weights"]
    return Reference(weights, arrays["buffers"], np.array([0, len(weights)]))
