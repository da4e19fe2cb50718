"""Changes that the station sends down (version 3), and what `Swift.follow` makes of them on board.

Header, list and single changes are damaged, or well-formed changes are made of extreme numbers; or the vehicle has
arrays that no station should have sent. Mostly the digests and the checksums are repaired, so that the checks behind
these are reached. A foreign exception is anything but DecodeError. A wrong accept is a message or a change that packs
to other bytes once it is read, or a content with other arrays or sizes than the model's, or with a number that is not
finite, or a variance below 0.
"""

import random
import struct
from dataclasses import dataclass, replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import uploads
from damage import SINGLES, SUM, Decoder, Violation, attempt, change_bytes, change_field, junk, sealed

from skyfed.algorithms.base import Fleet
from skyfed.algorithms.swift import Swift, SwiftSettings
from skyfed.blocks.optimise import OptimiserSettings
from skyfed.types import Arrays, Model, Raw, Update
from skyfed.wire import (
    DecodeError,
    Expected,
    QuantiseSettings,
    Reference,
    decode,
    decode_changes,
    digest_of,
    encode,
    encode_changes,
    read_header,
)

ROUND, ROUNDS = 40, 50
HEAD = struct.Struct("<4sBBIIQ")
_FIELDS = ((0, 4), (4, 1), (5, 1), (6, 4), (10, 4), (14, 8))
_DIGEST = slice(40, 48)  # in a change's header: of the model that it starts from
_ROUND = slice(16, 20)
_HUGE = (1e-30, 1.0, 1e20, 1e30, 1e37, 3e38)


class Engine:
    """Stands in for a vehicle's engine: a model of some sizes, with running means and variances."""

    def __init__(self, size: int, channels: int) -> None:
        """Take the number of weights, and of channels that have a mean and a variance each."""
        self._model = replace(uploads.model(size), **uploads.normed(channels))
        self.layout: Any = SimpleNamespace(live_size=size, buffers=2 * channels)

    def initial(self) -> Model:
        """Return the model before round 0."""
        return Model(self._model.weights, self._model.buffers)

    def reference(self, model: Model, prune: object) -> Reference:
        """Return what both sides know of a model."""
        weights, buffers = (part.astype(np.float32, copy=False) for part in (model.weights, model.buffers))
        return replace(self._model, weights=weights, buffers=buffers)


def swift(engine: Any, kind: Any = "nesterov", down: str = "eden", rounds: int = ROUNDS) -> Swift:
    """Return the algorithm for a model."""
    how = {
        "eden": QuantiseSettings(scheme="eden", s=1, bucket=4096, variance=1.5, buffers=4),
        "eden 2": QuantiseSettings(scheme="eden", s=2, bucket=64, buffers=1),
        "qsgd": QuantiseSettings(s=3, bucket=64, buffers=2),
        "dither": QuantiseSettings(scheme="dither", s=1, bucket="tensor"),
    }[down]
    return Swift(SwiftSettings(optimiser=OptimiserSettings(kind=kind), down=how), Fleet(3, rounds, 1, engine))


def followed(
    algorithm: Swift, before: Arrays, rounds: range, seed: int, size: float = 0.1
) -> tuple[list[bytes], Arrays]:
    """Return changes of these rounds with gradients of about this size, and what they lead to."""
    changes = []
    for t in rounds:
        rng = np.random.default_rng([seed, t])
        gradient = size * rng.normal(size=len(before["weights"]))
        buffers = before["buffers"] * (1 + 0.05 * rng.random(len(before["buffers"]))).astype(np.float32)
        with np.errstate(all="ignore"):
            changes.append(algorithm._change(before, gradient, buffers, t))
        before = algorithm.follow(before, changes[-1])
    return changes, before


@dataclass(frozen=True)
class Sent:
    """A valid message, and the content that its receiver has."""

    algorithm: Swift
    base: Arrays
    since: int
    changes: list[bytes]
    data: bytes


@dataclass(frozen=True)
class Given:
    """A message for a vehicle of this algorithm that has these arrays."""

    algorithm: Swift
    base: Arrays
    data: bytes


class Changes(Decoder[Given]):
    """Messages of changes, read by `skyfed.wire.decode_changes`, then followed."""

    def __init__(self) -> None:
        *self._cases, _ = cases = _corpus()  # the last one takes too long to be damaged often
        self.valid = [Given(case.algorithm, case.base, case.data) for case in cases]

    def damaged(self, rand: random.Random) -> Given:
        """Damage a message, its changes, or what the vehicle has."""
        case, other = rand.choice(self._cases), rand.choice(self._cases)
        base, changes = case.base, list(case.changes)
        if rand.random() < 0.1:
            base = _odd(base, rand)
        for _ in range(rand.choice((1, 1, 1, 2, 3))):
            damage_list(changes, other.changes, rand)
            if changes and rand.random() < 0.8:
                k = rand.randrange(len(changes))
                changes[k] = damaged_change(changes[k], case.algorithm, case.base, rand)
        if changes and base is not case.base:
            changes[0] = _starting(changes[0], case.algorithm, base)
        data = message(case.since, changes, case.algorithm, base, rand)
        if rand.random() < 0.3:
            head = bytearray(data[: HEAD.size])
            change_field(head, *rand.choice(_FIELDS), [other.data], rand)
            data = sealed(bytes(head) + data[HEAD.size : -SUM.size])
        how = rand.random()
        if how < 0.05:
            body = bytearray(data[: -SUM.size])
            change_bytes(body, rand)
            data = sealed(bytes(body))
        elif how < 0.08:
            data = data[: rand.randrange(len(data))] if rand.random() < 0.5 else data[: -SUM.size] + junk(8, rand)
        return Given(case.algorithm, base, data)

    def check(self, given: Given) -> str | None:
        """Read a message and follow its changes."""
        read, reason = attempt(lambda: decode_changes(given.data, ROUND), DecodeError)
        if read is None:
            return reason
        since, changes, digest = read
        if not 0 <= since <= ROUND or len(changes) > ROUND - since:
            raise Violation(f"{len(changes)} changes from round {since} to {ROUND}")
        if encode_changes(ROUND, since, changes, digest) != given.data:
            raise Violation("what was read is packed to other bytes")
        sent = given.base
        for change in changes:
            step = (given.algorithm, sent, change)
            after, reason = attempt(lambda step=step: step[0].follow(*step[1:]), DecodeError)  # type: ignore[misc]
            if after is None:
                return reason
            reference = given.algorithm._reference(sent)
            if uploads.check(change, Expected(read_header(change).round, 0, reference)) is not None:
                raise Violation("a change is followed that is no upload")
            check_content(after, given.algorithm)
            sent = after
        return None if digest_of(sent) == digest else "not what was sent"

    def written(self, given: Given) -> bytes:
        """Return the message."""
        return given.data


def check_content(sent: Arrays, algorithm: Swift) -> None:
    """Raise Violation if this is not a content that the algorithm sends."""
    usual = algorithm.send(algorithm.start(algorithm.fleet.engine.initial()), 0, 0)
    if {name: array.shape for name, array in sent.items()} != {name: array.shape for name, array in usual.items()}:
        raise Violation(f"other arrays than the model has: { {name: array.shape for name, array in sent.items()} }")
    for name, array in sent.items():
        if array.dtype != np.float32 or not np.isfinite(array).all():
            raise Violation(f"{name} is of another type, or not finite")
    if (sent["buffers"][len(sent["buffers"]) // 2 :] < 0).any():
        raise Violation("a variance below 0")


@cache
def _corpus() -> list[Sent]:
    """Return messages of no change to many, for models with and without buffers; the last one is expensive."""
    kinds = ("nesterov", "adam", "yogi", "momentum", "plain")
    cases = []
    for k, (size, channels, down) in enumerate(
        (
            (1, 0, "eden 2"),
            (20, 2, "eden"),
            (130, 3, "qsgd"),
            (130, 3, "eden 2"),
            (600, 200, "eden 2"),
            (600, 7, "dither"),
        )
    ):
        for count in (0, 1, 2, 5):
            algorithm = swift(Engine(size, channels), kinds[(k + count) % len(kinds)], down)
            cases.append(_sent(algorithm, ROUND - count, count))
            cases.append(_sent(algorithm, max(0, ROUND - 2 * count), count))  # some rounds changed nothing
    return [*cases, _sent(swift(Engine(20_000, 100)), 39, 1), _sent(swift(Engine(20_000, 100)), 8, 32)]


def _sent(algorithm: Swift, since: int, count: int) -> Sent:
    base = algorithm.send(algorithm.start(algorithm.fleet.engine.initial()), 0, since)
    changes, after = followed(algorithm, base, range(since, since + count), count)
    return Sent(algorithm, base, since, changes, encode_changes(ROUND, since, changes, digest_of(after)))


# damage


def damage_list(changes: list[bytes], others: list[bytes], rand: random.Random) -> None:
    """Leave changes out, repeat, swap or mix them, or make them far too many."""
    how = rand.randrange(12)
    if how == 0 and changes:
        changes.pop(rand.randrange(len(changes)))
    elif how == 1 and changes:
        changes.insert(rand.randrange(len(changes)), rand.choice(changes))
    elif how == 2:
        rand.shuffle(changes)
    elif how == 3 and others:
        changes.insert(rand.randrange(len(changes) + 1), rand.choice(others))
    elif how == 4:
        changes += [junk(rand.randrange(3), rand)] * rand.choice((1, 31, 40))


def damaged_change(change: bytes, algorithm: Swift, base: Arrays, rand: random.Random) -> bytes:
    """Return a change with damage, another round, or extreme numbers; or another kind of message, well-formed."""
    reference, how = algorithm._reference(base), rand.randrange(8)
    if len(change) < uploads.HEAD.size + SUM.size:
        return junk(rand.randrange(200), rand)
    if how < 3:
        case = uploads.Case("", change, Expected(ROUND, 0, reference), _sections(change))
        return uploads.mutated(case, [case], rand)
    if how == 3:
        body = bytearray(change[: -SUM.size])
        body[_ROUND] = rand.choice((0, 1, 39, 40, 49, 50, 51, 2**31, 2**32 - 1)).to_bytes(4, "little")
        return sealed(bytes(body))
    if how == 4:
        kind, mask = rand.choice(uploads.BODIES), rand.choice(list(uploads.MASKS))
        update = uploads.upload(reference, kind, mask, seed=rand.randrange(4), levels=rand.choice((0, 1, 2, 4)))
        return _packed(replace(update, round=ROUND - 1, vehicle=0), reference)
    try:
        update = decode(change, Expected(read_header(change).round, 0, reference))
    except DecodeError:  # it starts from another content, or is damaged already
        return change
    return _packed(_extreme(update, rand), reference) or change


def _extreme(update: Update, rand: random.Random) -> Update:
    """Return a change whose numbers are as large as its form allows."""
    update = replace(update, length=float("inf") if rand.random() < 0.8 else None, forms=None)
    factor = np.float32(rand.choice(_HUGE))
    if rand.random() < 0.4 and update.code is not None:
        return replace(update, code=replace(update.code, norms=_times(update.code.norms, factor)))
    if isinstance(update.body, Raw) or rand.random() < 0.2:
        values = np.full(update.size, rand.choice((*SINGLES, -3e38)), np.float32)
        return replace(update, body=Raw(values), coder="range")
    return replace(update, body=replace(update.body, norms=_times(update.body.norms, factor)))


def _times(norms: np.ndarray, factor: np.float32) -> np.ndarray:
    """Return norms times a factor, which are bfloat16 again."""
    with np.errstate(over="ignore"):
        large = np.minimum(np.maximum(norms, np.float32(0.1)) * factor, np.float32(3.3e38)).astype(np.float32)
    return np.asarray((large.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32))


def _packed(update: Update, reference: Reference) -> bytes:
    with np.errstate(all="ignore"):
        return encode(update, reference)


def _sections(change: bytes) -> list[bytes]:
    """Take a change apart as far as its lengths go."""
    at, parts = uploads.HEAD.size, []
    for length in uploads.HEAD.unpack_from(change)[-4:]:
        parts.append(change[at : min(at + length, len(change) - SUM.size)])
        at += length
    return parts


def _starting(change: bytes, algorithm: Swift, base: Arrays) -> bytes:
    """Let a change start from these arrays, as far as they have a digest at all."""
    body, nothing = bytearray(change[: -SUM.size]), np.empty(0, np.float32)
    with np.errstate(all="ignore"):
        model = Model(base.get("weights", nothing), base.get("buffers", nothing))
        digest = algorithm.fleet.engine.reference(model, algorithm.settings.prune).digest
    body[_DIGEST] = digest.to_bytes(8, "little")
    return sealed(bytes(body))


def _odd(base: Arrays, rand: random.Random) -> Arrays:
    """Return a content that a hostile station may have sent before: of other names, sizes, types or numbers."""
    arrays = {name: array.copy() for name, array in base.items()}
    name = rand.choice(list(arrays))
    how = rand.randrange(6)
    if how == 0:
        del arrays[name]
    elif how == 1:
        arrays[name] = arrays[name][: rand.choice((0, 1, -1))]
    elif how == 2:
        arrays[name] = arrays[name].reshape(rand.choice(((-1, 1), (1, -1))))
    elif how == 3:
        kind, value = rand.choice(((np.float64, 1e300), (np.float64, 0.5), (np.int8, 1), (np.int64, 2**40)))
        arrays[name] = np.full(arrays[name].shape, value, kind)
    elif how == 4:
        arrays[rand.choice(("speed", "squares", "x"))] = np.ones(len(arrays["weights"]), np.float32)
    else:
        arrays[name][...] = rand.choice((-1.0, 3e38, -3e38, 0.0, 1e-45))
    return arrays


def message(since: int, changes: list[bytes], algorithm: Swift, base: Arrays, rand: random.Random) -> bytes:
    """Pack changes with the digest of what they lead to, mostly."""
    digest, sent = rand.getrandbits(64), base
    if rand.random() < 0.9:
        try:
            for change in changes:
                sent = algorithm.follow(sent, change)
            digest = digest_of(sent)
        except Exception:  # what it raises is looked at when it is checked
            digest = 0
    head = HEAD.pack(b"SKYM", 3, len(changes) % 256, ROUND, since, digest)
    return sealed(head + b"".join(_number(len(change)) + change for change in changes))


def _number(value: int) -> bytes:
    written = b""
    while value > 127:
        written, value = written + bytes([value & 127 | 128]), value >> 7
    return written + bytes([value])
