"""Uploads of one vector (version 2): messages of every kind, and damaged ones.

Header fields, bytes and whole sections are changed; mostly the checksum and the section lengths are repaired, so that
the checks behind these are reached. A foreign exception is anything but DecodeError. A wrong accept is a message that
packs to other bytes once it is read, or that stands for no update: entries are missing or not finite, or a running
variance is below 0.
"""

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from damage import SUM, Decoder, Violation, attempt, change_field, junk, sealed

from skyfed.types import Quantised, Raw, Update
from skyfed.wire import (
    Channels,
    DecodeError,
    Expected,
    Reference,
    accumulated,
    bucket_starts,
    decode,
    encode,
    entries,
    quantise_buffers,
    restored,
)
from skyfed.wire.buffers import ROTATED
from skyfed.wire.codec import Header, read_header
from skyfed.wire.eden import Eden
from skyfed.wire.quantise import Dither, Qsgd, Quantiser

HEAD = struct.Struct("<4s8BiIIQQQQff4I")
ROUND, VEHICLE, RATE = 7, 3, 0.05
LARGE = 20_000  # entries of a model for which there are few messages
MASKS = {"dense": 0, "bitmap": 1, "places": 2, "guess": 3, "channels": 4}


class Scheme(NamedTuple):
    """A way of quantising: the quantiser with its settings."""

    quantiser: Quantiser
    name: str
    s: int
    bucket: int
    norm: str = "l2"


SCHEMES = {
    "qsgd": Scheme(Qsgd(), "qsgd", 3, 9),
    "qsgd all": Scheme(Qsgd(), "qsgd", 1, 0),
    "qsgd tensor": Scheme(Qsgd(), "qsgd", 127, -1),
    "qsgd linf": Scheme(Qsgd(), "qsgd", 5, 512, "linf"),
    "dither": Scheme(Dither(), "dither", 3, 9),
    "dither linf": Scheme(Dither(), "dither", 1, -1, "linf"),
    "eden 1": Scheme(Eden(), "eden", 1, 64),
    "eden 2": Scheme(Eden(), "eden", 2, 64),
    "eden 4": Scheme(Eden(), "eden", 4, 128),
    "eden variance": Scheme(Eden(2.0), "eden", 1, 64),
}
BODIES = ("raw", "exact", *SCHEMES)


# messages


def model(size: int, seed: int = 0) -> Reference:
    """Return a model with tensors of many sizes, some of them empty, with a scope and with channels."""
    rng = np.random.default_rng([seed, size])
    weights = (0.05 * rng.normal(size=size)).astype(np.float32)
    inner = np.sort(rng.integers(0, size + 1, 4))
    count = max(1, size // 8)
    channels = Channels(count, rng.integers(-1, count, size), rng.integers(-1, count, size))
    buffers = rng.random(3).astype(np.float32)
    return Reference(
        weights, buffers, np.concatenate([[0], inner, inner[-1:], [size]]), rng.random(size) < 0.8, channels
    )


def normed(channels: int) -> dict[str, Any]:
    """Return the running means and variances of some channels, as a model has them."""
    rng = np.random.default_rng(channels)
    buffers = np.concatenate([rng.normal(size=channels), rng.uniform(0.1, 2, channels)]).astype(np.float32)
    return {"buffers": buffers, "variances": np.tile(np.arange(channels) + channels, 2)}


def upload(
    reference: Reference, body: str, mask: str = "dense", coder: str = "range", seed: int = 0, levels: int = 0
) -> Update:
    """Return an upload of round 7 by vehicle 3 whose message has this body and, with `forced`, this form of mask.

    levels  above zero of its buffers; 0: they are exact
    """
    rng = np.random.default_rng([seed, reference.size, *map(ord, body + mask)])
    size, threshold, channels, chosen = reference.size, float("nan"), None, None
    if mask == "bitmap":
        chosen = rng.random(size) < 0.5
    elif mask == "places":
        chosen = rng.random(size) < rng.choice([0.08, 0.92])  # few enough to go as places
    elif mask == "guess":
        threshold = float(np.float32(rng.random() * 0.05))
        chosen = reference.guess(threshold) ^ (rng.random(size) < 0.05)
    elif mask == "channels":
        channels = rng.random(reference.channels.count) < 0.7
        chosen = reference.channels.mask(channels)
    near = reference.weights if chosen is None else reference.weights[chosen]
    trained = (near - 0.01 * rng.normal(size=len(near)) * (rng.random(len(near)) < 0.7)).astype(np.float32)
    values = accumulated(near, trained, RATE)
    if body == "raw":
        packed: Raw | Quantised = Raw(values)
    elif body == "exact" and len(values):
        packed = Raw(values, trained, RATE)
    elif body == "exact":
        packed = Raw(values)
    else:
        scheme = SCHEMES[body]
        starts = bucket_starts(len(near), scheme.bucket, reference.starts, chosen)
        coded, norms, shared = scheme.quantiser.quantise(values, starts, scheme.s, scheme.norm, rng)
        packed = Quantised(scheme.name, coded, norms, scheme.s, scheme.bucket, shared)
    moved = reference.buffers + (0.01 * rng.normal(size=len(reference.buffers))).astype(np.float32)
    coder = coder if isinstance(packed, Quantised) else "range"
    code = quantise_buffers(moved, reference, levels, rng) if levels and len(moved) else None
    moved = moved if code is None else restored(code, reference)
    return Update(ROUND, VEHICLE, size, chosen, packed, moved, threshold, channels, coder, code=code)


def forced(update: Update, mask: str, *others: int | None) -> Update:
    """Return an upload that is packed with this form of mask; `others` are the forms of body, norms and buffers."""
    return replace(update, forms=(MASKS[mask], *(*others, None, None, None)[:3]))


def split(data: bytes) -> tuple[Header, list[bytes]]:
    """Take a message apart: header and sections."""
    head, at, sections = read_header(data), HEAD.size, []
    for length in head.sections:
        sections.append(data[at : at + length])
        at += length
    return head, sections


def joined(head: Header, sections: Sequence[bytes]) -> bytes:
    """Put a message together; section lengths and checksum are made to fit."""
    lengths = dict(zip(Header._fields[-4:], map(len, sections), strict=True))
    return sealed(HEAD.pack(*head._replace(**lengths)) + b"".join(sections))


@dataclass(frozen=True)
class Case:
    """A valid message, taken apart, and who waits for it."""

    name: str
    data: bytes
    expected: Expected
    sections: list[bytes] = field(default_factory=list)


@cache
def corpus() -> list[Case]:
    """Return small messages of every kind, and each of them in every form it can have; always the same ones."""
    found: dict[bytes, Case] = {}
    for size in (0, 1, 7, 20, 64, 130, 600, LARGE):  # of 600, more than 64 places may be sent
        reference = model(size)
        expected = Expected(ROUND, VEHICLE, reference, RATE)
        for body in BODIES if size < LARGE else ("exact", "qsgd", "dither", "eden 4"):
            for mask in MASKS if size < LARGE else ("dense", "guess"):
                for name, update in _variants(upload(reference, body, mask), mask):
                    data = encode(update, reference)
                    found.setdefault(
                        data, Case(f"{body}, {mask}, {size} entries{name}", data, expected, split(data)[1])
                    )
        for kept, name in ((np.zeros(size, bool), "nothing"), (np.ones(size, bool), "all")):
            for scheme in ("qsgd", "dither", "eden 1"):
                update = replace(
                    upload(reference, scheme),
                    mask=kept,
                    body=_body(reference, SCHEMES[scheme], kept),
                    forms=(2, 1, None, None),
                )
                data = encode(update, reference)
                found.setdefault(data, Case(f"{scheme}, {name} kept of {size}", data, expected, split(data)[1]))
    for case in _quantised_buffers():
        found.setdefault(case.data, case)
    return list(found.values())


def _quantised_buffers() -> Iterator[Case]:
    """Yield messages whose buffers are levels: of one block or several, few or many, with and without variances."""
    for size in (0, 20, 130, LARGE):
        for channels in (0, 1, 20, 400):
            known = model(size) if not channels else replace(model(size), **normed(channels))
            known = replace(known, variances=None) if channels == 20 else known
            for levels, body in ((1, "raw"), (2, "eden 1"), (4, "eden variance"), (4, "qsgd")):
                for mask in ("dense", "places"):
                    data = encode(forced(upload(known, body, mask, levels=levels), mask), known)
                    name = f"{body}, {mask}, {size} entries, {len(known.buffers)} buffers of {levels} levels"
                    yield Case(name, data, Expected(ROUND, VEHICLE, known, RATE), split(data)[1])


def _variants(update: Update, mask: str) -> Iterator[tuple[str, Update]]:
    yield "", update
    if isinstance(update.body, Raw):
        yield ", plain buffers", forced(update, mask, None, None, 0)
        return
    for form, coder in enumerate(("range", "zstd", "plain")):  # the coder that was asked for need not be the form
        norms = form % 2 if len(update.body.norms) else 0
        yield f", form {form}", replace(forced(update, mask, form, norms), coder=coder)


def _body(reference: Reference, scheme: Scheme, kept: np.ndarray) -> Quantised:
    starts = bucket_starts(int(kept.sum()), scheme.bucket, reference.starts, kept)
    values = np.linspace(-1, 1, int(kept.sum()), dtype=np.float32)
    levels, norms, seed = scheme.quantiser.quantise(values, starts, scheme.s, "l2", np.random.default_rng(0))
    return Quantised(scheme.name, levels, norms, scheme.s, scheme.bucket, seed)


# the property


def check(data: bytes, expected: Expected) -> str | None:
    """Return why a message is refused, or None where it is read; raises Violation where the promise is broken."""
    reference = expected.reference
    found, reason = attempt(lambda: decode(data, expected), DecodeError)
    if found is None:
        return reason
    try:
        again, d = encode(found, reference), entries(found, reference)
    except Exception as error:
        raise Violation(f"what was read cannot be used: {type(error).__name__}: {error}") from error
    if again != data:
        raise Violation("what was read is packed to other bytes")
    if len(d) != found.kept or not np.isfinite(d).all() or not np.isfinite(found.buffers).all():
        raise Violation("what was read is no update: entries are missing or not finite")
    own = reference.variance_of == np.arange(len(reference.buffers))
    if len(found.buffers) != len(own) or (found.buffers[own] < 0).any():
        raise Violation("what was read is no update: buffers are missing, or a variance is below 0")
    return None


# damage


def _offsets() -> list[tuple[int, int]]:
    sizes = [4, *[1] * 8, 4, 4, 4, 8, 8, 8, 8, 4, 4, 4, 4, 4, 4]
    return [(sum(sizes[:k]), size) for k, size in enumerate(sizes)]


_FIELDS = _offsets()


def _field(head: bytearray, sections: list[bytearray], others: list[Case], rand: random.Random) -> None:
    change_field(head, *rand.choice(_FIELDS), [other.data for other in rand.sample(others, 1)], rand)


def _form(head: bytearray, sections: list[bytearray], others: list[Case], rand: random.Random) -> None:
    head[rand.randrange(5, 13)] = rand.randrange(6)


def _flip(head: bytearray, sections: list[bytearray], others: list[Case], rand: random.Random) -> None:
    part = _some(sections, rand)
    if part:
        part[rand.randrange(len(part))] ^= 1 << rand.randrange(8)


def _overwrite(head: bytearray, sections: list[bytearray], others: list[Case], rand: random.Random) -> None:
    part = _some(sections, rand)
    if part:
        at = rand.randrange(len(part))
        count = min(rand.choice((1, 1, 2, 4)), len(part) - at)
        part[at : at + count] = junk(count, rand)


def _number(head: bytearray, sections: list[bytearray], others: list[Case], rand: random.Random) -> None:
    """Counts and lengths stand in the first bytes of most sections."""
    part = _some(sections, rand)
    if part:
        at = rand.randrange(min(8, len(part)))
        part[at] = (part[at] + rand.choice((-1, 1, 127, 128))) % 256


def _insert(head: bytearray, sections: list[bytearray], others: list[Case], rand: random.Random) -> None:
    part = rand.choice(sections)
    at = rand.choice((len(part), rand.randrange(len(part) + 1)))
    part[at:at] = junk(rand.choice((1, 1, 2, 4, 8)), rand)


def _cut(head: bytearray, sections: list[bytearray], others: list[Case], rand: random.Random) -> None:
    part = _some(sections, rand)
    if part:
        at = rand.randrange(len(part))
        del part[at : rand.choice((at + 1, at + 4, len(part)))]


def _swap(head: bytearray, sections: list[bytearray], others: list[Case], rand: random.Random) -> None:
    """Take a section of another message, with its form or without."""
    other, k = rand.choice(others), rand.randrange(4)
    sections[k][:] = other.sections[k]
    if rand.random() < 0.7:
        head[7 + k] = other.data[7 + k]


def _buffers(head: bytearray, sections: list[bytearray], others: list[Case], rand: random.Random) -> None:
    """Where buffers are levels: change their number, their forms or their seed, or norms to extreme ones."""
    part, how = sections[3], rand.randrange(4)
    if head[10] != ROTATED or len(part) < _LEVELS + 2:
        head[10] = ROTATED
    elif how < 2:
        part[how and rand.randrange(1, 3)] = rand.choice((0, 1, 2, 3, 4, 5, 127, 255))
    elif how == 2:
        part[3:_LEVELS] = rand.choice((rand.randbytes(8), bytes(8), b"\xff" * 8))
    else:  # at its end, bfloat16 numbers have their exponent
        at = _LEVELS + 1 + 2 * rand.randrange(max(1, min(part[_LEVELS], len(part) - _LEVELS - 2) // 2))
        part[at : at + 2] = struct.pack("<f", rand.choice((0.0, 1e-38, 1e-3, 1.0, 1e9, 1e30, 3e38, np.inf)))[2:]


def _replace(head: bytearray, sections: list[bytearray], others: list[Case], rand: random.Random) -> None:
    part = rand.choice(sections)
    part[:] = junk(rand.choice((0, 1, 2, 3, len(part), rand.randrange(40))), rand)


def _some(sections: list[bytearray], rand: random.Random) -> bytearray:
    return rand.choice([part for part in sections if part] or sections)


_DAMAGE: list[Callable[[bytearray, list[bytearray], list[Case], random.Random], None]] = [
    _field, _field, _form, _flip, _flip, _overwrite, _overwrite, _number, _number, _insert, _cut, _swap, _swap,
    _replace, _buffers, _buffers,
]  # fmt: skip
_LENGTHS = struct.Struct("<4I")
_LEVELS = 11  # bytes of a section of buffers before the length of their norms: number of levels, forms, seed
_ENDLESS = struct.pack("<f", float("inf"))


def mutated(case: Case, others: list[Case], rand: random.Random) -> bytes:
    """Return a damaged copy of a message."""
    head, sections = bytearray(case.data[: HEAD.size]), [bytearray(part) for part in case.sections]
    for _ in range(rand.choice((1, 1, 1, 2, 2, 3))):
        rand.choice(_DAMAGE)(head, sections, others, rand)
    if rand.random() < 0.3:  # let d be as long as it likes, or most changes of levels end there
        head[60:64] = _ENDLESS
    if rand.random() < 0.95:
        _LENGTHS.pack_into(head, HEAD.size - _LENGTHS.size, *map(len, sections))
    message = bytes(head) + b"".join(sections)
    how = rand.random()
    if how < 0.95:
        return sealed(message)
    if how < 0.97:
        return message + case.data[-SUM.size :]
    return sealed(message)[: rand.randrange(len(message) + SUM.size)]


class Uploads(Decoder[tuple[bytes, Case]]):
    """Uploads of one vector, read by `skyfed.wire.decode`."""

    def __init__(self) -> None:
        self._cases = corpus()
        self.valid = [(case.data, case) for case in self._cases]
        self._sized: dict[int, list[Case]] = {}
        for case in self._cases:
            self._sized.setdefault(case.expected.reference.size, []).append(case)

    def damaged(self, rand: random.Random) -> tuple[bytes, Case]:
        """Damage a message, mostly with parts of others of the same model."""
        case = rand.choice(self._cases)
        others = self._sized[case.expected.reference.size] if rand.random() < 0.8 else self._cases
        return mutated(case, others, rand), case

    def check(self, given: tuple[bytes, Case]) -> str | None:
        """Read a message."""
        return check(given[0], given[1].expected)

    def written(self, given: tuple[bytes, Case]) -> bytes:
        """Return the message."""
        return given[0]
