"""Which samples: disjoint pools for the vehicles, and the sets that grow out of them round by round (Eq. 7)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from skyfed.records import Bools, Floats, Ints
from skyfed.rng import stream
from skyfed.sensing.arrivals import SensingSettings, initial_counts, new_counts
from skyfed.sensing.datasets.cache import Bytes


@dataclass(frozen=True)
class Growth:
    """One vehicle's growing set: samples in the order they were sensed.

    samples  (n,) indices into the data set       size  (T,) how many of them are there in each round
    sensed   (n,) round in which each was sensed; 0 for the initial set
    dry      (T,) samples a round should have brought but its pool no longer had
    """

    samples: Ints
    sensed: Ints
    size: Ints
    dry: Ints

    def at(self, t: int, keep_last: int = 0) -> Ints:
        """Return the samples held in round t: D_u^t (Eq. 7)."""
        held = self.samples[: self.size[t]]
        return held[-keep_last:] if keep_last else held


@dataclass(frozen=True)
class Schedule:
    """What every vehicle holds in every round: its training set and its part of the test set."""

    train: tuple[Growth, ...]
    test: tuple[Growth, ...]
    keep_last: int

    def train_set(self, vehicle: int, t: int) -> Ints:
        """Return D_u^t."""
        return self.train[vehicle].at(t, self.keep_last)

    def union(self, t: int) -> Ints:
        """Return D^t, all vehicles' sets together, in vehicle order."""
        return np.concatenate([growth.at(t, self.keep_last) for growth in self.train])

    def test_members(self, t: int, total: int) -> Bools:
        """Tell which of `total` test pictures belong to the time-varying test set in round t."""
        inside = np.zeros(total, bool)
        for growth in self.test:
            inside[growth.at(t)] = True
        return inside


@dataclass(frozen=True)
class Flight:
    """What decides how much a vehicle senses: where it is, and what is really there."""

    positions: Floats
    psi: Floats
    centres: Floats
    radii: Floats


def grow(
    flights: Sequence[Flight], train_labels: Bytes, test_labels: Bytes, settings: SensingSettings, seed: int
) -> Schedule:
    """Let every vehicle's sets grow along its flight, out of pools that no two vehicles share."""
    train_sizes = (settings.initial, settings.n_max)
    test_sizes = (settings.initial_test, settings.n_max_test)
    return Schedule(
        _grow_part(flights, train_labels, *train_sizes, settings.decay_length, seed, "train"),
        _grow_part(flights, test_labels, *test_sizes, settings.decay_length, seed, "test"),
        settings.keep_last,
    )


def _grow_part(
    flights: Sequence[Flight], labels: Bytes, initial: int, n_max: int, decay_length: float, seed: int, part: str
) -> tuple[Growth, ...]:
    pools = split_pools(labels, len(flights[0].psi), len(flights), seed, part)
    grown = []
    for u, flight in enumerate(flights):
        wanted = new_counts(flight.positions, flight.psi, flight.centres, flight.radii, n_max, decay_length)
        wanted[:, 0] = initial_counts(flight.psi, initial)  # round 0 has the initial set, arrivals begin at t = 1
        grown.append(_take(pools[u], wanted, stream(seed, f"arrivals {part}", vehicle=u)))
    return tuple(grown)


def split_pools(labels: Bytes, classes: int, vehicles: int, seed: int, part: str) -> list[list[Ints]]:
    """Share each class's samples out evenly; pools[u][c] holds indices in the order they will be sensed."""
    pools: list[list[Ints]] = [[] for _ in range(vehicles)]
    for c in range(classes):
        own = np.flatnonzero(labels == c)
        own = own[stream(seed, f"pool {part}", round=c).permutation(len(own))]
        each = len(own) // vehicles
        for u in range(vehicles):
            pools[u].append(own[u * each : (u + 1) * each])
    return pools


def _take(pool: list[Ints], wanted: Ints, rng: np.random.Generator) -> Growth:
    """Take what each round wants from the pool while it lasts; a round's samples come in random order."""
    reach = np.minimum(np.cumsum(wanted, axis=1), np.array([len(own) for own in pool])[:, None])
    got = np.diff(reach, axis=1, prepend=0)
    samples, sensed = [], []
    for t in range(wanted.shape[1]):
        batch = np.concatenate(
            [own[end - count : end] for own, end, count in zip(pool, reach[:, t], got[:, t], strict=True)]
        )
        samples.append(batch[rng.permutation(len(batch))])
        sensed.append(np.full(len(batch), t))
    size = np.cumsum(got.sum(axis=0))
    return Growth(np.concatenate(samples), np.concatenate(sensed), size, (wanted - got).sum(axis=0))
