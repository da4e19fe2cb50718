"""Uploads of one vector, or of several named ones (docs/wire.md).

One vector over the model's weights is a message of version 2 (`codec.py`), byte for byte. Several vectors are a
message of version 3: a header, a table of contents, the parts, and a checksum. The receiver knows the names and sizes
of all parts beforehand. Anything else raises DecodeError.
"""

import struct
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import xxhash

from skyfed.types import Singles, Update
from skyfed.wire.codec import MAGIC, decode, encode
from skyfed.wire.reader import DecodeError
from skyfed.wire.reference_model import Expected, Reference

MODEL = -1  # size of a part: a vector over the model's weights, which may be masked and quantised
SEVERAL = 3  # version
_MOST_PARTS, _MOST_ENTRIES = 16, 2**31
_NAME = 24  # bytes
_HEAD = struct.Struct("<4sBBII")  # magic, version, parts, round, vehicle
_ENTRY = struct.Struct(f"<{_NAME}sQ")  # name, bytes
_SUM = struct.Struct("<Q")

Parts = Mapping[str, Update | Singles]
Sizes = Mapping[str, int]  # MODEL, or the number of entries of a plain vector


def check_sizes(sizes: Sizes) -> None:
    """Raise ValueError if these are no parts of a message."""
    if not 1 <= len(sizes) <= _MOST_PARTS:
        raise ValueError(f"{len(sizes)} vectors; allowed: 1 to {_MOST_PARTS}")
    for name, size in sizes.items():
        if not (name.isascii() and name.isprintable() and 1 <= len(name) <= _NAME):
            raise ValueError(f"a vector named {name!r}; allowed: 1 to {_NAME} printable ASCII letters")
        if size != MODEL and not 1 <= size <= _MOST_ENTRIES:
            raise ValueError(f"vector {name!r} of {size} entries; allowed: MODEL, or 1 to {_MOST_ENTRIES}")


def encode_parts(parts: Parts, sizes: Sizes, round: int, vehicle: int, reference: Reference) -> bytes:
    """Pack an upload; both sides know `sizes` and `common`. Raises ValueError if the parts are not as declared."""
    if list(parts) != list(sizes):
        raise ValueError(f"the message has {list(parts)}, declared are {list(sizes)}")
    packed = [_pack(name, parts[name], size, _base(reference, sizes, name)) for name, size in sizes.items()]
    if len(sizes) == 1 and MODEL in sizes.values():
        return packed[0]
    head = _HEAD.pack(MAGIC, SEVERAL, len(packed), round, vehicle)
    entries = [_ENTRY.pack(name.encode(), len(data)) for name, data in zip(sizes, packed, strict=True)]
    message = b"".join([head, *entries, *packed])
    return message + _SUM.pack(xxhash.xxh3_64_intdigest(message))


def decode_parts(data: bytes, sizes: Sizes, expected: Expected) -> dict[str, Update | Singles]:
    """Read an upload with these parts, or say what is wrong with it."""
    if len(sizes) == 1 and MODEL in sizes.values():
        return {next(iter(sizes)): decode(data, expected)}
    table = _HEAD.size + len(sizes) * _ENTRY.size
    if len(data) < table + _SUM.size:
        raise DecodeError(f"truncated: {len(data)} bytes")
    magic, version, count, t, vehicle = _HEAD.unpack_from(data)
    if magic != MAGIC or version != SEVERAL:
        raise DecodeError(f"not an upload of version {SEVERAL}")
    if (count, t, vehicle) != (len(sizes), expected.round, expected.vehicle):
        raise DecodeError(
            f"{count} vectors of round {t} and vehicle {vehicle}; "
            f"expected {len(sizes)}, {expected.round} and {expected.vehicle}"
        )
    if xxhash.xxh3_64_intdigest(memoryview(data)[: -_SUM.size]) != _SUM.unpack(data[-_SUM.size :])[0]:
        raise DecodeError("checksum differs")
    found: dict[str, Update | Singles] = {}
    at = table
    for k, (name, size) in enumerate(sizes.items()):
        written, length = _ENTRY.unpack_from(data, _HEAD.size + k * _ENTRY.size)
        if written != name.encode().ljust(_NAME, b"\0"):
            raise DecodeError(f"vector {k} is not named {name!r}")
        if length > len(data) - _SUM.size - at:
            raise DecodeError(f"vector {name!r} is longer than the message")
        part = data[at : at + length]
        at += length
        if size == MODEL:
            found[name] = decode(part, replace(expected, reference=_base(expected.reference, sizes, name)))
        else:
            found[name] = _unpack_plain(part, name, size)
    if at != len(data) - _SUM.size:
        raise DecodeError("bytes that belong to no vector")
    return found


def _base(reference: Reference, sizes: Sizes, name: str) -> Reference:
    """Return what a part starts from: the first vector over the model brings its buffers along, others do not."""
    first = next((key for key, size in sizes.items() if size == MODEL), name)
    return reference if name == first else replace(reference, buffers=reference.buffers[:0])


def _pack(name: str, part: Update | Singles, size: int, reference: Reference) -> bytes:
    if size == MODEL:
        if not isinstance(part, Update):
            raise ValueError(f"vector {name!r} is a {type(part).__name__}; declared is one over the model's weights")
        return encode(part, reference)
    if isinstance(part, Update) or np.shape(part) != (size,):
        shape = "one over the model's weights" if isinstance(part, Update) else f"of shape {np.shape(part)}"
        raise ValueError(f"vector {name!r} is {shape}; declared are {size} entries")
    return np.ascontiguousarray(part, "<f4").tobytes()


def _unpack_plain(data: bytes, name: str, size: int) -> Singles:
    if len(data) != 4 * size:
        raise DecodeError(f"vector {name!r} has {len(data)} bytes, expected {4 * size}")
    values = np.frombuffer(data, "<f4").astype(np.float32)
    if not np.isfinite(values).all():
        raise DecodeError(f"an entry of {name!r} is not finite")
    return values
