"""Runs the jobs of a sweep, each in a process of its own, some side by side; what is done is not done again."""

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, Popen

from skyfed.files import storage_errors, write_whole
from skyfed.runs.folder import locked
from skyfed.runs.sweep_file import SweepJob
from skyfed.runs.tables import is_done
from skyfed.workers import child_environment, usable_cores

_PAUSE = 0.2  # seconds between two looks at the processes
Done = Callable[[SweepJob], None]


def run_sweep(jobs: list[SweepJob], place: Path, parallel: int, done: Done) -> list[str]:
    """Run the jobs of a sweep in its folder, which nobody else may use; returns one line for each run that failed."""
    with locked(place):
        return run_jobs(jobs, place, parallel, done)


def run_jobs(jobs: list[SweepJob], place: Path, parallel: int, done: Done) -> list[str]:
    """Run what is not finished; returns one line for each run that failed. A signal stops all after their round."""
    waiting, workers = [], max(1, usable_cores() // parallel)
    for job in jobs:
        if all(is_done(place / job.place / name) for name in job.config.labels):
            done(job)
        else:
            waiting.append(job)
    logs = place / "logs"
    with storage_errors(logs):
        logs.mkdir(parents=True, exist_ok=True)
    running: dict[Popen[bytes], SweepJob] = {}
    failures = []
    try:
        while waiting or running:
            while waiting and len(running) < parallel:
                job = waiting.pop(0)
                running[_start(job, place, logs, workers)] = job
            for process in [process for process in running if process.poll() is not None]:
                job = running.pop(process)
                if process.returncode:
                    failures.append(f"{job.place}: {_last_line(logs / _name(job, 'log'))} (exit {process.returncode})")
                done(job)
            time.sleep(_PAUSE)
    except BaseException:
        for process in running:
            process.terminate()  # SIGINT they ignore where a shell started the sweep in the background
        for process in running:
            process.wait()
        raise
    return failures


def _start(job: SweepJob, place: Path, logs: Path, workers: int) -> Popen[bytes]:
    config = logs / _name(job, "toml")
    write_whole(config, job.config.model_copy(update={"workers": workers}).to_toml().encode())
    command = [sys.executable, "-m", "skyfed", "run", str(config), "--out", str(place / job.place), "--plain"]
    with storage_errors(logs), (logs / _name(job, "log")).open("ab") as log:
        return Popen(command, stdout=log, stderr=log, stdin=DEVNULL, start_new_session=True, env=child_environment())


def _name(job: SweepJob, kind: str) -> str:
    return f"{job.variant} seed-{job.seed}.{kind}"


def _last_line(path: Path) -> str:
    with suppress(OSError):
        if lines := path.read_text(encoding="utf-8", errors="replace").strip().splitlines():
            return lines[-1]
    return "no output"
