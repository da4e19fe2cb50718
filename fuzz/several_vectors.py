"""Uploads of several named vectors (version 3), over the model and plain, and damaged ones.

The table of contents, the plain vectors and the messages inside are changed; mostly lengths and checksums are repaired.
A foreign exception is anything but DecodeError. A wrong accept is a message that packs to other bytes once it is read,
or whose vectors are not those that were declared, or not finite.
"""

import random
import struct
from dataclasses import dataclass, replace

import numpy as np
from damage import Decoder, Violation, attempt, change_bytes, change_field, junk, sealed
from uploads import BODIES, MASKS, RATE, ROUND, VEHICLE, Case, model, mutated, split, upload

from skyfed.types import Update
from skyfed.wire import MODEL, DecodeError, Expected, Reference, decode_parts, encode, encode_parts, entries

HEAD, ENTRY, NAME = struct.Struct("<4sBBII"), struct.Struct("<24sQ"), 24
_FIELDS = ((0, 4), (4, 1), (5, 1), (6, 4), (10, 4))
DECLARED = (
    {"d": MODEL},
    {"d": MODEL, "control": MODEL},
    {"d": MODEL, "mean": 7},
    {"scale": 1, "d": MODEL, "table": 40, "c": MODEL},
    {"x": 3},
    {"first": 5, "second": 5},
    {f"{k} of a name of 24 letters"[:NAME]: MODEL if k % 3 == 1 else k + 1 for k in range(16)},
)


@dataclass(frozen=True)
class Parted:
    """A valid message in its parts: what was declared, who waits for it, and a message inside for every vector."""

    sizes: dict[str, int]
    expected: Expected
    parts: list[bytes]
    inside: list[Case | None]

    def joined(self) -> bytes:
        """Return the message."""
        if list(self.sizes.values()) == [MODEL]:
            return self.parts[0]
        return _joined(HEAD.pack(b"SKYF", 3, len(self.sizes), ROUND, VEHICLE), _table(self), self.parts)


class SeveralVectors(Decoder[tuple[bytes, Parted]]):
    """Uploads of several vectors, read by `skyfed.wire.decode_parts`."""

    def __init__(self) -> None:
        self._cases = [
            _case(sizes, size, seed) for sizes in DECLARED for size in (0, 7, 20, 130) for seed in range(4)
        ]  # fmt: skip
        self.valid = [(case.joined(), case) for case in self._cases]

    def damaged(self, rand: random.Random) -> tuple[bytes, Parted]:
        """Damage a message, with parts of others."""
        case, other = rand.choice(self._cases), rand.choice(self._cases)
        parts, table = list(case.parts), _table(case)
        head = bytearray(HEAD.pack(b"SKYF", 3, len(case.sizes), ROUND, VEHICLE))
        for _ in range(rand.choice((1, 1, 1, 2, 3))):
            how = rand.randrange(8)
            k = rand.randrange(len(parts)) if parts else 0
            if how == 0:
                change_field(head, *rand.choice(_FIELDS), [other.joined()], rand)
            elif how == 1 and table:
                name = bytearray(rand.choice(table))
                change_bytes(name, rand)
                table[k % len(table)] = bytes(name[:NAME]).ljust(NAME, b"\0")
            elif how == 2 and len(parts) > 1:
                m = rand.randrange(len(parts))
                parts[k], parts[m] = parts[m], parts[k]
            elif how == 3 and parts:
                parts[k] = rand.choice(other.parts)
            elif how == 4 and parts:
                _drop_or_add(parts, table, k, rand)
            elif parts:
                parts[k] = _changed(parts[k], case.inside[k % len(case.inside)], rand)
        if list(case.sizes.values()) == [MODEL] and rand.random() < 0.8:
            return (parts or [b""])[0], case
        lengths = [len(part) for part in parts]
        if lengths and rand.random() < 0.08:
            lengths[-1] = rand.choice((0, 1, lengths[-1] + 1, 2**32, 2**63, 2**64 - 1))
        data = _joined(bytes(head), table, parts, lengths, rand.random() < 0.95)
        return (data[: rand.randrange(len(data))] if rand.random() < 0.02 else data), case

    def check(self, given: tuple[bytes, Parted]) -> str | None:
        """Read a message."""
        data, case = given
        reference = case.expected.reference
        parts, reason = attempt(lambda: decode_parts(data, case.sizes, case.expected), DecodeError)
        if parts is None:
            return reason
        try:
            again = encode_parts(parts, case.sizes, ROUND, VEHICLE, reference)
            values = {name: entries(part, reference) if isinstance(part, Update) else part
                      for name, part in parts.items()}  # fmt: skip
        except Exception as error:
            raise Violation(f"what was read cannot be used: {type(error).__name__}: {error}") from error
        if again != data:
            raise Violation("what was read is packed to other bytes")
        for name, size in case.sizes.items():
            part = parts[name]
            count = part.kept if isinstance(part, Update) else size
            if isinstance(part, Update) != (size == MODEL) or len(values[name]) != count:
                raise Violation(f"{name} is not as it was declared")
            if not np.isfinite(values[name]).all():
                raise Violation(f"{name} is not finite")
        return None

    def written(self, given: tuple[bytes, Parted]) -> bytes:
        """Return the message."""
        return given[0]


def _case(sizes: dict[str, int], size: int, seed: int) -> Parted:
    """Return a message whose vectors over the model have bodies and masks of many kinds."""
    reference, rand = model(size), random.Random(f"{size} {seed} {list(sizes)}")
    expected = Expected(ROUND, VEHICLE, reference, RATE)
    bare = replace(reference, buffers=reference.buffers[:0], variances=None)
    parts: list[bytes] = []
    inside: list[Case | None] = []
    for length in sizes.values():
        if length != MODEL:
            values = np.random.default_rng([seed, length]).normal(size=length).astype("<f4")
            parts.append(values.tobytes())
            inside.append(None)
            continue
        known: Reference = reference if not any(inside) else bare
        data = encode(upload(known, rand.choice(BODIES), rand.choice(list(MASKS)), seed=seed), known)
        parts.append(data)
        inside.append(Case("a vector", data, replace(expected, reference=known), split(data)[1]))
    return Parted(sizes, expected, parts, inside)


def _table(case: Parted) -> list[bytes]:
    return [name.encode().ljust(NAME, b"\0") for name in case.sizes]


def _joined(
    head: bytes, table: list[bytes], parts: list[bytes], lengths: list[int] | None = None, repaired: bool = True
) -> bytes:
    """Put a message together; its checksum is right if `repaired`."""
    rows = zip(table, [len(part) for part in parts] if lengths is None else lengths, strict=False)
    body = head + b"".join(ENTRY.pack(name, length) for name, length in rows) + b"".join(parts)
    return sealed(body) if repaired else body + bytes(8)


def _drop_or_add(parts: list[bytes], table: list[bytes], k: int, rand: random.Random) -> None:
    """Leave a vector out or have one twice, with its name or without."""
    if rand.random() < 0.5:
        del parts[k]
        if rand.random() < 0.5:
            del table[k % len(table) :][:1]
    else:
        parts.insert(k, parts[k])
        if table and rand.random() < 0.5:
            table.insert(k, table[k % len(table)])


def _changed(part: bytes, inside: Case | None, rand: random.Random) -> bytes:
    """Change a message inside as one of its own, or the numbers of a plain vector."""
    if inside is not None and rand.random() < 0.8:
        return mutated(inside, [inside], rand)
    if rand.random() < 0.1:
        return junk(rand.choice((0, 4, len(part), 4096)), rand)
    changed = bytearray(part)
    change_bytes(changed, rand)
    return bytes(changed)
