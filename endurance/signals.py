"""SIGTERM, SIGINT, SIGHUP and a terminal that is really closed: the round is finished, one line says how to go on."""

import os
import pty
import random
import signal
import time
from pathlib import Path
from typing import Any

from endurance.stage import (
    ALGORITHM,
    Process,
    Row,
    arguments,
    checkpoints,
    digest,
    import_all,
    rows_done,
    run_part,
    text_stream,
    wait_for,
    whole_run,
    workshop,
)

ROUNDS = 60
FEW = 20  # rounds, where every kind comes once
KINDS = ("SIGTERM", "SIGINT", "SIGHUP", "terminal closed", "SIGTERM while figures are drawn")


def signals(count: int, seed: int) -> list[Row]:
    """Stop `count` runs, each way in turn, and let each go on to its end."""
    import_all()
    rng = random.Random(seed)
    failures: list[str] = []
    finished: list[bool] = []
    rounds = ROUNDS if count > len(KINDS) else FEW
    with workshop() as place:
        whole = whole_run(place / "whole", f"rounds={rounds}")
        for k in range(count):
            kind, run = KINDS[k % len(KINDS)], place / f"run-{k}"
            after = rng.randrange(1, rounds // 2)
            stopping = Stopping(run, kind, rounds)
            wrong = stopping.stop(after) or _resumed(run, whole)
            finished += [] if stopping.late else [stopping.finished]
            failures += [f"{kind} after round {after}: {wrong}"] if wrong else []
    held = count - len(failures)
    also = {"finished the round they were in": f"{sum(finished)} of {len(finished)}, the others were between two"}
    return [
        Row("SIGTERM, SIGINT, SIGHUP, terminal closed: stops after the round, exit 143, 130, 129, one line, resumes",
            f"{held} of {count}", "all", held == count and any(finished),
            also | ({"failures": failures[:5]} if failures else {})),
    ]  # fmt: skip


class Stopping:
    """A run that is stopped in some way; `finished` tells whether the round it was in came to its end."""

    def __init__(self, run: Path, kind: str, rounds: int) -> None:
        self._rounds = rounds
        self._run, self.late, self._closed = run, kind.endswith("drawn"), kind == "terminal closed"
        self._number = signal.SIGHUP if self._closed else signal.Signals[kind.split()[0]]
        self.finished = False

    def stop(self, after: int) -> str:
        """Start it and stop it after some round; returns what was wrong."""
        run, late, number = self._run, self.late, self._number
        ours, theirs = pty.openpty() if self._closed else (-1, -1)
        words = [word for word in arguments(run, f"rounds={self._rounds}") if not self._closed or word != "--plain"]

        def before() -> None:
            if self._closed:
                _live_on(theirs)
            if not late:
                _take_time()

        process = Process(words, run.parent / f"{run.name}.log", before, draws=late)
        try:
            if not wait_for(lambda: (_drained(ours) and _reached(run, after, late)) or process.poll() is not None):
                return "never got there"
            if not late:  # the checkpoint follows the row; then the next round is on
                wait_for(lambda: (_drained(ours) and _saved(run)) or process.poll() is not None)
            time.sleep(0.03)
            done = rows_done(run)
            if self._closed:
                os.close(theirs)
                os.close(ours)  # the last of the terminal: the kernel sends SIGHUP to whom it controls
                ours = -1
            else:
                process.signal(number)
                if number == signal.SIGHUP:  # as a shell and the kernel do when a window is closed
                    time.sleep(0.02)
                    process.signal(number)
            code = process.wait()
        finally:
            process.kill()
            if ours >= 0:
                os.close(ours)
        self.finished = rows_done(run) > done
        return self._judged(code, process.said())

    def _judged(self, code: int, said: str) -> str:
        """Return what was wrong with the way it ended."""
        if code != 128 + self._number:
            return f"exit {code}: {said[-300:]}"
        rows, last = self._rounds if self.late else rows_done(self._run), checkpoints(self._run)[-1].name
        if last != f"round-{rows - 1:05d}.safetensors":
            return f"stopped inside a round: {rows} rows, {last}"
        told = [line for line in said.splitlines() if f"skyfed resume {self._run}" in line]
        if not self._closed and (len(told) != 1 or "Traceback" in said):  # nobody can read what a closed terminal says
            return f"said: {said[-300:]}"
        return ""


def _reached(run: Path, after: int, late: bool) -> bool:
    """Tell whether a run has finished so many rounds, or is as far as its figures."""
    return (run / "figures").is_dir() if late else rows_done(run) >= after


def _saved(run: Path) -> bool:
    """Tell whether the last round that has its row has its checkpoint too."""
    return checkpoints(run)[-1:] == [run / ALGORITHM / "checkpoints" / f"round-{rows_done(run) - 1:05d}.safetensors"]


def _take_time() -> None:
    """Let training take most of a round's time, so that a signal comes in the middle of it."""
    from skyfed.kit import Kit

    real = Kit.descend

    def unhurried(*words: Any, **named: Any) -> Any:
        time.sleep(0.03)
        return real(*words, **named)

    Kit.descend = unhurried  # type: ignore[method-assign]


def _resumed(run: Path, whole: str) -> str:
    """Go on to the end; returns what was wrong."""
    process = Process(["resume", str(run), "--plain"], run.parent / f"{run.name}.log")
    code = process.wait()
    if code:
        return f"resume ended with {code}: {process.said()[-300:]}"
    return "" if digest(run) == whole else "another result"


def _live_on(terminal: int) -> None:
    """Make a terminal this process's own, with live output on it."""
    import fcntl
    import sys
    import termios

    os.environ["TERM"] = "xterm"
    os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    for descriptor in (0, 1, 2):
        os.dup2(terminal, descriptor)
    os.closerange(3, 256)
    sys.stdout, sys.stderr = text_stream(1), text_stream(2)


def _drained(terminal: int) -> bool:
    """Read what stands in a terminal, so that its writer is not held up."""
    if terminal >= 0:
        os.set_blocking(terminal, False)
        try:
            while os.read(terminal, 65536):
                pass
        except OSError:
            pass
    return True


if __name__ == "__main__":
    run_part(signals, 15, __doc__)
