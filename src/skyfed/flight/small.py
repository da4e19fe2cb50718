"""Small problems with a speed limit, solved by trying every association, best first.

Associations that even the optimistic network cannot fly are impossible. The best of the others is a proven bound. They
are tried in falling order on points a few metres apart, until one can be placed. If that is the first, it is optimal.
"""

from itertools import pairwise

import numpy as np

from skyfed.flight.discs import (
    SLACK,
    allowed,
    circle,
    corners,
    distances,
    flight_box,
    impossible_steps,
    outside_all,
    samples,
)
from skyfed.flight.legs import flyable_steps
from skyfed.flight.place import PlacementError, place
from skyfed.flight.problem import Problem
from skyfed.flight.travel import Network
from skyfed.types import IDLE, Bools, Floats, Ints

_MOST = 70_000  # associations: three classes in eight rounds are 65,536
_SPACING = 2.0  # metres between the rings of points that are tried, about
_RINGS = 20
_GRID, _DIRECTIONS = 15, 48  # points for idle rounds: along one side of the region, and around a disc
_TRIES = 3000  # associations that are tried


def is_small(problem: Problem) -> bool:
    """Tell whether every association can be tried."""
    return bool((problem.classes + 1.0) ** problem.rounds <= _MOST)


def solve_small(problem: Problem, network: Network) -> tuple[float, Ints | None, Floats]:
    """Return the proven bound, and the best association that was placed with its positions, if any.

    network  the optimistic one
    """
    value, candidates = ranked(problem, network)
    fine = FinePoints(problem)
    for association in candidates[:_TRIES]:
        positions = fine.positions(association)
        if positions is not None:
            return float(value[0]), association, positions
    return float(value[0]), None, np.empty((0, 2))


def ranked(problem: Problem, network: Network) -> tuple[Floats, Ints]:
    """Return the objectives and the associations that the optimistic network can fly, best first; (n,), (n, T)."""
    candidates = _possible(problem.paper_only, network)
    amount = np.zeros((len(candidates), problem.classes))
    for t in range(problem.rounds):
        busy = np.flatnonzero(candidates[:, t] != IDLE)
        amount[busy, candidates[busy, t]] += problem.psi[candidates[busy, t], t]
    value = np.log(amount + problem.epsilon).sum(axis=1)
    order = np.argsort(-value, kind="stable")
    return value[order], candidates[order]


def _possible(problem: Problem, network: Network) -> Ints:
    """Return the associations that keep C5 and that the optimistic network can fly; (n, T)."""
    C, T = problem.psi.shape
    own = [np.flatnonzero(network.label == c) for c in range(C)]
    never = set(impossible_steps(problem))
    chosen: Ints = np.full((1, T), IDLE)
    last, when = np.array([IDLE]), np.array([IDLE])  # class and round of the last visit
    reach: Bools = np.zeros((1, len(network.label)), bool)  # points where the last visit may have been
    for t in range(T):
        parts = [(chosen, last, when, reach)]
        for c in range(C):
            fits = _has_room(problem, chosen, c, t)
            for a, s in np.unique(np.stack([last[fits], when[fits]], axis=1), axis=0):
                rows = np.flatnonzero(fits & (last == a) & (when == s))
                if a != IDLE and s == t - 1 and (int(a), c) in never:
                    continue
                there = np.zeros((len(rows), reach.shape[1]), bool)
                if a == IDLE:
                    there[:, own[c]] = True
                else:
                    links = network.rounds[np.ix_(own[a], own[c])] <= t - s
                    there[:, own[c]] = reach[np.ix_(rows, own[a])].astype(np.float32) @ links.astype(np.float32) > 0
                alive = there.any(axis=1)
                rows = rows[alive]
                more = chosen[rows]
                more[:, t] = c
                parts.append((more, np.full(len(rows), c), np.full(len(rows), t), there[alive]))
        chosen, last, when, reach = (np.concatenate(column) for column in zip(*parts, strict=True))
    return chosen


def _has_room(problem: Problem, chosen: Ints, c: int, t: int) -> Bools:
    """Tell which associations C5 allows another visit of c in round t."""
    room = np.ones(len(chosen), bool)
    for w in np.flatnonzero(problem.window_rounds[:, t]):
        first = int(problem.spans[w, 0])
        room &= (chosen[:, first:t] == c).sum(axis=1) < problem.imax[c, w]
    return room


class FinePoints:
    """Points a few metres apart over the discs and some over none, and which of them can follow each other."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.points = {c: self._over(c) for c in range(problem.classes)} | {IDLE: self._over_none()}
        half = np.asarray(problem.region) / 2
        self._cost = {  # visits are best near the centre, idle rounds inside the region
            c: np.hypot(*(points - problem.centres[c]).T)
            if c != IDLE
            else np.maximum(0, np.abs(points) - half).sum(axis=1)
            for c, points in self.points.items()
        }
        self._steps: dict[tuple[int, int, int], Bools] = {}

    def positions(self, association: Ints) -> Floats | None:
        """Return positions of all rounds, None where none were found.

        First points are chosen for the visits alone and joined by `place`, which knows straight legs; where that fails,
        points for all rounds together.
        """
        visits = [(int(t), int(association[t])) for t in np.flatnonzero(association != IDLE)]
        if not visits:
            return self._chosen([(t, IDLE) for t in range(len(association))])
        hint = self._chosen(visits)
        if hint is None:
            return None
        try:
            return place(self._problem, association, hint=hint)
        except PlacementError:
            return self._chosen([(t, int(c)) for t, c in enumerate(association)])

    def _chosen(self, stops: list[tuple[int, int]]) -> Floats | None:
        """Choose a point for each stop (round, class) so that all follow each other; rounds without one are NaN."""
        reached = [np.ones(len(self.points[stops[0][1]]), bool)]
        for before, now in pairwise(stops):
            reached.append(np.asarray(self._step(before, now)[reached[-1]].any(axis=0)))
        if not reached[-1].any():
            return None
        positions = np.full((self._problem.rounds, 2), np.nan)
        usable = reached[-1]
        for k in range(len(stops) - 1, -1, -1):
            t, c = stops[k]
            chosen = int(np.where(usable, self._cost[c], np.inf).argmin())
            positions[t] = self.points[c][chosen]
            if k:
                usable = reached[k - 1] & self._step(stops[k - 1], stops[k])[:, chosen]
        return positions

    def _step(self, before: tuple[int, int], now: tuple[int, int]) -> Bools:
        """Tell which points of one stop can be followed by which of the next."""
        key = (before[1], now[1], now[0] - before[0])
        if key not in self._steps:
            a, b = self.points[key[0]], self.points[key[1]]
            if key[2] == 1:
                self._steps[key] = flyable_steps(self._problem, a, b)
            else:
                self._steps[key] = np.asarray(distances(a, b) <= key[2] * self._problem.vmax + SLACK)
        return self._steps[key]

    def _over(self, c: int) -> Floats:
        rings = int(np.clip(np.ceil(self._problem.radii[c] / _SPACING), 3, _RINGS))
        points = np.concatenate([samples(self._problem, c, rings), corners(self._problem, c)])
        return points[allowed(self._problem, c, points)]

    def _over_none(self) -> Floats:
        problem = self._problem
        low, high = flight_box(problem)
        x, y = np.meshgrid(*(np.linspace(a, b, _GRID) for a, b in zip(low, high, strict=True)))
        step = min(problem.vmax, float(problem.radii.max()))
        rims = [
            circle(centre, radius * (1 + 1e-12) + out, _DIRECTIONS)
            for centre, radius in zip(problem.centres, problem.radii, strict=True)
            for out in (0.0, problem.dmin, step / 2, step)
        ]
        points = np.concatenate([np.stack([x.ravel(), y.ravel()], axis=1), *rims])
        return points[outside_all(problem, points)]
