"""One door to all planners; no plan leaves it unverified."""

import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module

import numpy as np

from skyfed.errors import BadInputError, InfeasibleError
from skyfed.flight.problem import Options, Problem
from skyfed.flight.verify import verify
from skyfed.records import Plan

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


def plan(problem: Problem, method: str = "exact", options: Options | None = None) -> Plan:
    """Plan one flight and verify it; a solver that fails is replaced by `greedy`, and the plan's note says so.

    Raises InfeasibleError when the fallback does not verify either, BadInputError for an unknown method.
    """
    options = options or Options()
    begin = time.process_time()
    try:
        return _verified(problem, load_solver(method)(problem, options))
    except BadInputError:
        raise
    except Exception as error:  # whatever a solver raises must not cost the mission
        reason = f"{type(error).__name__}: {error}" if not isinstance(error, InfeasibleError) else str(error)
    if method == FALLBACK:
        raise InfeasibleError(f"flight.method = {method!r}: {reason}")
    try:
        instead = _verified(problem, load_solver(FALLBACK)(problem, options))
    except Exception as error:
        raise InfeasibleError(f"flight.method = {method!r}: {reason}; the fallback failed too: {error}") from None
    note = f"fallback {FALLBACK}: {method} failed ({reason})"
    return replace(instead, bound=_ceiling(problem), seconds=time.process_time() - begin, method=method, note=note)


def fell_back(note: str) -> bool:
    """Tell from a plan's note whether it is the fallback's."""
    return note.startswith(f"fallback {FALLBACK}: ")


def load_solver(method: str) -> Solver:
    """Return the solver of a method, known or by import path; raises BadInputError for one that is not there."""
    if method not in METHODS and ":" not in method:
        raise BadInputError(f"flight.method = {method!r}; allowed: {', '.join(METHODS)}, package.module:function")
    module, _, name = METHODS.get(method, method).partition(":")
    try:
        solver: Solver = getattr(import_module(module), name)
    except Exception as error:  # whatever a module of the user's own does when it is imported
        if method in METHODS:
            raise
        reason = " ".join(str(error).splitlines())
        raise BadInputError(f"flight.method = {method!r}: {type(error).__name__}: {reason}") from None
    if not callable(solver):
        raise BadInputError(f"flight.method = {method!r} is a {type(solver).__name__}; allowed: a function")
    return solver


def _verified(problem: Problem, found: Plan) -> Plan:
    if not isinstance(found, Plan):
        raise InfeasibleError(f"gave a {type(found).__name__}, not a skyfed.flight.Plan")
    violations = verify(problem, found)
    if violations:
        more = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
        raise InfeasibleError(f"the plan does not verify: {violations[0]}{more}")
    return found


def _ceiling(problem: Problem) -> float:
    """Return a bound that needs no solver: every class collects all there is."""
    return float(np.log(problem.psi.sum(axis=1) + problem.epsilon).sum())
