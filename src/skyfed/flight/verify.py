"""An independent check of a plan: ask every constraint, then check the plan's own claims; shares no planner's code."""

import math
from collections.abc import Iterator

import numpy as np

from skyfed.flight.constraints.base import Violation
from skyfed.flight.constraints.paper import PAPER, one_class
from skyfed.flight.problem import Problem
from skyfed.types import Plan

VALUE_TOLERANCE = 1e-7  # nats


def verify(problem: Problem, plan: Plan) -> list[Violation]:
    """Return every violation of C1-C6, vmax, the user's constraints and the plan's own claims (Eq. 4).

    An empty list means that the plan holds. Arrays of the wrong shape and labels that are no class are returned alone,
    since nothing else can be asked of such a plan.
    """
    T = problem.psi.shape[1]
    violations = [
        Violation("shape", 0, -1, 0.0, f"{name} have shape {getattr(plan, name).shape}, not {shape}")
        for name, shape in (("positions", (T, 2)), ("association", (T,)))
        if getattr(plan, name).shape != shape
    ]
    if not violations:
        lost = np.flatnonzero(~np.isfinite(plan.positions).all(axis=1))
        violations = [Violation("shape", int(t), -1, 0.0, "position is not finite") for t in lost]
        violations += one_class(problem, plan)
    if violations:
        return violations
    for check in (*PAPER, *(constraint.verify for constraint in problem.constraints), _claims):
        violations += check(problem, plan)
    return violations


def _paper_value(problem: Problem, plan: Plan) -> float:
    """Eq. 4."""
    total = [problem.epsilon] * problem.psi.shape[0]
    for t, label in enumerate(plan.association):
        if label >= 0:
            total[label] += problem.psi[label, t]
    return sum(math.log(y) for y in total)


def _pictures_value(problem: Problem, plan: Plan) -> float:
    """Sum of value * log(held + samples), visit by visit; by Eq. 6 or by a square over a Gaussian."""
    pictures = problem.pictures
    assert pictures is not None
    total, last = [float(held) for held in pictures.held], dict[int, int]()
    for t, label in enumerate(int(c) for c in plan.association):
        if label < 0:
            continue
        east, north = (float(x) for x in plan.positions[t] - problem.centres[label])
        new = float(problem.psi[label, t])
        if pictures.ends.size and label in last:
            new = min(new, float(pictures.ends[label, t] - pictures.ends[label, last[label]]))
        if pictures.side:
            deviation, half = float(pictures.spread[label]), pictures.side / 2
            seen = _inside(east, half, deviation) * _inside(north, half, deviation)
            total[label] += new * seen / _inside(0.0, half, deviation) ** 2
        else:
            total[label] += new * math.exp(-math.hypot(east, north) / problem.decay_length)
        last[label] = t
    return sum(float(v) * math.log(y) for v, y in zip(pictures.value, total, strict=True))


def _inside(off: float, half: float, deviation: float) -> float:
    """Mass of a Gaussian within `half` of a point that lies `off` its mean."""
    scale = deviation * math.sqrt(2)
    return (math.erf((off + half) / scale) - math.erf((off - half) / scale)) / 2


def _claims(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """The objective and bound that the plan states."""
    value = _paper_value(problem, plan) if problem.pictures is None else _pictures_value(problem, plan)
    if not math.isclose(plan.objective, value, rel_tol=1e-9, abs_tol=VALUE_TOLERANCE):
        text = f"states objective {plan.objective:.9g}, it is {value:.9g}"
        yield Violation("objective", 0, -1, abs(plan.objective - value), text)
    if math.isnan(plan.bound) or plan.bound < value - VALUE_TOLERANCE:
        text = f"states bound {plan.bound:.9g} below its own objective {value:.9g}"
        yield Violation("bound", 0, -1, value - plan.bound, text)
