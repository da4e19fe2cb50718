"""The device and radio model, by hand; the deadline; what a run records of it."""

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from skyfed.world.cost import (
    CostSettings,
    Effort,
    FlightCostSettings,
    RadioSettings,
    Spending,
    Where,
    implausible,
    lateness,
    round_end,
    round_flops,
    spend_at,
    waiting,
)
from torch import nn

from learning_cases import Memory, exchanged, job_of, run_row, start_of, station_of
from run_cases import fleet_plan, pictures, tiny_config
from skyfed.config import load_config
from skyfed.drivers.execute import execute
from skyfed.errors import BadInputError
from skyfed.learning.models import build_model
from skyfed.learning.settings import ModelSettings, TrainSettings
from skyfed.learning.shapes import all_multiplications, conv_inputs
from skyfed.report.summary import summarise
from skyfed.report.terminal_tables import print_resources
from skyfed.report.view import RunView
from skyfed.runs.folder import RunFolder
from skyfed.runs.start import world_of
from skyfed.runs.tables import Table
from skyfed.world.world import JOULES

KNOWN, PLAN = pictures(), fleet_plan()
DEVICE = CostSettings()


# propulsion


def test_hovering_takes_blade_and_induced_power():
    assert FlightCostSettings().power(0.0) == pytest.approx(79.86 + 88.63)


def test_power_at_ten_metres_a_second_by_hand():
    """V^2 / (2 v0^2) = 3.0786; sqrt(1 + that^2) - that = 0.15837."""
    ratio = 100 / (2 * 4.03**2)
    by_hand = 79.86 * (1 + 300 / 14_400) + 88.63 * math.sqrt(math.sqrt(1 + ratio**2) - ratio) + 9.2
    assert FlightCostSettings().power(10.0) == pytest.approx(by_hand)
    assert 120 < by_hand < 130


def test_there_is_a_speed_that_takes_less_than_hovering_and_then_drag_wins():
    """As in the source's Fig. 2: least around 10 m/s, above hovering past 20 m/s."""
    powers = [FlightCostSettings().power(float(speed)) for speed in range(31)]
    assert 8 <= int(np.argmin(powers)) <= 13
    assert powers[30] > powers[0]


# the link


def test_the_rate_by_hand():
    """500 m away, 100 m up: 11.31 degrees, P(line of sight) = 0.765, a noise floor of -174 + 60 + 6 = -108 dBm."""
    far = math.hypot(500, 100)
    clear = 1 / (1 + 4.88 * math.exp(-0.43 * (math.degrees(math.atan(0.2)) - 4.88)))
    loss = 20 * math.log10(4 * math.pi * far * 2.4e9 / 299_792_458) + clear * 0.1 + (1 - clear) * 21
    snr = 20 - loss + 108
    assert RadioSettings().rate(500.0, 100.0) == pytest.approx(1e6 * math.log2(1 + 10 ** (snr / 10)), rel=1e-12)
    assert clear == pytest.approx(0.765, abs=0.001)


def test_nearer_and_higher_is_faster_and_more_spectrum_helps():
    radio = RadioSettings()
    rates = [radio.rate(ground, 100.0) for ground in (0.0, 100.0, 300.0, 700.0, 2000.0)]
    assert all(near > far for near, far in pairwise(rates))
    assert radio.rate(700.0, 300.0) > radio.rate(700.0, 50.0)
    assert RadioSettings(bandwidth=2e6).rate(300.0, 100.0) > rates[2]
    assert math.isfinite(radio.rate(0.0, 0.0))


# a round


def test_what_a_round_costs_by_hand():
    found = spend_at(DEVICE, Where(300.0, 200.0, 100.0), Effort(4.5, 2e9, 1_000_000))
    cycles = 4.5 * 2e9 * 0.25
    hover, move = DEVICE.flight.power(0.0), DEVICE.flight.power(10.0)
    assert found.fly_seconds == 30
    assert found.train_seconds == pytest.approx(cycles / 1.5e9)
    assert found.train_joules == pytest.approx(1e-28 * cycles * 1.5e9**2)
    assert found.rate == DEVICE.radio.rate(200.0, 100.0)
    assert found.send_seconds == pytest.approx(8e6 / found.rate)
    assert found.send_joules == pytest.approx(found.send_seconds * (0.1 / 0.35 + 0.1))
    assert found.fly_joules == pytest.approx(30 * move + (found.train_seconds + found.send_seconds) * hover)
    assert found.seconds == pytest.approx(30 + found.train_seconds + found.send_seconds)
    assert found.joules == pytest.approx(found.fly_joules + found.train_joules + found.send_joules)


def test_a_faster_clock_saves_time_and_costs_its_square():
    where, effort = Where(0.0, 100.0, 100.0), Effort(1.0, 1e9, 0)
    slow, fast = (spend_at(CostSettings(cpu={"frequency": f}), where, effort) for f in (1e9, 2e9))
    assert fast.train_seconds == pytest.approx(slow.train_seconds / 2)
    assert fast.train_joules == pytest.approx(4 * slow.train_joules)


def test_the_paper_s_law_knows_training_alone():
    law = CostSettings(model="law", t_train=2.0, e_train=3.0, deadline=1.0, late="drop")
    found = spend_at(law, Where(500.0, 500.0, 100.0), Effort(4.5, 1e9, 10**9))
    assert found == Spending(train_seconds=9.0, train_joules=13.5)
    assert lateness(law, found) == 0  # links are error-free and nothing is late
    assert round_end(law, [found]) == 9.0
    assert waiting(law, found, 100.0) == 0


def test_the_law_of_pruning():
    config = tiny_config("train.kappa=5", "train.rho=1", "prune.delta=0.4")
    work = [exchanged(station_of(config, name), 0, vehicles=[0])[1].uploads[0].work for name in ("afl", "afl-prune")]
    assert work == [5, pytest.approx(1 + 5 * 0.6)]


def test_flops_of_a_local_round():
    """A linear layer of 12 x 5: 60 multiply-adds, forward and twice that backward, two FLOPs each."""
    train = TrainSettings(batch_size=8, batches_per_round=2)
    assert round_flops(train, 60, held=50) == 6 * 60 * 16
    assert round_flops(train, 60, held=3) == 6 * 60 * 6  # no mini-batch has more than the vehicle holds


def test_multiplications_of_resnet18_are_those_with_real_pixels():
    module = build_model(ModelSettings(), 10, (3, 32, 32), 0)
    found = all_multiplications(module, conv_inputs(module, (3, 32, 32)))
    stem = sum(min(32, 2 * o + 4) - max(0, 2 * o - 3) for o in range(16)) ** 2 * 3 * 64
    first = 4 * (8 * 3 - 2) ** 2 * 64**2
    assert stem + first < found < 2.2e7
    assert found == 21_667_584
    small = nn.Sequential(nn.Conv2d(3, 2, 3, padding=1), nn.Flatten(), nn.Linear(8, 5))
    assert all_multiplications(small, conv_inputs(small, (3, 2, 2))) == 4 * 4 * 3 * 2 + 40


def test_journeys_start_where_the_mission_does():
    plan = replace(fleet_plan(1, 3), positions=np.array([[[3.0, 4.0], [3.0, 4.0], [0.0, 0.0]]]))
    world = world_of(tiny_config("vehicles=1", "sensor.altitude=50"), KNOWN.task(), plan)
    found = [world.where(0, t) for t in range(3)]
    assert [where.flown for where in found] == [0.0, 0.0, 5.0]
    assert [where.ground for where in found] == [5.0, 5.0, 0.0]
    assert {where.altitude for where in found} == {50}


def test_deadlines():
    strict, patient = (CostSettings(deadline=10.0, late=kind) for kind in ("drop", "wait"))
    slow, quick = Spending(fly_seconds=12.5), Spending(fly_seconds=4.0)
    assert lateness(strict, slow) == lateness(patient, slow) == 2.5
    assert lateness(strict, quick) == 0
    assert (round_end(strict, [slow, quick]), round_end(patient, [slow, quick])) == (10.0, 12.5)
    assert round_end(strict, [quick]) == 4.0
    assert round_end(patient, []) == 0
    assert waiting(patient, quick, 12.5) == pytest.approx(8.5 * DEVICE.flight.power(0.0))
    assert waiting(patient, slow, 12.5) == 0


# in a run


def trained(algorithm: str, *overrides: str) -> Memory:
    return run_row(station_of(tiny_config(*overrides), algorithm))


def test_the_model_changes_nothing_but_the_records():
    law, device = (trained("2ceoafl", f"cost.model={kind}") for kind in ("law", "device"))
    assert [up.data for rep in law.reports for up in rep.uploads] == [
        up.data for rep in device.reports for up in rep.uploads
    ]
    assert all(report.spent.keys() == {0, 1, 2} for report in (*law.reports, *device.reports))
    assert all(spent.rate == 0 for report in law.reports for spent in report.spent.values())
    assert all(spent.send_seconds > 0 for report in device.reports for spent in report.spent.values())


def test_late_uploads_are_dropped_or_waited_for():
    """Nobody flies before round 0; then legs of 200 m, or 600 m back, take 20 s or 60 s."""
    waited, dropped = (trained("afl", "cost.deadline=25", f"cost.late={kind}") for kind in ("wait", "drop"))
    assert all(not report.dropped for report in waited.reports)
    assert not dropped.reports[0].dropped
    assert any(report.dropped for report in dropped.reports)
    for report in dropped.reports:
        for upload in report.uploads:
            seconds = report.spent[upload.vehicle].seconds
            late = seconds > 25
            assert late == (upload.vehicle in report.dropped)
            if late:
                assert report.dropped[upload.vehicle] == f"late by {seconds - 25:.1f} s (modelled)"


def test_a_round_in_which_all_are_late_changes_nothing_and_the_run_goes_on():
    memory = trained("afl", "cost.deadline=1", "cost.late=drop")
    assert len(memory.reports) == 3
    assert len(memory.reports[1].dropped) == 3
    assert np.array_equal(memory.states[0]["weights"], memory.states[1]["weights"])


def test_a_late_vehicle_is_as_one_that_was_absent():
    dropped = trained("afl", "cost.deadline=25", "cost.late=drop")
    gone = [[u, report.round] for report in dropped.reports for u in report.dropped]
    absent = trained("afl", f"faults.absent={gone}")
    assert np.array_equal(dropped.states[-1]["weights"], absent.states[-1]["weights"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("cost") / "run"
    config = tiny_config('algorithms=["afl","2ceoafl","sgd"]', "workers=1")
    with RunFolder.claim(place, config, []) as claimed, RunView(config.rows, 3, True, lambda: None) as view:
        execute(claimed, config, KNOWN.task(), PLAN, view)
    return place


def test_every_upload_s_joules_are_recorded_and_add_up_to_the_battery(folder):
    rows = Table(folder / "afl", "uplink").rows()
    for u in range(3):
        left = 4.68e5
        for row in (row for row in rows if row["vehicle"] == u):
            left -= sum(row[name] for name in JOULES)
            assert row["battery_left"] == pytest.approx(left)
            assert row["late"] == 0
    ends = {row["round"]: 0.0 for row in rows}
    for row in rows:
        spent = row["fly_seconds"] + row["modelled_seconds"] + row["send_seconds"]
        ends[row["round"]] = max(ends[row["round"]], spent)
    for row in rows:
        spent = row["fly_seconds"] + row["modelled_seconds"] + row["send_seconds"]
        assert row["wait_joules"] == pytest.approx((ends[row["round"]] - spent) * DEVICE.flight.power(0.0), abs=1e-9)


def test_the_table_of_resources(folder, capsys):
    rows = RunFolder(folder).read_config().rows
    print_resources(folder, rows, "resources")
    text = capsys.readouterr().out
    assert "AFL" in text
    assert "2CEOAFL" in text
    assert "SGD" not in text  # nobody flies or sends
    found = summarise(folder, "afl")
    rows = Table(folder / "afl", "uplink").rows()
    assert found.joules == pytest.approx(sum(row[name] for row in rows for name in JOULES))


def test_preset_paper_keeps_to_the_law():
    for name in ("paper", "paper-25", "paper-cifar-stem"):
        assert load_config(name).cost.model == "law"
    assert load_config("quick").cost.model == "device"


@pytest.mark.parametrize(
    "setting",
    ["radio.noise=174", "radio.noise=1e6", "radio.loss_blocked=1e5", "radio.los_a=1e4", "flight.speed=1e200",
     "flight.induced_velocity=1e-200", "cpu.frequency=1e200", "cpu.capacitance=1e308"],
)  # fmt: skip
def test_settings_without_a_finite_cost_are_refused_at_once(setting):
    with pytest.raises(BadInputError, match="cost"):
        tiny_config(f"cost.{setting}")


def test_the_law_knows_no_deadline_when_choosing():
    config = tiny_config('prune.delta="bound"', "cost.model=law", "cost.deadline=0.5", "theory.joules=0.01")
    station = station_of(config, "2ceoafl")
    assert station.algorithm.choice(station.onboard.kit(job_of(station, 0, 1)), start_of(station)) == (0.0, 1.0)


def test_the_spread_of_one_mini_batch_is_not_asked_for():
    with pytest.raises(BadInputError, match=r"theory\.batches"):
        tiny_config("theory.batches=1")


def test_a_run_without_anybody_of_weight_is_measured_by_nobody():
    memory = trained("afl", "theory.every=1", "server.alpha=[0,1,1]", "faults.absent=[[1,1],[2,1]]")
    assert [report.theory is None for report in memory.reports] == [False, True, False]


def test_a_link_that_carries_nothing_is_named_with_its_length():
    with pytest.raises(BadInputError, match=r"not a bit a second gets over 1e\+20 m"):
        spend_at(DEVICE, Where(10.0, 0.0, 1e20), Effort(1, 1e6, 1000))


@pytest.mark.parametrize("setting", ["train.eta=1e308", "train.eta_local=1e39"])
def test_a_step_that_no_weight_could_hold_is_refused_at_once(setting):
    with pytest.raises(BadInputError, match=r"train\.eta_local: allowed"):
        tiny_config(setting)


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("cost.battery=1", "warning: cost.battery = 1 J; usual: 36000 to 3.6e+06 J"),
        ("cost.flight.speed=1000", "warning: cost.flight.speed = 1000 m/s; usual: 1 to 30 m/s"),
    ],
)
def test_a_device_that_nobody_has_is_named_with_the_usual_range(setting, line):
    assert implausible(load_config("smoke", [setting]).cost) == [line]
    assert implausible(load_config("smoke", [setting, "cost.model=law"]).cost) == []
    assert implausible(load_config("smoke").cost) == []
