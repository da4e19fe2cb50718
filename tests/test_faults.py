"""Vehicles that are absent, algorithms that diverge, devices that are not there, several seeds."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor, nn

from learning_cases import exchanged, onboard_of, start_of, station_of
from run_cases import fleet_plan, pictures, tiny_config
from skyfed.config import Config, load_config
from skyfed.drivers.execute import execute
from skyfed.errors import BadInputError
from skyfed.faults import FaultSettings, present
from skyfed.runs.folder import RunFolder
from skyfed.runs.seeds import claim_seeds, parse_seeds, seed_folders
from skyfed.runs.start import quantiser_warnings
from skyfed.runs.tables import Row, Table, is_done
from skyfed.simulate import federated_round

KNOWN = pictures()


class Watcher:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def begin(self, algorithm: str, first: int, rows: list[Row]) -> None:
        pass

    def round(self, algorithm: str, row: Row) -> None:
        pass

    def say(self, line: str) -> None:
        self.lines.append(line)


def go(place: Path, config: Config) -> tuple[list[str], Watcher]:
    watcher = Watcher()
    plan = fleet_plan(config.vehicles, config.rounds)
    with RunFolder.claim(place, config, ["run"]) as folder:
        (place / "plan.npz").write_bytes(plan.to_bytes())
        return execute(folder, config, KNOWN.task(), plan, watcher), watcher


# absent vehicles


def test_who_is_named_is_absent_in_that_round_only():
    settings = FaultSettings(absent=[(1, 0), (2, 0), (0, 3)])
    assert present(settings, 0, 0, 3) == [0]
    assert present(settings, 0, 1, 3) == [0, 1, 2]
    assert present(settings, 0, 3, 3) == [1, 2]


def test_a_probability_takes_about_that_share_and_the_same_ones_again():
    settings = FaultSettings(absent=0.3)
    first = [present(settings, 5, t, 20) for t in range(100)]
    assert first == [present(settings, 5, t, 20) for t in range(100)]
    share = 1 - sum(map(len, first)) / 2000
    assert abs(share - 0.3) < 5 * (0.3 * 0.7 / 2000) ** 0.5
    assert present(FaultSettings(absent=0.0), 0, 0, 4) == [0, 1, 2, 3]


@pytest.mark.parametrize("algorithm", ["afl", "2ceoafl"])
def test_the_others_step_as_if_the_absent_had_no_weight(algorithm):
    away = tiny_config("faults.absent=[[1, 0]]")
    silent = tiny_config("server.alpha=[1, 0, 1]")
    found = []
    for config in (away, silent):
        station = station_of(config, algorithm)
        found.append(federated_round(station, 0, start_of(station)))
    assert [upload.vehicle for upload in found[0][1].uploads] == [0, 2]
    np.testing.assert_array_equal(found[0][0]["weights"], found[1][0]["weights"])
    np.testing.assert_array_equal(found[0][0]["buffers"], found[1][0]["buffers"])


def test_a_round_without_anybody_leaves_the_model_as_it_was_and_can_be_resumed(tmp_path):
    config = tiny_config('algorithms=["afl"]', "faults.absent=[[0,1],[1,1],[2,1]]", "eval_every=1")
    assert go(tmp_path / "a", config)[0] == []
    rows = Table(tmp_path / "a" / "afl", "rounds").rows()
    assert [row["uploads"] for row in rows] == [3, 0, 3]
    assert rows[0]["accuracy_full"] == rows[1]["accuracy_full"]
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    for name in ("model.safetensors", "checkpoints/round-00002.safetensors"):
        (tmp_path / "b" / "afl" / name).unlink()
    _, watcher = go(tmp_path / "b", config)
    assert not any("starting over" in line for line in watcher.lines)
    model = [(tmp_path / name / "afl" / "model.safetensors").read_bytes() for name in "ab"]
    assert model[0] == model[1]


def test_only_vehicles_without_weight_leave_the_model_as_it_was():
    config = tiny_config("server.alpha=[0, 1, 1]", "faults.absent=[[1,0],[2,0]]")
    station = station_of(config, "afl")
    start = start_of(station)
    state, report = federated_round(station, 0, start)
    assert state is start
    assert len(report.uploads) == 1


@pytest.mark.parametrize("value", ["[[3, 0]]", "[[0, 3]]", "[[0]]", "[[-1, 0]]", "1.5", "-0.1", '"all"', "[[0.5, 1]]"])
def test_absences_that_cannot_be_are_refused(value):
    with pytest.raises(BadInputError, match=r"^faults\.absent"):
        tiny_config(f"faults.absent={value}")


# an algorithm that diverges does not take the others with it


def test_what_diverges_is_named_and_the_rest_is_trained(tmp_path):
    config = tiny_config('algorithms=["afl", "sgd"]', "train.eta_local=1e30")
    diverged, watcher = go(tmp_path / "run", config)
    assert len(diverged) == 1
    assert diverged[0].startswith("afl stops at round 0")
    assert diverged[0] in watcher.lines
    assert is_done(tmp_path / "run" / "sgd")
    assert not is_done(tmp_path / "run" / "afl")


def test_an_upload_that_was_never_sent_counts_no_bits():
    config = tiny_config("train.eta_local=1e30")
    _, report = exchanged(station_of(config, "2ceoafl"), 0, vehicles=[0])
    (upload,) = report.uploads
    assert (upload.data, upload.facts["paper_bits"], upload.buffer_bytes) == (b"", 0.0, 0)


# quantisers that drown the gradient


@pytest.mark.parametrize(("bucket", "warns"), [("0", True), ('"tensor"', False), ("512", False)])
def test_the_papers_model_is_warned_of_one_norm_for_all_and_of_nothing_else(bucket, warns):
    config = load_config("paper", [f"quantise.bucket={bucket}"])
    said = quantiser_warnings(onboard_of(config, pictures(2, 1, 10, 32)))
    assert len(said) == warns
    assert not warns or "afl-quant, 2ceoafl will probably converge more slowly and to a lower accuracy" in said[0]


def test_who_quantises_nothing_is_not_warned():
    config = load_config(
        "paper", ["quantise.bucket=0", "quantise.raw_probability=1.0", 'algorithms=["afl", "2ceoafl"]']
    )
    assert quantiser_warnings(onboard_of(config, pictures(2, 1, 10, 32))) == []


# modules and devices


class Empty(nn.Module):
    def __init__(self, classes: int, side: int) -> None:
        super().__init__()
        self.classes = classes

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=(1, 2, 3))[:, None].expand(-1, self.classes)


def test_a_module_without_weights_is_refused():
    config = tiny_config("model.name=test_faults:Empty")
    with pytest.raises(BadInputError, match="no weights to train"):
        onboard_of(config, KNOWN)


def test_a_device_that_is_not_here_is_refused():
    config = tiny_config("device=cuda:99")
    with pytest.raises(BadInputError, match=r"device = 'cuda:99'.*allowed here: cpu"):
        onboard_of(config, KNOWN)


@pytest.mark.parametrize("device", ["gpu", "cpu:0:1", "", "meta"])
def test_devices_of_no_kind_are_refused(device):
    with pytest.raises(BadInputError, match=r"^device = "):
        load_config("smoke", [f'device="{device}"'])


# several seeds


def test_seeds_are_read():
    assert parse_seeds("0-2") == [0, 1, 2]
    assert parse_seeds("7, 3-4") == [7, 3, 4]


@pytest.mark.parametrize("text", ["", "a", "3-1", "1,1", "0-1000", "-1", "0-2,2", "1.5", "0-2-4", "9" * 30])
def test_seeds_that_are_none_are_refused(text):
    with pytest.raises(BadInputError, match="--seeds"):
        parse_seeds(text)


def test_every_seed_has_its_folder_from_the_start(tmp_path):
    place = tmp_path / "group"
    config = tiny_config()
    claim_seeds(place, config, [0, 10, 2], ["run"])
    assert [folder.name for folder in seed_folders(place)] == ["seed-0", "seed-2", "seed-10"]
    assert [RunFolder(folder).read_config().seed for folder in seed_folders(place)] == [0, 2, 10]
    claim_seeds(place, config, [0, 10, 2], ["run"])
    with pytest.raises(BadInputError, match="holds seed-0"):
        claim_seeds(place, config, [10, 2], ["run"])
    assert seed_folders(place / "seed-0") == []
    assert seed_folders(tmp_path) == []
