"""Feeds damaged uploads to the decoder: each must be refused with DecodeError, or be read and packed to the same bytes.

    python fuzz/mutate.py --inputs 500000 --seed 1

It starts from small messages of every kind, changes header fields, bytes and whole sections, and mostly repairs the
checksum and the section lengths, so that the checks behind these are reached. The first input that breaks the promise
is written to a file and ends the run with status 1.
"""

import argparse
import random
import re
import struct
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xxhash

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
)
from skyfed.wire.codec import Header, read_header
from skyfed.wire.eden import Eden
from skyfed.wire.quantise import Dither, Qsgd, Quantiser

HEAD, SUM = struct.Struct("<4s8BiIIQQQQff4I"), struct.Struct("<Q")
ROUND, VEHICLE, RATE = 7, 3, 0.05
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


def upload(reference: Reference, body: str, mask: str = "dense", coder: str = "range", seed: int = 0) -> Update:
    """Return an upload of round 7 by vehicle 3 whose message has this body and, with `forced`, this form of mask."""
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
        levels, norms, shared = scheme.quantiser.quantise(values, starts, scheme.s, scheme.norm, rng)
        packed = Quantised(scheme.name, levels, norms, scheme.s, scheme.bucket, shared)
    moved = reference.buffers + (0.01 * rng.normal(size=len(reference.buffers))).astype(np.float32)
    coder = coder if isinstance(packed, Quantised) else "range"
    return Update(ROUND, VEHICLE, size, chosen, packed, moved, threshold, channels, coder)


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


def sealed(body: bytes) -> bytes:
    """Give bytes a checksum that fits."""
    return body + SUM.pack(xxhash.xxh3_64_intdigest(body))


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
    for size in (0, 1, 7, 20, 64, 130, 600):  # of the last, more than 64 places may be sent
        reference = model(size)
        expected = Expected(ROUND, VEHICLE, reference, RATE)
        for body in BODIES:
            for mask in MASKS:
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
    return list(found.values())


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


class Violation(Exception):  # noqa: N818
    """The decoder broke its promise."""


def check(data: bytes, expected: Expected) -> str | None:
    """Return why a message is refused, or None where it is read; raises Violation where the promise is broken."""
    reference = expected.reference
    try:
        found = decode(data, expected)
    except DecodeError as error:
        if "\n" in str(error):
            raise Violation(f"a reason of more than one line: {error}") from error
        return str(error)
    except BaseException as error:  # a panic of compiled code is no Exception
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        raise Violation(f"decode raised {type(error).__name__}: {error}") from error
    try:
        again, d = encode(found, reference), entries(found, reference)
    except Exception as error:
        raise Violation(f"what was read cannot be used: {type(error).__name__}: {error}") from error
    if again != data:
        raise Violation("what was read is packed to other bytes")
    if len(d) != found.kept or not np.isfinite(d).all() or not np.isfinite(found.buffers).all():
        raise Violation("what was read is no update: entries are missing or not finite")
    return None


# damage

_INTERESTING = (0, 1, 2, 3, 4, 7, 8, 63, 64, 65, 126, 127, 128, 129, 192, 254, 255)
_FLOATS = [
    struct.pack("<f", value)
    for value in (0.0, -0.0, 1e-45, 1e-38, 1.0, -1.0, 3e38, float("inf"), -float("inf"), float("nan"), RATE, 1e6)
]


def _offsets() -> list[tuple[int, int]]:
    sizes = [4, *[1] * 8, 4, 4, 4, 8, 8, 8, 8, 4, 4, 4, 4, 4, 4]
    return [(sum(sizes[:k]), size) for k, size in enumerate(sizes)]


_FIELDS = _offsets()


def _field(head: bytearray, sections: list[bytearray], others: list[Case], rand: random.Random) -> None:
    at, size = rand.choice(_FIELDS)
    how = rand.randrange(4)
    old = int.from_bytes(head[at : at + size], "little")
    if how == 0:
        new = rand.randrange(256**size)
    elif how == 1:
        new = old + rand.choice((-2, -1, 1, 2))
    elif how == 2:
        new = rand.choice(_INTERESTING) if rand.random() < 0.7 else 1 << rand.randrange(8 * size)
    elif size == 4:
        new = int.from_bytes(rand.choice(_FLOATS), "little")
    else:
        new = int.from_bytes(rand.choice(others).data[at : at + size], "little")
    head[at : at + size] = (new % 256**size).to_bytes(size, "little")


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
        part[at : at + count] = _junk(count, rand)


def _number(head: bytearray, sections: list[bytearray], others: list[Case], rand: random.Random) -> None:
    """Counts and lengths stand in the first bytes of most sections."""
    part = _some(sections, rand)
    if part:
        at = rand.randrange(min(8, len(part)))
        part[at] = (part[at] + rand.choice((-1, 1, 127, 128))) % 256


def _insert(head: bytearray, sections: list[bytearray], others: list[Case], rand: random.Random) -> None:
    part = rand.choice(sections)
    at = rand.choice((len(part), rand.randrange(len(part) + 1)))
    part[at:at] = _junk(rand.choice((1, 1, 2, 4, 8)), rand)


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


def _replace(head: bytearray, sections: list[bytearray], others: list[Case], rand: random.Random) -> None:
    part = rand.choice(sections)
    part[:] = _junk(rand.choice((0, 1, 2, 3, len(part), rand.randrange(40))), rand)


def _some(sections: list[bytearray], rand: random.Random) -> bytearray:
    return rand.choice([part for part in sections if part] or sections)


def _junk(count: int, rand: random.Random) -> bytes:
    how = rand.randrange(3)
    if how == 0:
        return rand.randbytes(count)
    if how == 1:
        return bytes([rand.choice(_INTERESTING)]) * count
    return bytes(rand.choices(_INTERESTING, k=count))


_DAMAGE: list[Callable[[bytearray, list[bytearray], list[Case], random.Random], None]] = [
    _field, _field, _form, _flip, _flip, _overwrite, _overwrite, _number, _number, _insert, _cut, _swap, _swap,
    _replace,
]  # fmt: skip
_LENGTHS = struct.Struct("<4I")
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


# the run


@dataclass
class Summary:
    """What a run found."""

    inputs: int = 0
    accepted: int = 0
    seconds: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        top = "; ".join(f"{reason} {count}" for reason, count in self.reasons.most_common(10))
        refused = self.inputs - self.accepted
        return f"{self.inputs} inputs, {self.accepted} accepted, {refused} refused, {self.seconds:.1f} s: {top}"


def fuzz(inputs: int, seed: int, out: Path | None = None) -> Summary:
    """Check the corpus, then damaged messages up to so many inputs; raises Violation on the first that misbehaves."""
    cases, rand, summary = corpus(), random.Random(seed), Summary()
    sized: dict[int, list[Case]] = {}
    for case in cases:
        sized.setdefault(case.expected.reference.size, []).append(case)
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a warning is not what was promised either
        for k in range(inputs):
            case = cases[k] if k < len(cases) else rand.choice(cases)
            others = sized[case.expected.reference.size] if rand.random() < 0.8 else cases
            data = case.data if k < len(cases) else mutated(case, others, rand)
            try:
                reason = check(data, case.expected)
                if reason is not None and k < len(cases):
                    raise Violation(f"a valid message is refused: {reason}")
            except Violation as violation:
                place = (out or Path()) / f"violation-{seed}-{k}.bin"
                place.write_bytes(data)
                raise Violation(f"input {k} ({case.name}), written to {place}: {violation}") from violation
            summary.inputs += 1
            if reason is None:
                summary.accepted += 1
            else:
                summary.reasons[_kind(reason)] += 1
    summary.seconds = time.perf_counter() - begin
    return summary


def _kind(reason: str) -> str:
    """Return a reason without its numbers and without what a library said."""
    return re.sub(r"-?\b(\d[\w.+-]*|inf\b|nan\b)", "#", reason.split(" (")[0])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=20_000, help="how many messages to try")
    parser.add_argument("--seed", type=int, default=0, help="which damage is done")
    parser.add_argument("--out", type=Path, default=Path(), help="folder for an offending input")
    options = parser.parse_args(arguments)
    try:
        print(fuzz(options.inputs, options.seed, options.out))
    except Violation as violation:
        print(violation, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
