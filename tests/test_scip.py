"""The direct model in SCIP: equal to brute force where that is possible, clear where it is not."""

import itertools
import sys
from typing import Any

import numpy as np
import pytest

from skyfed.errors import BadInputError, InfeasibleError
from skyfed.flight import scip
from skyfed.flight.problem import Options, Problem, window_spans
from skyfed.flight.verify import verify
from skyfed.rng import stream
from skyfed.types import IDLE
from waiting import LONG

pyscipopt = pytest.importorskip("pyscipopt")

CENTRES = np.array([[-300.0, -200.0], [250.0, 100.0], [0.0, 300.0]])


def make_problem(rounds: int = 4, classes: int = 2, imax: int = 1, **changes: Any) -> Problem:
    psi = stream(7, "test psi").dirichlet(np.ones(max(classes, 2)), rounds).T[:classes]
    windows = len(window_spans(classes, rounds, changes.get("windows", "paper")))
    given = {"centres": CENTRES[:classes], "radii": np.full(classes, 45.0), "psi": psi, **changes}
    return Problem(imax=np.full((classes, windows), imax), **given)


def solve(problem: Problem, seconds: float = LONG) -> Any:
    return scip.solve(problem, Options(seconds=seconds))


def brute_force(problem: Problem) -> float:
    """Best objective over all associations that meet C5; discs far apart and wider than dmin make every one flyable."""
    best = -np.inf
    for labels in itertools.product(range(IDLE, problem.classes), repeat=problem.rounds):
        association = np.array(labels, np.int64)
        visits = [
            [(association[first:stop] == c).sum() for first, stop in problem.spans] for c in range(problem.classes)
        ]
        if (np.array(visits).reshape(problem.imax.shape) <= problem.imax).all():
            best = max(best, problem.objective(association))
    return best


@pytest.mark.parametrize(("rounds", "classes", "imax"), [(4, 2, 1), (4, 2, 2), (5, 3, 1)])
@pytest.mark.parametrize("windows", ["paper", "rolling"])
def test_equals_brute_force(rounds: int, classes: int, imax: int, windows: Any) -> None:
    problem = make_problem(rounds, classes, imax, windows=windows)
    plan = solve(problem)
    assert verify(problem, plan) == []
    assert plan.objective == pytest.approx(brute_force(problem), abs=scip.GAP)
    assert plan.objective <= plan.bound <= plan.objective + 2 * scip.GAP
    assert plan.method == "scip"
    assert plan.note == ""
    assert plan.seconds > 0


@pytest.mark.parametrize(("rounds", "classes"), [(1, 1), (1, 3), (6, 1), (12, 3)])
def test_sizes(rounds: int, classes: int) -> None:
    problem = make_problem(rounds, classes, imax=2)
    assert verify(problem, solve(problem)) == []


def test_overlapping_discs() -> None:
    problem = make_problem(4, 3, centres=np.array([[0.0, 0.0], [50.0, 0.0], [20.0, 60.0]]))
    assert verify(problem, solve(problem)) == []


def test_a_disc_within_another_cannot_be_visited_alone() -> None:
    problem = make_problem(3, 2, centres=np.zeros((2, 2)), radii=np.array([60.0, 20.0]))
    plan = solve(problem)
    assert verify(problem, plan) == []
    assert not (plan.association == 1).any()


def test_speed_limit_and_no_least_distance() -> None:
    for problem in (make_problem(4, 2, vmax=200.0), make_problem(4, 2, dmin=0.0)):
        assert verify(problem, solve(problem)) == []


def test_a_speed_limit_costs() -> None:
    free, slow = solve(make_problem(4, 2)), solve(make_problem(4, 2, vmax=100.0))
    assert slow.objective < free.objective


def test_two_runs_are_equal_bit_for_bit() -> None:
    problem = make_problem(8, 3)
    one, two = solve(problem), solve(problem)
    np.testing.assert_array_equal(one.positions, two.positions)
    np.testing.assert_array_equal(one.association, two.association)
    assert one.bound == two.bound


def test_steps_too_long_for_the_region_are_infeasible() -> None:
    with pytest.raises(InfeasibleError, match="scip proves that no plan meets the constraints"):
        solve(make_problem(4, 2, dmin=2000.0))


def test_no_time_is_a_clear_error() -> None:
    with pytest.raises(InfeasibleError, match="scip found no plan in 0 s"):
        solve(make_problem(12, 3), seconds=0.0)


def test_an_incumbent_at_the_time_limit_is_a_plan_with_a_note_and_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    class OutOfTime(pyscipopt.Model):  # type: ignore[misc]
        """Stops at its first solution, as a clock would but at the same place on every machine."""

        def optimize(self) -> None:
            self.setParam("limits/solutions", 1)
            super().optimize()

        def getStatus(self) -> str:  # noqa: N802
            return "timelimit"

    monkeypatch.setattr(pyscipopt, "Model", OutOfTime)
    problem = make_problem(12, 3)
    plan = solve(problem, seconds=7.0)
    assert verify(problem, plan) == []
    assert plan.note == "time limit of 7 s reached"
    assert plan.objective < plan.bound < np.inf


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyscipopt", None)
    with pytest.raises(BadInputError, match=r"flight.method = 'scip': needs the extra, pip install 'skyfed\[scip\]'"):
        solve(make_problem())
