"""An independent check of a plan against C1-C6 and vmax, straight from the paper; shares no code with any planner."""

import math
from dataclasses import dataclass

import numpy as np

from skyfed.flight.problem import Problem
from skyfed.records import Plan

LENGTH_TOLERANCE = 1e-6  # m: rounding of float64 positions in a region of kilometres
VALUE_TOLERANCE = 1e-7  # nats


@dataclass(frozen=True)
class Violation:
    """One broken constraint: which, when, which class (or -1), by how much, in words."""

    constraint: str
    round: int
    label: int
    amount: float
    message: str

    def __str__(self) -> str:
        return f"{self.constraint} at round {self.round}: {self.message}"


def verify(problem: Problem, plan: Plan) -> list[Violation]:
    """Return every violation of C1-C6, vmax and of the plan's own claims; none means that the plan holds (Eq. 4)."""
    C, T = problem.psi.shape
    shape = _shape(plan, C, T)
    if shape:
        return shape
    found = _discs(problem, plan)
    found += _windows(problem, plan)
    found += _steps(problem, plan)
    found += _claims(problem, plan)
    return found


def _shape(plan: Plan, C: int, T: int) -> list[Violation]:
    """C1 and C4: one label a round, so at most one class, and the indicator is 0 or 1."""
    found = []
    if plan.positions.shape != (T, 2):
        found.append(Violation("shape", 0, -1, 0.0, f"positions have shape {plan.positions.shape}, not {(T, 2)}"))
    if plan.association.shape != (T,):
        found.append(Violation("shape", 0, -1, 0.0, f"association has shape {plan.association.shape}, not {(T,)}"))
    if found:
        return found
    if not np.issubdtype(plan.association.dtype, np.integer):
        return [Violation("C1", 0, -1, 0.0, f"association is {plan.association.dtype}, not whole numbers")]
    for t in range(T):
        label = int(plan.association[t])
        if not -1 <= label < C:
            found.append(Violation("C1", t, label, 0.0, f"class {label} does not exist; there are {C}"))
        if not all(math.isfinite(x) for x in plan.positions[t]):
            found.append(Violation("shape", t, -1, 0.0, "position is not finite"))
    return found


def _discs(problem: Problem, plan: Plan) -> list[Violation]:
    """C2 and C3: over disc c exactly where associated with c (the rim belongs to both sides)."""
    found = []
    for t, (x, y) in enumerate(plan.positions):
        for c, (cx, cy) in enumerate(problem.centres):
            outside = math.hypot(x - cx, y - cy) - problem.radii[c]
            if plan.association[t] == c and outside > LENGTH_TOLERANCE:
                found.append(
                    Violation("C2", t, c, outside, f"associated with class {c} but {outside:.6g} m outside its disc")
                )
            if plan.association[t] != c and outside < -LENGTH_TOLERANCE:
                found.append(
                    Violation("C3", t, c, -outside, f"{-outside:.6g} m inside the disc of class {c}, not associated")
                )
    return found


def _windows(problem: Problem, plan: Plan) -> list[Violation]:
    """C5, its windows counted here from the definition."""
    C, T = problem.psi.shape
    if problem.windows == "paper":
        windows = [range(t1, min(t1 + C, T - 1) + 1) for t1 in range(T) if (t1 + 1) % C == 0]
    else:
        windows = [range(t1, min(t1 + C, T)) for t1 in range(max(1, T - C + 1))]
    found = []
    for w, window in enumerate(windows):
        for c in range(C):
            visits = sum(int(plan.association[t]) == c for t in window)
            most = int(problem.imax[c, w])
            if visits > most:
                text = f"class {c} visited {visits} times in rounds {window[0]}-{window[-1]}, allowed {most}"
                found.append(Violation("C5", window[0], c, visits - most, text))
    return found


def _steps(problem: Problem, plan: Plan) -> list[Violation]:
    """C6 and the speed limit."""
    found = []
    for t in range(len(plan.positions) - 1):
        step = math.dist(plan.positions[t], plan.positions[t + 1])
        if step < problem.dmin - LENGTH_TOLERANCE:
            text = f"moves {step:.6g} m to the next round, at least {problem.dmin:g} m is needed"
            found.append(Violation("C6", t, -1, problem.dmin - step, text))
        if step > problem.vmax + LENGTH_TOLERANCE:
            text = f"moves {step:.6g} m to the next round, at most {problem.vmax:g} m is allowed"
            found.append(Violation("vmax", t, -1, step - problem.vmax, text))
    return found


def _claims(problem: Problem, plan: Plan) -> list[Violation]:
    """The objective and bound that the plan states."""
    total = [problem.epsilon] * problem.psi.shape[0]
    for t, label in enumerate(plan.association):
        if label >= 0:
            total[label] += problem.psi[label, t]
    value = sum(math.log(y) for y in total)
    found = []
    if not math.isclose(plan.objective, value, rel_tol=1e-9, abs_tol=VALUE_TOLERANCE):
        text = f"states objective {plan.objective:.9g}, it is {value:.9g}"
        found.append(Violation("objective", 0, -1, abs(plan.objective - value), text))
    if math.isnan(plan.bound) or plan.bound < value - VALUE_TOLERANCE:
        text = f"states bound {plan.bound:.9g} below its own objective {value:.9g}"
        found.append(Violation("bound", 0, -1, value - plan.bound, text))
    return found
