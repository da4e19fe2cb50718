"""Planners whose solver times out, finds nothing, raises, has no licence, or lies: a labelled plan, or an error."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np

from endurance.stage import Row, run_part

Fault = Callable[[random.Random], Any]  # gives a context in which the fault is there


def _problem(rng: random.Random) -> Any:
    from skyfed.bench.planner import missions

    return missions(rng.randrange(10_000), 1, rounds=rng.choice([8, 12, 20]))[0]


def _raises(error: BaseException) -> Callable[..., Any]:
    def solve(*rest: object) -> Any:
        raise error

    return solve


def _lies(rng: random.Random) -> Callable[..., Any]:
    """Return a solver whose answer is wrong in one way."""

    def solve(problem: Any, options: Any) -> Any:
        from skyfed.flight.greedy import solve_greedy

        good = solve_greedy(problem, options)
        T = problem.rounds
        away = good.positions.copy()
        away[rng.randrange(T)] += 1e4
        nowhere = good.positions.copy()
        nowhere[rng.randrange(T)] = np.nan
        return rng.choice([
            replace(good, positions=away), replace(good, positions=nowhere), replace(good, objective=99.0),
            replace(good, objective=float("nan")), replace(good, bound=float("nan")),
            replace(good, bound=good.objective - 1), replace(good, association=good.association[:-1]),
            replace(good, association=good.association.astype(float)), replace(good, positions=good.positions[:, :1]),
            replace(good, association=np.full(T, 99)), replace(good, association=np.zeros(T, int)),
            replace(good, positions=np.tile(problem.centres[0], (T, 1))), None, "a plan",
            replace(good, positions=None),  # type: ignore[arg-type]
        ])  # fmt: skip

    return solve


def _replaced(method: str, solver: Callable[..., Any]) -> Any:
    from skyfed.flight import planner

    real = planner.load_solver
    return mock.patch.object(planner, "load_solver", lambda name: solver if name == method else real(name))


ERRORS: dict[str, list[BaseException]] = {
    "exceptions": [
        RuntimeError("numerical trouble"), ValueError("shape"), KeyError("x"), ZeroDivisionError("0"), MemoryError(),
        RecursionError("deep"), AssertionError(), np.linalg.LinAlgError("singular"),
        FloatingPointError("overflow"), StopIteration(),
    ],
    "missing licence": [
        RuntimeError("licence expired"), ImportError("No module named 'gurobipy'"), PermissionError(13, "licence file"),
    ],
    "infeasible": [],
    "time-outs": [TimeoutError("no answer in time")],
}  # fmt: skip


def _fault(kind: str, method: str, rng: random.Random) -> tuple[Any, dict[str, Any]]:
    """Return a context with this fault and the planner's options."""
    import highspy

    from skyfed.errors import InfeasibleError
    from skyfed.flight.milp import SolverError

    if kind == "wrong answers":
        return _replaced(method, _lies(rng)), {}
    if kind == "infeasible" and rng.random() < 0.5:
        statuses = highspy.HighsModelStatus
        status = rng.choice([statuses.kInfeasible, statuses.kUnbounded, statuses.kSolveError, statuses.kUnknown])
        return mock.patch.object(highspy.Highs, "getModelStatus", return_value=status), {}
    if kind == "infeasible":
        return _replaced(method, _raises(rng.choice([InfeasibleError("none"), SolverError("infeasible")]))), {}
    if kind == "time-outs" and rng.random() < 0.7:
        return mock.patch.dict({}), {"seconds": rng.choice([1e-9, 1e-4, 1e-3])}
    return _replaced(method, _raises(rng.choice(ERRORS[kind]))), {}


def solver(count: int, seed: int) -> list[Row]:
    """Plan `count` flights with a fault in the solver."""
    from skyfed.errors import SkyfedError
    from skyfed.flight import Options, plan, verify

    rng = random.Random(seed)
    kinds = [*ERRORS, "wrong answers"]
    ends: Counter[str] = Counter()
    wrong: list[str] = []
    for k in range(count):
        kind, method, problem = kinds[k % len(kinds)], rng.choice(["exact", "exact", "sca", "scip"]), _problem(rng)
        fault, options = _fault(kind, method, rng)
        if method == "sca" and not isinstance(options.get("seconds"), float):
            options = {}
        try:
            with fault:
                found = plan(problem, method, Options(seed=k, **options))
        except SkyfedError as error:
            ends["a clear error"] += 1
            wrong += [] if str(error) and "\n" not in str(error) else [f"{kind}, {method}: says {error!r}"]
            continue
        except BaseException as error:
            wrong.append(f"{kind}, {method}: {error!r}")
            continue
        if verify(problem, found):
            wrong.append(f"{kind}, {method}: does not verify")
        hidden = options or (kind == "infeasible" and method != "exact")  # the fault may not have been met
        if found.note.startswith("fallback"):
            ends["labelled fallback, verified"] += 1
        elif found.note:
            ends["labelled with what limited it, verified"] += 1
        elif hidden:
            ends["solved before the fault could show, verified"] += 1
        else:
            wrong.append(f"{kind}, {method}: no label")
    wrong += _no_fallback() + _no_licence()
    held = count - len(wrong)
    return [
        Row("solver times out, finds nothing, raises, has no licence, lies: a labelled verified plan, or a clear error",
            f"{held} of {count}", "all", not wrong, dict(ends) | ({"failures": wrong[:5]} if wrong else {})),
    ]  # fmt: skip


def _no_fallback() -> list[str]:
    """Where the fallback fails too, there is a clear error."""
    from skyfed.errors import InfeasibleError
    from skyfed.flight import plan, planner

    with mock.patch.object(planner, "load_solver", return_value=_raises(RuntimeError("licence expired"))):
        try:
            plan(_problem(random.Random(0)))
        except InfeasibleError as error:
            return [] if "fallback failed too" in str(error) else [str(error)]
    return ["a plan out of nothing"]


def _no_licence() -> list[str]:
    """Where a solver that needs a licence is asked for and there is none, there is a clear error."""
    from skyfed.errors import BadInputError
    from skyfed.flight import Options, plan
    from skyfed.flight.problem import ScaSettings

    try:
        found = plan(_problem(random.Random(0)), "sca", Options(sca=ScaSettings(solver="mosek")))
    except BadInputError as error:
        return [] if "no licence" in str(error) else [str(error)]
    return [] if not found.note else [f"planned without a licence: {found.note}"]  # there is one here


if __name__ == "__main__":
    run_part(solver, 200, __doc__)
