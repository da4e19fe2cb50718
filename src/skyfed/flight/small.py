"""Small problems with a speed limit, solved by trying every association, best first.

Associations that even the optimistic network cannot fly are impossible. The best of the others is a proven bound. They
are tried in falling order on points a few metres apart, until one can be placed. If that is the first, it is optimal.
"""

from collections.abc import Iterator

import numpy as np

from skyfed.flight.discs import SLACK, allowed, corners, distances, impossible_steps, samples
from skyfed.flight.legs import flyable_steps
from skyfed.flight.place import PlacementError, place
from skyfed.flight.problem import Problem
from skyfed.flight.travel import Network
from skyfed.types import IDLE, Bools, Floats, Ints

_MOST = 70_000  # associations: three classes in eight rounds are 65,536
_SPACING = 2.0  # metres between the rings of points that are tried, about
_RINGS = 20
_TRIES = 1500  # associations that are tried


def is_small(problem: Problem) -> bool:
    """Tell whether every association can be tried."""
    return bool((problem.classes + 1.0) ** problem.rounds <= _MOST)


def solve_small(problem: Problem, network: Network) -> tuple[float, Ints | None, Floats]:
    """Return the proven bound, and the best association that was placed with its positions, if any.

    network  the optimistic one
    """
    candidates = _possible(problem.paper_only, network)
    amount = np.zeros((len(candidates), problem.classes))
    for t in range(problem.rounds):
        busy = np.flatnonzero(candidates[:, t] != IDLE)
        amount[busy, candidates[busy, t]] += problem.psi[candidates[busy, t], t]
    value = np.log(amount + problem.epsilon).sum(axis=1)
    order = np.argsort(-value, kind="stable")
    fine = _FinePoints(problem)
    for k in order[:_TRIES]:
        hint = fine.positions(candidates[k])
        if hint is None:
            continue
        try:
            return float(value[order[0]]), candidates[k], place(problem, candidates[k], hint=hint)
        except PlacementError:
            continue
    return float(value[order[0]]), None, np.empty((0, 2))


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


class _FinePoints:
    """Points a few metres apart all over the discs, and which of them can follow each other."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._points = [self._of(c) for c in range(problem.classes)]
        self._links: dict[tuple[int, int, int], Bools] = {}

    def positions(self, association: Ints) -> Floats | None:
        """Return positions of the visits, NaN for idle rounds, None where no points go together."""
        visits = np.flatnonzero(association != IDLE)
        reached: list[Bools] = []
        for k, t in enumerate(visits):
            c = int(association[t])
            now = np.ones(len(self._points[c]), bool)
            if k:
                now = np.asarray(self._between(association, visits, k)[reached[-1]].any(axis=0))
            if not now.any():
                return None
            reached.append(now)
        positions = np.full((len(association), 2), np.nan)
        usable = reached[-1] if reached else np.empty(0, bool)
        for k, chosen in self._backwards(association, visits, usable, reached):
            positions[visits[k]] = self._points[association[visits[k]]][chosen]
        return positions

    def _backwards(
        self, association: Ints, visits: Ints, usable: Bools, reached: list[Bools]
    ) -> Iterator[tuple[int, int]]:
        for k in range(len(visits) - 1, -1, -1):
            points = self._points[association[visits[k]]]
            nearest = np.hypot(*(points - self._problem.centres[association[visits[k]]]).T)
            chosen = int(np.where(usable, nearest, np.inf).argmin())
            yield k, chosen
            if k:
                usable = reached[k - 1] & self._between(association, visits, k)[:, chosen]

    def _between(self, association: Ints, visits: Ints, k: int) -> Bools:
        """Tell which points of visit k - 1 and of visit k can follow each other."""
        key = (int(association[visits[k - 1]]), int(association[visits[k]]), int(visits[k] - visits[k - 1]))
        if key not in self._links:
            before, now = self._points[key[0]], self._points[key[1]]
            if key[2] == 1:
                self._links[key] = flyable_steps(self._problem, before, now)
            else:
                self._links[key] = np.asarray(distances(before, now) <= key[2] * self._problem.vmax + SLACK)
        return self._links[key]

    def _of(self, c: int) -> Floats:
        rings = int(np.clip(np.ceil(self._problem.radii[c] / _SPACING), 3, _RINGS))
        points = np.concatenate([samples(self._problem, c, rings), corners(self._problem, c)])
        return points[allowed(self._problem, c, points)]
