"""What the station sends down as bytes: the model alone (version 1), or any named arrays (version 2).

Arrays of float32 travel as exact differences from those that the vehicle has, others as they are. A message says how
large its arrays are; the receiver sets the limit. Anything else raises DecodeError.
"""

import struct
from math import prod
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from skyfed.types import Arrays, Singles
from skyfed.wire.floats import PLAIN, pack_floats, unpack_floats
from skyfed.wire.reader import SUM, DecodeError, seal, unpack_head, unseal
from skyfed.wire.reference_model import Reference

MAGIC, MODEL_ALONE, NAMED = b"SKYM", 1, 2  # the last two are versions
_MODEL_HEAD = struct.Struct("<4sBBBIQQQQQ")  # ..., forms of both parts, round, digest before and after, sizes, bytes
_SPARE = 4096  # bytes that packing may add to numbers that cannot be packed
_DTYPES = ("<f4", "|u1", "|i1", "<i4", "<i8", "<f8", "|b1")
_MOST_ARRAYS, _MOST_AXES, _NAME = 32, 4, 24
_HEAD = struct.Struct("<4sBBIQQ")  # magic, version, arrays, round, digest of what the vehicle has, and of what it gets
_ENTRY = struct.Struct(f"<{_NAME}sBBB{_MOST_AXES}IQ")  # name, type, axes, form, lengths of the axes, bytes


def encode_model(round: int, model: Reference, base: Reference | None) -> bytes:
    """Pack the model of a round for a vehicle that has `base`, or for one that has nothing."""
    weights_form, weights = pack_floats(model.weights, None if base is None else base.weights)
    buffers_form, buffers = pack_floats(model.buffers, None if base is None else base.buffers)
    head = _MODEL_HEAD.pack(
        MAGIC, MODEL_ALONE, weights_form, buffers_form, round, 0 if base is None else base.digest, model.digest,
        model.size, len(model.buffers), len(weights),
    )  # fmt: skip
    return seal(head, weights, buffers)


def decode_model(data: bytes, round: int, sizes: tuple[int, int], base: Reference | None) -> tuple[Singles, Singles]:
    """Read weights and buffers of these sizes, or say what is wrong."""
    magic, version, weights_form, buffers_form, t, before, after, size, buffers, length = unpack_head(_MODEL_HEAD, data)
    if magic != MAGIC or version != MODEL_ALONE:
        raise DecodeError(f"not a model of version {MODEL_ALONE}")
    if (t, size, buffers) != (round, *sizes):
        raise DecodeError(f"round {t} and sizes {size}, {buffers}; expected {round} and {sizes[0]}, {sizes[1]}")
    if base is not None and (base.size, len(base.buffers)) != sizes:
        raise DecodeError("a difference from a model of another size")
    if before != (0 if base is None else base.digest):
        raise DecodeError("a difference from another model")
    if (base is None and (weights_form, buffers_form) != (PLAIN, PLAIN)) or len(data) > 4 * sum(sizes) + _SPARE:
        raise DecodeError("longer than it can be, or a difference from nothing")
    body = unseal(data)[_MODEL_HEAD.size :]
    if length > len(body):
        raise DecodeError("a section is longer than it can be")
    near = base or _model(np.zeros(size, np.float32), np.zeros(buffers, np.float32))
    model = (
        unpack_floats(weights_form, body[:length], near.weights),
        unpack_floats(buffers_form, body[length:], near.buffers),
    )
    if not all(np.isfinite(part).all() for part in model):
        raise DecodeError("a weight or buffer is not finite")
    if _model(*model).digest != after:
        raise DecodeError("not the model that was sent")
    return model


def digest_of(arrays: Arrays) -> int:
    """Return 64 bits that stand for named arrays (XXH3); those of a model are its `Reference`'s."""
    if _is_model(arrays):
        return _model(**arrays).digest
    hashed = xxhash.xxh3_64()
    for name in sorted(arrays):
        array = np.asarray(arrays[name], order="C")  # np.ascontiguousarray would give a single number an axis
        hashed.update(f"{name}|{array.dtype.str}|{array.shape}|".encode())
        hashed.update(array.data if array.size else b"")
    return int(hashed.intdigest())


def encode_content(round: int, arrays: Arrays, base: Arrays | None) -> bytes:
    """Pack what a vehicle gets in a round, given what it has; raises ValueError for what cannot be sent."""
    if _is_model(arrays):
        return encode_model(round, _model(**arrays), _model_in(base, len(arrays["weights"]), len(arrays["buffers"])))
    if len(arrays) > _MOST_ARRAYS:
        raise ValueError(f"{len(arrays)} arrays; allowed: at most {_MOST_ARRAYS}")
    packed = [_pack(name, array, (base or {}).get(name)) for name, array in arrays.items()]
    before = 0 if base is None else digest_of(base)
    head = _HEAD.pack(MAGIC, NAMED, len(arrays), round, before, digest_of(arrays))
    return seal(head, *(entry for entry, _ in packed), *(data for _, data in packed))


def decode_content(data: bytes, round: int, model: tuple[int, int], most: int, base: Arrays | None) -> Arrays:
    """Read what the station sent: a model of these sizes, or arrays of at most so many entries in all."""
    if data[4:5] != bytes([NAMED]):
        weights, buffers = decode_model(data, round, model, _model_in(base, *model))
        return {"weights": weights, "buffers": buffers}
    magic, _, count, t, before, after = unpack_head(_HEAD, data)
    at = _HEAD.size + count * _ENTRY.size
    if magic != MAGIC or t != round or count > _MOST_ARRAYS or len(data) < at + SUM.size:
        raise DecodeError(f"not what is sent down in round {round}")
    if before != (0 if base is None else digest_of(base)):
        raise DecodeError("a difference from another model")
    message = unseal(data)
    arrays: Arrays = {}
    for k in range(count):
        raw, kind, axes, form, *lengths, size = _ENTRY.unpack_from(message, _HEAD.size + k * _ENTRY.size)
        shape, name = tuple(lengths[:axes]), raw.rstrip(b"\0").decode("ascii", "replace")
        most -= prod(shape)
        if kind >= len(_DTYPES) or axes > _MOST_AXES or any(lengths[axes:]) or most < 0 or size > len(message) - at:
            raise DecodeError(f"array {k} is larger than allowed, or of an unknown kind")
        written = name.encode("ascii", "replace").ljust(_NAME, b"\0")
        if not name or name in arrays or not name.isprintable() or raw != written:
            raise DecodeError(f"array {k} has no name of its own")
        arrays[name] = _unpack(name, kind, shape, form, message[at : at + size], base or {})
        at += size
    if at != len(message):
        raise DecodeError("bytes that belong to no array")
    if _is_model(arrays):  # its sizes are those of version 1
        raise DecodeError("a model alone, but as named arrays")
    if digest_of(arrays) != after:
        raise DecodeError("not what was sent")
    return arrays


def _pack(name: str, array: NDArray[Any], base: NDArray[Any] | None) -> tuple[bytes, bytes]:
    """Return an array's entry in the table of contents, and its data."""
    code = array.dtype.str
    if code not in _DTYPES or array.ndim > _MOST_AXES or not name.isascii() or not 1 <= len(name) <= _NAME:
        raise ValueError(
            f"array {name!r} of {array.dtype} with {array.ndim} axes cannot be sent; allowed: names of 1 to {_NAME} "
            f"ASCII letters, at most {_MOST_AXES} axes, float32, float64, int8, uint8, int32, int64, bool"
        )
    if code == "<f4":
        near = base.reshape(-1) if base is not None and (base.dtype, base.shape) == (array.dtype, array.shape) else None
        form, data = pack_floats(np.ascontiguousarray(array).reshape(-1), near)
    else:
        form, data = PLAIN, array.tobytes()
    shape = [*array.shape, *[0] * (_MOST_AXES - array.ndim)]
    return _ENTRY.pack(name.encode(), _DTYPES.index(code), array.ndim, form, *shape, len(data)), data


def _unpack(name: str, kind: int, shape: tuple[int, ...], form: int, data: memoryview, base: Arrays) -> NDArray[Any]:
    dtype, size, near = np.dtype(_DTYPES[kind]), prod(shape), base.get(name)
    if kind == 0:
        if form == PLAIN and len(data) != 4 * size:  # before anything is allocated
            raise DecodeError(f"array {name!r} has {len(data)} bytes, expected {4 * size}")
        if form == PLAIN:
            near = np.empty(size, np.float32)  # only its length counts
        elif near is None or near.dtype != np.float32 or near.shape != shape:
            raise DecodeError(f"array {name!r} is a difference from what is not here")
        values: NDArray[Any] = unpack_floats(form, data, near.reshape(-1))
    else:
        if form != PLAIN or len(data) != size * dtype.itemsize:
            raise DecodeError(f"array {name!r} has {len(data)} bytes, expected {size * dtype.itemsize}")
        if _DTYPES[kind] == "|b1" and size and np.frombuffer(data, np.uint8).max() > 1:
            raise DecodeError(f"array {name!r} has truth values other than 0 and 1")
        values = np.frombuffer(data, dtype).copy()
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise DecodeError(f"an entry of {name!r} is not finite")
    try:
        return values.reshape(shape)
    except ValueError:  # it has no entries, but axes that numpy cannot hold
        raise DecodeError(f"array {name!r} has axes that are too long") from None


def _is_model(arrays: Arrays) -> bool:
    """Tell whether arrays are a model and nothing else."""
    return set(arrays) == {"weights", "buffers"} and all(
        array.dtype == np.float32 and array.ndim == 1 for array in arrays.values()
    )


def _model_in(base: Arrays | None, size: int, buffers: int) -> Reference | None:
    """Return the model among the arrays that a vehicle has, if there is one of these sizes."""
    wanted = {"weights": (size,), "buffers": (buffers,)}
    model = {name: array for name, array in (base or {}).items() if array.shape == wanted.get(name)}
    return _model(**model) if _is_model(model) else None


def _model(weights: Singles, buffers: Singles) -> Reference:
    return Reference(weights, buffers, np.array([0, len(weights)]))
