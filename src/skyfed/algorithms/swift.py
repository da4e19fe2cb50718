"""Swift: a better step at the station, few bits in both directions.

Every round t, vehicle u receives what changed the model and

    repeats the station's step    w^t from w^{t-1}, bit for bit
    trains                        kappa local rounds from w^t; d_u^t = (start - end) / local rate
    sends                         Q(d_u^t) and its batch-norm buffers, both rotated and rounded to few bits (EDEN)

and the station

    averages                      g^t = mean_u Q(d_u^t)
    quantises again               h^t = Q'(g^t), before momentum; everybody is sent h^t
    steps (Nesterov)              v^{t+1} = beta v^t + h^t,   w^{t+1} = w^t - eta (h^t + beta v^{t+1})
    delivers                      a moving average of w over the last rounds

Both quantisers are unbiased, so that their noise averages out over vehicles and over rounds; momentum and the moving
average do the latter. The station steps by what it sends, not by what it averaged: so a vehicle that has the last
model and v needs h^t alone. docs/algorithms.md shows what each part brings.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from skyfed.algorithms.base import Algorithm, Parts
from skyfed.blocks.aggregate import aggregate
from skyfed.blocks.optimise import OptimiserSettings, advance, moments
from skyfed.blocks.tables import Settings
from skyfed.errors import DivergedError
from skyfed.rng import stream
from skyfed.types import Arrays, Floats, Model, Singles, Update
from skyfed.wire import (
    MOST_CHANGES,
    DecodeError,
    Expected,
    Message,
    QuantiseSettings,
    Reference,
    bucket_starts,
    decode,
    encode,
    entries,
    quantise_buffers,
    quantised,
    read_header,
    restored,
)  # fmt: skip

if TYPE_CHECKING:
    from skyfed.kit import Kit

_OLDEST = "oldest change"


class SwiftSettings(Settings):
    """What swift has of its own."""

    down: QuantiseSettings = Field(
        QuantiseSettings(scheme="eden", s=1, bucket=4096, variance=1.5, buffers=4),
        description="how the averaged gradient is quantised again before it is sent down; keys as in `quantise`",
    )
    optimiser: OptimiserSettings = Field(
        OptimiserSettings(kind="nesterov"), description="the station's step: `kind`, `beta`, `beta2`, `tau`"
    )
    average: float = Field(0.8, ge=0, lt=1, description="moving average of the weights that is delivered; 0: the last")


class Swift(Algorithm):
    """Nesterov's step at the station, rotated few-bit messages in both directions."""

    title = "Swift"
    Settings = SwiftSettings
    settings: SwiftSettings

    def start(self, model: Model) -> Arrays:
        """Start with no speed; the average of the weights is the weights."""
        first: Arrays = {_OLDEST: np.zeros(1, np.int64), "mean": model.weights, "mean_buffers": model.buffers}
        return {**super().start(model), **moments(self.settings.optimiser, len(model.weights)), **first}

    def send(self, state: Arrays, vehicle: int, t: int) -> Arrays:
        """Return the model and what the next step needs; vehicles that keep up work it out from `changes`."""
        return {name: state[name] for name in ("weights", "buffers", "speed", "squares") if name in state}

    def local(self, kit: "Kit", received: Arrays, memory: Arrays) -> tuple[Parts, Arrays]:
        """Train and send few bits."""
        return {"update": kit.quantise(kit.descend(received))}, memory

    def step(self, state: Arrays, messages: Iterable[Message], t: int) -> Arrays:
        """Average, quantise again, and step by what is sent."""
        together = aggregate(messages, self.settings.server, self.fleet.vehicles, state)
        if together is None:
            return state
        sent = self.send(state, 0, t)
        try:
            change = self._change(sent, together.gradient, together.buffers, t)
            after = {**state, **self.follow(sent, change), **together.memory}
        except DecodeError as error:  # vehicles would refuse it as well
            raise DivergedError(f"{self.title} stops at round {t}: training diverged ({error})") from None
        share = min(self.settings.average, t / (t + 4))  # the first rounds are forgotten sooner
        for name, last in (("mean", "weights"), ("mean_buffers", "buffers")):
            mixed = share * state[name].astype(np.float64) + (1 - share) * after[last]
            after[name] = mixed.astype(np.float32)
        return _remembered(after, change, t)

    def follow(self, received: Arrays, change: bytes) -> Arrays:
        """Return what a change makes of the content before it: the station's step, on both sides."""
        self._check_content(received)
        t, reference = read_header(change).round, self._reference(received)
        if t >= self.fleet.rounds:
            raise DecodeError(f"a change in round {t} of {self.fleet.rounds}")
        update = decode(change, Expected(t, 0, reference))
        if update.mask is not None:
            raise DecodeError("a change of some weights only")
        gradient, eta = entries(update, reference), self.settings.train.eta_at(t)
        with np.errstate(over="ignore", invalid="ignore"):
            weights, after = advance(received["weights"], gradient, received, eta, self.settings.optimiser)
        if not all(np.isfinite(array).all() for array in (weights, *after.values())):
            raise DecodeError("a change leads to a number that is not finite")
        return {"weights": weights, "buffers": update.buffers, **after}

    def changes(self, state: Arrays, since: int) -> list[bytes] | None:
        """Return the changes since a round, if all of them are still here."""
        if since < state[_OLDEST][0]:
            return None
        return [state[name].tobytes() for name in _changes_in(state) if int(name.rpartition(" ")[2]) >= since]

    def deliver(self, state: Arrays) -> dict[str, Model]:
        """Return the averaged model."""
        return {"model": Model(state["mean"], state["mean_buffers"])}

    def _check_content(self, received: Arrays) -> None:
        """Raise DecodeError where no change can lead on: a station may have sent a vehicle any arrays before."""
        layout = self.fleet.engine.layout
        wanted = {name: array.shape for name, array in moments(self.settings.optimiser, layout.live_size).items()}
        wanted |= {"weights": (layout.live_size,), "buffers": (layout.buffers,)}
        there = {name: array.shape for name, array in received.items()}
        if there != wanted or any(array.dtype != np.float32 for array in received.values()):
            raise DecodeError("a change of what this row does not send")

    def _change(self, sent: Arrays, average: Floats, buffers: Singles, t: int) -> bytes:
        """Return a gradient and new buffers, quantised, as the bytes that go down."""
        with np.errstate(over="ignore"):
            gradient = average.astype(np.float32)
        if not np.isfinite(gradient).all():
            raise DecodeError("an entry of the averaged gradient is not finite")
        settings, reference, rng = self.settings.down, self._reference(sent), stream(self.fleet.seed, "send down", t)
        starts = bucket_starts(len(gradient), settings.bucket_code, reference.starts, None)
        more: dict[str, Any] = {}
        if settings.buffers and len(buffers):
            more["code"] = quantise_buffers(buffers, reference, settings.buffers, rng)
            buffers = restored(more["code"], reference)
        body = quantised(gradient, starts, settings, rng)
        return encode(Update(t, 0, len(gradient), None, body, buffers, coder=settings.coder, **more), reference)

    def _reference(self, sent: Arrays) -> Reference:
        return self.fleet.engine.reference(Model(sent["weights"], sent["buffers"]), self.settings.prune)


def _changes_in(state: Arrays) -> list[str]:
    return sorted(name for name in state if name.startswith("change "))


def _remembered(state: Arrays, change: bytes, t: int) -> Arrays:
    """Return the state with a change, without those that a whole model would be shorter than."""
    state = {**state, f"change {t:07d}": np.frombuffer(change, np.uint8)}
    names, whole = _changes_in(state), state["weights"].nbytes
    while len(names) > MOST_CHANGES or (len(names) > 1 and sum(state[name].nbytes for name in names) > whole):
        dropped = names.pop(0)
        del state[dropped]
        state[_OLDEST] = np.array([int(dropped.rpartition(" ")[2]) + 1])
    return state
