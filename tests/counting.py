"""A small algorithm that uses everything an algorithm may use: memory, several vectors, several exchanges and models.

Vehicles count their rounds in memory. In the first exchange of a round they say how far they have counted, and the
station answers each with a number of its own; in the second they train and send their update, a running mean of their
updates that they keep in memory, and the count. One vehicle rests in every round. The station delivers the model and
a running mean of it; vehicles with an odd number use the mean.
"""

from collections.abc import Iterable

import numpy as np

from skyfed.algorithms.base import Algorithm, Parts
from skyfed.columns import Column
from skyfed.kit import Kit
from skyfed.types import Arrays, Model
from skyfed.wire import MODEL, Message
from skyfed.world import View


class Counting(Algorithm):
    """Counts."""

    title = "Counting"
    exchanges = 2
    columns = (Column("count", "int", "rounds that the vehicle has taken part in", default=0),)

    def parts(self) -> dict[str, int]:
        return {"update": MODEL, "trend": MODEL, "count": 2}

    def start(self, model: Model) -> Arrays:
        return {**super().start(model), "slow": model.weights.copy(), "seen": np.zeros(self.fleet.vehicles, np.int64)}

    def select(self, t: int, view: View) -> list[int]:
        """Let the vehicle rest whose turn it is; who is away stays away."""
        return [u for u in view.present if u != t % self.fleet.vehicles]

    def local(self, kit: Kit, received: Arrays, memory: Arrays) -> tuple[Parts, Arrays]:
        count = memory.get("count", np.zeros(1, np.int64))
        trend = memory.get("trend", np.zeros(kit.layout.live_size, np.float32))
        if kit.exchange == 0:
            nothing = kit.sparse(trend, np.empty(0, np.int64), received["buffers"])
            told = np.array([count[0], kit.vehicle], np.float32)
            return {"update": nothing, "trend": kit.vector(trend), "count": told}, memory
        trained = kit.descend(received)
        count = count + 1
        trend = (0.5 * trend + 0.5 * trained.gradient * received["factor"][0]).astype(np.float32)
        kit.note(count=int(count[0]))
        parts = {"update": kit.raw(trained), "trend": kit.vector(trend), "count": np.array([count[0], 0], np.float32)}
        return parts, {"count": count, "trend": trend}

    def answer(self, state: Arrays, messages: list[Message], t: int, exchange: int) -> tuple[Arrays, dict[int, Arrays]]:
        counts = {message.vehicle: message.parts["count"] for message in messages}
        assert all(told[1] == vehicle for vehicle, told in counts.items())
        sent = {u: {**self.send(state, u, t), "factor": np.float64([1 + told[0]])} for u, told in counts.items()}
        return {**state, "asked": np.array([len(counts)])}, sent

    def step(self, state: Arrays, messages: Iterable[Message], t: int) -> Arrays:
        kept = list(messages)
        after = super().step(state, kept, t)
        seen = after["seen"].copy()
        for message in kept:
            seen[message.vehicle] = int(message.parts["count"][0])
        trend = np.mean([message.vector("trend") for message in kept], axis=0, dtype=np.float64)
        slow = (0.7 * after["slow"] + 0.3 * after["weights"] - 1e-3 * trend).astype(np.float32)
        return {**after, "slow": slow, "seen": seen}

    def deliver(self, state: Arrays) -> dict[str, Model]:
        return {"fast": Model(state["weights"], state["buffers"]), "slow": Model(state["slow"], state["buffers"])}

    def serves(self, state: Arrays, vehicle: int) -> str:
        return "slow" if vehicle % 2 else "fast"
