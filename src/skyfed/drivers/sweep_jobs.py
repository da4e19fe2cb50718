"""Runs the jobs of a sweep, each in a process of its own, some side by side; what is done is not done again.

Any number of processes may do this in one folder, on one machine or on several nodes: each takes runs that nobody
works on. A run that was stopped or killed is free again; one that failed is tried again by the next start only.
"""

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import DEVNULL, Popen

from skyfed.drivers.run_log import RunLog, failure
from skyfed.files import write_whole
from skyfed.runs.lock import in_use
from skyfed.runs.sweep_file import SweepJob
from skyfed.runs.tables import is_done
from skyfed.workers import child_environment, usable_cores

_PAUSE = 0.2  # seconds between two looks at the processes
_LOOK = 2.0  # seconds between two looks at what others work on
Done = Callable[[SweepJob], None]


@dataclass
class Outcome:
    """How many runs were worked on here, and one line for each that failed, here or meanwhile elsewhere."""

    started: int = 0
    failures: list[str] = field(default_factory=list)


def run_jobs(
    jobs: list[SweepJob], place: Path, parallel: int, done: Done, since: dict[str, int], wait: bool = False
) -> Outcome:
    """Run what is not finished and nobody else works on. A signal stops all after their round.

    since: the lengths of the logs when this process began; a run whose log has grown to a failure is not tried again
    wait:  whether to wait for runs of other processes, and to take up what they leave
    """
    left, outcome, look = list(jobs), Outcome(), 0.0
    running: dict[Popen[bytes], tuple[SweepJob, RunLog]] = {}
    try:
        while True:
            if len(running) < parallel and time.monotonic() >= look:
                if taken := _take(left, place, done, since, outcome):
                    running[_start(*taken, place, max(1, usable_cores() // parallel))] = taken
                    outcome.started += 1
                    continue
                look = time.monotonic() + _LOOK
            if not running and not (left and wait):
                return outcome
            for process in [process for process in running if process.poll() is not None]:
                job, log = running.pop(process)
                if process.returncode:
                    outcome.failures.append(f"{job.place}: {log.fail(process.returncode)}")
                log.release()
                done(job)
                look = 0.0
            time.sleep(_PAUSE)
    except BaseException:
        for process in running:
            process.terminate()  # SIGINT they ignore where a shell started the sweep in the background
        for process, (_, log) in running.items():
            process.wait()
            log.release()
        raise


def unfinished(jobs: list[SweepJob], place: Path) -> list[SweepJob]:
    """Return the runs that have neither finished nor failed; whoever sees none after its own is the last."""
    return [job for job in jobs if not _is_finished(job, place) and not failure(_log(job, place))]


def _take(
    left: list[SweepJob], place: Path, done: Done, since: dict[str, int], outcome: Outcome
) -> tuple[SweepJob, RunLog] | None:
    """Claim the next run that nobody works on and take it off the list, with all that have ended; None if none is."""
    for job in list(left):
        if _is_finished(job, place):
            left.remove(job)
            done(job)
            continue
        log = RunLog.claim(_log(job, place))
        if log is None or in_use(place / job.place):  # as by skyfed resume
            if log is not None:
                log.release()
            continue
        words = failure(log.path, since.get(log.path.name, 0))
        if not words and not _is_finished(job, place):  # it may have been, a moment ago
            left.remove(job)
            return job, log
        if words:
            outcome.failures.append(f"{job.place}: {words}")
        log.release()
        left.remove(job)
        done(job)
    return None


def _is_finished(job: SweepJob, place: Path) -> bool:
    """Tell whether a run has all that it leaves and nobody draws its figures any more."""
    run = place / job.place
    for folder in (run.parent, run, *(run / label for label in job.config.labels)):
        with suppress(OSError):
            os.listdir(folder)  # an NFS client may remember for a minute that a name was not there; this asks again
    return all(is_done(run / label) for label in job.config.labels) and not in_use(run)


def _start(job: SweepJob, log: RunLog, place: Path, workers: int) -> Popen[bytes]:
    config = log.path.with_suffix(".toml")
    write_whole(config, job.config.model_copy(update={"workers": workers}).to_toml().encode())
    command = [sys.executable, "-m", "skyfed", "run", str(config), "--out", str(place / job.place), "--plain"]
    return Popen(
        command, stdout=log.file, stderr=log.file, stdin=DEVNULL, start_new_session=True, env=child_environment()
    )


def _log(job: SweepJob, place: Path) -> Path:
    return place / "logs" / f"{job.variant} seed-{job.seed}.log"
