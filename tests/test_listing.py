"""What `skyfed runs` says about folders: state by lock and files, figures by the tables, damage in a line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from run_cases import blank
from skyfed.cli import app
from skyfed.config import Config, load_config
from skyfed.errors import BadInputError, SkyfedError, StorageError
from skyfed.runs.folder import RunFolder
from skyfed.runs.listing import ListedRun, RunGroup, list_runs, look
from skyfed.runs.lock import in_use, locked
from skyfed.runs.tables import Table
from waiting import LONG


def config(**changes: object) -> Config:
    return load_config("smoke").model_copy(update={"rounds": 3, "algorithms": ["sgd", "afl"], **changes})


def trained(place: Path, algorithm: str, rounds: int, whole: bool = False) -> None:
    """Write the tables as a training leaves them."""
    folder = place / algorithm
    folder.mkdir()
    known = blank("rounds") | {"wire_bytes": 400_000, "downlink_bytes": 100_000, "seconds": 2.0}
    known |= {"mission_seconds": 90.0, "joules": 4e3}
    rows = [known | {"round": t, "accuracy": 0.25 * t if t else None} for t in range(rounds)]
    Table(folder, "rounds").append(rows)
    if whole:
        Table(folder, "uplink").finish()
        Table(folder, "rounds").finish()
        (folder / "model.safetensors").touch()


def made(place: Path, *done: int, **changes: object) -> Path:
    """Make a run's folder with so many rounds of each algorithm."""
    settings = config(**changes)
    with RunFolder.claim(place, settings, ["run"]):
        for algorithm, rounds in zip(settings.labels, done, strict=False):
            trained(place, algorithm, rounds, rounds == settings.rounds)
    return place


def test_a_finished_run_with_its_figures(tmp_path):
    run = look(made(tmp_path / "run", 3, 3))
    assert (run.state, run.note, run.rounds, run.seed) == ("done", "", 3, 0)
    assert [one.algorithm for one in run.trained] == ["sgd", "afl"]
    assert (run.trained[1].accuracy, run.trained[1].bytes, run.trained[1].seconds) == (0.5, 1_200_000, 6.0)
    assert (run.trained[1].total_bytes, run.trained[1].mission_seconds, run.trained[1].joules) == (
        1_500_000,
        270.0,
        12e3,
    )
    assert run.started


def test_the_papers_law_has_no_mission(tmp_path):
    world = config().world.model_copy(update={"time": "law"})
    run = look(made(tmp_path / "run", 3, 3, world=world))
    assert (run.trained[1].mission_seconds, run.trained[1].joules) == (None, 12e3)
    assert ["afl", "3/3", "50.0", "-", "1.50", "12.0", "6.00"] in [
        line.split() for line in said(str(tmp_path)).splitlines()
    ]


def test_states_follow_from_files(tmp_path):
    assert look(made(tmp_path / "a")).state == "not begun"
    (made(tmp_path / "b") / "plan.npz").touch()
    assert look(tmp_path / "b").state == "planned"
    (made(tmp_path / "c") / "plans").mkdir()
    assert look(tmp_path / "c").state == "interrupted"
    assert look(made(tmp_path / "d", 3, 1)).state == "interrupted"
    assert look(made(tmp_path / "e", 3)).state == "interrupted"


def test_a_run_whose_lock_is_held_is_running_whatever_its_files_say(tmp_path):
    place = tmp_path / "run"
    with RunFolder.claim(place, config(), []):
        assert look(place).state == "running"
        trained(place, "sgd", 1)
        assert look(place).state == "running"
    assert look(place).state == "interrupted"


def test_the_lock_of_a_killed_process_holds_nothing(tmp_path):
    script = f"import os; from pathlib import Path; from skyfed.runs.lock import locked\n\
with locked(Path({str(tmp_path)!r})):\n    print('held', flush=True)\n    input()\n    os.abort()"
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    assert in_use(tmp_path)
    with pytest.raises(StorageError, match="in use"), locked(tmp_path):
        pass
    process.communicate("\n")
    assert not in_use(tmp_path)


def test_asking_does_not_keep_a_run_from_its_folder(tmp_path):
    """Whoever lists runs holds a shared lock for a moment; a claim waits that long."""
    import fcntl
    import threading

    made(tmp_path / "run")
    with (tmp_path / "run" / ".lock").open() as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        threading.Timer(0.01, lambda: fcntl.flock(asking, fcntl.LOCK_UN)).start()
        with RunFolder.claim(tmp_path / "run", config(), []):
            assert in_use(tmp_path / "run")


def test_what_diverged_and_what_failed_is_kept_and_forgotten_at_the_next_start(tmp_path):
    place = tmp_path / "run"

    def ending(line: str, diverged: dict[str, str] | None) -> None:
        with RunFolder.claim(place, config(), []) as folder:
            folder.note(diverged=diverged)
            raise SkyfedError(line)

    made(place, 3, 1)
    with pytest.raises(SkyfedError):
        ending("afl stops at round 1", {"afl": "afl stops at round 1"})
    assert (look(place).state, look(place).note) == ("diverged", "afl stops at round 1")
    with pytest.raises(SkyfedError):
        ending("no flight plan meets the constraints", None)
    assert (look(place).state, look(place).note) == ("failed", "no flight plan meets the constraints")
    with RunFolder.claim(place, config(), []):
        pass
    assert look(place).state == "interrupted"


DAMAGE = {
    "no config": (lambda place: (place / "config.toml").unlink(), "config.toml is missing"),
    "no TOML": (lambda place: (place / "config.toml").write_text("a = "), "config.toml: "),
    "no text": (lambda place: (place / "config.toml").write_bytes(b"\xff\xfe"), "config.toml: "),
    "no rounds": (lambda place: (place / "config.toml").write_text("algorithms = ['afl']"), "no rounds or no seed"),
    "a number": (lambda place: (place / "config.toml").write_text("algorithms = 3"), "names no algorithms"),
    "no table": (lambda place: (place / "afl" / "rounds.parquet").write_text("x"), "afl/rounds.parquet: not a table"),
    "a folder": (lambda place: _swap(place / "config.toml"), "config.toml"),
    "odd lines": (lambda place: _lines(place / "afl", '{"round": 0}\n'), "afl/rounds.jsonl: line 1 is not a row"),
    "no rows": (lambda place: _lines(place / "afl", "[1]\n"), "afl/rounds.jsonl: line 1 is not a row"),
}  # fmt: skip


def _swap(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _lines(folder: Path, text: str) -> None:
    (folder / "rounds.parquet").unlink()
    (folder / "rounds.jsonl").write_text(text)


@pytest.mark.parametrize(("hurt", "says"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_run_is_listed_with_what_is_wrong(tmp_path, hurt, says):
    (made(tmp_path / "run", 3, 3) / "plan.npz").touch()
    hurt(tmp_path / "run")
    (run,) = list_runs(tmp_path)
    assert isinstance(run, ListedRun)
    assert run.state == "damaged"
    assert says in run.note
    assert "\n" not in run.note
    assert run.started


def test_a_manifest_that_is_none_costs_only_the_date(tmp_path):
    (made(tmp_path / "run", 3, 3) / "manifest.json").write_text("[")
    assert (look(tmp_path / "run").state, look(tmp_path / "run").started) == ("done", None)


def test_seeds_sweeps_and_folders_below(tmp_path):
    for seed in (0, 2, 10):
        made(tmp_path / "seeds" / f"seed-{seed}", 3, 3, seed=seed)
        made(tmp_path / "sweep" / "eta=0.1" / f"seed-{seed}", 3, 3 if seed else 1, seed=seed)
    made(tmp_path / "old" / "one", 3, 3)
    (tmp_path / "notes").mkdir()
    found = {entry.path.name: entry for entry in list_runs(tmp_path)}
    assert {name: (entry.kind, entry.state) for name, entry in found.items() if isinstance(entry, RunGroup)} == {
        "seeds": ("seeds", "done"), "sweep": ("sweep", "interrupted"), "old": ("folder", "done"),
    }  # fmt: skip
    assert len(found) == 3
    assert [run.seed for run in found["seeds"].runs] == [0, 2, 10]
    assert [entry.path.name for entry in list_runs(tmp_path / "sweep")] == ["eta=0.1"]
    with locked(tmp_path / "sweep"):
        assert {entry.path.name: entry.state for entry in list_runs(tmp_path)}["sweep"] == "running"


def said(*words: str) -> str:
    found = CliRunner().invoke(app, ["runs", *words])
    assert found.exit_code == 0, found.output
    return found.output


def test_the_table_and_the_json(tmp_path):
    made(tmp_path / "one", 3, 2)
    made(tmp_path / "two")
    (tmp_path / "two" / "config.toml").write_text("[")
    made(tmp_path / "seeds" / "seed-0", 3, 3)
    made(tmp_path / "seeds" / "seed-1", 3, 2)
    out = said(str(tmp_path))
    lines = [line.split() for line in out.splitlines()]
    assert ["one", "interrupted", "sgd", "3/3", "50.0", "4.50", "1.50", "12.0", "6.00"] in [line[:9] for line in lines]
    assert ["afl", "2/3", "25.0", "3.00", "1.00", "8.00", "4.00"] in lines
    assert ["afl", "5/6", "40", "±", "160", "3.75", "1.25", "10.0", "10.0"] in lines  # means, and the sum of wall
    assert f"{tmp_path}/two: config.toml: " in out
    assert "Traceback" not in out
    records = json.loads(said(str(tmp_path), "--json"))
    assert {record["path"].rpartition("/")[2]: record["state"] for record in records} == {
        "one": "interrupted", "two": "damaged", "seeds": "interrupted",
    }  # fmt: skip
    assert json.loads(said(str(tmp_path / "one"), "--json"))[0]["trained"][0]["accuracy"] == 0.5


def test_nothing_to_list(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "no runs here" in said()
    assert json.loads(said("--json")) == []
    found = CliRunner().invoke(app, ["runs", "nowhere"])
    assert isinstance(found.exception, BadInputError)


def test_runs_are_listed_without_torch(tmp_path):
    made(tmp_path / "one", 3, 3)
    script = f"import sys; from skyfed.cli import run_arguments; run_arguments(['runs', {str(tmp_path)!r}])\n\
print([name for name in ('torch', 'cvxpy', 'flwr', 'matplotlib', 'sklearn') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=LONG)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr
