"""Batteries that are enforced: who goes home and when, who comes back, and what then does not happen."""

import pytest

from run_cases import fleet_plan
from world_cases import Mission, fly_mission, settings

LOW = "vehicle.battery=60e3"  # joules: about five minutes in the air


def flown(*overrides: str, rounds: int = 24, **how) -> Mission:
    return fly_mission(settings(*overrides, rounds=rounds), **how)


def statuses(mission: Mission, vehicle: int) -> list[str]:
    return [str(rows[vehicle]["status"]) for rows in mission.rows]


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
