"""Positions for a given association: in the discs by dynamic programming, between them by legs (C2, C3, C6, vmax)."""

from itertools import pairwise
from typing import Literal

import numpy as np

from skyfed.flight.discs import SLACK, allowed, anchor, circle, corners, distances, samples, unit_vectors
from skyfed.flight.legs import fly_leg, flyable_steps, trace_back
from skyfed.flight.problem import Problem
from skyfed.types import IDLE, Bools, Floats, Ints

_LEG_TRIES = 20  # pairs of end points given up because no leg joins them, before the whole placement is
_BEFORE_HINT = 12  # of these, tries before the hinted points are insisted on
_RINGS = 4  # on which a disc is sampled where constraints cut into it
_UNREACHED = -np.inf


class PlacementError(Exception):
    """No positions were found; `rounds` are the ones whose classes do not go together."""

    def __init__(self, rounds: list[int]) -> None:
        super().__init__(f"no positions {f'join the visits of rounds {rounds}' if rounds else 'were found'}")
        self.rounds = rounds


def place(
    problem: Problem,
    association: Ints,
    placement: Literal["sensing", "anywhere"] = "sensing",
    rng: np.random.Generator | None = None,
    hint: Floats | None = None,
) -> Floats:
    """Return positions (T, 2) of an association; raises PlacementError when none are found.

    "sensing": the most samples, sum_t psi * exp(-distance / decay_length). Where discs stand free the best points
    of a stay are the centre and a circle of radius dmin around it, since the decay is convex: of two points dmin
    apart one at the centre beats both halfway. Which rounds get the centre is what the programme decides.
    "anywhere": random allowed points, as a planner that is indifferent would leave them; needs a generator.
    hint: positions (T, 2) that are known to be joinable; they become candidates of their classes.
    """
    visits = _Visits(problem, association, rng if placement == "anywhere" else None, hint)
    last: list[int] = []
    for attempt in range(_LEG_TRIES):
        positions = visits.best_positions()
        failed = _fill_idle(problem, positions, visits.rounds)
        if failed is None:
            return positions
        if not len(visits.rounds):
            break  # nothing to place differently
        if failed in (-1, len(visits.rounds) - 1):
            visits.open_end(max(failed, 0), first=failed == -1)
            continue
        last = [int(t) for t in visits.rounds[failed : failed + 2]]
        if hint is None or attempt < _BEFORE_HINT:
            visits.ban(failed)
        else:
            visits.pin(failed, hint)
    raise PlacementError(last)


class _Visits:
    """The visits of one association with candidate points for each; some pairs of points may be banned."""

    def __init__(
        self, problem: Problem, association: Ints, rng: np.random.Generator | None, hint: Floats | None
    ) -> None:
        self._problem = problem
        self.rounds = np.flatnonzero(association != IDLE)
        self._labels = [int(c) for c in association[self.rounds]]
        self._points: dict[int, Floats] = {}
        self._scores: dict[int, Floats] = {}
        for c in sorted(set(self._labels)):
            points = _anywhere(problem, c, rng) if rng is not None else _for_sensing(problem, c)
            if hint is not None:
                points = np.concatenate([points, hint[association == c]])
            if not len(points):
                raise PlacementError([int(t) for t in self.rounds[np.asarray(self._labels) == c][:1]])
            far = np.hypot(*(points - problem.centres[c]).T)
            self._points[c] = points
            if rng is not None:
                self._scores[c] = rng.random(len(points))
            elif problem.pictures is not None:
                self._scores[c] = problem.share(points, np.full(len(points), c))
            else:
                self._scores[c] = np.exp(-far / problem.decay_length)
        self._links: dict[tuple[int, int, int], Bools] = {}
        self._banned: dict[int, list[tuple[int, int]]] = {}
        self._chosen: list[int] = []
        self._usable: list[Bools] = [np.ones(len(self._points[c]), bool) for c in self._labels]
        self._opened: set[tuple[int, bool]] = set()
        self._worth = problem.psi[association[self.rounds], self.rounds]
        if problem.pictures is not None:  # what a sample adds to the objective
            price = problem.value / (problem.collected(association) + problem.base)
            self._worth = problem.amounts(association)[self.rounds] * price[association[self.rounds]]
        if problem.start is not None and len(self.rounds):
            self._usable[0] &= self._in_reach(problem.start)

    def _in_reach(self, start: Floats) -> Bools:
        """Tell which points of the first visit can be flown to from the start, as far as the distance tells."""
        points, steps = self._points[self._labels[0]], int(self.rounds[0]) + 1
        if steps == 1:
            return np.asarray(flyable_steps(self._problem, start[None], points)[0])
        return np.asarray(np.hypot(*(points - start).T) <= steps * self._problem.vmax + SLACK)

    def ban(self, visit: int) -> None:
        """Never again use the points last chosen for this visit and the next one together."""
        self._banned.setdefault(visit + 1, []).append((self._chosen[visit], self._chosen[visit + 1]))

    def open_end(self, visit: int, first: bool) -> None:
        """Keep only points of the first or last visit from which the rounds before or after it can be flown."""
        c, t = self._labels[visit], int(self.rounds[visit])
        idle = t if first else self._problem.rounds - 1 - t
        ends = [(self._problem.start, point) if first else (point, None) for point in self._points[c]]
        reached = np.array([fly_leg(self._problem, start, stop, idle) is not None for start, stop in ends])
        self._usable[visit] &= reached
        if (visit, first) in self._opened or not self._usable[visit].any():
            raise PlacementError([t])
        self._opened.add((visit, first))  # a single visit is both the first and the last

    def pin(self, visit: int, hint: Floats) -> None:
        """Insist on the hinted points for this visit and the next one."""
        for v in (visit, visit + 1):
            self._usable[v] &= (self._points[self._labels[v]] == hint[self.rounds[v]]).all(axis=1)

    def best_positions(self) -> Floats:
        """Choose one candidate per visit by dynamic programming; rounds without a visit are left empty."""
        value: Floats = np.empty(0)
        came: list[Ints] = []
        for v, (t, c) in enumerate(zip(self.rounds, self._labels, strict=True)):
            own = np.where(self._usable[v], self._worth[v] * self._scores[c], _UNREACHED)
            if v == 0:
                value = own
                if not self._usable[v].any():
                    raise PlacementError([int(t)])
                continue
            link = self._link(v)
            if v in self._banned:
                link = link.copy()
                link[tuple(zip(*self._banned[v], strict=True))] = False
            total = np.where(link, value[:, None], _UNREACHED)
            came.append(total.argmax(axis=0))
            value = total.max(axis=0) + own
            if not np.isfinite(value).any():
                raise PlacementError(self._culprits(v))
        self._chosen = trace_back(-value, came) if len(self.rounds) else []
        positions = np.full((self._problem.rounds, 2), np.nan)
        for t, c, k in zip(self.rounds, self._labels, self._chosen, strict=True):
            positions[t] = self._points[c][k]
        return positions

    def _link(self, v: int) -> Bools:
        """Tell which candidates of visit v-1 and of visit v a vehicle can fly between in the rounds it has."""
        steps = int(self.rounds[v] - self.rounds[v - 1])
        key = (self._labels[v - 1], self._labels[v], steps)
        if key not in self._links:
            before, now = self._points[key[0]], self._points[key[1]]
            if steps == 1:
                self._links[key] = flyable_steps(self._problem, before, now)
            else:
                self._links[key] = np.asarray(distances(before, now) <= steps * self._problem.vmax + SLACK)
        return self._links[key]

    def _culprits(self, last: int) -> list[int]:
        """Shortest run of visits up to `last` that cannot be placed."""
        for first in range(last - 1, -1, -1):
            reached: Bools = np.ones(len(self._points[self._labels[first]]), bool)
            for v in range(first + 1, last + 1):
                reached = np.asarray(self._link(v)[reached].any(axis=0))
            if not reached.any():
                return [int(t) for t in self.rounds[first : last + 1]]
        return [int(t) for t in self.rounds[: last + 1]]


def _for_sensing(problem: Problem, c: int) -> Floats:
    centre, radius = problem.centres[c], problem.radii[c]
    start = anchor(problem, c)
    if start is None:
        return np.empty((0, 2))
    sets = [start[None], circle(start, problem.dmin * (1 + 1e-12), 12), circle(centre, radius, 24), corners(problem, c)]
    if np.isfinite(problem.vmax):
        sets += [circle(centre, radius * part, 18, phase=part) for part in (0.33, 0.67, 0.9)]
    if problem.constraints:  # they may leave any part of the disc, not only its middle and its rim
        sets.append(samples(problem, c, _RINGS))
    points = np.concatenate(sets)
    return points[allowed(problem, c, points)]


def _anywhere(problem: Problem, c: int, rng: np.random.Generator) -> Floats:
    reach, angle = problem.radii[c] * np.sqrt(rng.random(200)), rng.uniform(0, 2 * np.pi, 200)
    spots = problem.centres[c] + reach[:, None] * unit_vectors(angle)
    return np.concatenate([spots[allowed(problem, c, spots)][:40], corners(problem, c)])


def _fill_idle(problem: Problem, positions: Floats, visits: Ints) -> int | None:
    """Write positions of the rounds between visits; returns the visit after which no leg was found."""
    for v, (start, stop) in enumerate(pairwise([-1, *(int(t) for t in visits), problem.rounds])):
        if stop - start < 2:
            continue
        here = positions[start] if start >= 0 else problem.start
        there = positions[stop] if stop < problem.rounds else None
        leg = fly_leg(problem, here, there, stop - start - 1)
        if leg is None:
            return v - 1
        positions[start + 1 : stop] = leg
    return None
