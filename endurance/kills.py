"""Kill -9 at random moments and inside checkpoint writes, over one run; the result is that of an undisturbed one."""

import ctypes
import os
import random
import select
import signal
import time
from collections import Counter
from pathlib import Path

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
    wait_for,
    whole_run,
    workshop,
)

_CREATED = 0x100  # IN_CREATE of inotify


class Creations:
    """Tells at once when a file is made in a folder, by inotify."""

    def __init__(self, folder: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if libc.inotify_add_watch(self._descriptor, os.fsencode(folder), _CREATED) < 0:
            raise OSError(ctypes.get_errno(), "inotify")

    def wait(self, seconds: float) -> bool:
        """Tell whether a file was made within this time."""
        if not select.select([self._descriptor], [], [], seconds)[0]:
            return False
        os.read(self._descriptor, 4096)
        return True

    def close(self) -> None:
        """Stop looking."""
        os.close(self._descriptor)


def kill_in_write(process: Process, folder: Path, nth: int) -> bool:
    """Kill when the nth checkpoint from now is being written; tells whether it came to that."""
    if not wait_for(lambda: folder.is_dir() or process.poll() is not None) or process.poll() is not None:
        return False
    seen = Creations(folder)
    try:
        while nth:
            if not seen.wait(0.2):
                if process.poll() is not None:
                    return False
                continue
            nth -= 1
            if not nth and not _caught(process, folder):
                nth = 1  # the write was over before this process got to run: the next one, then
        process.signal(signal.SIGKILL)
        return True
    finally:
        seen.close()


def _caught(process: Process, folder: Path) -> bool:
    """Stop a process; tells whether it is inside a checkpoint write, and lets it go on where it is not."""
    process.signal(signal.SIGSTOP)
    if not wait_for(lambda: process.poll() is not None or process.is_stopped()) or process.poll() is not None:
        return False
    if any(folder.glob(f".round-*.{process.pid}-*.part")):
        return True
    process.signal(signal.SIGCONT)
    return False


def kills(count: int, seed: int) -> list[Row]:
    """Kill `count` times over one run of as many rounds."""
    import_all()
    rng, total = random.Random(seed), max(count, 12)
    rounds = f"rounds={total}"
    with workshop() as place:
        whole = whole_run(place / "whole", rounds)
        run, log = place / "run", place / "log"
        folder = run / ALGORITHM / "checkpoints"
        startup, done, inside, worst, told, most_rows = 1.0, 0, 0, 0, 0, 0
        where: Counter[str] = Counter()
        began = time.monotonic()
        for left in range(count, 0, -1):
            share = max(0.0, (total - 4 - done) / left)  # rounds that may pass before this kill
            resumes = (run / "config.toml").exists() and rng.random() < 0.5
            process = Process(["resume", str(run), "--plain"] if resumes else arguments(run, rounds), log)
            started = time.monotonic()
            if rng.random() < 0.6:
                nth = 1 + int(share) + (rng.random() < share % 1)
                kill_in_write(process, folder, nth)
                startup = 0.7 * startup + 0.3 * (time.monotonic() - started)
            else:
                most = done + int(share) + 1
                wait_for(lambda most=most: rows_done(run) > most, rng.uniform(0.0, 1.3 * startup))  # type: ignore[misc]
            process.kill()
            if process.code != -signal.SIGKILL:
                raise RuntimeError(f"ended by itself with {process.code}: {process.said()}")
            parts = list(folder.glob(".round-*.part")) if folder.is_dir() else []
            inside += bool(parts)
            rows, kept = rows_done(run), checkpoints(run)
            first = int(kept[-1].stem[6:]) + 1 if kept else 0
            start = _told(process)
            told += start is not None
            worst = max(worst, most_rows - (done if start is None else start))
            most_rows = max(most_rows, rows)
            worst = max(worst, most_rows - first)  # what a start gave up is given up, even if it did not live to say so
            where[_moment(run, parts, rows, done)] += 1
            done = first
        seconds = time.monotonic() - began
        process = Process(["resume", str(run), "--plain"], log)
        ended = process.wait()
        start = _told(process)
        told += start is not None
        worst = max(worst, most_rows - (start or 0))
        same = ended == 0 and digest(run) == whole
        left_over = [str(path) for path in run.rglob(".*.part")]
    share = inside / count
    return [
        Row(
            f"kill -9 at random moments, {count} over a run of {total} rounds: the resumed result",
            "identical: weights, metrics, flights" if same else f"DIFFERS ({ended})", "identical (hash)",
            same and not left_over,
            {"after kills at round": done, "minutes": round(seconds / 60, 1), "moments": dict(where.most_common())},
        ),
        Row("kills inside a checkpoint write", f"{inside} of {count}", "≥ 30 %", share >= 0.3, {"share": share}),
        Row("rounds redone after a kill, at most", str(worst), "≤ 1", worst <= 1 and told > 0,
            {"starts that lived to say where they stood": told}),
    ]  # fmt: skip


def _told(process: Process) -> int | None:
    """Return how many rounds a start said were done before; None where it did not come to that."""
    lines = [line for line in process.said().splitlines() if "rounds were done before" in line]
    return int(lines[0].split()[1]) if lines else None


def _moment(run: Path, parts: list[Path], rows: int, before: int) -> str:
    """Name the moment a kill hit."""
    if parts:
        return "writing a checkpoint"
    if any(run.rglob(".*.part")):
        return "writing another file"
    return "starting" if not (run / ALGORITHM).is_dir() or rows == before else "training"


if __name__ == "__main__":
    run_part(kills, 100, __doc__)
