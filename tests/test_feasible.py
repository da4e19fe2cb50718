"""What is said before a run about batteries, against a world whose rounds last as planned; and its remedies."""

import re
from dataclasses import replace

import numpy as np
import pytest

from run_cases import fleet_plan
from skyfed.config import Config
from skyfed.flight.fleet_plan import FleetPlan
from skyfed.world import Spending, World
from skyfed.world.feasible import forecast, verdict
from world_cases import TASK, Mission, fly_mission, level_power, plan_of, settings, way_home


def drifting(vehicles: int = 3, rounds: int = 10, seed: int = 0) -> FleetPlan:
    """Return flights with legs of all lengths, up to about 50 s at 10 m/s."""
    plan = fleet_plan(vehicles, rounds)
    steps = np.random.default_rng(seed).normal(0, 150, (vehicles, rounds, 2))
    return replace(plan, positions=np.cumsum(steps, axis=1))


def lasting(config: Config, plan: FleetPlan) -> list[float]:
    """Return how long each round lasts as planned: round_time, or longer where somebody flies for long."""
    places = np.concatenate([np.zeros((plan.vehicles, 1, 2)), plan.positions], axis=1)
    legs = np.hypot(*np.diff(places, axis=1).transpose(2, 0, 1)) / config.vehicle.speed
    legs[:, 0] += config.sensor.altitude / config.vehicle.airframe.climb_speed
    return [float(max(config.world.round_time, legs[:, t].max() + config.world.dwell)) for t in range(plan.rounds)]


class Busy(World):
    """Rounds last as planned, and everybody computes and has its radio on after it has looked at the ground."""

    def close(self, t):
        """Fill the round with work."""
        for u in range(self.vehicles):
            if self.flights.status[u] == "flying":
                radio = self.conditions.vehicle.radio
                extra = max(radio.receive_power, radio.power / radio.efficiency + radio.circuit_power)
                rest = self.lasts[t] - self.flights.turns[u].fly_seconds - self.conditions.world.dwell
                watts = self.flights.computers[u].watts + extra
                self._work[u] = Spending(train_seconds=rest, train_joules=rest * watts)
        return super().close(t)


def as_planned(config: Config, plan: FleetPlan) -> Mission:
    """Fly a plan with rounds that last as planned."""
    world = Busy(plan, TASK, config.conditions)
    world.lasts = lasting(config, plan)
    return fly_mission(config, plan, world=world, choose=lambda view: [])


def homeward(mission: Mission) -> dict[int, int]:
    """Return who could not fly on, and in which round for the first time."""
    first: dict[int, int] = {}
    for t, rows in enumerate(mission.rows):
        for row in rows:
            if row["status"] != "flying":
                first.setdefault(int(row["vehicle"]), t)
    return first


CASES = ((), ("world.wind=[6.0, -3.0]",), ("vehicle.computer=['phone', 'raspberry-pi-5', 'jetson-orin-nano']",),
         ("vehicle.speed=4",), ("world.round_time=20",), ("vehicle.radio.receive_power=5.0",))  # fmt: skip


@pytest.mark.parametrize("more", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_the_forecast_is_what_a_world_of_busy_vehicles_does(more, seed):
    config = settings("world.dwell=0", "world.battery='ignore'", "vehicle.battery=2e6", *more, rounds=10)
    plan = drifting(seed=seed)
    mission, planned = as_planned(config, plan), forecast(plan.positions, config.conditions)
    assert mission.world.flights.clock == pytest.approx(planned.seconds, rel=1e-9)
    for t in range(9):
        for u in range(3):
            idle = mission.world.flights.computers[u].idle_watts
            left = mission.rows[t][u]["battery_left"] - way_home(config, plan.positions[u, t], idle)[1]
            assert left == pytest.approx(planned.left[u, t] * 2e6, rel=1e-9)
    last = [row["battery_left"] for row in mission.rows[9]]
    assert last == pytest.approx(planned.left[:, 9] * 2e6, rel=1e-9)


@pytest.mark.parametrize("more", CASES)
@pytest.mark.parametrize("battery", [90e3, 120e3, 150e3, 180e3, 210e3, 240e3])
def test_whom_the_forecast_sends_home_goes_home_in_that_round(battery, more):
    config = settings("world.dwell=0", f"vehicle.battery={battery}", *more, rounds=10)
    plan = drifting()
    planned, mission = forecast(plan.positions, config.conditions), as_planned(config, plan)
    went, short = homeward(mission), planned.foreseen < 0.2
    soonest = {u: int(short[u].argmax()) for u in range(3) if short[u].any()}
    assert min(went.values(), default=None) == min(soonest.values(), default=None)
    assert all(t >= soonest[u] for u, t in went.items())  # once somebody has gone, rounds may be shorter
    assert planned.fits(0.2) == (not went)
    assert min(row["battery_left"] for row in mission.rows[-1]) >= 0.2 * battery * (1 - 1e-9)
    line = verdict(plan.positions, config.conditions)
    if went:
        assert f"{len(soonest)} of 3 vehicles reach their reserve, the first in round {min(went.values())}," in line
        assert "and go home" in line
    else:
        assert "all land with" in line


def test_with_rounds_of_one_length_the_line_names_the_round_in_which_the_first_goes_home():
    plan = replace(plan_of(settings(rounds=10)), positions=drifting().positions / 3)
    firsts = []
    for battery in range(40_000, 200_000, 8000):
        config = settings(f"vehicle.battery={battery}", "world.dwell=0", "world.round_time=80", rounds=10)
        went = homeward(as_planned(config, plan))
        firsts.append(min(went.values(), default=None))
        line = verdict(plan.positions, config.conditions)
        assert (f", the first in round {firsts[-1]}, and go home" in line) == bool(went)
    assert len(set(firsts)) > 6


@pytest.mark.parametrize("more", CASES)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("battery", [60e3, 120e3, 180e3, 240e3])
def test_a_remedy_that_is_followed_holds(battery, more, seed):
    plan = drifting(seed=seed)
    config = settings(f"vehicle.battery={battery}", *more, rounds=10)
    line = verdict(plan.positions, config.conditions)
    remedy = re.search(r"vehicle\.(?:speed|battery) = [0-9e]+", line)
    assert (remedy is None) == ("all land with" in line)
    if remedy is not None:
        mended = settings(f"vehicle.battery={battery}", *more, remedy[0].replace(" ", ""), rounds=10)
        assert "all land with" in verdict(plan.positions, mended.conditions)
        assert not homeward(as_planned(mended, plan))


def test_a_line_for_batteries_that_are_ignored_and_one_for_the_papers_law():
    plan = drifting()
    low = settings("vehicle.battery=60e3", "world.battery='ignore'", rounds=10)
    assert "fly on all the same (world.battery = 'ignore')" in verdict(plan.positions, low.conditions)
    law = settings("world.time='law'", "field.follows='rounds'", rounds=10)
    assert verdict(plan.positions, law.conditions).startswith("mission: no flight time, no battery")


def test_the_minutes_and_the_share_left_by_hand():
    """One vehicle hovers 100 m away for two rounds of 60 s: take-off, a leg of 10 s, hovering, 10 s home, landing."""
    config = settings("vehicle.reserve=0.5", vehicles=1, rounds=2)
    positions = np.array([[[60.0, 80.0], [60.0, 80.0]]])
    up, down = 50 / 3, 50 / 1.5
    still, fly = level_power(config, 0.0), level_power(config, 10.0)
    computer = 2.8 * (up + 10 + 10 + down) + 11 * (120 - up - 10)
    radio = (0.1 / 0.35 + 0.1) * (120 - up - 10)
    air = up * still + 2.039 * 9.80665 * 50 + 20 * fly + (120 - up - 10) * still + down * still
    planned = forecast(positions, config.conditions)
    assert planned.seconds == pytest.approx(120 + 10 + down)
    assert planned.left[0, 1] == pytest.approx(1 - (computer + radio + air) / 468e3, rel=1e-12)
    share = 100 * planned.left[0, 1]
    assert verdict(positions, config.conditions) == (
        f"mission: 2 rounds, about 3 min as planned; all land with {share:.0f} % of the battery or more (reserve 50 %)"
    )
