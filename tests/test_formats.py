"""Folders of every released format are read and resumed; formats of the future are refused with their version named.

tests/formats/VERSION/done and /stopped are runs of the preset `smoke`, made small, as that version left them; figures
and page are left out. A release that changes the format adds a folder and keeps the others.
"""

import json
import shutil
from pathlib import Path

import pytest

from skyfed import __version__
from skyfed.cli.entry import run_arguments
from skyfed.drivers.execute import execute
from skyfed.errors import BadInputError
from skyfed.runs.checkpoint import Checkpoints, pack_model, unpack_model
from skyfed.runs.flights import plan_into
from skyfed.runs.folder import FORMAT, RunFolder
from skyfed.runs.listing import look
from skyfed.runs.tables import Row, is_done, read_parquet
from skyfed.tasks import load_task
from skyfed.world.mission import prepare_mission

FORMATS = Path(__file__).parent / "formats"
VERSIONS = sorted(path.name for path in FORMATS.iterdir())
NAME = "2ceoafl"


class Watcher:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.first = -1

    def begin(self, algorithm: str, first: int, rows: list[Row]) -> None:
        self.first = first

    def round(self, algorithm: str, row: Row) -> None:
        pass

    def say(self, line: str) -> None:
        self.lines.append(line)


def resume(place: Path) -> Watcher:
    """Go on with a run, as `skyfed resume` does before it draws."""
    config, watcher = RunFolder(place).read_config(), Watcher()
    mission = prepare_mission(
        config.field, config.flight, config.sensing, config.vehicles, config.rounds, config.seed
    )  # fmt: skip
    with RunFolder.claim(place, config, ["resume"]) as folder:
        fleet = plan_into(folder, config, mission, 1, lambda vehicle, found: pytest.fail("planned again"))
        assert execute(folder, config, load_task(config.data), fleet, watcher) == []
        watcher.lines += folder.complaints
    return watcher


def told(place: Path, **facts: object) -> None:
    """Change what a manifest says."""
    path = place / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FORMATS / __version__ / "stopped", tmp_path / "run"))


def test_this_version_has_its_folder() -> None:
    assert __version__ in VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_a_finished_run_of_every_version_is_read(version: str) -> None:
    place = FORMATS / version / "done"
    run = look(place)
    assert (run.state, run.note, run.rounds) == ("done", "", 6)
    config = RunFolder.config_of(place)
    assert config.algorithms == [NAME]
    weights, buffers, about = unpack_model(place / NAME / "model.safetensors")
    assert about["round"] == "5"
    checkpoints = Checkpoints(place / NAME / "checkpoints", RunFolder(place).identity(), NAME)
    start = {"weights": weights, "buffers": buffers}
    saved = checkpoints.last(start, lambda every: every, len(weights), config.vehicles)
    assert (saved.round, saved.complaints) == (5, [])
    assert [row["round"] for row in read_parquet(place / NAME / "rounds.parquet")] == list(range(6))
    assert len(read_parquet(place / NAME / "uplink.parquet")) == 12


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stopped_run_of_every_version_goes_on_where_it_stood(tmp_path: Path, version: str) -> None:
    place = Path(shutil.copytree(FORMATS / version / "stopped", tmp_path / "run"))
    seen = resume(place)
    assert seen.first == 4
    assert not [line for line in seen.lines if "dry" not in line and not line.startswith("mission: 6 rounds")]
    assert is_done(place / NAME)


@pytest.mark.parametrize("words", [["resume"], ["run", "smoke", "--out"]])
def test_a_format_of_the_future_is_refused_with_the_version_named(stopped: Path, capsys, words: list[str]) -> None:
    told(stopped, format=FORMAT + 1, skyfed="7.8.9")
    before = {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()}
    assert run_arguments([*words, str(stopped), "--plain"]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert f"written by skyfed 7.8.9 in format {FORMAT + 1}" in said
    assert {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file() and path.name != ".lock"} == before


def test_a_setting_of_another_version_is_refused_with_the_version_named(stopped: Path) -> None:
    config = stopped / "config.toml"
    config.write_text("rotors = 4\n" + config.read_text())
    told(stopped, skyfed="7.8.9")
    with pytest.raises(BadInputError, match=r"written by skyfed 7\.8\.9, this is .*rotors is not a setting"):
        RunFolder(stopped).read_config()


def test_a_setting_that_a_run_did_not_know_yet_leaves_it_its_checkpoints(stopped: Path) -> None:
    """A later version has more settings; what was written before them is still the same run."""
    config = stopped / "config.toml"
    config.write_text("".join(line for line in config.read_text().splitlines(True) if "checkpoint_every" not in line))
    identity = RunFolder(stopped).identity()
    for path in sorted((stopped / NAME / "checkpoints").iterdir()):
        weights, buffers, about = unpack_model(path)
        path.write_bytes(pack_model(weights, buffers, {**about, "run": identity}))
    told(stopped, identity=identity, skyfed="0.0.9")
    assert resume(stopped).first == 4


def test_a_config_that_was_changed_is_refused_and_costs_no_checkpoint(stopped: Path) -> None:
    config = stopped / "config.toml"
    config.write_text(config.read_text().replace("rounds = 6", "rounds = 7"))
    with (
        pytest.raises(BadInputError, match=r"config\.toml: not as this run began"),
        RunFolder.claim(stopped, RunFolder(stopped).read_config(), ["resume"]),
    ):
        pass
    assert len(list((stopped / NAME / "checkpoints").iterdir())) == 3


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b"\0\0\0"])
def test_a_manifest_that_is_gone_is_said_and_written_anew(stopped: Path, content: bytes | None) -> None:
    path = stopped / "manifest.json"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with RunFolder.claim(stopped, RunFolder(stopped).read_config(), ["resume"]) as folder:
        assert folder.complaints == [f"{path}: missing or damaged; written anew"]
    with RunFolder.claim(stopped, RunFolder(stopped).read_config(), ["resume"]) as folder:
        assert folder.complaints == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["done", "stopped"])
def test_a_run_of_every_version_is_reported_finished_or_not(
    tmp_path: Path, version: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Path(shutil.copytree(FORMATS / version / kind, tmp_path / "run"))
    assert run_arguments(["report", str(place)]) == 0
    assert "2CEOAFL" in (place / "report.html").read_text()
    assert run_arguments(["runs", str(place), "--json"]) == 0
    assert NAME in capsys.readouterr().out


@pytest.mark.parametrize("version", VERSIONS)
def test_models_of_every_version_are_evaluated(version: str, capsys: pytest.CaptureFixture[str]) -> None:
    place = FORMATS / version / "done"
    assert run_arguments(["evaluate", str(place), "--json"]) == 0
    (score,) = json.loads(capsys.readouterr().out)
    last = read_parquet(place / NAME / "rounds.parquet")[-1]
    assert score["algorithm"] == NAME
    assert score["accuracy"] == pytest.approx(last["accuracy_full"], abs=0.01)  # another processor may round otherwise


@pytest.mark.parametrize("version", VERSIONS)
def test_the_command_goes_on_with_a_stopped_run_of_every_version(
    tmp_path: Path, version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Path(shutil.copytree(FORMATS / version / "stopped", tmp_path / "run"))
    before = [json.loads(line) for line in (place / NAME / "uplink.jsonl").read_text().splitlines()]
    assert run_arguments(["resume", str(place), "--plain"]) == 0
    assert f"{NAME}: 4 of 6 rounds were done before" in capsys.readouterr().err
    assert (place / "report.html").exists()
    rounds = read_parquet(place / NAME / "rounds.parquet")
    assert [row["round"] for row in rounds] == list(range(6))
    vehicles = read_parquet(place / NAME / "vehicles.parquet")
    if version == "0.1.0":  # which did not write these: there are those since
        assert [row["model_digest"] is None for row in rounds] == [True] * 4 + [False] * 2
        assert {row["round"] for row in vehicles} == {4, 5}
    finished = read_parquet(FORMATS / version / "done" / NAME / "rounds.parquet")
    for row, known in zip(rounds, finished, strict=True):
        assert (row["train_size"], row["test_size"], row["eta"]) == tuple(
            known[name] for name in ("train_size", "test_size", "eta")
        )
    if version == "0.1.0":  # what was used before counts: every joule since is in a row
        left = {row["vehicle"]: row["battery_left"] for row in before}
        for row in vehicles:
            left[row["vehicle"]] -= sum(value for name, value in row.items() if name.endswith("_joules"))
            assert row["battery_left"] == pytest.approx(left[row["vehicle"]], rel=1e-9)
    assert run_arguments(["resume", str(place), "--plain"]) == 0
    assert "nothing to resume" in capsys.readouterr().out
