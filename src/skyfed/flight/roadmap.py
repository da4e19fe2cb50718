"""A grid of points over the whole region, to fly around what the user's constraints forbid.

`legs` looks near the straight line first. Where that fails, a route over this grid may still lead around a large
obstacle, as long as there are enough rounds.
"""

from functools import lru_cache

import numpy as np

from skyfed.flight.discs import outside_all
from skyfed.flight.problem import Problem
from skyfed.flight.steps import flyable_steps
from skyfed.types import Bools, Floats, Ints

_LEAST, _MOST = 20, 36  # points along one side of the grid
_LEAVING = 1e3  # cost of a metre outside the region, against one of flight


class Roadmap:
    """Points over no disc that the constraints allow, and the steps between them."""

    def __init__(self, problem: Problem) -> None:
        half = np.asarray(problem.region) / 2
        low = np.minimum(-half, (problem.centres - problem.radii[:, None]).min(axis=0))
        high = np.maximum(half, (problem.centres + problem.radii[:, None]).max(axis=0))
        sides = [int(np.clip(np.ceil(2 * side / problem.vmax) + 1, _LEAST, _MOST)) for side in high - low]
        x, y = np.meshgrid(*(np.linspace(a, b, n) for a, b, n in zip(low, high, sides, strict=True)))
        points = np.stack([x.ravel(), y.ravel()], axis=1)
        self._problem = problem
        self._points = points[outside_all(problem, points)]
        self._toll = _LEAVING * np.maximum(0, np.abs(self._points) - half).sum(axis=1)
        links = flyable_steps(problem, self._points, self._points)
        self._links = links.astype(np.float32)
        self._cost = np.where(links, _distance(self._points, self._points) + self._toll, np.inf)

    def route(self, start: Floats | None, stop: Floats | None, count: int) -> Floats | None:
        """Return the shortest way over `count` points from start to stop (either may be open), None without one."""
        value = self._toll if start is None else self._toll + self._ends(start)
        last = np.zeros(len(self._points)) if stop is None else self._ends(stop, arriving=True)
        if not self._reaches(np.isfinite(value), np.isfinite(last), count):
            return None
        came: list[Ints] = []
        for _ in range(count - 1):
            total = value[:, None] + self._cost
            came.append(total.argmin(axis=0))
            value = total.min(axis=0)
        at = [int((value + last).argmin())]
        for back in reversed(came):
            at.append(int(back[at[-1]]))
        return self._points[at[::-1]]

    def _ends(self, end: Floats, arriving: bool = False) -> Floats:
        """Length of the step between an end and every point, infinite where it cannot be flown."""
        ends = end[None]
        if arriving:
            fits = flyable_steps(self._problem, self._points, ends)[:, 0]
        else:
            fits = flyable_steps(self._problem, ends, self._points)[0]
        return np.where(fits, _distance(ends, self._points)[0], np.inf)

    def _reaches(self, first: Bools, last: Bools, count: int) -> bool:
        """Tell whether a way exists at all: far cheaper than to find the shortest."""
        reached = first.astype(np.float32)
        for _ in range(count - 1):
            reached = (reached @ self._links > 0).astype(np.float32)
        return bool((reached * last).any())


@lru_cache(maxsize=4)
def roadmap(problem: Problem) -> Roadmap:
    """Return the roadmap of a problem, worked out once."""
    return Roadmap(problem)


def _distance(before: Floats, after: Floats) -> Floats:
    return np.asarray(np.hypot(*(before[:, None] - after[None]).transpose(2, 0, 1)))
