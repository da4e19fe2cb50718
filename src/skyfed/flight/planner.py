"""One door to all planners; no plan leaves it unverified."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pkgutil import resolve_name

import numpy as np

from skyfed.errors import BadInputError, InfeasibleError
from skyfed.flight.constraints.base import Constraint, Kind, names
from skyfed.flight.discs import anchor
from skyfed.flight.problem import Options, Problem
from skyfed.flight.verify import verify
from skyfed.imports import OWN, import_path
from skyfed.types import Plan

Solver = Callable[[Problem, Options], Plan]

# method: where its solver is; imported on use, so that nobody waits for CVXPY or SCIP who does not ask for them
METHODS = {
    "exact": "skyfed.flight.exact:solve",
    "sca": "skyfed.flight.sca:solve",
    "greedy": "skyfed.flight.greedy:solve_greedy",
    "random": "skyfed.flight.greedy:solve_random",
    "hover": "skyfed.flight.greedy:solve_hover",
    "scip": "skyfed.flight.scip:solve",
}
FALLBACK = "greedy"
_PAPER_ONLY = ("sca", "scip")  # state Eq. 4 themselves
_BEYOND = 0.05  # of the region's shorter side: discs are estimates, and may reach a little over its edge


def plan(problem: Problem, method: str = "exact", options: Options | None = None) -> Plan:
    """Plan one flight and verify it; a solver that fails is replaced by `greedy`, and the plan's note says so.

    Raises InfeasibleError when the fallback does not verify either, memory runs out or the constraints leave no class
    to sense, and BadInputError for an unknown method or a constraint that the method does not support.
    """
    options = options or Options()
    begin = time.process_time()
    refuse_unsupported(method, problem.constraints)
    refuse_objective(method, "paper" if problem.pictures is None else "pictures", problem.start is not None)
    closed = _closed_discs(problem)
    try:
        return _noted(problem, _solved(problem, method, options), closed)
    except BadInputError:
        raise
    except MemoryError as error:  # not the problem's fault, so no reason for a plan that was not asked for
        raise InfeasibleError(f"flight.method = {method!r}: out of memory; use greedy, or fewer workers") from error
    except Exception as error:  # whatever a solver raises must not cost the mission
        reason = str(error) if isinstance(error, InfeasibleError) else f"{type(error).__name__}: {error}"
    if problem.constraints:
        reason += f"; constraints: {names(problem.constraints)}"
    if method == FALLBACK:
        raise InfeasibleError(f"flight.method = {method!r}: {reason}")
    try:
        refuse_unsupported(FALLBACK, problem.constraints)
        instead = _solved(problem, FALLBACK, options)
    except Exception as error:
        raise InfeasibleError(f"flight.method = {method!r}: {reason}; the fallback failed too: {error}") from None
    note = f"fallback {FALLBACK}: {method} failed ({reason})"
    bound = float(
        (problem.value * np.log(problem.psi.sum(axis=1) + problem.base)).sum()
    )  # every class collects all there is
    spent = time.process_time() - begin
    return _noted(problem, replace(instead, bound=bound, seconds=spent, method=method, note=note), closed)


def refuse_unsupported(method: str, constraints: Sequence[Constraint]) -> None:
    """Raise BadInputError if a method does not support a constraint; says what does."""
    for constraint in constraints:
        kinds = sorted(constraint.kinds - _supported(method))
        if not kinds:
            continue
        own = f"a planner of your own with @supports({', '.join(map(repr, kinds))})"
        able = [name for name in METHODS if all(each.kinds <= _supported(name) for each in constraints)]
        raise BadInputError(
            f"flight.method = {method!r} does not support constraint {constraint.name} "
            f"(it restricts {' and '.join(kinds)}); use {' or '.join(able) or own}"
        )


def refuse_objective(method: str, objective: str, replans: bool = False) -> None:
    """Raise BadInputError if a method knows only the paper's objective, and flights that may begin anywhere."""
    if method in _PAPER_ONLY and (objective != "paper" or replans):
        asked = 'flight.objective = "paper"' if objective != "paper" else "flight.replan = 0"
        able = ", ".join(name for name in METHODS if name not in _PAPER_ONLY)
        raise BadInputError(f"flight.method = {method!r}: allowed with it: {asked}; others: {able}")


def _supported(method: str) -> frozenset[Kind]:
    """Return the kinds of constraints that a method supports."""
    return getattr(load_solver(method), "supports", frozenset())


def fell_back(note: str) -> bool:
    """Tell from a plan's note whether it is the fallback's."""
    return note.startswith(f"fallback {FALLBACK}: ")


def load_solver(method: str) -> Solver:
    """Return the solver of a method, known or by import path; raises BadInputError for one that is not there."""
    if method in METHODS:
        known: Solver = resolve_name(METHODS[method])
        return known
    if ":" not in method:
        raise BadInputError(f"flight.method = {method!r}; allowed: {', '.join(METHODS)}, {OWN}")
    solver: Solver = import_path(method, "flight.method")
    if not callable(solver):
        raise BadInputError(f"flight.method = {method!r} is a {type(solver).__name__}; allowed: a function")
    return solver


def _solved(problem: Problem, method: str, options: Options) -> Plan:
    """Run a method's solver and verify its plan."""
    solution = load_solver(method)(problem, options)
    if not isinstance(solution, Plan):
        raise InfeasibleError(f"gave a {type(solution).__name__}, not a skyfed.flight.Plan")
    violations = verify(problem, solution)
    if violations:
        more = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
        raise InfeasibleError(f"the plan does not verify: {violations[0]}{more}")
    return solution


def _closed_discs(problem: Problem) -> list[int]:
    """Return the classes that only the user's constraints keep from being sensed; raises where that is all of them."""
    if not problem.constraints:
        return []
    free = [c for c in range(problem.classes) if anchor(problem.paper_only, c) is not None]
    closed = [c for c in free if anchor(problem, c) is None]
    if free and closed == free:
        raise InfeasibleError(
            f"constraint {names(problem.constraints)} leaves no point over any disc: no class can be sensed"
        )
    return closed


def _noted(problem: Problem, verified: Plan, closed: list[int]) -> Plan:
    """Add to a plan's note what its user should know though it breaks no constraint."""
    notes = [verified.note] if verified.note else []
    if closed:
        notes.append(f"{names(problem.constraints)} closes the disc of class {', '.join(map(str, closed))}")
    width, height = problem.region
    beyond = (np.abs(verified.positions) - np.asarray(problem.region) / 2).max(axis=1)
    if beyond.max() > _BEYOND * min(width, height):
        notes.append(
            f"{np.count_nonzero(beyond > 0)} of {problem.rounds} positions lie outside the region of "
            f"{width:g} x {height:g} m, by up to {beyond.max():.3g} m"
        )
    return replace(verified, note="; ".join(notes))
