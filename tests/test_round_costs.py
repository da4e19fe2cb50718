"""What rounds cost in a run: seconds and joules by hand, the deadline, and what the tables record of it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from learning_cases import Memory, exchanged, job_of, run_row, start_of, station_of
from run_cases import LAW, fleet_plan, pictures, tiny_config
from skyfed.config import load_config
from skyfed.drivers.execute import execute
from skyfed.errors import BadInputError
from skyfed.report.terminal_tables import print_resources
from skyfed.report.view import RunView
from skyfed.runs.folder import RunFolder
from skyfed.runs.start import world_of
from skyfed.runs.tables import Table
from skyfed.world.airframe import GRAVITY
from skyfed.world.links import downlink, uplink
from skyfed.world.vehicle import VehicleSettings, implausible

KNOWN, PLAN = pictures(), fleet_plan()
VEHICLE = VehicleSettings()
HOVER, MOVE, CLIMB = VEHICLE.airframe.power(0.0), VEHICLE.airframe.power(10.0), 2.039 * GRAVITY * 3
SENDING = 0.1 / 0.35 + 0.1  # watts of the radio
IDLE, BUSY, SPEED = 2.8, 11.0, 29.6e9  # a Raspberry Pi 5: watts, watts, FLOPs per second
JOULES = ("fly_joules", "hover_joules", "receive_joules", "train_joules", "send_joules")


def trained(algorithm: str, *overrides: str) -> Memory:
    return run_row(station_of(tiny_config(*overrides), algorithm))


def alone(*places: tuple[float, float]) -> Memory:
    """A vehicle that flies alone, from place to place."""
    plan = replace(fleet_plan(1, len(places)), positions=np.array([places], float))
    config = tiny_config("vehicles=1", f"rounds={len(places)}", "sensor.altitude=60")
    return run_row(station_of(config, "afl", plan=plan))


# by hand


def test_what_a_first_round_costs_by_hand():
    """60 m up at 3 m/s, 500 m at 10 m/s, 10 s of looking; nothing is received before the first round."""
    memory = alone((300.0, 400.0), (300.0, 400.0))
    row, effort = memory.rows[0][0], memory.reports[0].efforts[0]
    rate = uplink(tiny_config().world.channel, VEHICLE.radio, 500.0, 60.0, 1, 1.0).rate
    train, send = effort.rounds * effort.flops / SPEED, 8 * effort.sent / rate
    assert (row["fly_seconds"], row["sense_seconds"], row["receive_seconds"]) == (70.0, 10.0, 0.0)
    assert row["train_seconds"] == pytest.approx(train)
    assert row["send_seconds"] == pytest.approx(send)
    assert (row["wait_seconds"], row["home_seconds"]) == (pytest.approx(0.0, abs=1e-9), 0.0)
    assert memory.reports[0].mission["mission_seconds"] == pytest.approx(80 + train + send)
    assert row["fly_joules"] == pytest.approx(50 * MOVE + 20 * (HOVER + CLIMB) + 70 * IDLE)
    assert row["hover_joules"] == pytest.approx((10 + train + send) * HOVER + (10 + send) * IDLE)
    assert row["train_joules"] == pytest.approx(train * BUSY)
    assert row["send_joules"] == pytest.approx(send * SENDING)
    assert row["battery_left"] == pytest.approx(4.68e5 - sum(row[name] for name in JOULES))
    assert row["sent_bytes"] == effort.sent == len(memory.reports[0].uploads[0].data)
    assert memory.costs[0][0] == {
        "modelled_seconds": row["train_seconds"], "modelled_energy": row["train_joules"],
        "send_seconds": row["send_seconds"], "send_joules": row["send_joules"], "rate": rate, "late": 0.0,
    }  # fmt: skip


def test_what_a_last_round_costs_by_hand():
    """It stays where it is, receives, trains, sends, and flies 500 m home, 60 m down at 1.5 m/s."""
    memory = alone((300.0, 400.0), (300.0, 400.0))
    row, report = memory.rows[1][0], memory.reports[1]
    received, channel = memory.reports[0].downlink_bytes, tiny_config().world.channel
    receive = downlink(channel, VEHICLE.radio, 500.0, 60.0, received, 1.0).seconds
    assert received > 0
    assert row["received_bytes"] == received
    assert (row["flown"], row["fly_seconds"]) == (0.0, 0.0)
    assert row["receive_seconds"] == pytest.approx(receive)
    assert row["receive_joules"] == pytest.approx(0.28 * receive)
    assert row["home_seconds"] == 50 + 40
    assert row["fly_joules"] == pytest.approx(50 * MOVE + 40 * HOVER + 90 * IDLE)
    work = 10 + receive + row["train_seconds"] + row["send_seconds"]
    assert report.mission["mission_seconds"] == pytest.approx(work + 90)
    assert report.mission["clock"] == pytest.approx(memory.reports[0].mission["mission_seconds"] + work + 90)
    assert report.mission["joules"] == pytest.approx(sum(row[name] for name in JOULES))


def test_journeys_start_at_home():
    memory = alone((3.0, 4.0), (3.0, 4.0), (0.0, 0.0))
    assert [row["flown"] for (row,) in memory.rows] == [5.0, 0.0, 5.0]
    assert [row["fly_seconds"] for (row,) in memory.rows] == [20.5, 0.0, 0.5]  # the first with the climb
    assert [(row["x"], row["y"]) for (row,) in memory.rows] == [(3.0, 4.0), (3.0, 4.0), (0.0, 0.0)]


def test_the_paper_s_law_knows_training_alone():
    memory = trained("afl", *LAW, "world.t_train=2", "world.e_train=3", "world.deadline=1", "world.late=drop")
    for t, report in enumerate(memory.reports):
        assert not report.dropped  # links are error-free and nothing is late
        assert report.mission == {"mission_seconds": 6.0, "clock": 6.0 * (t + 1), "joules": 27.0}  # kappa = 3
        for row in memory.rows[t]:
            spent = {name: value for name, value in row.items() if name.endswith(("_seconds", "_joules")) and value}
            assert spent == {"train_seconds": 6.0, "train_joules": 9.0}
            assert row["battery_left"] is None
        for cost in memory.costs[t].values():
            assert cost == {"modelled_seconds": 6.0, "modelled_energy": 9.0, "send_seconds": 0.0, "send_joules": 0.0,
                            "rate": 0.0, "late": 0.0}  # fmt: skip


# in a run


def test_the_clock_changes_nothing_but_the_records_where_psi_follows_the_rounds():
    law, mission = trained("2ceoafl", *LAW), trained("2ceoafl", "field.follows=rounds")
    assert [up.data for rep in law.reports for up in rep.uploads] == [
        up.data for rep in mission.reports for up in rep.uploads
    ]
    assert all(costs.keys() == {0, 1, 2} for costs in (*law.costs, *mission.costs))
    assert all(cost["rate"] == 0 for costs in law.costs for cost in costs.values())
    assert all(cost["send_seconds"] > 0 for costs in mission.costs for cost in costs.values())


def deadline(*overrides: str) -> tuple[str, ...]:
    """Round 0 takes 17 to 57 s of flying, then legs are 200 m, or 600 m back: 20 s or 60 s; looking takes 10 s."""
    return ("world.deadline=35", "field.follows=rounds", *overrides)


def test_late_uploads_are_dropped_or_waited_for():
    waited, dropped = (trained("afl", *deadline(f"world.late={kind}")) for kind in ("wait", "drop"))
    assert all(not report.dropped for report in waited.reports)
    assert not dropped.reports[1].dropped
    assert [sorted(report.dropped) for report in dropped.reports] == [[1, 2], [], [2]]
    for report, rows, costs in zip(waited.reports, waited.rows, waited.costs, strict=True):
        for u, row in enumerate(rows):
            effort = report.efforts[u]
            whole = row["fly_seconds"] + 10 + row["receive_seconds"] + effort.rounds * effort.flops / SPEED
            late = max(0.0, whole + 8 * effort.sent / costs[u]["rate"] - 35)
            assert costs[u]["late"] == pytest.approx(late, abs=1e-9)
    for report, costs in zip(dropped.reports, dropped.costs, strict=True):
        late = {u: cost["late"] for u, cost in costs.items() if cost["late"]}
        assert report.dropped == {u: f"late by {seconds:.1f} s (modelled)" for u, seconds in late.items()}
    assert dropped.costs[0][1]["late"] == pytest.approx(waited.costs[0][1]["late"])  # the first rounds are the same


def test_a_round_in_which_all_are_late_changes_nothing_and_the_run_goes_on():
    memory = trained("afl", "world.deadline=1", "world.late=drop")
    assert len(memory.reports) == 3
    assert len(memory.reports[1].dropped) == 3
    assert np.array_equal(memory.states[0]["weights"], memory.states[1]["weights"])


def test_a_late_vehicle_is_as_one_that_was_absent():
    dropped = trained("afl", *deadline("world.late=drop"))
    gone = [[u, report.round] for report in dropped.reports for u in report.dropped]
    assert gone == [[1, 0], [2, 0], [2, 2]]
    absent = trained("afl", *deadline(f"faults.absent={gone}"))
    assert np.array_equal(dropped.states[-1]["weights"], absent.states[-1]["weights"])


def test_who_is_out_of_range_is_left_out_and_named():
    """A first model follows from the seed, so it trains; its upload does not arrive, nor does the next model."""
    plan = replace(PLAN, positions=PLAN.positions + np.array([[[0.0, 0.0]], [[4e5, 0.0]], [[0.0, 0.0]]]))
    config = tiny_config("field.follows=rounds", "vehicle.battery=1e9")
    memory = run_row(station_of(config, "afl", plan=plan))
    assert [report.dropped for report in memory.reports] == [
        {1: "out of range"}, *[{1: "the model is out of range"}] * 2
    ]  # fmt: skip
    assert [sorted(costs) for costs in memory.costs] == [[0, 1, 2], [0, 2], [0, 2]]
    assert memory.costs[0][1]["rate"] == memory.costs[0][1]["send_seconds"] == 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("costs") / "run"
    config = tiny_config('algorithms=["afl","2ceoafl","sgd"]', "workers=1")
    with RunFolder.claim(place, config, []) as claimed, RunView(config.rows, 3, True, lambda: None) as view:
        execute(claimed, config, KNOWN.task(), PLAN, view)
    return place


@pytest.mark.parametrize("label", ["afl", "2ceoafl"])
def test_every_joule_is_recorded_and_adds_up_to_the_battery(folder, label):
    rows, rounds = Table(folder / label, "vehicles").rows(), Table(folder / label, "rounds").rows()
    assert len(rows) == 9
    left = [4.68e5] * 3
    for row in rows:
        left[row["vehicle"]] -= sum(row[name] for name in JOULES)
        assert row["battery_left"] == pytest.approx(left[row["vehicle"]])
        work = sum(row[f"{name}_seconds"] for name in ("fly", "sense", "receive", "train", "send"))
        own = [each["mission_seconds"] for each in rounds if each["round"] == row["round"]]
        home = max(each["home_seconds"] for each in rows if each["round"] == row["round"])
        assert work + row["wait_seconds"] + home == pytest.approx(own[0], abs=1e-6) or home > row["home_seconds"]
        hovers = work + row["wait_seconds"] - row["fly_seconds"]
        power = HOVER + IDLE
        assert row["hover_joules"] == pytest.approx(hovers * power - row["train_seconds"] * IDLE, abs=1e-6)
    for each in rounds:
        own = [row for row in rows if row["round"] == each["round"]]
        assert each["joules"] == pytest.approx(sum(row[name] for row in own for name in JOULES))
        assert min(row["wait_seconds"] for row in own) == pytest.approx(0.0, abs=1e-9)  # somebody is the last
    assert [each["clock"] for each in rounds] == pytest.approx(
        np.cumsum([each["mission_seconds"] for each in rounds]).tolist()
    )


def test_uploads_and_vehicles_tell_the_same(folder):
    rows = {(row["round"], row["vehicle"]): row for row in Table(folder / "afl", "vehicles").rows()}
    uploads = Table(folder / "afl", "uplink").rows()
    assert len(uploads) == 9
    for upload in uploads:
        row = rows[upload["round"], upload["vehicle"]]
        assert upload["modelled_seconds"] == row["train_seconds"] > 0
        assert upload["modelled_energy"] == row["train_joules"] > 0
        assert (upload["send_seconds"], upload["send_joules"]) == (row["send_seconds"], row["send_joules"])
        assert upload["late"] == 0
        assert upload["wire_bytes"] == row["sent_bytes"]


def test_the_table_of_resources_has_everybody_who_flies(folder, capsys):
    print_resources(folder, RunFolder(folder).read_config().rows, "resources")
    text = capsys.readouterr().out
    assert "AFL" in text
    assert "2CEOAFL" in text
    assert "SGD" not in text  # nobody flies or sends


def test_preset_paper_keeps_to_the_law():
    for name in ("paper", "paper-25", "paper-cifar-stem"):
        config = load_config(name)
        assert (config.world.time, config.field.follows, config.sensing.model) == ("law", "rounds", "eq6")
    assert load_config("quick").world.time == "mission"


# settings


@pytest.mark.parametrize(
    "setting",
    ["world.channel.noise=174", "world.channel.noise=1e6", "world.channel.loss_blocked=1e5", "world.channel.los_a=1e4",
     "vehicle.speed=1e200", "vehicle.airframe.induced_velocity=1e-200", "vehicle.airframe.tip_speed=1e-200",
     "vehicle.airframe.climb_speed=1e-320", "vehicle.radio.power=1e308",
     "vehicle.computer={name='x',watts=1e308,idle_watts=0,flops=1e-300,memory=1}",
     "cost.radio.noise=174", "cost.radio.loss_blocked=1e5", "cost.flight.speed=1e200", "cost.cpu.frequency=1e200",
     "cost.cpu.capacitance=1e308"],
)  # fmt: skip
def test_settings_without_a_finite_cost_are_refused_at_once(setting):
    with pytest.raises(BadInputError, match=r"vehicle|world\.channel|cost\.cpu") as caught:
        load_config("smoke", setting)
    assert "\n" not in str(caught.value)


def test_the_law_knows_no_deadline_when_choosing():
    config = tiny_config('prune.delta="bound"', *LAW, "world.deadline=0.5", "theory.joules=0.01")
    station = station_of(config, "2ceoafl")
    assert station.algorithm.choice(station.onboard.kit(job_of(station, 0, 1)), start_of(station)) == (0.0, 1.0)


def test_out_of_range_nothing_arrives_in_time_and_a_choice_is_made_all_the_same():
    plan = replace(PLAN, positions=PLAN.positions + np.array([4e5, 0.0]))
    config = tiny_config('prune.delta="bound"', "world.deadline=60", "vehicle.battery=1e9")
    station = station_of(config, "2ceoafl", plan=plan)
    kit = station.onboard.kit(job_of(station, 0, 0))
    assert kit.spend(1.0, 100).seconds == np.inf
    delta, raw = station.algorithm.choice(kit, start_of(station))
    assert 0 <= delta < 1
    assert 0 <= raw <= 1
    assert exchanged(station, 0, vehicles=[0])[1].dropped == {0: "out of range"}


def test_the_spread_of_one_mini_batch_is_not_asked_for():
    with pytest.raises(BadInputError, match=r"theory\.batches"):
        tiny_config("theory.batches=1")


def test_a_run_without_anybody_of_weight_is_measured_by_nobody():
    memory = trained("afl", "theory.every=1", "server.alpha=[0,1,1]", "faults.absent=[[1,1],[2,1]]")
    assert [report.theory is None for report in memory.reports] == [False, True, False]


@pytest.mark.parametrize("setting", ["train.eta=1e308", "train.eta_local=1e39"])
def test_a_step_that_no_weight_could_hold_is_refused_at_once(setting):
    with pytest.raises(BadInputError, match=r"train\.eta_local: allowed"):
        tiny_config(setting)


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("vehicle.battery=1", "warning: vehicle.battery = 1 J; usual: 36000 to 3.6e+06 J"),
        ("vehicle.speed=1000", "warning: vehicle.speed = 1000 m/s; usual: 1 to 30 m/s"),
    ],
)
def test_a_vehicle_that_nobody_has_is_named_with_the_usual_range(setting, line):
    assert implausible(load_config("smoke", [setting]).vehicle) == [line]
    assert implausible(load_config("smoke").vehicle) == []


@pytest.mark.parametrize(("more", "said"), [((), True), (LAW, False)])
def test_such_a_vehicle_is_named_before_a_run_unless_nothing_flies(tmp_path, more, said):
    config = tiny_config('algorithms=["afl"]', "rounds=1", "vehicle.speed=1000", *more)
    lines: list[str] = []
    with RunFolder.claim(tmp_path / "run", config, []) as claimed, RunView(config.rows, 1, True, lambda: None) as view:
        view.say = lines.append
        execute(claimed, config, KNOWN.task(), fleet_plan(3, 1), view)
    assert any(line.startswith("warning: vehicle.speed = 1000 m/s") for line in lines) == said


def test_a_world_of_ones_own_gets_all_conditions():
    config = tiny_config("world.dwell=3", "vehicle.speed=7")
    conditions = world_of(config, KNOWN.task(), PLAN).conditions
    assert conditions == config.conditions
    assert (conditions.world.dwell, conditions.vehicle.speed, conditions.seed) == (3.0, 7.0, 0)
