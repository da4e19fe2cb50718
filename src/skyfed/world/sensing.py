"""Which samples: disjoint pools for the vehicles, and the sets that grow out of them along their flights (Eq. 7)."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skyfed.field import Mixture
from skyfed.flight.fleet_plan import FleetPlan
from skyfed.rng import stream
from skyfed.types import Arrays, Bools, Floats, Ints
from skyfed.world.arrivals import footprint_side, initial_counts, new_counts
from skyfed.world.footprint import CameraGrowth, build_cameras
from skyfed.world.settings import Conditions


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

    def __init__(self, plan: FleetPlan, places: Arrays, conditions: Conditions) -> None:
        """Share the samples out; `places` holds the place where each sample of "train" and of "test" occurs."""
        self._plan, self._settings, self._world = plan, conditions.sensing, conditions.world
        self._camera = self._settings.model == "footprint"
        self._side = footprint_side(conditions.sensor.altitude, conditions.sensor.fov)
        self.train: Sequence[Growth | CameraGrowth] = self._start("train", places, self._settings.initial, conditions)
        self.test: Sequence[Growth | CameraGrowth] = self._start(
            "test", places, self._settings.initial_test, conditions
        )

    def _start(
        self, part: str, places: Arrays, initial: int, conditions: Conditions
    ) -> Sequence[Growth | CameraGrowth]:
        """Give everybody the initial set of round 0."""
        plan, seed = self._plan, conditions.seed
        counts = np.stack([initial_counts(psi, initial) for psi in plan.psi])
        sharing = conditions.shared and self._camera
        groups, skew = (1, None) if sharing else (plan.vehicles, conditions.dirichlet)
        pools = split_pools(places[part], plan.classes, groups, seed, part, skew)
        if self._camera:
            mixtures = [Mixture(*field, np.full(plan.classes, 1 / plan.classes)) for field in zip(
                plan.true_centres, plan.true_radii / conditions.zeta, strict=True)]  # fmt: skip
            round_seconds, stay = self._world.round_time, self._settings.stay
            return build_cameras(pools, mixtures, plan.psi, counts, round_seconds, stay, seed, part)
        grown = [Growth(pool, stream(seed, f"arrivals {part}", vehicle=u)) for u, pool in enumerate(pools)]
        for growth, wanted in zip(grown, counts, strict=True):
            growth.extend(wanted[:, None])
        return grown

    def sense(self, positions: Floats, arrive: Floats, phase: Floats) -> None:
        """Let every vehicle's sets grow in the next round after round 0.

        positions  (U, 2)           arrive  (U,) mission seconds; NaN where a vehicle senses nothing
        phase      (U,) which round of the plan this time belongs to; between two, psi is in between
        """
        for grown, most in ((self.train, self._settings.n_max), (self.test, self._settings.n_max_test)):
            for u, growth in enumerate(grown):
                if isinstance(growth, CameraGrowth):
                    if np.isnan(arrive[u]):
                        growth.skip()
                    else:
                        growth.visit(positions[u], self._side, arrive[u], arrive[u] + self._world.dwell)
                else:
                    growth.extend(self._wanted(u, positions[u], phase[u], most))

    def _wanted(self, u: int, position: Floats, phase: float, most: int) -> Ints:
        """Return how many samples of each class a round brings, (C, 1), by Eq. 6."""
        plan = self._plan
        if np.isnan(phase):
            return np.zeros((plan.classes, 1), np.int64)
        psi, discs = psi_at(plan.psi[u], phase), (plan.true_centres[u], plan.true_radii[u])
        return new_counts(position[None], psi[:, None], *discs, most, self._settings.decay_length)

    def train_set(self, vehicle: int, t: int) -> Ints:
        """Return D_u^t."""
        return self.train[vehicle].at(t, self._settings.keep_last)

    def train_rounds(self, vehicle: int, t: int) -> Ints:
        """Return the round in which each sample of D_u^t was sensed; 0 for the initial ones."""
        size, keep_last = self.train[vehicle].size, self._settings.keep_last
        rounds = np.searchsorted(size, np.arange(size[t]), "right")
        return rounds[-keep_last:] if keep_last else rounds

    def test_members(self, t: int, total: int) -> Bools:
        """Tell which of `total` test samples belong to the time-varying test set in round t."""
        inside = np.zeros(total, bool)
        for growth in self.test:
            inside[growth.at(t)] = True
        return inside


def psi_at(psi: Floats, phase: float) -> Floats:
    """Return psi (C, T) at a time in rounds, linear between two rounds and constant after the last; (C,)."""
    low = int(min(phase, psi.shape[1] - 1))
    part = min(phase, psi.shape[1] - 1) - low
    return psi[:, low] if part == 0 else (1 - part) * psi[:, low] + part * psi[:, low + 1]


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
