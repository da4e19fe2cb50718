"""Steps a vehicle can fly in one round, and positions for the rounds between two visits (C3, C6, vmax)."""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from skyfed.flight.constraints.base import legs_allowed
from skyfed.flight.discs import SLACK, circle, distances, outside_all
from skyfed.flight.problem import Problem
from skyfed.types import Bools, Floats, Ints

_DIRECTIONS = 16
_LEAVING = 1e3  # cost of a metre outside the region, against one of flight or of straying from the straight line
_LEAST, _MOST = 20, 36  # points along one side of the roadmap's grid


def flyable_steps(problem: Problem, before: Floats, after: Floats) -> Bools:
    """Tell between which points of `before` (m, 2) and `after` (n, 2) a vehicle can fly in one round; (m, n)."""
    fits = _length_fits(problem, distances(before, after))
    if problem.constraints:
        i, j = np.nonzero(fits)
        fits[i, j] = legs_allowed(problem.constraints, before[i], after[j])
    return fits


def fly_leg(problem: Problem, start: Floats | None, stop: Floats | None, count: int) -> Floats | None:
    """Return `count` positions between start and stop (either may be open), or None where none are found.

    The user's constraints may close the surroundings of the straight line. Then a route over a grid is looked for.
    """
    leg = _near_the_line(problem, start, stop, count)
    if leg is None and problem.constraints:
        leg = _roadmap(problem).route(start, stop, count)
    return leg


def can_fly(problem: Problem, start: Floats, stop: Floats, count: int) -> bool:
    """Tell whether `fly_leg` finds positions; it always does where the straight line itself can be flown."""
    line = start + (stop - start) * (np.arange(1, count + 1) / (count + 1))[:, None]
    path = np.concatenate([start[None], line, stop[None]])
    straight = outside_all(problem, line).all() and _length_fits(problem, np.hypot(*np.diff(path, axis=0).T)).all()
    if straight and legs_allowed(problem.constraints, path[:-1], path[1:]).all():
        return True
    return fly_leg(problem, start, stop, count) is not None


def _length_fits(problem: Problem, length: Floats) -> Bools:
    """Tell which lengths of a step keep C6 and the speed limit."""
    return np.asarray((length >= problem.dmin - SLACK) & (length <= problem.vmax + SLACK))


def _near_the_line(problem: Problem, start: Floats | None, stop: Floats | None, count: int) -> Floats | None:
    """Pick one candidate per round by dynamic programming, so that the leg strays least from the straight line."""
    layers: list[Floats] = []
    came: list[Ints] = []
    value: Floats = np.empty(0)
    for points, cost in _candidates(problem, start, stop, count):
        if layers:
            total = np.where(flyable_steps(problem, layers[-1], points), value[:, None], np.inf)
            came.append(total.argmin(axis=0))
            cost = cost + total.min(axis=0)
        if not np.isfinite(cost).any():
            return None
        layers.append(points)
        value = cost
    path = np.stack([points[k] for points, k in zip(layers, trace_back(value, came), strict=True)])
    first = 0 if start is None else 1
    return path[first : first + count]


def _candidates(
    problem: Problem, start: Floats | None, stop: Floats | None, count: int
) -> Iterator[tuple[Floats, Floats]]:
    """Yield points and their costs: the start, free points around each round's point of the line, the stop."""
    detours = _detours(problem)
    here = start if start is not None else stop if stop is not None else np.zeros(2)
    there = stop if stop is not None else here
    if start is not None:
        yield start[None], np.zeros(1)
    for k in range(1, count + 1):
        points = here + (there - here) * (k / (count + 1)) + detours
        free = outside_all(problem, points)
        yield points[free], np.hypot(*detours[free].T) + _toll(problem, points[free])
    if stop is not None:
        yield stop[None], np.zeros(1)


def _detours(problem: Problem) -> Floats:
    """Offsets from the straight line: far enough to round the largest disc, fine enough to keep dmin."""
    largest = float(problem.radii.max())
    fine = max(problem.dmin, largest / 50)
    reach = np.unique(np.concatenate([fine * np.array([1.0, 2.0, 3.0]), largest * np.array([0.3, 0.6, 1.0, 1.5, 2.2])]))
    return np.concatenate([np.zeros((1, 2)), *(circle(np.zeros(2), radius, _DIRECTIONS) for radius in reach)])


def _toll(problem: Problem, points: Floats) -> Floats:
    """Cost of being outside the region; (n,)."""
    return np.asarray(_LEAVING * np.maximum(0, np.abs(points) - np.asarray(problem.region) / 2).sum(axis=1))


def trace_back(value: Floats, came: list[Ints]) -> list[int]:
    """Return the cheapest index of the last layer and, before it, the one it came from in every earlier layer."""
    path = [int(value.argmin())]
    for back in reversed(came):
        path.append(int(back[path[-1]]))
    return path[::-1]


class _Roadmap:
    """A grid over the whole region, less the discs and what the constraints forbid, and the steps between its points.

    A route over it may lead around a large obstacle, as long as there are enough rounds.
    """

    def __init__(self, problem: Problem) -> None:
        half = np.asarray(problem.region) / 2
        low = np.minimum(-half, (problem.centres - problem.radii[:, None]).min(axis=0))
        high = np.maximum(half, (problem.centres + problem.radii[:, None]).max(axis=0))
        sides = [int(np.clip(np.ceil(2 * side / problem.vmax) + 1, _LEAST, _MOST)) for side in high - low]
        x, y = np.meshgrid(*(np.linspace(a, b, n) for a, b, n in zip(low, high, sides, strict=True)))
        points = np.stack([x.ravel(), y.ravel()], axis=1)
        self._problem = problem
        self._points = points[outside_all(problem, points)]
        self._toll = _toll(problem, self._points)
        self._cost = self._step_lengths(self._points, self._points) + self._toll
        self._links = np.isfinite(self._cost).astype(np.float32)

    def route(self, start: Floats | None, stop: Floats | None, count: int) -> Floats | None:
        """Return the shortest way over `count` points from start to stop (either may be open), None without one."""
        value = self._toll if start is None else self._toll + self._step_lengths(start[None], self._points)[0]
        last = np.zeros(len(self._points)) if stop is None else self._step_lengths(self._points, stop[None])[:, 0]
        reached = np.isfinite(value).astype(np.float32)  # whether a way exists is far cheaper to tell than the shortest
        for _ in range(count - 1):
            reached = (reached @ self._links > 0).astype(np.float32)
        if not (reached * np.isfinite(last)).any():
            return None
        came: list[Ints] = []
        for _ in range(count - 1):
            total = value[:, None] + self._cost
            came.append(total.argmin(axis=0))
            value = total.min(axis=0)
        return self._points[trace_back(value + last, came)]

    def _step_lengths(self, before: Floats, after: Floats) -> Floats:
        """Length of the step between each two points, infinite where it cannot be flown; (m, n)."""
        return np.where(flyable_steps(self._problem, before, after), distances(before, after), np.inf)


_roadmap = lru_cache(maxsize=4)(_Roadmap)
