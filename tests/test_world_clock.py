"""The mission's clock: rounds of fly, sense, receive, train, send, wait, worked out anew from the tables."""

import json

import numpy as np
import pytest

from run_cases import fleet_plan
from skyfed.world import Effort
from world_cases import WORK, Mission, audited, fly_mission, settings, world_for

FADING = "world.links='fading'"
CASES = {
    "plain": (),
    "deadline": ("world.deadline=40", "world.late='drop'"),
    "deadline before anybody arrives": ("world.deadline=5", "world.late='drop'"),
    "deadline, waiting": ("world.deadline=40",),
    "fading": (FADING,),
    "broadcast": ("world.downlink='broadcast'",),
    "wind": ("world.wind=[-7.0, 4.0]",),
    "no dwell": ("world.dwell=0",),
    "absent": ("faults.absent=0.4",),
    "mixed computers": ("vehicle.computer=['raspberry-pi-5', 'jetson-orin-nano', 'phone']",),
    "batteries that land": ("vehicle.battery=60e3",),
    "batteries that are ignored": ("vehicle.battery=60e3", "world.battery='ignore'"),
    "recharging": ("vehicle.battery=60e3", "vehicle.recharge=30"),
    "recharging longer than rounds": ("vehicle.battery=60e3", "vehicle.recharge=500"),
    "all at once": (
        FADING, "vehicle.battery=60e3", "vehicle.recharge=100", "world.deadline=45", "world.late='drop'",
        "world.downlink='broadcast'", "world.wind=[3.0, -5.0]", "faults.absent=0.2",
        "vehicle.computer=['phone', 'phone', 'jetson-orin-nano']",
    ),
}  # fmt: skip


def flown(*overrides: str, rounds: int = 14, **how) -> Mission:
    return fly_mission(settings(*overrides, rounds=rounds), **how)


@pytest.mark.parametrize("case", CASES)
def test_seconds_and_joules_worked_out_anew_are_those_of_the_tables(case):
    audited(flown(*CASES[case], work=lambda t, u: Effort(1.0 + 7 * ((t + u) % 3), 4e9, 40_000 * (1 + u))))


@pytest.mark.parametrize("case", CASES)
def test_who_is_not_chosen_flies_senses_and_spends_all_the_same(case):
    audited(flown(*CASES[case], choose=lambda view: view.present[view.round % 2 :: 2]))
    nobody = audited(flown(*CASES[case], choose=lambda view: []))
    assert sum(row["train_joules"] + row["send_joules"] for rows in nobody.rows for row in rows) == 0
    assert all(row["sense_seconds"] > 0 or row["status"] != "flying" for rows in nobody.rows[:1] for row in rows) or (
        case == "no dwell"
    )


def test_who_is_absent_flies_and_senses_as_if_present():
    there, away = flown(), flown("faults.absent=[[1, 0], [1, 1], [1, 2], [1, 3]]")
    for with_it, without in zip(there.rows[:4], away.rows[:4], strict=True):
        for name in ("x", "y", "flown", "fly_seconds", "sense_seconds", "status"):
            assert with_it[1][name] == without[1][name]
        assert without[1]["train_seconds"] == without[1]["send_seconds"] == without[1]["sent_bytes"] == 0
        assert without[1]["hover_joules"] > 0
        assert not without[1]["present"]
    assert away.rows[3][1]["samples"] > away.rows[0][1]["samples"]


@pytest.mark.parametrize("case", CASES)
def test_rows_hold_plain_values_that_json_takes(case):
    mission = flown(*CASES[case], rounds=5)
    for rows, about, uploads in zip(mission.rows, mission.rounds, mission.uploads, strict=True):
        values = [value for row in (*rows, about, *uploads.values()) for value in row.values()]
        assert {type(value) for value in values} <= {float, int, bool, str, type(None)}
        json.dumps([rows, about], allow_nan=False)


def test_the_slowest_vehicle_waits_for_nobody():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        plan = fleet_plan(3, 6)
        places = plan.positions + rng.normal(0, 40, plan.positions.shape)
        mission = flown(rounds=6, plan=type(plan)(**{**vars(plan), "positions": places}))
        for rows in mission.rows:
            waits = [row["wait_seconds"] for row in rows]
            assert min(waits) == 0.0
            assert all(wait == 0 or wait > 1e-9 for wait in waits)


def test_a_deadline_breaks_uploads_off_and_the_round_ends_with_it():
    slow = Effort(3000.0, 4e9, 40_000)
    mission = audited(
        flown(
            "world.deadline=75", "vehicle.battery=3e6", "world.late='drop'", work=lambda t, u: slow if u == 1 else WORK
        )
    )
    whole = slow.rounds * slow.flops / mission.world.flights.computers[1].flops
    for about, rows, dropped in zip(mission.rounds[:-1], mission.rows, mission.dropped, strict=False):
        assert about["mission_seconds"] == 75.0
        assert dropped[1].startswith("late by")
        assert set(dropped) == {1}
        assert 0 < rows[1]["train_seconds"] < whole
        assert rows[1]["send_seconds"] == rows[1]["send_joules"] == rows[1]["sent_bytes"] == 0
        assert rows[1]["wait_seconds"] == 0


def test_of_an_upload_that_is_broken_off_a_part_was_sent():
    """At the end of the first round, 70 s, vehicle 2 is in the middle of sending 20 MB."""
    large = Effort(0.0, 1.0, 20_000_000)
    slow = flown(work=lambda t, u: large).rows[0][2]
    start = slow["fly_seconds"] + slow["sense_seconds"]
    deadline = start + slow["send_seconds"] / 4
    late = flown(f"world.deadline={deadline}", "world.late='drop'", work=lambda t, u: large).rows[0][2]
    assert late["send_seconds"] == pytest.approx(slow["send_seconds"] / 4, rel=1e-9)
    assert late["sent_bytes"] == pytest.approx(5_000_000, abs=1)
    assert late["send_joules"] == pytest.approx(slow["send_joules"] / 4, rel=1e-9)


def test_without_dropping_the_round_waits_for_the_latest():
    slow = Effort(3000.0, 4e9, 40_000)
    mission = audited(flown("world.deadline=75", "vehicle.battery=3e6", work=lambda t, u: slow if u == 1 else WORK))
    assert not any(mission.dropped)
    assert all(about["mission_seconds"] > 75 for about in mission.rounds)
    assert all(uploads[1]["late"] > 0 and uploads[0]["late"] == 0 for uploads in mission.uploads)


def test_the_order_in_which_uploads_come_changes_nothing():
    for case in ("all at once", "deadline", "fading"):
        one, other = flown(*CASES[case]), flown(*CASES[case], order=reversed)
        assert (one.rounds, one.rows, one.dropped) == (other.rounds, other.rows, other.dropped)


def test_looking_at_a_round_twice_changes_nothing():
    def peeking(view):
        return view.present

    config = settings(*CASES["all at once"], rounds=10)
    world = world_for(config)
    look, seen = world.view, []

    def twice(t):
        seen.append(look(t))
        again = look(t)
        assert again.present == seen[-1].present
        np.testing.assert_array_equal(again.battery, seen[-1].battery)
        np.testing.assert_array_equal(again.samples, seen[-1].samples)
        return again

    world.view = twice
    one = fly_mission(config, world=world, choose=peeking)
    other = fly_mission(config)
    assert (one.rounds, one.rows) == (other.rounds, other.rows)


def test_psi_follows_mission_time_or_rounds():
    """Over disc 0 alone psi grows from round to round: who arrives later senses more."""
    plan = fleet_plan(1, 8)
    psi = np.zeros_like(plan.psi)
    psi[:, 0] = np.linspace(0.05, 0.3, 8)
    psi[:, 1:] = (1 - psi[:, :1]) / 3
    places = np.tile(np.array([0.0, 10.0]), (1, 8, 1))
    plan = type(plan)(**{**vars(plan), "psi": psi, "positions": places})
    slow = Effort(1500.0, 4e9, 40_000)

    def sizes(*overrides: str, work: Effort) -> list[int]:
        config = settings("sensing.n_max=25", "vehicle.battery=3e6", *overrides, vehicles=1)
        return [rows[0]["samples"] for rows in fly_mission(config, plan, work=lambda t, u: work).rows]

    by_time, later = sizes(work=WORK), sizes(work=slow)
    assert all(one < two for one, two in zip(by_time[1:], later[1:], strict=True))
    rounds = "field.follows='rounds'"
    assert sizes(rounds, work=WORK) == sizes(rounds, work=slow)


def test_by_the_papers_law_nobody_flies_has_a_battery_or_a_link():
    law = ("world.time='law'", "field.follows='rounds'", "vehicle.battery=1", FADING)
    mission = flown(*law, "world.t_train=2", "world.e_train=5", work=lambda t, u: Effort(3.0 + u, 1.0, 10**9))
    for t, (rows, about) in enumerate(zip(mission.rows, mission.rounds, strict=True)):
        assert about["mission_seconds"] == 10.0  # the slowest: five local rounds of two seconds
        assert about["joules"] == 5 * (3 + 4 + 5)
        for u, row in enumerate(rows):
            assert (row["train_seconds"], row["train_joules"]) == (2 * (3 + u), 5 * (3 + u))
            spent = [row[name] for name in row if name.endswith(("_seconds", "_joules")) and "train" not in name]
            assert sum(spent) - row["wait_seconds"] == 0
            assert row["battery_left"] is None
            assert row["status"] == "flying"
            assert (row["x"], row["y"]) == tuple(mission.world._plan.positions[u, t])
    assert np.isinf(mission.world.view(3).battery).all()
