"""New positions for a few rounds of a flight, free of other vehicles' flights in the same rounds."""

import numpy as np

from skyfed.flight.apart import SAFE, nearest
from skyfed.flight.discs import allowed, circle, flight_box, outside_all, samples
from skyfed.flight.legs import flyable_steps, trace_back
from skyfed.flight.place import sensing_points
from skyfed.flight.problem import Problem
from skyfed.types import IDLE, Bools, Floats, Ints

_RINGS = 4  # on which a disc is sampled
_GRID = 12  # points along a side of the grid that a long detour may use
_NARROW = 6  # rounds around a conflict up to which the grid is not used
_DIRECTIONS = 12
_SENSING = 1e-3  # weight of a good place within a disc, against a visit's share in the objective
_STRAYING = 1e-9  # weight of a metre away from where the flight was


class Detours:
    """Looks for detours of one vehicle around others (K, T, 2) that are settled."""

    def __init__(self, problem: Problem, others: Floats, metres: float) -> None:
        self._problem, self._others, self._metres = problem, others, metres + SAFE
        self._over: dict[int, tuple[Floats, Floats]] = {}

    def around(self, positions: Floats, association: Ints, t: int, width: int) -> tuple[Floats, Ints] | None:
        """Plan the rounds up to `width` from t anew, the others as they are; None where no way is found.

        It keeps the visits that matter most to the objective, then the best places for sensing.
        """
        first, last = max(0, t - width), min(self._problem.rounds - 1, t + width - 1)
        layers = [self._candidates(positions, association, k, width) for k in range(first, last + 1)]
        ends = (positions[first - 1] if first else None, positions[last + 1] if last + 1 < len(positions) else None)
        chosen = self._best(layers, first, *ends)
        if chosen is None:
            return None
        positions, association = positions.copy(), association.copy()
        for k, (points, _, visits), pick in zip(range(first, last + 1), layers, chosen, strict=True):
            positions[k] = points[pick]
            association[k] = association[k] if visits[pick] else IDLE
        return positions, association

    def _best(
        self, layers: list[tuple[Floats, Floats, Bools]], first: int, start: Floats | None, stop: Floats | None
    ) -> list[int] | None:
        points, cost, _ = layers[0]
        before = points if start is None else start[None]
        free = self._free(before, points, first)
        cost = np.where(free.diagonal() if start is None else free[0], cost, np.inf)
        came: list[Ints] = []
        for k, (after, own, _) in enumerate(layers[1:], start=1):
            total = np.where(self._free(points, after, first + k), cost[:, None], np.inf)
            came.append(total.argmin(axis=0))
            points, cost = after, total.min(axis=0) + own
        if stop is not None:
            cost = np.where(self._free(points, stop[None], first + len(layers))[:, 0], cost, np.inf)
        return trace_back(cost, came) if np.isfinite(cost).any() else None

    def _free(self, before: Floats, after: Floats, t: int) -> Bools:
        """Tell which legs to positions of round t can be flown and are apart from all others; (m, n)."""
        if t == 0:  # no leg that is known leads there
            near = nearest(after[None], after[None], self._others[:, :1], self._others[:, :1])
            return np.diag((near >= self._metres).all(axis=0))
        free = flyable_steps(self._problem, before, after)
        low = np.minimum(before.min(axis=0), after.min(axis=0)) - self._metres
        high = np.maximum(before.max(axis=0), after.max(axis=0)) + self._metres
        for here, there in self._others[:, t - 1 : t + 1]:
            if (np.maximum(here, there) >= low).all() and (np.minimum(here, there) <= high).all():
                i, j = np.nonzero(free)
                free[i, j] = nearest(before[i], after[j], here, there) >= self._metres
        return free

    def _candidates(self, positions: Floats, association: Ints, t: int, width: int) -> tuple[Floats, Floats, Bools]:
        """Points for a round with their costs, and which of them keep its visit."""
        problem, c = self._problem, int(association[t])
        idle = self._idle_points(positions, t, width)
        if c == IDLE:
            idle = np.concatenate([positions[t][None], idle])
        stray = _STRAYING * np.hypot(*(idle - positions[t]).T)
        if c == IDLE:
            return idle, stray, np.zeros(len(idle), bool)
        over, sensed = self._disc(c)
        over = np.concatenate([positions[t][None], over])
        here = np.exp(-np.hypot(*(positions[t] - problem.centres[c])) / problem.decay_length)
        held = problem.collected(association)[c] + problem.epsilon
        share = np.log(held / max(held - problem.psi[c, t], problem.epsilon))
        gain = share + _SENSING * problem.psi[c, t] * np.concatenate([[here], sensed])
        visits = np.arange(len(over) + len(idle)) < len(over)
        return np.concatenate([over, idle]), np.concatenate([-gain, stray]), visits

    def _disc(self, c: int) -> tuple[Floats, Floats]:
        """Points over disc c, and how much of its samples is sensed there."""
        if c not in self._over:
            more = samples(self._problem, c, _RINGS)
            points = np.concatenate([sensing_points(self._problem, c), more[allowed(self._problem, c, more)]])
            far = np.hypot(*(points - self._problem.centres[c]).T)
            self._over[c] = points, np.exp(-far / self._problem.decay_length)
        return self._over[c]

    def _idle_points(self, positions: Floats, t: int, width: int) -> Floats:
        """Points over no disc: around where the flight was, around the middle of its neighbours, and on a grid."""
        middle = (positions[max(0, t - 1)] + positions[min(len(positions) - 1, t + 1)]) / 2
        reach = sorted({max(self._problem.dmin, 1.0), self._metres, 1.7 * self._metres, 3 * self._metres})
        reach += [far for far in (80.0, 150.0) if far < self._problem.vmax]
        sets = [circle(around, far, _DIRECTIONS, 0.1 * t) for around in (positions[t], middle) for far in reach]
        if width > _NARROW:
            low, high = flight_box(self._problem)
            x, y = np.meshgrid(*(np.linspace(a, b, _GRID) for a, b in zip(low, high, strict=True)))
            sets.append(np.stack([x.ravel(), y.ravel()], axis=1))
        points = np.concatenate(sets)
        return points[outside_all(self._problem, points)]
