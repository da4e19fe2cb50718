"""Flights planned within a battery: against brute force, against the verifier, and flown in the world."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from flight_cases import case, grid
from skyfed.errors import BadInputError, InfeasibleError
from skyfed.flight.constraints.battery import Battery
from skyfed.flight.planner import METHODS, plan
from skyfed.flight.problem import Options, Problem
from skyfed.flight.verify import verify
from skyfed.types import Plan

NUMBERS = {
    "hover": 180.0, "leg": [9.0], "speed": 10.0, "round_seconds": 40.0, "first_seconds": 60.0, "dwell": 10.0,
    "lift_seconds": 20.0, "lift_joules": 5000.0, "land_seconds": 30.0, "land_joules": 5000.0,
}  # fmt: skip


def within(problem: Problem, joules: float, **numbers) -> Problem:
    return replace(problem, constraints=(Battery(**{**NUMBERS, "joules": joules, **numbers}),))


def joules_of(positions: np.ndarray, leg: float) -> float:
    """What a flight takes from take-off to landing, from the definition."""
    way = np.hypot(*np.diff(np.vstack([[0.0, 0.0], positions]), axis=0).T)
    cruise = np.maximum(way * leg, way / 10 * 180) - way / 10 * 180
    return 5000 + 40 * 180 * len(positions) + cruise.sum() + np.hypot(*positions[-1]) * leg + 5000


def brute_force(problem: Problem, joules: float, leg: float, step: float = 5.0) -> float:
    """Best objective of all associations that grid points can fly within the battery; idle rounds fly straight."""
    C, T = problem.psi.shape
    points = [grid(problem, c, step) for c in range(C)]
    extra = max(0.0, leg - 18.0)
    best = -np.inf
    for association in itertools.product(range(-1, C), repeat=T):
        visits = [(t, c) for t, c in enumerate(association) if c >= 0]
        labels = np.array(association)
        value = float(np.log([problem.psi[c, labels == c].sum() + problem.epsilon for c in range(C)]).sum())
        crowded = any(
            (labels[a:b] == c).sum() > problem.imax[c, w] for w, (a, b) in enumerate(problem.spans) for c in range(C)
        )
        if crowded or value <= best or not visits or not all(len(points[c]) for _, c in visits):
            continue
        first, c = visits[0]
        used = 5000 + 40 * 180 * (first + 1) + extra * np.hypot(*points[c].T)
        fine = np.full(len(used), True)
        for (t, a), (s, b) in itertools.pairwise(visits):
            far = np.hypot(*(points[a][:, None] - points[b][None]).transpose(2, 0, 1))
            fits = (far <= (s - t) * problem.vmax) & ((s - t > 1) | (far >= problem.dmin))
            total = np.where(fits & fine[:, None], used[:, None] + extra * far + (s - t) * 7200, np.inf)
            used = total.min(axis=0)
            second = 3600 if (t, s) == (0, 1) else 0  # before round 1 it expects a round as long as round 0
            fine = used + second + leg * np.hypot(*points[b].T) + 5000 <= joules
        last = visits[-1][1]
        if (used + leg * np.hypot(*points[last].T) + 5000)[fine].min(initial=np.inf) <= joules:
            best = value
    return best


@pytest.mark.parametrize("leg", [9.0, 30.0])
@pytest.mark.parametrize("seed", range(8))
def test_small_flights_are_as_good_as_brute_force(seed, leg):
    rng = np.random.default_rng(seed)
    free = case(seed, classes=int(rng.integers(1, 4)), rounds=int(rng.integers(3, 7)), vmax=float(rng.choice([60, 130])))
    joules = float(rng.uniform(24e3, 46e3))
    problem = within(free, joules, leg=[leg])
    best = brute_force(free, joules, leg)
    flight = plan(problem)
    assert verify(problem, flight) == []
    assert joules_of(flight.positions[flight.aloft], leg) <= joules + 1e-6
    assert flight.bound >= best - 1e-7
    assert flight.objective >= best - 0.01 * free.classes


def test_where_the_flight_fits_nothing_changes():
    free = case(3, classes=3, rounds=12, vmax=130.0)
    problem = within(free, 5e5)
    for method in ("exact", "greedy", "random", "hover"):
        alone, limited = plan(free, method), plan(problem, method)
        assert (alone.positions == limited.positions).all() and (alone.association == limited.association).all()
        assert alone.bound == limited.bound and limited.landed.size == 0


@pytest.mark.parametrize("method", ["exact", "greedy", "random", "hover"])
@pytest.mark.parametrize("wind", [False, True])
def test_long_flights_land_in_time_below_their_bound(method, wind):
    free = case(5, classes=4, rounds=20, vmax=130.0)
    leg = [9.0, 14.0, 25.0, 22.0] if wind else [9.0]
    problem = within(free, 9e4, leg=leg)
    flight = plan(problem, method)
    assert verify(problem, flight) == []
    assert flight.landed.any() and not flight.landed[0]
    assert flight.objective <= plan(problem).bound + 1e-9
    assert (flight.positions[flight.landed] == 0).all()


def test_recharging_brings_more():
    free = case(5, classes=4, rounds=20, vmax=130.0)
    once, again = within(free, 6e4), within(free, 6e4, recharge=60.0)
    first, more = plan(once), plan(again)
    assert verify(again, more) == []
    assert more.objective > first.objective
    assert (np.diff(more.aloft.astype(int)) == 1).any()  # takes off a second time
    assert "recharged" in " ".join(map(str, verify(once, more)))


def test_planners_that_cannot_are_refused_in_one_line():
    problem = within(case(0, vmax=130.0), 4e4)
    for method in ("sca", "scip"):
        with pytest.raises(BadInputError, match="does not support constraint battery .*use exact or greedy"):
            plan(problem, method)
    assert set(METHODS) == {"exact", "greedy", "random", "hover", "sca", "scip"}


def test_what_cannot_be_reached_is_named():
    free = case(0, vmax=130.0, side=100.0)
    far = replace(free, centres=np.array([[0.0, 30.0], [900.0, 0.0], [0.0, -60.0]]))
    problem = within(far, 3.2e4, first_seconds=140.0)
    assert "vehicle 3 cannot reach class 1 and return on 8.89 Wh" in plan(problem, options=Options(vehicle=3)).note
    with pytest.raises(InfeasibleError, match="vehicle 0 cannot reach classes 0, 1, 2 and return on 2.78 Wh"):
        plan(within(far, 1e4))


def broken(problem: Problem, flight: Plan, **changes) -> str:
    return " ".join(map(str, verify(problem, replace(flight, **changes))))


def test_the_verifier_recomputes_joules_and_names_what_is_wrong():
    free = case(5, classes=4, rounds=20, vmax=130.0)
    problem = within(free, 9e4)
    flight = plan(problem)
    needed = joules_of(flight.positions[flight.aloft], 9.0)
    assert verify(within(free, needed + 1), flight) == []
    assert "Wh to get home" in " ".join(map(str, verify(within(free, needed - 1), flight)))
    assert "landing" in " ".join(map(str, verify(free, flight)))
    assert "round 0" in broken(problem, flight, landed=np.ones(20, bool))
    away = flight.positions.copy()
    away[-1] = 5.0
    assert "away from home" in broken(problem, flight, positions=away)
    assert "flies for" in " ".join(map(str, verify(within(free, 9e5, first_seconds=31.0), flight)))
    assert "shape" in broken(problem, flight, landed=np.ones(3, bool))
