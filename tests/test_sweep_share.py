"""Several processes on one sweep: every run is done once, and what a killed process leaves is taken up."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from in_process import Popen, undrawn
from skyfed.cli import run_arguments
from skyfed.drivers.run_log import RunLog, failure, lengths
from skyfed.drivers.sweep_jobs import run_jobs, unfinished
from skyfed.errors import BadInputError
from skyfed.files import drop_dead_parts, write_whole
from skyfed.runs.lock import in_use, locked, only_on_this_node
from skyfed.runs.sweep_file import read_sweep, share_of
from skyfed.runs.tables import read_parquet
from waiting import LONG, wait_until

TINY = """
base = "smoke"
set = ["rounds=3", "vehicles=2", 'algorithms=["afl"]', 'flight.method="greedy"', "model.name=cnn", "workers=1"]
seeds = "0-1"
"""
GATED = TINY.replace("model.name=cnn", "model.name=run_cases:Gated")


def written(folder: Path, text: str) -> Path:
    path = folder / "sweep.toml"
    path.write_text(text)
    return path


def started(path: Path, place: Path, **environment: str) -> subprocess.Popen[str]:
    """Start a sweep in a process of its own, as on a node."""
    words = [sys.executable, "-m", "skyfed", "sweep", str(path), "--out", str(place), "--plain"]
    known = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **environment}
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=known)


def together(path: Path, place: Path, nodes: int) -> list[tuple[int, str, str]]:
    """Let several processes work on a sweep that all begin at once; returns how each ended and what it said."""
    meeting = place.parent / "meeting"
    words = [str(meeting), str(nodes), "sweep", str(path), "--out", str(place), "--plain"]
    command = [sys.executable, str(Path(__file__).parent / "sweep_node.py"), *words]
    known = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=known)
        for _ in range(nodes)
    ]
    said = [node.communicate(timeout=LONG) for node in running]
    return [(node.returncode, *words) for node, words in zip(running, said, strict=True)]


def in_this_process(path: Path, place: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> int:
    undrawn(monkeypatch)
    monkeypatch.setattr("skyfed.drivers.sweep_jobs.Popen", Popen)
    monkeypatch.setattr("skyfed.drivers.sweep_jobs.usable_cores", lambda: 1)
    return run_arguments(["sweep", str(path), "--out", str(place), "--plain", *more])


def free(path: Path) -> bool:
    """Tell whether nobody works on the run of a log."""
    log = RunLog.claim(path)
    if log is not None:
        log.release()
    return log is not None


def digests(place: Path) -> dict[str, list[str]]:
    """Return the hash of every round's model, by run."""
    return {
        str(table.relative_to(place)): [row["model_digest"] for row in read_parquet(table)]
        for table in sorted(place.rglob("rounds.parquet"))
    }


def test_three_processes_divide_a_sweep_and_one_writes_the_table(tmp_path, monkeypatch):
    path = written(tmp_path, TINY + '[grid]\n"train.eta" = [0.05, 0.1]\n')
    place = tmp_path / "shared"
    said = together(path, place, 3)
    assert [code for code, *_ in said] == [0, 0, 0], said
    assert sum("written to" in out for _, out, _ in said) == 1
    for _, out, _ in said:
        assert "written to" in out or len(out.splitlines()) == 1
    assert [log.read_text().count("written to") for log in sorted((place / "logs").glob("*.log"))] == [1] * 4
    assert in_this_process(path, tmp_path / "alone", monkeypatch) == 0
    assert digests(place) == digests(tmp_path / "alone")
    assert len(digests(place)) == 4
    table = [(row["variant"], row["seed"], row["accuracy"]) for row in read_parquet(place / "sweep.parquet")]
    alone = read_parquet(tmp_path / "alone" / "sweep.parquet")
    assert table == [(row["variant"], row["seed"], row["accuracy"]) for row in alone]


def test_the_runs_of_a_killed_process_are_finished_by_another(tmp_path, monkeypatch, capfd):
    path, place = written(tmp_path, GATED), tmp_path / "out"
    hold = tmp_path / "hold"
    hold.touch()
    run = place / "base" / "seed-0"
    gate = {"SKYFED_TEST_HOLD": str(hold), "SKYFED_TEST_ROWS": "1"}
    killed = started(path, place, **gate, SKYFED_TEST_TABLE=str(run / "afl" / "rounds.jsonl"))
    assert wait_until(lambda: Path(f"{hold}.waits").exists() or killed.poll() is not None)
    assert in_use(place, shared=True)
    assert in_this_process(path, place, monkeypatch) == 0  # takes the other run, and leaves this one alone
    assert "1 run done here; 1 of 2 runs are not finished" in capfd.readouterr().out
    assert not (place / "sweep.parquet").exists()
    killed.kill()
    killed.communicate(timeout=LONG)
    hold.unlink()
    assert wait_until(lambda: free(place / "logs" / "base seed-0.log"))  # its workers end a moment later
    assert in_this_process(path, place, monkeypatch) == 0
    assert len(read_parquet(place / "sweep.parquet")) == 2
    assert in_this_process(path, tmp_path / "alone", monkeypatch) == 0
    assert digests(place) == digests(tmp_path / "alone")


def test_two_processes_on_a_search_find_what_one_finds(tmp_path, monkeypatch):
    search = (
        '[search]\ntrials = 2\nbatch = 2\nsampler = "random"\n[search.ranges]\n"train.eta" = {low = 0.01, high = 0.3}'
    )
    path, place = written(tmp_path, TINY.replace("0-1", "0") + search), tmp_path / "shared"
    said = together(path, place, 2)
    assert [code for code, *_ in said] == [0, 0], said
    assert in_this_process(path, tmp_path / "alone", monkeypatch) == 0
    assert json.loads((place / "search.json").read_text()) == json.loads((tmp_path / "alone/search.json").read_text())
    assert (place / "best.toml").read_text() == (tmp_path / "alone/best.toml").read_text()
    assert [log.read_text().count("written to") for log in sorted((place / "logs").glob("*.log"))] == [1, 1]


def test_parts_are_fixed_shares_and_the_last_one_writes_the_table(tmp_path, monkeypatch, capfd):
    path, place = written(tmp_path, TINY), tmp_path / "out"
    assert in_this_process(path, place, monkeypatch, "--part", "2/2") == 0
    assert "1 run done here; 1 of 2 runs are not finished" in capfd.readouterr().out
    assert [run.parts[-3] for run in place.rglob("rounds.parquet")] == ["seed-1"]
    assert in_this_process(path, place, monkeypatch, "--part", "2/2") == 0
    assert capfd.readouterr().out.startswith(f"{place}: nothing left to do here; 1 of 2 runs are not finished")
    assert in_this_process(path, place, monkeypatch, "--part", "1/2") == 0
    assert len(read_parquet(place / "sweep.parquet")) == 2
    (place / "report.html").touch()  # no page is drawn here
    capfd.readouterr()
    assert in_this_process(path, place, monkeypatch) == 0
    assert capfd.readouterr().out.count("\n") == 1


def test_parts_hold_every_run_once(tmp_path):
    jobs = read_sweep(written(tmp_path, TINY.replace("0-1", "0-6")))
    shares = [share_of(jobs, f"{k}/3") for k in (1, 2, 3)]
    assert sorted(job.seed for share in shares for job in share) == list(range(7))
    assert max(map(len, shares)) - min(map(len, shares)) == 1
    assert share_of(jobs, "9/9") == []  # more tasks than runs


@pytest.mark.parametrize("part", ["0/2", "3/2", "1", "a/b", "1/0", "-1/2", "/"])
def test_a_part_that_is_none_is_refused(tmp_path, part):
    with pytest.raises(BadInputError, match="allowed: K/N"):
        share_of(read_sweep(written(tmp_path, TINY)), part)


def test_a_search_has_no_parts(tmp_path, capsys):
    table = '[search]\ntrials = 2\n[search.ranges]\n"train.eta" = {low = 0.01, high = 0.3}'
    assert run_arguments(["sweep", str(written(tmp_path, TINY + table)), "--part", "1/2"]) == 2
    assert capsys.readouterr().err.startswith("skyfed: --part: a search has no fixed shares")


def test_a_run_that_failed_meanwhile_is_not_tried_again(tmp_path, monkeypatch):
    (job, _) = jobs = read_sweep(written(tmp_path, TINY))
    place = tmp_path / "out"
    began = lengths(place / "logs")
    log = RunLog.claim(place / "logs" / "base seed-0.log")
    assert log is not None
    log.file.write(b"too much\n")
    assert log.fail(1) == "too much (exit 1)"
    log.release()
    assert failure(log.path) == "too much (exit 1)"
    assert unfinished(jobs, place) == jobs[1:]
    tried = []
    monkeypatch.setattr("skyfed.drivers.sweep_jobs.Popen", lambda *words, **more: tried.append(words) or Popen0())
    outcome = run_jobs([job], place, 1, lambda job: None, began)
    assert (outcome.failures, tried) == (["base/seed-0: too much (exit 1)"], [])
    assert run_jobs([job], place, 1, lambda job: None, lengths(place / "logs")).started == 1  # the next start does


class Popen0:
    """A process that has ended well."""

    returncode = 0

    def poll(self) -> int:
        """Return the exit code."""
        return 0


def test_the_process_of_a_run_holds_its_claim_as_long_as_it_lives(tmp_path):
    path = tmp_path / "a.log"
    log = RunLog.claim(path)
    assert log is not None
    with subprocess.Popen(["sleep", "1000"], stdout=log.file, stderr=log.file) as process:
        log.file.close()  # as if this process were killed
        assert RunLog.claim(path) is None
        process.kill()
    assert free(path)


def test_a_shared_lock_keeps_nobody_out_and_is_seen(tmp_path):
    with locked(tmp_path, shared=True), locked(tmp_path, shared=True):
        assert in_use(tmp_path, shared=True)
    assert not in_use(tmp_path, shared=True)


def test_mounts_whose_locks_are_a_nodes_own_are_told(tmp_path):
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "disk / ext4 rw 0 0\nhost:/shared /shared nfs4 rw,vers=4.2,local_lock=none 0 0\n"
        "host:/old /old nfs rw,nolock,vers=3 0 0\nmds:/fast /fast lustre rw,localflock 0 0\n"
    )
    told = {place: only_on_this_node(Path(place), mounts) for place in ("/shared/a/b", "/old/x", "/fast", "/older")}
    assert told == {"/shared/a/b": "", "/old/x": "nolock", "/fast": "localflock", "/older": ""}
    assert only_on_this_node(Path("/old"), tmp_path / "none") == ""


def test_what_another_node_is_writing_stays(tmp_path):
    other = tmp_path / ".report.html.99999999-node7.part"
    other.write_text("half")
    (tmp_path / f".report.html.99999999-{os.uname().nodename}.part").write_text("half")
    write_whole(tmp_path / "done", b"whole")
    drop_dead_parts(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [other.name, "done"]
