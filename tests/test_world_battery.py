"""Batteries that are enforced: who goes home and when, who comes back, and what then does not happen."""

from typing import ClassVar

import numpy as np
import pytest

from run_cases import fleet_plan
from skyfed import World
from skyfed.flight.fleet_plan import FleetPlan
from skyfed.types import Floats
from skyfed.world import Effort, Spending
from world_cases import TASK, Mission, fly_mission, plan_of, settings

WORKS = ("sense", "receive", "train", "send", "wait")
LOW = "vehicle.battery=60e3"  # joules: about five minutes in the air


def flown(*overrides: str, rounds: int = 24, **how) -> Mission:
    return fly_mission(settings(*overrides, rounds=rounds), **how)


def statuses(mission: Mission, vehicle: int) -> list[str]:
    return [str(rows[vehicle]["status"]) for rows in mission.rows]


def over(places: Floats, vehicles: int = 1) -> FleetPlan:
    """Return flights over these places, (T, 2), for every vehicle."""
    plan = fleet_plan(vehicles, len(places))
    return type(plan)(**{**vars(plan), "positions": np.tile(places, (vehicles, 1, 1))})


def test_who_lands_for_good_does_nothing_more():
    mission = flown(LOW)
    for u in range(3):
        status = statuses(mission, u)
        home = status.index("going home")
        assert status == ["flying"] * home + ["going home"] + ["on the ground"] * (len(status) - home - 1)
        before, after = mission.rows[home - 1][u], [rows[u] for rows in mission.rows[home + 1 :]]
        assert {row["samples"] for row in after} == {before["samples"]}  # what it would have sensed does not come
        assert not any(row["present"] or row["sent_bytes"] or row["received_bytes"] for row in after)
        assert {row["battery_left"] for row in after} == {mission.rows[home][u]["battery_left"]}
    assert [about["mission_seconds"] for about in mission.rounds[-5:]] == [0.0] * 5  # nobody is left


def test_recharged_vehicles_come_back_with_a_full_battery():
    mission = flown(LOW, "vehicle.recharge=30")
    for u in range(3):
        status = statuses(mission, u)
        assert status.count("going home") >= 2
        home = status.index("going home")
        back = status.index("flying", home)
        assert set(status[home + 1 : back]) <= {"on the ground"}
        spent = sum(v for name, v in mission.rows[back][u].items() if name.endswith("_joules"))
        assert mission.rows[back][u]["battery_left"] == pytest.approx(60e3 - spent, rel=1e-12)
        assert mission.rows[back][u]["samples"] >= mission.rows[home][u]["samples"]
    assert all(about["mission_seconds"] > 1 for about in mission.rounds)


@pytest.mark.parametrize("recharge", [1, 100, 1000, 1e5])
def test_a_vehicle_is_on_the_ground_for_as_long_as_it_charges(recharge):
    mission = flown(LOW, f"vehicle.recharge={recharge}")
    starts = [0.0, *(about["clock"] for about in mission.rounds)]
    for u in range(3):
        landed = 0.0
        for t, status in enumerate(statuses(mission, u)):
            if status == "going home":
                landed = starts[t] + mission.rows[t][u]["home_seconds"]
            if status == "flying" and t and statuses(mission, u)[t - 1] != "flying":
                assert starts[t] >= landed + recharge - 1e-6
            if status == "on the ground":
                assert starts[t] < landed + recharge  # not a round longer


def test_rounds_in_which_all_charge_end_when_somebody_can_take_off():
    mission = flown(LOW, "vehicle.recharge=1000")
    idle = [t for t, rows in enumerate(mission.rows) if all(row["status"] == "on the ground" for row in rows)]
    assert idle
    for t in idle[:-1] if idle[-1] == 23 else idle:
        assert mission.rounds[t]["mission_seconds"] > 1
        assert any(row["status"] == "flying" for row in mission.rows[t + 1])


def test_a_vehicle_that_can_never_take_off_does_not_stop_the_clock_of_others():
    """Vehicle 1 is to fly further than a full battery lasts; vehicle 0 charges and must come back all the same."""
    plan = fleet_plan(2, 16)
    places = plan.positions.copy()
    places[1] = [5000.0, 0.0]
    plan = type(plan)(**{**vars(plan), "positions": places})
    mission = fly_mission(settings(LOW, "vehicle.recharge=30", vehicles=2, rounds=16), plan)
    assert set(statuses(mission, 1)) == {"on the ground"}
    assert statuses(mission, 0).count("going home") >= 2
    assert all(about["mission_seconds"] > 1 for about in mission.rounds)


class Steady(World):
    """A world whose rounds last as long as a test wants: the last vehicle is busy for the rest of it."""

    lasts: ClassVar[list[float]] = []

    def close(self, t):
        """Let somebody work until the round is as long as it should be."""
        out = [u for u, status in enumerate(self.flights.status) if status == "flying"]
        for u in out:
            rest = self.lasts[t] - self.flights.turns[u].fly_seconds - self.conditions.world.dwell
            watts = self.flights.computers[u].watts
            # the worst case for a battery: it receives, trains and sends for as long as the round lasts
            self._work[u] = Spending(train_seconds=rest, train_joules=rest * (watts + self._radio_watts()))
        return super().close(t)

    def _radio_watts(self):
        radio = self.conditions.vehicle.radio
        return max(radio.receive_power, radio.power / radio.efficiency + radio.circuit_power)


def landings(mission: Mission) -> list[float]:
    """Return the joules that were left after each landing, the last one of the mission included."""
    last = mission.config.rounds - 1
    return [
        float(row["battery_left"])
        for t, rows in enumerate(mission.rows)
        for row in rows
        if row["status"] == "going home" or (t == last and row["status"] == "flying")
    ]


RESERVES = (
    (), ("vehicle.recharge=60",), ("world.wind=[8.0, 0.0]",), ("vehicle.reserve=0",), ("vehicle.reserve=0.5",),
    ("vehicle.radio.receive_power=40.0",), ("vehicle.computer='jetson-orin-nano'", "vehicle.recharge=60"),
)  # fmt: skip


@pytest.mark.parametrize("more", RESERVES)
@pytest.mark.parametrize("battery", [70e3, 81e3, 93e3])
def test_nobody_lands_below_its_reserve_while_rounds_last_as_planned_or_as_the_one_before(battery, more):
    config = settings(f"vehicle.battery={battery}", "world.round_time=90", *more, rounds=20)
    for lasts in ([90.0] * 20, [90.0 + 3 * (t // 6) for t in range(20)]):
        world = type("Own", (Steady,), {"lasts": lasts})(plan_of(config), TASK, config.conditions)
        mission = fly_mission(config, world=world, choose=lambda view: [])
        longer = [t for t in range(1, 20) if lasts[t] > lasts[t - 1]]
        spare = config.vehicle.reserve * battery - (3 * 230 if longer else 0)  # J: 3 s more than expected
        left = landings(mission)
        assert left
        assert min(left) >= spare - 1e-6
        assert min(left) <= spare + 0.6 * battery  # and nobody goes home for nothing


def test_a_flight_longer_than_a_round_still_leaves_the_reserve():
    """Rounds of 40 s, then a leg of 60 s: the camera looks at the ground for another 40 s all the same."""
    places = np.array([[600.0 * (t == 3), 10.0] for t in range(5)])
    for battery in range(30_000, 80_000, 1000):
        config = settings(f"vehicle.battery={battery}", "world.round_time=1", "world.dwell=40", vehicles=1, rounds=5)
        mission = fly_mission(config, over(places), choose=lambda view: [])
        assert min(landings(mission)) >= 0.2 * battery


def test_a_vehicle_knows_how_long_others_fly():
    """Vehicle 1 hovers while vehicle 0 flies further and further: rounds of 20, 40, 60 s and so on."""
    plan = fleet_plan(2, 8)
    places = np.zeros_like(plan.positions)
    places[0, :, 0] = [200.0 * ((t + 1) // 2) * (-1) ** t for t in range(8)]
    plan = type(plan)(**{**vars(plan), "positions": places})
    for battery in range(40_000, 120_000, 2000):
        config = settings(f"vehicle.battery={battery}", "world.round_time=1", "world.dwell=1", vehicles=2, rounds=8)
        mission = fly_mission(config, plan, choose=lambda view: [])
        assert min(landings(mission)) >= 0.2 * battery
    far = places.copy()
    far[0] = [9000.0, 0.0]  # out of reach: it never flies, so nobody waits for it
    mission = fly_mission(config, type(plan)(**{**vars(plan), "positions": far}), choose=lambda view: [])
    assert set(statuses(mission, 0)) == {"on the ground"}
    assert set(statuses(mission, 1)) == {"flying"}


def test_batteries_that_are_ignored_fly_on():
    mission = flown(LOW, "world.battery='ignore'")
    assert {status for u in range(3) for status in statuses(mission, u)} == {"flying"}
    assert (mission.world.flights.batteries.left < 0).all()
    assert all(row["battery_left"] == 0 for row in mission.rows[-1])
    rich = flown("vehicle.battery=1e7")
    assert [about["joules"] for about in rich.rounds] == [about["joules"] for about in mission.rounds]
    assert [[row["samples"] for row in rows] for rows in rich.rows] == [
        [row["samples"] for row in rows] for rows in mission.rows
    ]


def test_the_mission_ends_when_the_last_vehicle_has_landed():
    mission = flown("vehicle.battery=1e7", rounds=3)
    places, last = mission.world.flights.positions[:, 2], mission.rows[2]
    down = 50.0 / 1.5
    works = {row["fly_seconds"] + sum(row[f"{name}_seconds"] for name in WORKS) for row in last}
    ways = [float(np.hypot(*place)) / 10 + down for place in places]
    assert [row["home_seconds"] for row in last] == pytest.approx(ways)
    assert mission.rounds[2]["mission_seconds"] == pytest.approx(max(works) + max(ways))


@pytest.mark.parametrize("rounds", [6, 7, 8, 12])
def test_the_mission_lasts_until_those_who_went_home_early_are_on_the_ground(rounds):
    """Vehicle 0 goes home from far away; vehicle 1 is above the station and the rounds are short."""
    plan = fleet_plan(2, rounds)
    places = np.zeros_like(plan.positions)
    places[0, :, 0] = 900.0
    places[1, :, 0] = 1.0
    plan = type(plan)(**{**vars(plan), "positions": places})
    config = settings("vehicle.battery=60e3", "world.round_time=10", "world.dwell=1", vehicles=2, rounds=rounds)
    mission = fly_mission(config, plan, work=lambda t, u: Effort(1.0, 1e9 if t < 5 else 1.0, 100))
    ends = [0.0, *(about["clock"] for about in mission.rounds)]
    grounded = [
        ends[t] + row["home_seconds"]
        for t, rows in enumerate(mission.rows)
        for row in rows
        if row["status"] != "flying"
    ]
    assert ends[-1] >= max(grounded, default=0.0) - 1e-6


def test_a_vehicle_that_cannot_take_off_at_all_stays_on_the_ground_and_keeps_its_first_samples():
    mission = flown("vehicle.battery=3000")
    assert {status for u in range(3) for status in statuses(mission, u)} == {"on the ground"}
    assert mission.world.flights.clock == 0
    assert {about["joules"] for about in mission.rounds} == {0.0}
    assert [row["samples"] for row in mission.rows[-1]] == [row["samples"] for row in mission.rows[0]]
