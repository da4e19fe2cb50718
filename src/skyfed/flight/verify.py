"""An independent check of a plan: ask every constraint, then check the plan's own claims; shares no planner's code."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from skyfed.errors import BadInputError, own_code
from skyfed.flight.constraints.base import Constraint, Violation
from skyfed.flight.constraints.paper import PAPER, one_class
from skyfed.flight.problem import Problem
from skyfed.types import Floats, Plan

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


def verify_fleet(constraints: Sequence[Constraint], positions: Floats, above: Floats) -> list[Violation]:
    """Return every violation of constraints on the whole fleet.

    positions (U, T, 2) in metres; above (U,): metres of each vehicle over the lowest layer.
    """
    violations = []
    for constraint in constraints:
        if "fleet" in constraint.kinds:
            with own_code(f"constraint {constraint.name}: fleet_violations", BadInputError):
                violations += constraint.fleet_violations(positions, above)
    return violations


def _claims(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """The objective and bound that the plan states."""
    total = [problem.epsilon] * problem.psi.shape[0]
    for t, label in enumerate(plan.association):
        if label >= 0:
            total[label] += problem.psi[label, t]
    value = sum(math.log(y) for y in total)
    if not math.isclose(plan.objective, value, rel_tol=1e-9, abs_tol=VALUE_TOLERANCE):
        text = f"states objective {plan.objective:.9g}, it is {value:.9g}"
        yield Violation("objective", 0, -1, abs(plan.objective - value), text)
    if math.isnan(plan.bound) or plan.bound < value - VALUE_TOLERANCE:
        text = f"states bound {plan.bound:.9g} below its own objective {value:.9g}"
        yield Violation("bound", 0, -1, value - plan.bound, text)
