"""Speed-limited planning: guide, beam, bounds and small problems, against what trying all of them gives."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from flight_cases import brute_force, case
from skyfed.flight import Options, Problem, plan, verify
from skyfed.flight.beam import Beam
from skyfed.flight.guide import Guide, Stretch
from skyfed.flight.improve import Improvement
from skyfed.flight.small import is_small, solve_small
from skyfed.flight.speed import plan_by_travel
from skyfed.flight.travel import Network, optimistic_network
from skyfed.flight.visited import most_visited, visited_bound
from skyfed.types import IDLE


def small_network(seed: int, classes: int = 3) -> Network:
    rounds = np.random.default_rng(seed).integers(1, 4, (classes, classes))
    rounds = np.maximum(rounds, rounds.T)
    np.fill_diagonal(rounds, 1)
    return Network(np.zeros((classes, 2)), np.arange(classes), rounds)


def walks(problem: Problem, network: Network) -> list[np.ndarray]:
    """Every walk on a network, C5 left aside."""
    every = itertools.product(range(-1, len(network.label)), repeat=problem.rounds)
    fits = []
    for walk in every:
        visits = [(t, i) for t, i in enumerate(walk) if i != IDLE]
        if all(s - t >= network.rounds[i, j] for (t, i), (s, j) in itertools.pairwise(visits)):
            fits.append(np.array(walk))
    return fits


def keeps_c5(problem: Problem, association: np.ndarray) -> bool:
    return all(
        (association[first:stop] == c).sum() <= problem.imax[c, w]
        for w, (first, stop) in enumerate(problem.spans)
        for c in range(problem.classes)
    )


@pytest.mark.parametrize("seed", range(4))
def test_the_guide_is_worth_the_best_walk_at_its_prices(seed: int) -> None:
    problem, network = case(seed, classes=3, rounds=5), small_network(seed)
    price = np.random.default_rng(seed).uniform(0.5, 5.0, 3)
    guide = Guide(problem, network, Stretch(0, 5), price, np.zeros(problem.imax.shape), np.arange(3))
    value, walk = guide.walk()
    bonus = price * problem.epsilon - 1 - np.log(price) - np.log(problem.epsilon)

    def worth(walk: np.ndarray) -> float:
        collected = problem.collected(walk)
        return float((price * collected + np.where(collected > 0, bonus, 0)).sum())

    assert value == pytest.approx(max(worth(each) for each in walks(problem, network)), rel=1e-5)
    assert worth(walk) == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize("windows", ["paper", "rolling"])
@pytest.mark.parametrize("seed", range(4))
def test_a_wide_beam_finds_the_best_walk(seed: int, windows: str) -> None:
    problem, network = case(seed, classes=3, rounds=5, windows=windows), small_network(seed)
    search = Improvement(problem, network, np.zeros(problem.imax.shape), 5000, np.random.default_rng(0))
    search.fly_all(np.full(3, 2.0), np.zeros(problem.imax.shape), np.zeros((5, 3)), 5000)
    best = max(problem.objective(walk) for walk in walks(problem, network) if keeps_c5(problem, walk))
    assert search.value == pytest.approx(best)


@pytest.mark.parametrize("seed", range(4))
def test_a_stretch_planned_anew_joins_the_rest_and_keeps_c5(seed: int) -> None:
    problem, network = case(seed, classes=3, rounds=12), small_network(seed)
    search = Improvement(problem, network, np.zeros(problem.imax.shape), 50, np.random.default_rng(0))
    search.fly_all(np.full(3, 2.0), np.zeros(problem.imax.shape), np.zeros((12, 3)), 5)
    first = search.value
    search.polish()
    search.search(20_000, np.inf)
    assert search.value >= first
    assert search.value == pytest.approx(problem.objective(search.beam.association(search.walk)))
    assert keeps_c5(problem, search.beam.association(search.walk))
    visits = [(t, i) for t, i in enumerate(search.walk) if i != IDLE]
    assert all(s - t >= network.rounds[i, j] for (t, i), (s, j) in itertools.pairwise(visits))


@pytest.mark.parametrize("seed", range(5))
def test_the_bound_of_visited_sets_is_above_every_flight(seed: int) -> None:
    problem = case(seed, classes=3, rounds=6, vmax=50.0)
    bound, price = visited_bound(problem, optimistic_network(problem), np.full(3, 1.0))
    assert bound >= brute_force(problem, step=5.0)
    assert (price > 0).all()


def test_how_many_classes_can_be_visited_is_told_as_worked_by_hand() -> None:
    """Three discs in a row, 100 m between their rims, at 50 m a round: one point of the middle disc is two rounds from
    one of the others and three from the other, so the third is reached in the sixth round."""
    problem = Problem(
        np.array([[0.0, 0.0], [120.0, 0.0], [240.0, 0.0]]), np.full(3, 10.0), np.ones((3, 6)), np.full((3, 2), 2),
        vmax=50.0, region=(600.0, 100.0),
    )  # fmt: skip
    assert most_visited(problem, optimistic_network(problem)) == 3
    shorter = replace(problem, psi=np.ones((3, 5)), imax=np.full((3, 1), 2))
    assert most_visited(shorter, optimistic_network(shorter)) == 2


@pytest.mark.parametrize("side", [80.0, 200.0])
@pytest.mark.parametrize("seed", range(6))
def test_small_problems_are_solved_as_well_as_by_brute_force(seed: int, side: float) -> None:
    problem = case(seed, classes=2, rounds=6, vmax=30.0 + 15 * seed, side=side)
    found = plan(problem)
    best = brute_force(problem, step=5.0)
    assert verify(problem, found) == []
    assert found.objective >= best - 1e-9
    assert found.bound >= best - 1e-9


def test_what_is_small_counts_associations() -> None:
    assert is_small(case(0, classes=3, rounds=8))
    assert not is_small(case(0, classes=3, rounds=9))


def test_the_search_of_a_larger_problem_agrees_with_trying_all(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = case(1, classes=3, rounds=7, vmax=60.0)
    bound, association, _ = solve_small(problem, optimistic_network(problem))
    monkeypatch.setattr("skyfed.flight.speed.is_small", lambda problem: False)
    searched, _, other, _ = plan_by_travel(problem, Options())
    assert association is not None
    assert problem.objective(searched) == pytest.approx(problem.objective(association), abs=0.05)
    assert other >= bound - 1e-9 or other >= problem.objective(association) - 1e-9


def test_equal_speed_limited_problems_get_equal_bits() -> None:
    problem = case(5, classes=4, rounds=12, vmax=60.0)
    first, second = plan(problem, options=Options(seed=3)), plan(problem, options=Options(seed=3))
    np.testing.assert_array_equal(first.positions, second.positions)
    np.testing.assert_array_equal(first.association, second.association)
    assert (first.objective, first.bound) == (second.objective, second.bound)


def test_a_beam_gives_up_where_the_end_cannot_be_reached() -> None:
    problem, network = case(0, classes=2, rounds=4), Network(np.zeros((2, 2)), np.arange(2), np.array([[1, 4], [4, 1]]))
    walk = np.array([0, IDLE, IDLE, 1])
    beam = Beam(problem, network)
    guide = Guide(problem, network, beam.stretch(walk, 1, 3), np.ones(2), np.zeros(problem.imax.shape), np.arange(0))
    assert beam.fly(walk, guide, np.zeros((2, 2)), 10) is None
