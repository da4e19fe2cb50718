"""Positions of the rounds between two visits: over no disc, by steps that can be flown (C3, C6, vmax)."""

import numpy as np

from skyfed.flight.discs import outside_all
from skyfed.flight.problem import Problem
from skyfed.flight.roadmap import roadmap
from skyfed.flight.steps import flyable_path, flyable_steps
from skyfed.types import Floats

_DIRECTIONS = 16
_LEAVING = 1e3  # cost of a metre outside the region, against one of straying from the straight line


def fly_leg(problem: Problem, start: Floats | None, stop: Floats | None, count: int) -> Floats | None:
    """Return `count` positions between start and stop (either may be open), or None where none are found.

    Constraints of the user's own may close the surroundings of the straight line; then a wider way is looked for.
    """
    leg = _near_the_line(problem, start, stop, count)
    if leg is None and problem.constraints:
        leg = roadmap(problem).route(start, stop, count)
    return leg


def can_fly(problem: Problem, start: Floats, stop: Floats, count: int) -> bool:
    """Tell whether `fly_leg` finds positions; it always does where the straight line itself can be flown."""
    line = start + (stop - start) * (np.arange(1, count + 1) / (count + 1))[:, None]
    if outside_all(problem, line).all() and flyable_path(problem, np.concatenate([start[None], line, stop[None]])):
        return True
    return fly_leg(problem, start, stop, count) is not None


def _near_the_line(problem: Problem, start: Floats | None, stop: Floats | None, count: int) -> Floats | None:
    """Look near the straight line from start to stop.

    Each round has candidates around its point of the straight line; a dynamic programme picks the ones that stray
    least from it.
    """
    detours = _detours(problem)
    here = start if start is not None else stop if stop is not None else np.zeros(2)
    there = stop if stop is not None else here
    half = np.asarray(problem.region) / 2
    layers: list[Floats] = []
    value: Floats = np.empty(0)
    came = []
    for k in range(1, count + 1):
        points = here + (there - here) * (k / (count + 1)) + detours
        free = outside_all(problem, points)
        if not free.any():
            return None
        points = points[free]
        cost = np.hypot(*detours[free].T) + _LEAVING * np.maximum(0, np.abs(points) - half).sum(axis=1)
        previous = layers[-1] if layers else None if start is None else start[None]
        if previous is not None:
            total = np.where(
                flyable_steps(problem, previous, points), (value if layers else np.zeros(1))[:, None], np.inf
            )
            came.append(total.argmin(axis=0))
            cost = cost + total.min(axis=0)
            if not np.isfinite(cost).any():
                return None
        layers.append(points)
        value = cost
    if stop is not None:
        value = np.where(flyable_steps(problem, layers[-1], stop[None])[:, 0], value, np.inf)
    if not np.isfinite(value).any():
        return None
    at = int(value.argmin())
    leg = [layers[-1][at]]
    for back, points in zip(reversed(came[len(came) - count + 1 :]), reversed(layers[:-1]), strict=True):
        at = int(back[at])
        leg.append(points[at])
    return np.stack(leg[::-1])


def _detours(problem: Problem) -> Floats:
    """Offsets from the straight line: far enough to round the largest disc, fine enough to keep dmin."""
    largest = float(problem.radii.max())
    fine = max(problem.dmin, largest / 50)
    reach = np.unique(np.concatenate([fine * np.array([1.0, 2.0, 3.0]), largest * np.array([0.3, 0.6, 1.0, 1.5, 2.2])]))
    angle = 2 * np.pi * np.arange(_DIRECTIONS) / _DIRECTIONS
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return np.concatenate([np.zeros((1, 2)), (reach[:, None, None] * ring).reshape(-1, 2)])
