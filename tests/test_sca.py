"""Algorithm 1: its linearisations by hand, its subproblem, and what every plan of it must hold."""

import time
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from skyfed.errors import BadInputError, InfeasibleError
from skyfed.flight import sca, sca_model
from skyfed.flight.place import PlacementError
from skyfed.flight.problem import Options, Problem, ScaSettings, window_spans
from skyfed.flight.verify import verify
from skyfed.rng import stream
from skyfed.types import IDLE, Plan

CENTRES = np.array([[-300.0, -200.0], [250.0, 100.0], [0.0, 300.0]])


def make_problem(rounds: int = 8, classes: int = 3, imax: int = 2, **changes: Any) -> Problem:
    psi = stream(7, "test psi").dirichlet(np.ones(max(classes, 2)), rounds).T[:classes]
    windows = len(window_spans(classes, rounds, changes.get("windows", "paper")))
    given = {"centres": CENTRES[:classes], "radii": np.full(classes, 45.0), "psi": psi, **changes}
    return Problem(imax=np.full((classes, windows), imax), **given)


def solve(problem: Problem, seed: int = 0, **settings: Any) -> Any:
    return sca.solve(problem, Options(seed=seed, sca=ScaSettings(solver="highs", **settings)))


def start_from(monkeypatch: pytest.MonkeyPatch, points: np.ndarray) -> None:
    """Let the initial points be these, parted where they coincide as any other."""

    def given(problem: Problem, kind: str, rng: np.random.Generator) -> np.ndarray:
        return sca.part_neighbours(points, max(problem.dmin, 1.0), rng)

    monkeypatch.setattr(sca, "start_points", given)


# h1 and h2


def test_h1_by_hand() -> None:
    slope = sca_model.disc_slopes(np.array([[3.0, 4.0]]), np.zeros((1, 2)), np.array([[1.0, 0.0]]))
    np.testing.assert_allclose(slope[0, 0], [0.6, 0.8])
    printed = 5.0 + slope[0, 0] @ (np.array([10.0, 0.0]) - np.array([3.0, 4.0]))
    assert printed == pytest.approx(6.0)
    assert slope[0, 0] @ np.array([10.0, 0.0]) == pytest.approx(6.0)


def test_h2_by_hand() -> None:
    points = np.array([[1.0, 1.0], [4.0, 5.0], [4.0, 3.0]])
    slope = sca_model.step_slopes(points)
    np.testing.assert_allclose(slope, [[0.6, 0.8], [0.0, -1.0]])
    assert 5.0 + slope[0] @ (np.array([5.0, 0.0]) - np.array([3.0, 4.0])) == pytest.approx(3.0)


def test_h1_and_h2_are_never_above_the_distance() -> None:
    rng = stream(1, "test tangents")
    points, moved = rng.uniform(-500, 500, (2, 40, 2))
    spare = np.tile([1.0, 0.0], (40, 1))
    h1 = np.einsum("cta,cta->ct", sca_model.disc_slopes(points, CENTRES, spare), moved[None] - CENTRES[:, None])
    assert (h1 <= np.linalg.norm(moved[None] - CENTRES[:, None], axis=2) + 1e-9).all()
    h2 = (sca_model.step_slopes(points) * np.diff(moved, axis=0)).sum(axis=1)
    assert (h2 <= np.linalg.norm(np.diff(moved, axis=0), axis=1) + 1e-9).all()


def test_h1_at_a_centre_takes_the_spare_direction() -> None:
    slope = sca_model.disc_slopes(CENTRES[:1], CENTRES[:2], np.array([[0.0, 1.0]]))
    np.testing.assert_array_equal(slope[0, 0], [0.0, 1.0])
    assert np.linalg.norm(slope[1, 0]) == pytest.approx(1.0)


@pytest.mark.parametrize("sides", [3, 4, 8, 17])
def test_the_polygon_lies_in_the_disc(sides: int) -> None:
    normals = sca_model.polygon_normals(sides)
    apothem = np.cos(np.pi / sides)
    corners = [np.linalg.solve(normals[[k, (k + 1) % sides]], [apothem, apothem]) for k in range(sides)]
    np.testing.assert_allclose(np.hypot(*np.transpose(corners)), 1.0)


def test_tangents_overestimate_the_logarithm_by_a_thousandth() -> None:
    problem = make_problem()
    touch = sca_model.tangent_points(problem, 0)
    amounts = np.linspace(touch[0], touch[-1], 1000)
    over = (np.log(touch)[:, None] + amounts / touch[:, None] - 1).min(axis=0) - np.log(amounts)
    assert over.min() > -1e-12
    assert over.max() < 1.2e-3


# Plans


@pytest.mark.parametrize("start", ["random", "circle", "greedy"])
@pytest.mark.parametrize("windows", ["paper", "rolling"])
def test_a_plan_verifies_and_its_objective_does_not_fall(start: str, windows: Any) -> None:
    problem = make_problem(12, windows=windows)
    before = time.process_time()
    plan = solve(problem, start=start)
    assert verify(problem, plan) == []
    assert plan.method == "sca"
    assert plan.bound == np.inf
    assert 0 < plan.seconds <= time.process_time() - before
    assert plan.objective == plan.history[-1]
    assert (np.diff(plan.history) > -1.2e-3 * problem.classes).all()  # the tangents' error, a class
    assert (np.abs(plan.positions) <= 500 + 1e-6).all()


def test_two_runs_are_equal_bit_for_bit() -> None:
    problem = make_problem(10)
    one, two, other = solve(problem), solve(problem), solve(problem, seed=1)
    np.testing.assert_array_equal(one.positions, two.positions)
    np.testing.assert_array_equal(one.association, two.association)
    assert one.history == two.history
    assert not np.array_equal(one.positions, other.positions)


@pytest.mark.parametrize(("rounds", "classes"), [(1, 3), (1, 1), (2, 1), (6, 1)])
def test_smallest_sizes(rounds: int, classes: int) -> None:
    problem = make_problem(rounds, classes)
    assert verify(problem, solve(problem)) == []


def test_coincident_initial_points(monkeypatch: pytest.MonkeyPatch) -> None:
    start_from(monkeypatch, np.zeros((6, 2)))
    problem = make_problem(6)
    assert verify(problem, solve(problem)) == []


def test_initial_points_on_a_centre(monkeypatch: pytest.MonkeyPatch) -> None:
    start_from(monkeypatch, np.tile(CENTRES[0], (6, 1)))
    problem = make_problem(6)
    plan = solve(problem)
    assert verify(problem, plan) == []
    assert (plan.association != IDLE).any()


def test_overlapping_discs() -> None:
    problem = make_problem(8, centres=np.array([[0.0, 0.0], [50.0, 0.0], [20.0, 60.0]]))
    plan = solve(problem, start="greedy")
    assert verify(problem, plan) == []
    assert len(set(plan.association) - {IDLE}) > 1


def test_a_centre_outside_the_region_can_be_visited() -> None:
    problem = make_problem(6, 1, centres=np.array([[700.0, 0.0]]))
    plan = solve(problem)
    assert verify(problem, plan) == []
    assert (plan.association == 0).any()


def test_without_least_distance_a_vehicle_may_stay() -> None:
    problem = make_problem(8, dmin=0.0)
    assert verify(problem, solve(problem)) == []


@pytest.mark.parametrize("start", ["random", "greedy"])
def test_speed_limit(start: str) -> None:
    problem = make_problem(8, vmax=250.0)
    assert verify(problem, solve(problem, start=start)) == []


@pytest.mark.parametrize("vmax", [np.inf, 250.0])
def test_placed_for_sensing_it_keeps_its_visits_and_is_nearer_to_the_centres(vmax: float) -> None:
    problem = make_problem(10, vmax=vmax, decay_length=10.0)
    own, placed = solve(problem), solve(problem, placement="sensing")
    assert verify(problem, placed) == []
    assert placed.note == own.note
    np.testing.assert_array_equal(placed.association, own.association)
    assert samples(problem, placed) > 1.5 * samples(problem, own)


def samples(problem: Problem, plan: Plan) -> float:
    """Return what a flight senses, in multiples of N_max (Eq. 6)."""
    rounds = np.flatnonzero(plan.association != IDLE)
    seen = plan.association[rounds]
    far = np.hypot(*(plan.positions[rounds] - problem.centres[seen]).T)
    return float((problem.psi[seen, rounds] * np.exp(-far / problem.decay_length)).sum())


def test_where_nothing_can_be_placed_it_keeps_its_own_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: Any, **options: Any) -> Any:
        raise PlacementError([2, 3])

    problem = make_problem(8)
    monkeypatch.setattr(sca, "place", fails)
    own, placed = solve(problem), solve(problem, placement="sensing")
    np.testing.assert_array_equal(placed.positions, own.positions)
    assert placed.note.endswith("not placed for sensing: no positions join the visits of rounds [2, 3]")


def test_never_visited_classes_count_as_epsilon() -> None:
    problem = make_problem(4, imax=0, windows="rolling")
    plan = solve(problem)
    assert (plan.association == IDLE).all()
    assert plan.objective == pytest.approx(3 * np.log(1e-6))


# What can go wrong


def test_steps_too_long_for_the_region_are_infeasible() -> None:
    with pytest.raises(
        InfeasibleError, match=r"^flight.method = 'sca': iteration 1: the convex subproblem is infeasible"
    ):
        solve(make_problem(6, dmin=2000.0))


def test_no_time_is_a_clear_error() -> None:
    with pytest.raises(InfeasibleError, match=r"iteration 1: no solution of the convex subproblem in 1e-06 s"):
        solve(make_problem(12), seconds=1e-6)


def test_a_later_failure_keeps_the_last_good_iterate(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem(8)
    whole = sca_model.Subproblem.solve
    calls = []

    def fails_later(self: Any, *arguments: Any) -> Any:
        calls.append(1)
        if len(calls) > 1:
            raise InfeasibleError("the convex subproblem is infeasible")
        return whole(self, *arguments)

    monkeypatch.setattr(sca_model.Subproblem, "solve", fails_later)
    plan = solve(problem)
    assert plan.note == "iteration 2: the convex subproblem is infeasible"
    assert len(plan.history) == 1
    assert verify(problem, plan) == []


def test_an_iterate_cut_off_below_the_last_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem(8)
    whole = sca_model.Subproblem.solve
    calls = []

    def cut_off_later(self: Any, *arguments: Any) -> Any:
        calls.append(1)
        iterate = whole(self, *arguments)
        if len(calls) == 1:
            return iterate
        far = np.tile([[-480.0, 450.0], [-480.0, 470.0]], (4, 1))  # over no disc
        return far, np.full(8, IDLE), True

    monkeypatch.setattr(sca_model.Subproblem, "solve", cut_off_later)
    plan = solve(problem)
    assert plan.note == "solver's limit reached in iteration 2"
    assert plan.history == (plan.objective,)
    assert (plan.association != IDLE).any()


def test_too_few_iterations_are_noted() -> None:
    plan = solve(make_problem(12), iterations=2, precision=1e-12)
    assert len(plan.history) == 2
    assert plan.note in ("", "not converged in J = 2 iterations")
    assert solve(make_problem(12), iterations=1).note == ""


# Start points and solver


def test_circle_goes_once_around_the_station() -> None:
    points = sca.start_points(make_problem(8), "circle", stream(0, "test"))
    np.testing.assert_allclose(np.hypot(*points.T), 250.0)
    np.testing.assert_allclose(points[2], [0.0, 250.0], atol=1e-9)


def test_greedy_walks_over_the_best_classes_that_c5_allows() -> None:
    psi = np.array([[0.9, 0.8, 0.7, 0.6], [0.1, 0.2, 0.3, 0.4]])
    problem = Problem(CENTRES[:2], np.full(2, 45.0), psi, np.ones((2, 3), np.int64), windows="rolling")
    points = sca.start_points(problem, "greedy", stream(0, "test"))
    np.testing.assert_array_equal(points, CENTRES[[0, 1, 0, 1]])


def test_coincident_neighbours_are_parted_by_one_step() -> None:
    points = sca.part_neighbours(np.zeros((5, 2)), 7.0, stream(0, "test"))
    np.testing.assert_allclose(np.hypot(*np.diff(points, axis=0).T), 7.0)


def test_slow_start_points_keep_to_the_speed_limit() -> None:
    points = sca.slow_down(np.array([[0.0, 0.0], [100.0, 0.0], [0.0, 0.0]]), 60.0)
    np.testing.assert_allclose(points, [[0.0, 0.0], [60.0, 0.0], [0.0, 0.0]])


def test_mosek_without_a_licence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sca, "_mosek_works", lambda: False)
    assert sca.choose_solver("auto") == "HIGHS"
    with pytest.raises(BadInputError, match=r"flight.sca.solver = 'mosek'"):
        sca.choose_solver("mosek")
    monkeypatch.setattr(sca, "_mosek_works", lambda: True)
    assert sca.choose_solver("auto") == "MOSEK"
    assert sca.choose_solver("highs") == "HIGHS"


def test_the_cone_model_agrees_with_the_polygon_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """MOSEK's model with the indicators fixed to HiGHS's has cones only, which an open solver takes."""
    problem = make_problem(6, vmax=900.0)
    points = sca.start_points(problem, "random", stream(0, "test"))
    spare = np.tile([1.0, 0.0], (6, 1))
    _, association, _ = sca_model.Subproblem(problem, 8, "HIGHS", 60.0).solve(points, spare)
    indicators = (association == np.arange(3)[:, None]).astype(float)
    true_variable = cp.Variable

    def relaxed(*shape: Any, boolean: bool = False, **attributes: Any) -> Any:
        return true_variable(*shape, **attributes)

    monkeypatch.setattr(sca_model.cp, "Variable", relaxed)
    cones = sca_model.Subproblem(problem, 8, "MOSEK", 60.0)
    assert cones.model.is_dcp(dpp=True)
    cones.model = cp.Problem(cones.model.objective, [*cones.model.constraints, cones.visits == indicators])
    monkeypatch.setattr(sca_model, "_solver_settings", lambda *_: {})
    monkeypatch.setattr(cones, "_solver", "CLARABEL")
    _, again, _ = cones.solve(points, spare)
    np.testing.assert_array_equal(again, association)
    assert cones.model.value == pytest.approx(problem.objective(association), abs=1e-5)
