"""Uploads of one vector or of several named ones, as bytes and as the station sees them (docs/wire.md).

One vector over the model's weights is a message of version 2 (`codec.py`), byte for byte. Several vectors are a
message of version 3: a header, a table of contents, the parts, and a checksum. The receiver knows the names and sizes
of all parts beforehand. Anything else raises DecodeError.
"""

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from skyfed.types import Singles, Update
from skyfed.wire.codec import MAGIC, RAW, decode, encode, entries, read_header
from skyfed.wire.reader import DecodeError, seal, unpack_head, unseal
from skyfed.wire.reference_model import Expected, Reference

MODEL = -1  # size of a part: a vector over the model's weights, which may be masked and quantised
SEVERAL = 3  # version
_MOST_PARTS, _MOST_ENTRIES = 16, 2**31
_NAME = 24  # bytes
_HEAD = struct.Struct("<4sBBII")  # magic, version, parts, round, vehicle
_ENTRY = struct.Struct(f"<{_NAME}sQ")  # name, bytes

Parts = Mapping[str, Update | Singles]
Sizes = Mapping[str, int]  # MODEL, or the number of entries of a plain vector


@dataclass(frozen=True)
class Message:
    """One vehicle's upload: decoded vectors, whose they are, and how much they count.

    parts      its vectors by name, as the algorithm declared them
    reference  the model that it was made from
    weight     what server.alpha gives its vehicle, before weights are rescaled to those who take part
    samples    training samples that the vehicle reports
    notes      what the station finds out about it, for the table of uploads
    """

    vehicle: int
    round: int
    parts: dict[str, Update | Singles]
    reference: Reference
    weight: float = 1.0
    samples: int = 0
    notes: dict[str, float | int | bool | str] = field(default_factory=dict)

    @property
    def update(self) -> Update:
        """The first vector over the model's weights."""
        update = next((part for part in self.parts.values() if isinstance(part, Update)), None)
        if update is None:
            raise ValueError(f"no vector over the model's weights among {', '.join(self.parts)}")
        return update

    def values(self, name: str | None = None) -> Singles:
        """Return the entries of a vector that were sent, those under its mask; of the first if none is named."""
        part = self.update if name is None else self.parts[name]
        return entries(part, self.reference) if isinstance(part, Update) else part

    def vector(self, name: str | None = None) -> Singles:
        """Return all entries of a vector, zero where its mask left them out."""
        part = self.update if name is None else self.parts[name]
        if not isinstance(part, Update) or part.mask is None:
            return self.values(name)
        whole = np.zeros(part.size, np.float32)
        whole[part.places] = self.values(name)
        return whole


def paper_bits(size: int, delta: float, s: int, raw: bool) -> float:
    """Bits of an upload by the paper's formula, mask included, at the drawn ratio delta (payload bits).

    raw        p (1 - delta) (1 + 32) + p
    quantised  p (1 - delta) (1 + ceil(log2 s)) + 32 + p
    """
    if raw:
        return size * (1 - delta) * 33 + size
    return size * (1 - delta) * (1 + math.ceil(math.log2(s))) + 32 + size


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
    """Pack an upload; both sides know `sizes` and `reference`. Raises ValueError if the parts are not as declared."""
    if list(parts) != list(sizes):
        raise ValueError(f"the message has {list(parts)}, declared are {list(sizes)}")
    packed = [_pack(name, parts[name], size, _base(reference, sizes, name)) for name, size in sizes.items()]
    if len(sizes) == 1 and MODEL in sizes.values():
        return packed[0]
    head = _HEAD.pack(MAGIC, SEVERAL, len(packed), round, vehicle)
    table = [_ENTRY.pack(name.encode(), len(data)) for name, data in zip(sizes, packed, strict=True)]
    return seal(head, *table, *packed)


def decode_parts(data: bytes, sizes: Sizes, expected: Expected) -> dict[str, Update | Singles]:
    """Read an upload with these parts, or say what is wrong with it."""
    if len(sizes) == 1 and MODEL in sizes.values():
        return {next(iter(sizes)): decode(data, expected)}
    table = len(sizes) * _ENTRY.size
    magic, version, count, t, vehicle = unpack_head(_HEAD, data, table)
    if magic != MAGIC or version != SEVERAL:
        raise DecodeError(f"not an upload of version {SEVERAL}")
    if (count, t, vehicle) != (len(sizes), expected.round, expected.vehicle):
        raise DecodeError(
            f"{count} vectors of round {t} and vehicle {vehicle}; "
            f"expected {len(sizes)}, {expected.round} and {expected.vehicle}"
        )
    message, at = unseal(data), _HEAD.size + table
    parts: dict[str, Update | Singles] = {}
    for k, (name, size) in enumerate(sizes.items()):
        written, length = _ENTRY.unpack_from(data, _HEAD.size + k * _ENTRY.size)
        if written != name.encode().ljust(_NAME, b"\0"):
            raise DecodeError(f"vector {k} is not named {name!r}")
        if length > len(message) - at:
            raise DecodeError(f"vector {name!r} is longer than the message")
        part = data[at : at + length]
        at += length
        if size == MODEL:
            parts[name] = decode(part, replace(expected, reference=_base(expected.reference, sizes, name)))
        else:
            parts[name] = _unpack_plain(part, name, size)
    if at != len(message):
        raise DecodeError("bytes that belong to no vector")
    return parts


def has_raw(data: bytes, sizes: Sizes) -> bool:
    """Tell whether an upload of our own has a vector that is not quantised; plain vectors never are."""
    if len(sizes) == 1 and MODEL in sizes.values():
        return read_header(data).scheme == RAW
    at = _HEAD.size + len(sizes) * _ENTRY.size
    for k, size in enumerate(sizes.values()):
        _, length = _ENTRY.unpack_from(data, _HEAD.size + k * _ENTRY.size)
        if size != MODEL or read_header(data[at : at + length]).scheme == RAW:
            return True
        at += length
    return False


def _base(reference: Reference, sizes: Sizes, name: str) -> Reference:
    """Return what a part starts from: the first vector over the model brings its buffers along, others do not."""
    first = next((key for key, size in sizes.items() if size == MODEL), name)
    return reference if name == first else replace(reference, buffers=reference.buffers[:0], variances=None)


def _pack(name: str, part: Update | Singles, size: int, reference: Reference) -> bytes:
    if size == MODEL:
        if not isinstance(part, Update):
            raise ValueError(f"vector {name!r} is a {type(part).__name__}; declared is one over the model's weights")
        if len(part.buffers) != len(reference.buffers):
            raise ValueError(
                f"vector {name!r} has {len(part.buffers)} buffers, expected {len(reference.buffers)}: the first vector "
                "over the model's weights carries them all, others carry none"
            )
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
