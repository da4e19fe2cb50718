"""The constants of Theorem 1, measured in a live round by jobs that probe the vehicles' losses."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from skyfed.errors import BadInputError
from skyfed.jobs import Job, Upload
from skyfed.station import Station
from skyfed.tasks import Samples
from skyfed.tasks.cache import Bytes
from skyfed.theory.estimate import Gathering, histogram_distance
from skyfed.types import Arrays, Ints
from skyfed.wire import Message


class Diagnosis:
    """Takes note of a round's masks as uploads come in, then measures; masks are packed, eight entries per byte."""

    def __init__(self, station: Station, t: int) -> None:
        self._station, self._t = station, t
        self._noted: dict[int, tuple[Bytes | None, float]] = {}  # by vehicle: mask and weight
        self._due = station.algorithm.settings.theory.due(t)

    def watch(self, messages: Iterator[Message]) -> Iterator[Message]:
        """Pass uploads on, taking note of each."""
        for message in messages:
            if self._due:
                mask = message.update.mask
                self._noted[message.vehicle] = None if mask is None else np.packbits(mask), message.weight
            yield message

    def measure(self, before: Arrays, after: Arrays, uploads: list[Upload]) -> dict[str, Any] | None:
        """Return the round's row of the theory table; nothing where the round is not due or nobody took part."""
        if not self._noted or after is before:
            return None
        world, train, t = self._station.world, self._station.algorithm.settings.train, self._t
        fleet = self._histogram(world.union(t))
        facts = {upload.vehicle: upload.facts for upload in uploads}
        gathering = Gathering(before["weights"])
        total = sum(weight for _, weight in self._noted.values())
        for probed in self._station.replies(self._jobs(before, after)):
            u = probed.words["vehicle"]
            known, (packed, weight) = facts[u], self._noted[u]
            mask = None if packed is None else np.unpackbits(packed, count=len(before["weights"])).astype(bool)
            own = self._histogram(world.observe(u, t))
            gathering.add(
                probed, mask, float(weight) / total, epsilon=histogram_distance(own, fleet),
                delta=known.get("delta", 0.0), raw=known.get("raw_probability", 1.0),
                q=known.get("quantiser_bound", 0.0), variance=known.get("quantiser_variance", float("nan")),
            )  # fmt: skip
        return gathering.row(t, train.kappa * train.batches_per_round, train.eta_at(t), train.eta_local_at(t))

    def _jobs(self, before: Arrays, after: Arrays) -> list[Job]:
        sent = {name: before[name] for name in ("weights", "buffers")}
        sent |= {f"{name} after": after[name] for name in ("weights", "buffers")}
        t, label, schedule = self._t, self._station.label, self._station.world.schedule
        rounds = {"before": max(0, t - 1), "samples": t, "later": min(self._station.onboard.config.rounds - 1, t + 1)}
        return [
            Job("probe", sent, label, t, u, {name: schedule.train_set(u, held) for name, held in rounds.items()})
            for u in sorted(self._noted)
        ]

    def _histogram(self, samples: Ints | Samples) -> Ints:
        task = self._station.onboard.task
        if isinstance(samples, Samples):
            raise BadInputError("theory.every: needs samples of the task; allowed with a world of your own: 0")
        return np.bincount(task.train.places[samples], minlength=len(task.places))
