"""The constants of Theorem 1, measured in a live round by jobs that probe the vehicles' losses."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from skyfed.errors import BadInputError
from skyfed.jobs import Job, Missing, Upload
from skyfed.station import Station
from skyfed.tasks import Samples
from skyfed.tasks.cache import Bytes
from skyfed.theory.estimate import Gathering, histogram_distance
from skyfed.types import Arrays, Ints, Probe
from skyfed.wire import Message


class Diagnosis:
    """Takes note of a round's masks as uploads come in, then measures; masks are packed, eight entries per byte."""

    def __init__(self, station: Station, t: int) -> None:
        self._label, self._t, self._onboard = station.label, t, station.onboard
        self._world, self._driver = station.world, station.driver
        self._masks: dict[int, Bytes | None] = {}
        self._weights: dict[int, float] = {}
        self._due = station.algorithm.settings.theory.due(t)

    def watch(self, messages: Iterator[Message]) -> Iterator[Message]:
        """Pass uploads on, taking note of each."""
        for message in messages:
            if self._due:
                mask = message.update.mask
                self._masks[message.vehicle] = None if mask is None else np.packbits(mask)
                self._weights[message.vehicle] = message.weight
            yield message

    def measure(self, before: Arrays, after: Arrays, uploads: list[Upload]) -> dict[str, Any] | None:
        """Return the round's row of the theory table; nothing where the round is not due or nobody took part."""
        if not self._masks or after is before:
            return None
        onboard, world, t = self._onboard, self._world, self._t
        train, layout = onboard.algorithms[self._label].settings.train, onboard.engine.layout
        fleet = self._histogram(world.union(t))
        known = {upload.vehicle: upload for upload in uploads}
        gathering = Gathering(before["weights"])
        total = sum(self._weights[u] for u in self._masks)
        for probe in self._probes(before, after):
            upload, packed = known[probe.vehicle], self._masks[probe.vehicle]
            mask = None if packed is None else np.unpackbits(packed, count=layout.live_size).astype(bool)
            own = self._histogram(world.observe(probe.vehicle, t))
            gathering.add(
                probe, mask, float(self._weights[probe.vehicle]) / total, epsilon=histogram_distance(own, fleet),
                delta=upload.facts.get("delta", 0.0), raw=upload.facts.get("raw_probability", 1.0),
                q=upload.facts.get("quantiser_bound", 0.0),
                variance=upload.facts.get("quantiser_variance", float("nan")),
            )  # fmt: skip
        return gathering.row(t, train.kappa * train.batches_per_round, train.eta_at(t), train.eta_local_at(t))

    def _probes(self, before: Arrays, after: Arrays) -> Iterator[Probe]:
        sent = {
            "weights": before["weights"], "buffers": before["buffers"],
            "weights after": after["weights"], "buffers after": after["buffers"],
        }  # fmt: skip
        last = self._onboard.config.rounds - 1
        jobs = [
            Job("probe", sent, self._label, self._t, u, {
                "before": self._world.schedule.train_set(u, max(0, self._t - 1)),
                "samples": self._world.schedule.train_set(u, self._t),
                "later": self._world.schedule.train_set(u, min(last, self._t + 1)),
            })
            for u in sorted(self._masks)
        ]  # fmt: skip
        for reply in self._driver.call(jobs):
            assert not isinstance(reply, Missing)
            yield Probe(**reply.words, gradient=reply.arrays["gradient"])

    def _histogram(self, samples: Ints | Samples) -> Ints:
        task = self._onboard.task
        if isinstance(samples, Samples):
            raise BadInputError("theory.every: needs samples of the task; allowed with a world of your own: 0")
        return np.bincount(task.train.places[samples], minlength=len(task.places))
