"""Which steps can be flown from one round's position to the next one's (C6, vmax, leg constraints)."""

import numpy as np

from skyfed.flight.constraints.base import legs_allowed
from skyfed.flight.problem import Problem
from skyfed.types import Bools, Floats

_SLACK = 1e-9  # m


def flyable_steps(problem: Problem, before: Floats, after: Floats) -> Bools:
    """Tell between which points of `before` (m, 2) and `after` (n, 2) a vehicle can fly in one round; (m, n)."""
    far = np.hypot(*(before[:, None] - after[None]).transpose(2, 0, 1))
    fits = np.asarray((far >= problem.dmin - _SLACK) & (far <= problem.vmax + _SLACK))
    if problem.constraints:
        i, j = np.nonzero(fits)
        fits[i, j] = legs_allowed(problem.constraints, before[i], after[j])
    return fits


def flyable_path(problem: Problem, points: Floats) -> bool:
    """Tell whether a vehicle can fly from point to point (n, 2), one in each round."""
    far = np.hypot(*np.diff(points, axis=0).T)
    if not ((far >= problem.dmin - _SLACK) & (far <= problem.vmax + _SLACK)).all():
        return False
    return bool(legs_allowed(problem.constraints, points[:-1], points[1:]).all())
