"""Whole runs in their folders: the clock and the batteries from the tables, stops after every round, workers."""

import contextlib
import io
from pathlib import Path

import numpy as np
import pytest

from run_cases import fleet_plan, pictures, write_picture_folder
from skyfed import World
from skyfed.config import Config
from skyfed.drivers.execute import execute, open_here
from skyfed.runs.folder import RunFolder
from skyfed.runs.tables import Row, read_parquet
from skyfed.tasks import Task, load_task
from world_cases import JOULES, TASK, audit, near, settings

WALL = {"seconds", "measured_seconds", "measured_cpu_seconds"}
HARD = (
    "world.links='fading'", "world.channel.retries=1", "vehicle.battery=60e3", "vehicle.recharge=40",
    "world.deadline=62", "world.late='drop'", "world.downlink='broadcast'", "world.wind=[3.0, -5.0]",
    "faults.absent=0.15", "vehicle.computer=['phone', 'jetson-orin-nano', 'raspberry-pi-5']",
)  # fmt: skip
CASES = {
    "plain": (),
    "hard": HARD,
    "land for good": ("vehicle.battery=60e3", "world.lost='keep'", "world.links='fading'", "world.channel.retries=0"),
    "camera": (*HARD, "sensing.model='footprint'", "sensing.stay=100", "world.lost='keep'", "sensing.keep_last=40"),
    "own world": ("world.use='test_world_runs:Bold'", *HARD, "vehicle.battery=35e3"),
    "two exchanges": ("algorithms=['sgd', {use='counting:Counting', label='2ceoafl'}]", *HARD),
}
HAPPENS = {  # why uploads do not count
    "hard": ("late by", "lost on its way", "the model is lost"),
    "land for good": ("kept for the next round", "the model is lost"),
    "camera": ("late by", "kept for the next round"),
    "two exchanges": ("late by",),
}


class Bold(World):
    """Flies two rounds at a time, further out after every hour of the mission and with every sample."""

    def stretch(self, t):
        """Return two rounds."""
        known = int(self.samples(t - 1).sum()) if t else 0
        east = (
            100.0
            + known % 50
            + self.flights.clock / 10
            + 30 * np.arange(2)[None]
            + 5 * np.arange(self.vehicles)[:, None]
        )
        return np.stack([east, np.full_like(east, 10.0)], axis=-1)


class StopHereError(Exception):
    """The run shall end after this round."""


class Watcher:
    """Stops after some rounds."""

    def __init__(self, left: int) -> None:
        self.left, self.lines = left, []

    def begin(self, algorithm: str, first: int, rows: list[Row]) -> None:
        pass

    def round(self, algorithm: str, row: Row) -> None:
        self.left -= 1
        if not self.left:
            raise StopHereError

    def say(self, line: str) -> None:
        self.lines.append(line)


def go(place: Path, config: Config, left: int = -1, workers: int = 1, task: Task = TASK) -> Watcher:
    """Start a run or go on with it, for some rounds or to its end."""
    plan, watcher = fleet_plan(config.vehicles, config.rounds), Watcher(left)
    with RunFolder.claim(place, config, ["run"]) as folder, contextlib.suppress(StopHereError):
        execute(folder, config, task, plan, watcher, open_here(workers))
    return watcher


def tiny(case: str, rounds: int = 8) -> Config:
    return settings("algorithms=['sgd', '2ceoafl']", "train.kappa=2", *CASES[case], rounds=rounds)


def files(place: Path) -> dict[str, object]:
    """Return tables without wall seconds, flights and models of a run."""
    tables = {
        str(path.relative_to(place)): [{k: v for k, v in row.items() if k not in WALL} for row in read_parquet(path)]
        for path in sorted(place.glob("*/*.parquet"))
    }
    others = [*place.glob("*/flown.npz"), *place.glob("*/model.safetensors")]
    return tables | {str(path.relative_to(place)): path.read_bytes() for path in others}


@pytest.mark.parametrize("case", CASES)
def test_the_tables_of_a_run_hold_its_clock_and_its_batteries_and_a_run_that_stops_is_the_same(case, tmp_path):
    config = tiny(case)
    go(tmp_path / "whole", config)
    place = tmp_path / "whole" / "2ceoafl"
    vehicles, rounds = read_parquet(place / "vehicles.parquet"), read_parquet(place / "rounds.parquet")
    with np.load(io.BytesIO((place / "flown.npz").read_bytes())) as flown:
        arrays = dict(flown)
    rows = [[row for row in vehicles if row["round"] == t] for t in range(config.rounds)]
    audit(config, rounds, rows, arrays)
    reasons = " ".join({str(row["reason"]) for row in vehicles})
    assert all(word in reasons for word in HAPPENS.get(case, ()))
    assert any(row["status"] == "going home" for row in vehicles) == (case != "plain")
    check_uploads(place, rows)
    assert not (tmp_path / "whole" / "sgd" / "flown.npz").exists()

    for _ in range(2 * config.rounds):  # stops after every round of both rows
        go(tmp_path / "stopped", config, left=1)
    go(tmp_path / "stopped", config)
    assert files(tmp_path / "stopped") == files(tmp_path / "whole")


def check_uploads(place: Path, rows: list[list[Row]]) -> None:
    """Assert that the table of uploads says what the table of vehicles says."""
    uplink = read_parquet(place / "uplink.parquet")
    assert uplink
    shown = {"modelled_seconds": "train_seconds", "modelled_energy": "train_joules"}
    shown |= {name: name for name in ("send_seconds", "send_joules")}
    for t, u in {(upload["round"], upload["vehicle"]) for upload in uplink}:
        row, own = rows[t][u], [upload for upload in uplink if (upload["round"], upload["vehicle"]) == (t, u)]
        assert (row["uploaded"], row["present"], row["chosen"], row["status"]) == (True, True, True, "flying")
        for name, column in shown.items():
            assert near(sum(upload[name] for upload in own), row[column], 1e-9)
        broken = (row["reason"] or "").startswith(("out of range", "late by"))
        assert row["sent_bytes"] >= sum(upload["wire_bytes"] for upload in own) or broken
        assert row["reason"] == own[-1]["dropped"]
    sent = {(upload["round"], upload["vehicle"]) for upload in uplink}
    for row in (row for each in rows for row in each if (row["round"], row["vehicle"]) not in sent):
        assert not row["uploaded"]
        assert row["train_joules"] == row["send_joules"] == row["sent_bytes"] == 0
    assert all(row[name] >= 0 for each in rows for row in each for name in JOULES)


def test_what_batteries_do_is_said_before_the_run(tmp_path):
    lines = go(tmp_path / "low", tiny("land for good"), left=1).lines
    assert any("of 3 vehicles reach their reserve, the first in round" in line for line in lines)
    ignored = settings("algorithms=['2ceoafl']", "vehicle.battery=60e3", "world.battery='ignore'")
    lines = go(tmp_path / "ignored", ignored, left=1).lines
    assert any("fly on all the same (world.battery = 'ignore')" in line for line in lines)


def test_any_number_of_workers_gives_the_same_bits(tmp_path):
    root = write_picture_folder(tmp_path / "pictures", pictures())
    data = (f'data.name="folder:{root}"', f'data.dir="{tmp_path / "cache"}"', "data.size=8")
    config = settings("algorithms=['2ceoafl']", "train.kappa=2", *data, *CASES["camera"], rounds=5)
    for workers in (1, 3):
        go(tmp_path / str(workers), config, workers=workers, task=load_task(config.data))
    assert files(tmp_path / "1") == files(tmp_path / "3")


@pytest.mark.parametrize("downlink", ["unicast", "broadcast"])
def test_what_the_station_counts_as_sent_down_is_what_vehicles_receive_in_the_next_round(downlink, tmp_path):
    away = "faults.absent=[[1, 2], [0, 4], [1, 4], [2, 4]]"
    config = settings("algorithms=['2ceoafl']", "train.kappa=1", away, f"world.downlink='{downlink}'", rounds=7)
    go(tmp_path, config)
    place = tmp_path / "2ceoafl"
    vehicles, rounds = read_parquet(place / "vehicles.parquet"), read_parquet(place / "rounds.parquet")
    received = np.array([row["received_bytes"] for row in vehicles]).reshape(7, 3)
    assert not received[0].any()  # the first model follows from the seed
    for t in range(6):
        assert received[t + 1].sum() == rounds[t]["downlink_bytes"]
        assert sum(set(received[t + 1].tolist())) == rounds[t]["broadcast_bytes"]
    assert rounds[6]["downlink_bytes"] == 0
    assert received[2, 1] == 0
    assert received[3, 1] > received[3, 0] > 0  # it was not in the last round: the whole model
    assert not received[4].any()
    assert len(set(received[5].tolist())) == 1
    assert received[5, 0] == received[3, 1]
    assert rounds[4]["uploads"] == 0
    assert rounds[4]["mission_seconds"] > config.world.dwell
