"""The station's broadcast as bytes: w^t dense, or exact as its difference from a model that the vehicle still has."""

import struct

import numpy as np
import xxhash

from skyfed.types import Singles
from skyfed.wire.floats import PLAIN, pack_floats, unpack_floats
from skyfed.wire.reader import DecodeError
from skyfed.wire.reference_model import Reference

MAGIC, VERSION = b"SKYM", 1
_HEAD = struct.Struct("<4sBBBIQQQQQ")  # ..., forms of weights and buffers, round, digest before and after, sizes, bytes
_SUM = struct.Struct("<Q")
_SPARE = 4096  # bytes that packing may add to numbers that cannot be packed


def encode_model(round: int, model: Reference, base: Reference | None) -> bytes:
    """Pack the model of a round for a vehicle that has `base`, or for one that has nothing."""
    weights_form, weights = _pack(model.weights, None if base is None else base.weights)
    buffers_form, buffers = _pack(model.buffers, None if base is None else base.buffers)
    head = _HEAD.pack(
        MAGIC, VERSION, weights_form, buffers_form, round, 0 if base is None else base.digest, model.digest,
        model.size, len(model.buffers), len(weights),
    )  # fmt: skip
    message = head + weights + buffers
    return message + _SUM.pack(xxhash.xxh3_64_intdigest(message))


def decode_model(data: bytes, round: int, sizes: tuple[int, int], base: Reference | None) -> tuple[Singles, Singles]:
    """Read weights and buffers of these sizes, or say what is wrong."""
    if len(data) < _HEAD.size + _SUM.size:
        raise DecodeError(f"truncated: {len(data)} bytes")
    magic, version, weights_form, buffers_form, t, before, after, size, buffers, length = _HEAD.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise DecodeError(f"not a model of version {VERSION}")
    if (t, size, buffers) != (round, *sizes):
        raise DecodeError(f"round {t} and sizes {size}, {buffers}; expected {round} and {sizes[0]}, {sizes[1]}")
    if base is not None and (base.size, len(base.buffers)) != sizes:
        raise DecodeError("a difference from a model of another size")
    if before != (0 if base is None else base.digest):
        raise DecodeError("a difference from another model")
    if (base is None and (weights_form, buffers_form) != (PLAIN, PLAIN)) or len(data) > 4 * sum(sizes) + _SPARE:
        raise DecodeError("longer than it can be, or a difference from nothing")
    if xxhash.xxh3_64_intdigest(memoryview(data)[: -_SUM.size]) != _SUM.unpack(data[-_SUM.size :])[0]:
        raise DecodeError("checksum differs")
    body = memoryview(data)[_HEAD.size : -_SUM.size]
    if length > len(body):
        raise DecodeError("a section is longer than it can be")
    near = base or Reference(np.zeros(size, np.float32), np.zeros(buffers, np.float32), np.array([0, size]))
    model = (
        unpack_floats(weights_form, body[:length], near.weights),
        unpack_floats(buffers_form, body[length:], near.buffers),
    )
    if not all(np.isfinite(part).all() for part in model):
        raise DecodeError("a weight or buffer is not finite")
    if Reference(*model, np.array([0, size])).digest != after:
        raise DecodeError("not the model that was sent")
    return model


def _pack(values: Singles, near: Singles | None) -> tuple[int, bytes]:
    return pack_floats(values, values if near is None else near, PLAIN if near is None else None)
