import itertools
from dataclasses import replace

import numpy as np
import pytest

from flight_cases import brute_force, case
from skyfed.errors import BadInputError
from skyfed.flight import plan, travel, verify
from skyfed.flight.discs import samples
from skyfed.flight.travel import STATES, Network, _covering_radius, _that_fits, flyable_network, optimistic_network
from skyfed.flight.walk_search import WalkSearch
from skyfed.types import IDLE


@pytest.mark.parametrize("windows", ["paper", "rolling"])
@pytest.mark.parametrize("seed", range(5))
def test_bound_and_plan_enclose_the_optimum_of_small_problems(seed: int, windows: str) -> None:
    problem = case(seed, classes=3, rounds=6, vmax=40.0 + 20 * seed, windows=windows)
    found = plan(problem)
    best = brute_force(problem, step=5.0)
    assert verify(problem, found) == []
    assert not found.note
    assert found.bound >= best - 1e-7
    assert found.objective <= found.bound + 1e-9


def test_a_limit_that_never_binds_changes_nothing() -> None:
    problem = case(1)
    assert plan(replace(problem, vmax=1e4)).objective == pytest.approx(plan(problem).objective, abs=1e-9)


def test_a_vehicle_that_cannot_leave_its_disc_stays_near() -> None:
    problem = case(2, classes=2, rounds=5, vmax=10.0)
    found = plan(problem)
    assert verify(problem, found) == []
    assert not found.note
    assert len(set(found.association[found.association >= 0])) == 1


def test_a_limit_below_dmin_is_refused() -> None:
    with pytest.raises(BadInputError, match="vmax"):
        case(0, vmax=3.0)


@pytest.mark.parametrize("rings", range(1, 9))
def test_every_point_of_a_disc_is_as_near_to_a_sample_as_claimed(rings: int) -> None:
    problem = replace(case(0, classes=1, rounds=2), centres=np.zeros((1, 2)), radii=np.ones(1))
    sampled = samples(problem, 0, rings)
    radius, angle = np.meshgrid(np.linspace(0, 1, 81), np.linspace(0, 2 * np.pi, 241))
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1).reshape(-1, 2)
    nearest = np.hypot(*(points[:, None] - sampled[None]).transpose(2, 0, 1)).min(axis=1)
    assert nearest.max() <= _covering_radius(rings)


def rounds_between(network: Network, a: int, b: int) -> int:
    return int(network.rounds[np.ix_(network.label == a, network.label == b)].min())


@pytest.mark.parametrize("seed", range(5))
def test_the_optimistic_network_never_takes_longer_than_any_flight(seed: int) -> None:
    problem = case(seed, classes=4, rounds=8, vmax=60.0, side=500.0)
    network = optimistic_network(problem)
    rng = np.random.default_rng(seed)
    for a, b in itertools.permutations(range(4), 2):
        for _ in range(50):
            ends = []
            for c in (a, b):
                reach, angle = problem.radii[c] * np.sqrt(rng.random()), rng.uniform(0, 2 * np.pi)
                ends.append(problem.centres[c] + reach * np.array([np.cos(angle), np.sin(angle)]))
            flight = max(1, int(np.ceil(np.hypot(*(ends[0] - ends[1])) / problem.vmax - 1e-9)))
            assert rounds_between(network, a, b) <= flight


def test_the_flyable_network_never_takes_shorter_than_its_points_allow() -> None:
    network = flyable_network(case(1, classes=4, rounds=8, vmax=60.0, side=500.0))
    far = np.hypot(*(network.points[:, None] - network.points[None]).transpose(2, 0, 1))
    assert (network.rounds * 60.0 >= far - 1e-6).all()


def exhaustive(problem, network: Network, worth: np.ndarray) -> float:
    """Greatest worth of a walk that keeps C5, by trying all."""
    best = 0.0

    def extend(walk: list[tuple[int, int]], value: float) -> None:
        nonlocal best
        best = max(best, value)
        start = walk[-1][0] + 1 if walk else 0
        for t in range(start, problem.rounds):
            for j in range(len(network.label)):
                c = int(network.label[j])
                if walk and t - walk[-1][0] < network.rounds[walk[-1][1], j]:
                    continue
                visits = [s for s, i in walk if network.label[i] == c] + [t]
                if all(sum(a <= s < b for s in visits) <= problem.imax[c, w] for w, (a, b) in enumerate(problem.spans)):
                    extend([*walk, (t, j)], value + worth[c, t])

    extend([], 0.0)
    return best


@pytest.mark.parametrize("windows", ["paper", "rolling"])
@pytest.mark.parametrize("seed", range(4))
def test_the_best_walk_is_no_worse_than_any_that_keeps_c5(seed: int, windows: str) -> None:
    problem = case(seed, classes=3, rounds=6, vmax=50.0, windows=windows, imax=1)
    rng = np.random.default_rng(seed)
    network = Network(problem.centres, np.arange(3), np.maximum(1, rng.integers(1, 3, (3, 3))))
    worth = rng.uniform(-0.2, 1.0, (3, 6))
    value, points = WalkSearch(problem, network).best(worth)
    walk = [(t, j) for t, j in enumerate(points) if j != IDLE]
    best = exhaustive(problem, network, worth)
    assert value >= best - 1e-9
    if windows == "paper":  # three classes fit the memory, so nothing is relaxed
        assert value == pytest.approx(best)
    assert value == pytest.approx(sum(worth[network.label[j], t] for t, j in walk))
    for (t, i), (s, j) in itertools.pairwise(walk):
        assert s - t >= network.rounds[i, j]


@pytest.mark.parametrize("vmax", [1e-3, 1e-300])
def test_a_vehicle_that_hardly_moves_is_refused_before_a_terabyte_is_asked_for(vmax: float) -> None:
    problem = replace(case(0, classes=10, rounds=20, dmin=0.0), vmax=vmax)
    with pytest.raises(
        BadInputError, match=r"flight.vmax = .*GiB; use vmax of 2.\d m or more, or flight.method = greedy"
    ):
        plan(problem)
    assert verify(problem, plan(problem, "greedy")) == []


def test_links_longer_than_the_mission_count_as_long_as_it() -> None:
    problem = case(2, classes=2, rounds=5, vmax=12.0)
    for network in (optimistic_network(problem), flyable_network(problem)):
        assert network.rounds.max() == 5


def test_a_network_too_large_for_memory_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = case(0, classes=4, rounds=20, vmax=20.0)
    size = len(optimistic_network(problem).label)
    monkeypatch.setattr(travel, "_MEMORY", 8 * STATES * size * (4 * 20 + 7 * size) - 1)
    assert len(optimistic_network(problem).label) < size  # fewer rings fit
    monkeypatch.setattr(travel, "_MEMORY", 1000)
    with pytest.raises(BadInputError, match=r"flight.vmax = 20: exact would need .* use flight.method = greedy"):
        plan(problem)


def test_so_many_classes_that_exact_has_no_memory_for_them_are_refused_before_any_is_taken() -> None:
    problem = case(0, classes=900, rounds=4, vmax=1.0, dmin=0.0, side=300.0, radii=(1.0, 2.0))

    def build(rings: int) -> Network:
        pytest.fail("a network was built")

    with pytest.raises(BadInputError, match=r"flight.vmax = 1: exact would need \d+ GiB for 900 classes"):
        _that_fits(problem, build, 1)
