"""Which samples: disjoint pools for the vehicles, and the sets that grow out of them along their flights (Eq. 7)."""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skyfed.flight.fleet_plan import FleetPlan
from skyfed.rng import stream
from skyfed.types import Arrays, Bools, Floats, Ints
from skyfed.world.arrivals import SensingSettings, initial_counts, new_counts


class Growth:
    """One vehicle's growing set: samples in the order they were sensed.

    samples  (n,) indices into the data set       size  (t,) how many of them are there in each round so far
    dry      (t,) samples a round should have brought but its pool no longer had
    """

    def __init__(self, pool: list[Ints], rng: np.random.Generator) -> None:
        """Start from a pool: for each place the samples in the order they will be sensed."""
        self._pool, self._rng = pool, rng
        self._reach = np.zeros(len(pool), np.int64)
        self.samples = self.size = self.dry = np.empty(0, np.int64)

    def extend(self, wanted: Ints) -> None:
        """Take what the next rounds want, (C, t), while the pool lasts; a round's samples come in random order."""
        held = np.array([len(own) for own in self._pool])
        reach = np.minimum(self._reach[:, None] + np.cumsum(wanted, axis=1), held[:, None])
        got = np.diff(reach, axis=1, prepend=self._reach[:, None])
        samples = [self.samples]
        for t in range(wanted.shape[1]):
            batch = np.concatenate(
                [own[end - count : end] for own, end, count in zip(self._pool, reach[:, t], got[:, t], strict=True)]
            )
            samples.append(batch[self._rng.permutation(len(batch))])
        self.size = np.concatenate([self.size, len(self.samples) + np.cumsum(got.sum(axis=0))])
        self.dry = np.concatenate([self.dry, (wanted - got).sum(axis=0)])
        self.samples = np.concatenate(samples)
        self._reach = reach[:, -1] if wanted.shape[1] else self._reach

    def at(self, t: int, keep_last: int = 0) -> Ints:
        """Return the samples held in round t: D_u^t (Eq. 7)."""
        held = self.samples[: self.size[t]]
        return held[-keep_last:] if keep_last else held


class Schedule:
    """What every vehicle holds in every round flown so far: its training set and its part of the test set."""

    def __init__(
        self, plan: FleetPlan, places: Arrays, settings: SensingSettings, seed: int, dirichlet: float | None = None
    ) -> None:
        """Share the samples out; `places` holds the place where each sample of "train" and of "test" occurs."""
        self._plan, self._settings = plan, settings
        self.train, self.test = (
            [
                Growth(pool, stream(seed, f"arrivals {part}", vehicle=u))
                for u, pool in enumerate(split_pools(places[part], plan.classes, plan.vehicles, seed, part, dirichlet))
            ]
            for part in ("train", "test")
        )

    def extend(self, positions: Floats) -> None:
        """Let every vehicle's sets grow along the next stretch of its flight; (U, H, 2)."""
        plan, settings = self._plan, self._settings
        for grown, initial, most in (
            (self.train, settings.initial, settings.n_max),
            (self.test, settings.initial_test, settings.n_max_test),
        ):
            for u, growth in enumerate(grown):
                first, discs = len(growth.size), (plan.true_centres[u], plan.true_radii[u])
                psi = plan.psi[u][:, first : first + positions.shape[1]]
                wanted = new_counts(positions[u], psi, *discs, most, settings.decay_length)
                if first == 0:  # round 0 has the initial set, arrivals begin at 1
                    wanted[:, 0] = initial_counts(plan.psi[u], initial)
                growth.extend(wanted)

    def train_set(self, vehicle: int, t: int) -> Ints:
        """Return D_u^t."""
        return self.train[vehicle].at(t, self._settings.keep_last)

    def test_members(self, t: int, total: int) -> Bools:
        """Tell which of `total` test samples belong to the time-varying test set in round t."""
        inside = np.zeros(total, bool)
        for growth in self.test:
            inside[growth.at(t)] = True
        return inside


def split_pools(
    labels: NDArray[Any], places: int, vehicles: int, seed: int, part: str, dirichlet: float | None = None
) -> list[list[Ints]]:
    """Share each place's samples out; pools[u][c] holds indices in the order they will be sensed.

    Evenly, or unevenly by a Dirichlet draw per place, the same for training and test samples.
    """
    pools: list[list[Ints]] = [[] for _ in range(vehicles)]
    for c in range(places):
        own = np.flatnonzero(labels == c)
        own = own[stream(seed, f"pool {part}", round=c).permutation(len(own))]
        cuts = np.arange(vehicles + 1) * (len(own) // vehicles)
        if dirichlet is not None:
            shares = stream(seed, "skew", round=c).dirichlet(np.full(vehicles, dirichlet))
            cuts = np.round(np.concatenate([[0.0], np.cumsum(shares)]) * len(own)).astype(np.int64)
        for pool, (start, stop) in zip(pools, pairwise(cuts), strict=True):
            pool.append(own[start:stop])
    return pools
