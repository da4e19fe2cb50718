"""The objective "pictures": what it counts, its bound, and its verification."""

from dataclasses import replace

import numpy as np
import pytest

from skyfed.config import load_config
from skyfed.errors import BadInputError
from skyfed.field import Mixture
from skyfed.flight.pictures import Pictures
from skyfed.flight.planner import plan
from skyfed.flight.problem import Options, Problem
from skyfed.flight.remote import plan_fleet
from skyfed.flight.verify import verify
from skyfed.pipeline import prepare
from skyfed.types import IDLE
from skyfed.world.expected import Camera
from skyfed.world.footprint import expected_count
from tests.flight_cases import case


def counting(seed: int, side: float = 0.0, taken: bool = False, rounds: int = 8, vmax: float = 120.0) -> Problem:
    problem = case(seed, classes=3, rounds=rounds, vmax=vmax)
    ends = np.cumsum(30 * problem.psi, axis=1)
    psi = ends - np.pad(ends, ((0, 0), (4, 0)))[:, :-4] if taken else 100 * problem.psi
    pictures = Pictures(
        np.array([5.0, 20.0, 60.0]), np.array([1.0, 2.0, 0.5]), problem.radii, side, ends if taken else np.empty((0, 0))
    )
    return replace(problem, psi=psi, pictures=pictures)


@pytest.mark.parametrize(("side", "taken"), [(0.0, False), (80.0, False), (80.0, True)])
@pytest.mark.parametrize("method", ["exact", "greedy", "random", "hover"])
def test_every_planner_states_what_the_verifier_counts(side: float, taken: bool, method: str) -> None:
    problem = counting(1, side, taken)
    flight = plan(problem, method)
    assert not verify(problem, flight)
    assert flight.note == ""
    assert [v.constraint for v in verify(problem, replace(flight, objective=flight.objective + 1e-3))] == ["objective"]


@pytest.mark.parametrize("taken", [False, True])
def test_exact_is_at_least_as_good_as_the_simple_flights_and_below_its_bound(taken: bool) -> None:
    for seed in range(3):
        problem = counting(seed, 80.0, taken)
        exact, *others = (plan(problem, method) for method in ("exact", "greedy", "random", "hover"))
        assert all(other.objective <= exact.objective + 1e-9 for other in others)
        assert all(other.objective <= exact.bound for other in others)
        assert exact.gap / problem.value.sum() < 0.5


def test_random_flights_never_pass_the_bound() -> None:
    problem = counting(4, 80.0, taken=True, vmax=np.inf)
    bound = plan(problem).bound
    for seed in range(20):
        assert plan(problem, "random", Options(seed=seed)).objective <= bound


def test_a_valuable_class_is_visited_more() -> None:
    problem = counting(2, rounds=12)
    assert problem.pictures is not None
    visits = []
    for worth in (0.1, 10.0):
        value = np.array([1.0, worth, 1.0])
        flight = plan(replace(problem, pictures=replace(problem.pictures, value=value)))
        visits.append(problem.collected(flight.association)[1])
    assert visits[1] > visits[0]


def test_what_one_visit_took_the_next_does_not_bring() -> None:
    problem = counting(0, 80.0, taken=True)
    assert problem.pictures is not None
    ends = problem.pictures.ends
    twice = np.full(8, IDLE)
    twice[[3, 4]] = 1
    assert np.allclose(problem.amounts(twice)[[3, 4]], [problem.psi[1, 3], ends[1, 4] - ends[1, 3]])


def test_the_camera_counts_what_the_sensing_model_expects() -> None:
    camera, rng = Camera(), np.random.default_rng(0)
    psi = rng.dirichlet(np.ones(3), 12).T
    mixture = Mixture(rng.uniform(-300, 300, (3, 2)), np.array([30.0, 40.0, 60.0]), np.full(3, 1 / 3))
    starts = 40.0 * np.arange(12)
    gains, pictures = camera.expected(psi, starts, mixture, 500.0, np.ones(3), np.ones(3))
    for c in range(3):
        position = mixture.centres[c] + [20.0, -35.0]
        arrive = starts + camera.world.flight_time
        expected = expected_count(
            np.tile(position, (12, 1)), camera.side, arrive, arrive + camera.world.dwell, mixture=mixture, psi=psi,
            sizes=np.full(3, 500), round_seconds=40.0, stay=600.0,
        )[:, c]  # fmt: skip
        share = pictures.share(np.array([[20.0, -35.0]]), np.array([c]), 50.0)
        assert np.allclose(gains[c] * share, expected)


def test_workers_plan_the_same_flights() -> None:
    problems = [counting(k, 80.0, taken=True) for k in range(2)]
    there = dict(plan_fleet(problems, "exact", [Options(vehicle=k) for k in range(2)], 2))
    for k, problem in enumerate(problems):
        here = plan(problem, "exact", Options(vehicle=k))
        assert np.array_equal(here.positions, there[k].positions)
        assert here.objective == there[k].objective


@pytest.mark.parametrize("method", ["sca", "scip"])
def test_methods_of_the_paper_refuse_it_in_one_line(method: str) -> None:
    config = load_config("smoke", [f"flight.method={method}", "flight.objective=pictures"])
    with pytest.raises(BadInputError, match=r'allowed with it: flight.objective = "paper"'):
        prepare(config)
