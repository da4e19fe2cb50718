"""Sweeps: what a file expands to, what is refused, and that what is done is not done again."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import wording
from in_process import Popen, undrawn
from skyfed.cli import app
from skyfed.errors import BadInputError, SkyfedError
from skyfed.files import drop_dead_parts
from skyfed.runs.lock import in_use
from skyfed.runs.sweep_file import read_sweep, settle
from skyfed.runs.tables import read_parquet
from waiting import LONG, wait_until

TINY = """
base = "smoke"
set = ["rounds=2", "vehicles=2", 'algorithms=["afl"]', 'flight.method="greedy"', "workers=1"]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "sweep.toml"
    path.write_text(text)
    return path


def test_a_grid_is_every_combination(tmp_path):
    text = TINY + 'seeds = "0-1"\n[grid]\n"train.eta" = [0.05, 0.1]\n"prune.delta" = [0.3, [0.1, 0.5], 0.7]\n'
    jobs = read_sweep(written(tmp_path, text))
    assert len(jobs) == 12
    assert [job.variant for job in jobs[:5:2]] == ["eta=0.05 delta=0.3", "eta=0.05 delta=0.1-0.5", "eta=0.05 delta=0.7"]
    assert (jobs[2].config.train.eta, jobs[2].config.prune.delta, jobs[2].seed) == (0.05, [0.1, 0.5], 0)
    assert jobs[3].config.seed == 1
    assert str(jobs[3].place) == "eta=0.05 delta=0.1-0.5/seed-1"


def test_words_and_tables_in_a_grid(tmp_path):
    text = TINY + '[grid]\n"flight.method" = ["greedy", "random"]\nalgorithms = [["afl"], ["afl", "sgd"]]\n'
    jobs = read_sweep(written(tmp_path, text))
    assert [job.config.flight.method for job in jobs] == ["greedy", "greedy", "random", "random"]
    assert jobs[3].config.algorithms == ["afl", "sgd"]


def test_variants_have_bases_and_seeds_of_their_own(tmp_path):
    one = '[[variant]]\nname = "one"\nset = ["train.eta=0.2"]\n'
    two = '[[variant]]\nname = "two"\nseeds = "4,7"\nbase = "quick"\n'
    one, four, seven = read_sweep(written(tmp_path, TINY + one + two))
    assert (one.variant, one.seed, one.config.train.eta, one.config.data.name) == ("one", 0, 0.2, "synthetic")
    assert (four.seed, seven.seed) == (4, 7)
    assert four.config.data.name == "cifar10"
    assert four.config.rounds == 2  # what all have


def test_a_base_may_be_a_file_beside_it(tmp_path):
    (tmp_path / "mine.toml").write_text("rounds = 7\n")
    (job,) = read_sweep(written(tmp_path, 'base = "mine.toml"\n'))
    assert job.config.rounds == 7
    assert job.variant == "base"


BAD = {
    "no TOML": "base = ",
    "an unknown key": "bass = 'quick'",
    "an unknown preset": "base = 'quack'",
    "an unknown setting": "set = ['train.etta=1']",
    "a bad value in a variant": "[[variant]]\nname = 'x'\nset = ['rounds=-1']",
    "a bad value in the grid": "[grid]\nrounds = [1, 'many']",
    "an empty axis": "[grid]\nrounds = []",
    "seeds that are none": "seeds = 'all'",
    "a name that leaves the folder": "[[variant]]\nname = '../x'",
    "a name twice": "[[variant]]\nname = 'x'\n[[variant]]\nname = 'x'",
    "a variant without a name": "[[variant]]\nset = []",
    "a grid of nothing": "[grid]\n'' = [1]",
    "a grid with a path": "[grid]\n'a/b' = [0.1]",
    "a grid over seeds": "[grid]\nseed = [5, 6]",
    "a seed in a setting": "set = ['seed=3']",
    "a name that is taken": "[[variant]]\nname = 'logs'",
    "a base that is no text": "base = 3",
    "settings that are no list": "set = 'rounds=1'",
    "seeds that are a number": "seeds = 3",
    "a grid that is no table": "grid = [1]",
    "an axis that is no list": "[grid]\nrounds = 3",
    "a variant that is no list": "variant = {name = 'x'}",
    "too many runs": "[grid]\nrounds = " + str(list(range(1, 102))) + "\nvehicles = " + str(list(range(1, 121))),
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_what_cannot_be_run_is_refused_in_a_line(text, tmp_path):
    with pytest.raises(BadInputError) as caught:
        read_sweep(written(tmp_path, text))
    assert len(str(caught.value)) > 10
    assert "\n" not in str(caught.value)
    assert "pattern" not in str(caught.value)
    assert wording.plain(str(caught.value))


def test_too_many_runs_are_counted_before_any_config_is_checked(tmp_path, monkeypatch):
    monkeypatch.setattr("skyfed.runs.sweep_file.load_config", lambda *_: pytest.fail("a config was checked"))
    with pytest.raises(BadInputError, match="more than 10000 runs"):
        read_sweep(written(tmp_path, BAD["too many runs"]))
    with pytest.raises(BadInputError, match="more than 10000 runs"):
        read_sweep(written(tmp_path, "seeds = '0-199'\n[grid]\nrounds = " + str(list(range(1, 52)))))


def test_a_model_that_is_not_there_is_refused_before_anything_is_run(tmp_path):
    text = TINY + '[grid]\n"model.name" = ["cnn", "nowhere:build"]\n'
    done = CliRunner().invoke(app, ["sweep", str(written(tmp_path, text)), "--out", str(tmp_path / "out")])
    assert isinstance(done.exception, BadInputError)
    assert "model.name = 'nowhere:build'" in str(done.exception)
    assert not (tmp_path / "out").exists()


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(BadInputError, match="no such file"):
        read_sweep(tmp_path / "none.toml")


def test_a_folder_with_other_things_is_refused(tmp_path):
    jobs = read_sweep(written(tmp_path, TINY))
    place = tmp_path / "out"
    settle(place, jobs)
    (place / "thesis.tex").write_text("mine")
    with pytest.raises(BadInputError, match="holds thesis"):
        settle(place, jobs)
    with pytest.raises(BadInputError, match="is a file"):
        settle(tmp_path / "sweep.toml", jobs)


def test_a_file_that_changes_a_run_is_refused(tmp_path):
    """Otherwise old results would be shown under a new file."""
    from skyfed.runs.folder import RunFolder

    path, place = written(tmp_path, TINY), tmp_path / "out"
    (job,) = read_sweep(path)
    settle(place, [job])
    with RunFolder.claim(place / job.place, job.config, []):
        pass
    settle(place, [job])
    path.write_text(TINY.replace("rounds=2", "rounds=3"))
    with pytest.raises(BadInputError, match="holds another run"):
        settle(place, read_sweep(path))


def test_what_a_killed_process_left_half_written_is_no_stranger_and_is_removed(tmp_path):
    jobs, place = read_sweep(written(tmp_path, TINY)), tmp_path / "out"
    settle(place, jobs)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    parts = [place / f".{name}.{dead.pid}.part" for name in ("report.html", "sweep.parquet", "best.toml")]
    mine = place / f".report.html.{os.getpid()}.part"
    for path in (*parts, mine):
        path.write_bytes(b"half")
    settle(place, jobs)
    drop_dead_parts(place)
    assert list(place.iterdir()) == [mine]


def invoked(*words: str):
    return CliRunner().invoke(app, ["sweep", *words, "--plain"])


def test_a_sweep_ends_in_one_table_and_is_not_run_twice(tmp_path, monkeypatch):
    path = written(tmp_path, TINY + '[grid]\n"train.eta" = [0.05, 0.1]\n')
    found = invoked(str(path), "--out", str(tmp_path / "out"), "--jobs", "2")
    assert found.exit_code == 0, found.output
    rows = read_parquet(tmp_path / "out" / "sweep.parquet")
    assert [(row["variant"], row["seed"], row["algorithm"], row["rounds"]) for row in rows] == [
        ("eta=0.05", 0, "afl", 2), ("eta=0.1", 0, "afl", 2),
    ]  # fmt: skip
    models = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("model.safetensors")}
    assert len(models) == 2
    assert found.stdout.splitlines()[-1] == f"report: {tmp_path / 'out' / 'report.html'}"
    assert (tmp_path / "out" / "report.html").is_file()
    undrawn(monkeypatch)
    assert invoked(str(path), "--out", str(tmp_path / "out")).exit_code == 0
    assert {path: path.stat().st_mtime_ns for path in models} == models


def test_a_run_that_fails_is_named_and_the_others_go_on(tmp_path, monkeypatch):
    undrawn(monkeypatch)
    monkeypatch.setattr("skyfed.drivers.sweep_jobs.usable_cores", lambda: 1)
    monkeypatch.setattr("skyfed.drivers.sweep_jobs.Popen", Popen)
    path = written(tmp_path, TINY + '[grid]\n"train.eta_local" = [1e30, 0.1]\n')
    found = invoked(str(path), "--out", str(tmp_path / "out"))
    assert isinstance(found.exception, SkyfedError)
    assert "eta_local=1e+30" in str(found.exception)
    rows = read_parquet(tmp_path / "out" / "sweep.parquet")
    assert ("eta_local=0.1", 2) in [(row["variant"], row["rounds"]) for row in rows]


def begun(
    folder: Path, place: Path, heard: Any = signal.default_int_handler, *more: str
) -> tuple[subprocess.Popen[str], Path]:
    """Start a long sweep; returns it when its run has finished a round, and that run's rounds."""
    path = written(folder, TINY.replace("rounds=2", "rounds=400"))
    command = [sys.executable, "-m", "skyfed", "sweep", str(path), "--out", str(place), "--plain", *more]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, heard),
    )
    rounds = place / "base" / "seed-0" / "afl" / "rounds.jsonl"
    wait_until(lambda: (rounds.exists() and rounds.stat().st_size > 0) or process.poll() is not None)
    return process, rounds


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_keeps_rounds_and_says_how_to_go_on(tmp_path, number):
    """By Ctrl-C; or in the background of a script, where a shell lets everything ignore SIGINT."""
    place = tmp_path / "it's out"
    if number == signal.SIGINT:
        process, rounds = begun(tmp_path, place)
    else:  # two runs side by side have half of the cores each: less to start
        process, rounds = begun(tmp_path, place, signal.SIG_IGN, "--jobs", "2")
    os.kill(process.pid, number)
    _, errors = process.communicate(timeout=LONG)
    assert process.returncode == 128 + number
    said = [line for line in errors.splitlines() if "go on with: " in line]
    assert len(said) == 1
    words = shlex.split(said[0].partition("go on with: ")[2])
    assert words == ["skyfed", "sweep", str(tmp_path / "sweep.toml"), "--out", str(place)]
    kept = len(rounds.read_text().splitlines())
    assert 0 < kept < 400
    time.sleep(1)
    assert len(rounds.read_text().splitlines()) == kept  # nobody goes on behind one's back


def test_the_runs_of_a_killed_sweep_end_with_it_and_free_their_folders(tmp_path):
    process, rounds = begun(tmp_path, tmp_path / "out")
    run = rounds.parents[1]
    assert in_use(run)
    process.kill()
    process.communicate(timeout=LONG)
    assert wait_until(lambda: not in_use(run))
    assert 0 < len(rounds.read_text().splitlines()) < 400
