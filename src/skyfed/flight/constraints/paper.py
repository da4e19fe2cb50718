"""The paper's constraints C1-C6 and the speed limit, each checked straight from its definition (Eq. 4).

Only the verifier uses them. Planners meet them by construction and share no code with this file.
"""

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from skyfed.flight.constraints.base import Violation
from skyfed.flight.problem import Problem
from skyfed.types import Floats, Plan

LENGTH_TOLERANCE = 1e-6  # m: rounding of float64 positions in a region of kilometres


def one_class(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """C1 and C4: the association holds one label per round, so the indicator is 0 or 1 and at most one class has it."""
    if not np.issubdtype(plan.association.dtype, np.integer):
        yield Violation("C1", 0, -1, 0.0, f"association is {plan.association.dtype}, not whole numbers")
        return
    C = problem.psi.shape[0]
    for t, label in enumerate(plan.association):
        if not -1 <= label < C:
            yield Violation("C1", t, int(label), 0.0, f"class {label} does not exist; there are {C}")


def over_its_disc(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """C2: over the disc of the associated class (the rim belongs to it)."""
    for t, (x, y) in enumerate(plan.positions):
        c = int(plan.association[t])
        if c < 0:
            continue
        outside = math.hypot(x - problem.centres[c, 0], y - problem.centres[c, 1]) - problem.radii[c]
        if outside > LENGTH_TOLERANCE:
            yield Violation("C2", t, c, outside, f"associated with class {c} but {outside:.6g} m outside its disc")


def over_no_other(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """C3: over no disc but the associated class's (the rim belongs to the outside too)."""
    for t, (x, y) in enumerate(plan.positions):
        for c, (cx, cy) in enumerate(problem.centres):
            inside = problem.radii[c] - math.hypot(x - cx, y - cy)
            if plan.association[t] != c and inside > LENGTH_TOLERANCE:
                yield Violation("C3", t, c, inside, f"{inside:.6g} m inside the disc of class {c}, not associated")


def visits_per_window(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """C5: at most imax visits of a class in a window; the windows are counted here from their definition."""
    C, flown = problem.psi.shape[0], problem.flown
    T = flown + problem.psi.shape[1]  # of the whole mission
    if problem.windows == "paper":
        windows = [range(t1, min(t1 + C, T - 1) + 1) for t1 in range(T) if (t1 + 1) % C == 0]
    else:
        windows = [range(t1, min(t1 + C, T)) for t1 in range(max(1, T - C + 1))]
    ahead = [range(max(0, window.start - flown), window.stop - flown) for window in windows if window.stop > flown]
    for w, window in enumerate(ahead):
        for c in range(C):
            visits = sum(int(plan.association[t]) == c for t in window)
            most = int(problem.imax[c, w])
            if visits > most:
                text = f"class {c} visited {visits} times in rounds {window[0]}-{window[-1]}, allowed {most}"
                yield Violation("C5", window[0], c, visits - most, text)


def least_step(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """C6: at least dmin metres from one round's position to the next one's."""
    for t, here, there in _steps(problem, plan):
        step = math.dist(here, there)
        if step < problem.dmin - LENGTH_TOLERANCE:
            text = f"moves {step:.6g} m to the next round, at least {problem.dmin:g} m is needed"
            yield Violation("C6", t, -1, problem.dmin - step, text)


def speed_limit(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """vmax: at most vmax metres from one round's position to the next one's; not in the paper."""
    for t, here, there in _steps(problem, plan):
        step = math.dist(here, there)
        if step > problem.vmax + LENGTH_TOLERANCE:
            text = f"moves {step:.6g} m to the next round, at most {problem.vmax:g} m is allowed"
            yield Violation("vmax", t, -1, step - problem.vmax, text)


def _steps(problem: Problem, plan: Plan) -> Iterator[tuple[int, Floats, Floats]]:
    """Yield every step as the round it leaves from and its ends; -1 where the vehicle has a given start."""
    if problem.start is not None:
        yield -1, problem.start, plan.positions[0]
    for t, (here, there) in enumerate(pairwise(plan.positions)):
        yield t, here, there


PAPER = (over_its_disc, over_no_other, visits_per_window, least_step, speed_limit)
