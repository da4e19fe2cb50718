"""Uploads as bytes: a plain, checked format. Anything that is not a valid upload raises DecodeError and nothing else.

Little-endian: magic, version, scheme, s, bucket, round, vehicle, p, kept, norms, buffers; then the sections mask
(bitmap), values or bit planes of levels, norms, buffers; then a CRC-32 of all before it.
"""

import struct
import zlib
from dataclasses import dataclass

import numpy as np

from skyfed.records import Ints, Update
from skyfed.wire.quantise import bucket_starts

MAGIC, VERSION = b"SKYF", 1
_HEAD = struct.Struct("<4sBBBiIIQQIQ")
_RAW, _QSGD = 0, 1
_MASKED = 2  # added to the scheme where a mask is sent


class DecodeError(ValueError):
    """The bytes are not a valid upload, or not the expected one."""


@dataclass(frozen=True)
class Expected:
    """What the server knows before it reads: whose upload of which round, and the model's shape."""

    round: int
    vehicle: int
    size: int
    starts: Ints
    buffers: int


def encode(update: Update) -> bytes:
    """Pack an update."""
    scheme = (_QSGD if update.quantised else _RAW) + (_MASKED if update.mask is not None else 0)
    norms = np.empty(0, np.float32) if update.norms is None else update.norms
    head = _HEAD.pack(
        MAGIC, VERSION, scheme, update.s, update.bucket, update.round, update.vehicle, update.size, update.kept,
        len(norms), len(update.buffers),
    )  # fmt: skip
    parts = [head]
    if update.mask is not None:
        parts.append(np.packbits(update.mask).tobytes())
    if update.levels is not None:
        parts.append(_pack_levels(update.levels, update.s))
    elif update.values is not None:
        parts.append(update.values.astype("<f4").tobytes())
    parts += [norms.astype("<f4").tobytes(), update.buffers.astype("<f4").tobytes()]
    body = b"".join(parts)
    return body + struct.pack("<I", zlib.crc32(body))


def decode(data: bytes, expected: Expected) -> Update:
    """Read an upload; sizes are checked before anything is allocated."""
    if len(data) < _HEAD.size + 4:
        raise DecodeError(f"truncated: {len(data)} bytes")
    magic, version, scheme, s, bucket, t, vehicle, size, kept, norms, buffers = _HEAD.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise DecodeError(f"not an upload of version {VERSION}")
    for name, found, wanted in (
        ("round", t, expected.round), ("vehicle", vehicle, expected.vehicle), ("size", size, expected.size),
        ("buffers", buffers, expected.buffers),
    ):  # fmt: skip
        if found != wanted:
            raise DecodeError(f"{name} is {found}, expected {wanted}")
    quantised, masked = bool(scheme & 1), bool(scheme & _MASKED)
    if scheme > 3 or not 1 <= s <= 127 or bucket < -1 or kept > size or (not masked and kept != size):
        raise DecodeError("header out of range")
    planes = (2 * s).bit_length()
    lengths = [
        -(-size // 8) if masked else 0,
        planes * -(-kept // 8) if quantised else 4 * kept,
        4 * norms,
        4 * buffers,
    ]
    if norms > kept + len(expected.starts) or _HEAD.size + sum(lengths) + 4 != len(data):
        raise DecodeError(f"{len(data)} bytes, its header says {_HEAD.size + sum(lengths) + 4}")
    if zlib.crc32(data[:-4]) != struct.unpack("<I", data[-4:])[0]:
        raise DecodeError("checksum differs")
    view, at, sections = memoryview(data), _HEAD.size, []
    for length in lengths:
        sections.append(view[at : at + length])
        at += length
    mask = None
    if masked:
        bits = np.unpackbits(np.frombuffer(sections[0], np.uint8))
        if bits[size:].any():
            raise DecodeError("padding of the mask is not zero")
        mask = bits[:size].astype(bool)
        if int(mask.sum()) != kept:
            raise DecodeError(f"mask keeps {int(mask.sum())}, header says {kept}")
    values = levels = scales = None
    if quantised:
        levels = _unpack_levels(sections[1], kept, s)
        scales = np.frombuffer(sections[2], "<f4").copy()
        if len(scales) != len(bucket_starts(kept, bucket, expected.starts, mask)) - 1:
            raise DecodeError(f"{len(scales)} norms do not fit the buckets")
        if not (np.isfinite(scales) & (scales >= 0)).all():
            raise DecodeError("a norm is negative or not finite")
    else:
        values = np.frombuffer(sections[1], "<f4").copy()
        if norms or not np.isfinite(values).all():
            raise DecodeError("a value is not finite" if not norms else "norms in a raw upload")
    extra = np.frombuffer(sections[3], "<f4").copy()
    if not np.isfinite(extra).all():
        raise DecodeError("a buffer is not finite")
    return Update(t, vehicle, size, mask, values, levels, scales, s, bucket, extra)


def _pack_levels(levels: np.ndarray, s: int) -> bytes:
    shifted = (levels.astype(np.int16) + s).astype(np.uint8)
    return b"".join(np.packbits((shifted >> plane) & 1).tobytes() for plane in range((2 * s).bit_length()))


def _unpack_levels(section: memoryview, kept: int, s: int) -> np.ndarray:
    length = -(-kept // 8)
    shifted = np.zeros(kept, np.uint8)
    for plane in range((2 * s).bit_length()):
        bits = np.unpackbits(np.frombuffer(section[plane * length : (plane + 1) * length], np.uint8))
        if bits[kept:].any():
            raise DecodeError("padding of the levels is not zero")
        shifted |= bits[:kept] << plane
    if kept and int(shifted.max()) > 2 * s:
        raise DecodeError(f"a level is above {s}")
    return (shifted.astype(np.int16) - s).astype(np.int8)
