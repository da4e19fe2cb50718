from dataclasses import replace

import numpy as np
import pytest

from flight_cases import brute_force, case
from skyfed.bench.planner import missions
from skyfed.flight import Options, Problem, plan, verify
from skyfed.flight.association import GAP
from skyfed.flight.place import place
from skyfed.types import IDLE


@pytest.mark.parametrize("windows", ["paper", "rolling"])
@pytest.mark.parametrize("seed", range(6))
def test_the_optimum_of_small_problems_is_found(seed: int, windows: str) -> None:
    problem = case(seed, classes=3, rounds=6, windows=windows, imax=1 + seed % 2)
    found = plan(problem)
    best = brute_force(problem)
    assert verify(problem, found) == []
    assert not found.note
    assert found.objective == pytest.approx(best, abs=GAP + 1e-9)
    assert found.bound >= best - 1e-7


@pytest.mark.parametrize("seed", range(4))
def test_discs_too_small_for_two_points_are_not_stayed_in(seed: int) -> None:
    problem = case(seed, classes=2, rounds=7, radii=(1.0, 2.4))
    found = plan(problem)
    assert found.objective == pytest.approx(brute_force(problem, step=0.3), abs=GAP + 1e-9)
    visits = found.association
    assert not ((visits[1:] == visits[:-1]) & (visits[1:] >= 0)).any()


@pytest.mark.parametrize("seed", range(6))
def test_overlapping_discs(seed: int) -> None:
    problem = case(seed, classes=3, rounds=6, side=60.0)
    found = plan(problem)
    assert verify(problem, found) == []
    assert found.objective == pytest.approx(brute_force(problem, step=2.0), abs=GAP + 1e-9)


def test_a_class_under_another_disc_is_never_visited_and_the_rest_is_optimal() -> None:
    problem = replace(
        case(3, classes=2, rounds=6), centres=np.array([[0.0, 0.0], [1.0, 0.0]]), radii=np.array([5.0, 30.0])
    )
    found = plan(problem)
    assert verify(problem, found) == []
    assert not (found.association == 0).any()
    assert found.objective == pytest.approx(brute_force(problem), abs=GAP + 1e-9)


def test_coincident_discs_leave_only_their_common_rim() -> None:
    problem = replace(case(3, classes=2, rounds=5), centres=np.zeros((2, 2)), radii=np.full(2, 30.0))
    found = plan(problem)
    assert verify(problem, found) == []
    np.testing.assert_allclose(np.hypot(*found.positions[found.association >= 0].T), 30.0)


def test_a_class_covered_by_three_discs_together_is_never_visited() -> None:
    ring = 10 * np.array([[np.cos(a), np.sin(a)] for a in (0, 2.0944, 4.18879)])
    problem = replace(
        case(0, classes=4, rounds=4), centres=np.vstack([[0, 0], ring]), radii=np.array([1.0, 40, 40, 40])
    )
    found = plan(problem)
    assert verify(problem, found) == []
    assert not (found.association == 0).any()


@pytest.mark.parametrize("windows", ["paper", "rolling"])
@pytest.mark.parametrize(("classes", "rounds"), [(1, 1), (1, 6), (3, 1), (5, 3)])
def test_edge_sizes(classes: int, rounds: int, windows: str) -> None:
    problem = case(1, classes, rounds, windows=windows)
    found = plan(problem)
    assert verify(problem, found) == []
    assert found.objective == pytest.approx(brute_force(problem), abs=GAP + 1e-9)


def test_psi_with_zeros() -> None:
    psi = np.array([[0.0, 1.0, 0.0, 0.5], [1.0, 0.0, 0.0, 0.5], [0.0, 0.0, 0.0, 0.0]])
    problem = replace(case(0, classes=3, rounds=4), psi=psi)
    found = plan(problem)
    assert verify(problem, found) == []
    assert found.objective == pytest.approx(brute_force(problem), abs=GAP + 1e-9)


def test_imax_zero_keeps_a_class_out_and_huge_imax_never_binds() -> None:
    shut = replace(case(2, classes=2, rounds=6), imax=np.array([[0, 0, 0], [9, 9, 9]]))
    found = plan(shut)
    assert verify(shut, found) == []
    assert set(found.association[1:]) <= {1, -1}
    assert found.objective == pytest.approx(brute_force(shut), abs=GAP + 1e-9)


def test_no_distance_between_rounds_is_needed_when_dmin_is_zero() -> None:
    problem = case(4, classes=2, rounds=5, dmin=0.0)
    assert plan(problem).objective == pytest.approx(brute_force(problem), abs=GAP + 1e-9)


@pytest.mark.parametrize("seed", range(2))
def test_the_paper_size_is_certified(seed: int) -> None:
    for problem in missions(seed, 2):
        found = plan(problem)
        assert verify(problem, found) == []
        assert found.gap <= 1e-4
        assert not found.note


def test_equal_problems_get_equal_bits() -> None:
    problem = missions(3, 1)[0]
    first, second = plan(problem), plan(problem)
    np.testing.assert_array_equal(first.positions, second.positions)
    assert (first.objective, first.bound) == (second.objective, second.bound)


def samples(problem: Problem, association: np.ndarray, positions: np.ndarray) -> float:
    far = np.hypot(*(positions - problem.centres[association]).T)
    return float((problem.psi[association, np.arange(len(association))] * np.exp(-far / problem.decay_length)).sum())


def test_a_stay_takes_turns_at_the_centre_as_worked_by_hand() -> None:
    problem = Problem(
        np.array([[0.0, 0.0]]),
        np.array([40.0]),
        np.array([[0.2, 0.9, 0.3, 0.8, 0.1]]),
        np.full((1, 5), 9),
        decay_length=10.0,
    )
    positions = place(problem, np.zeros(5, int))
    np.testing.assert_allclose(np.hypot(*positions.T), [5, 0, 5, 0, 5], atol=1e-9)
    assert samples(problem, np.zeros(5, int), positions) == pytest.approx(1.7 + 0.6 * np.exp(-0.5))


def test_anywhere_verifies_and_senses_less_than_placed_for_sensing() -> None:
    problem = missions(0, 1)[0]
    near, far = plan(problem), plan(problem, options=Options(placement="anywhere"))
    assert verify(problem, far) == []
    assert samples(problem, far.association, far.positions) < samples(problem, near.association, near.positions)


def test_a_disc_inside_another_leaves_the_ring_around_it() -> None:
    problem = replace(case(0, classes=2, rounds=3), centres=np.zeros((2, 2)), radii=np.array([10.0, 20.0]))
    found = plan(problem)
    assert verify(problem, found) == []
    assert found.objective == pytest.approx(brute_force(problem), abs=GAP + 1e-9)


def test_a_single_visit_is_both_the_first_and_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rounds before it can be flown from the east of the disc, those after it from the north: both must hold."""
    problem = replace(case(0, classes=1, rounds=3, imax=1), vmax=1e6)
    centre = problem.centres[0]

    def fly(problem: Problem, start: np.ndarray | None, stop: np.ndarray | None, steps: int) -> np.ndarray | None:
        point, axis = (stop, 0) if start is None else (start, 1)
        return np.tile(centre, (steps, 1)) if point[axis] > centre[axis] + 5 else None

    monkeypatch.setattr("skyfed.flight.place.fly_leg", fly)
    position = place(problem, np.array([IDLE, 0, IDLE]))[1]
    assert (position > centre + 5).all()
