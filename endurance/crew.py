"""Worker processes killed or out of memory in the middle of rounds: repeated on new ones, same bits, or a clear end."""

import os
import random
import resource
import signal
import time
from pathlib import Path

from endurance.stage import (
    Process,
    Row,
    arguments,
    digest,
    import_all,
    rows_done,
    run_part,
    wait_for,
    whole_run,
    workshop,
)

ROUNDS = 40


def workers_of(pid: int) -> list[int]:
    """Return the worker processes of a process."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int(path.joinpath("stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid and b"skyfed.workers" in path.joinpath("cmdline").read_bytes():
                found.append(int(path.name))
        except (OSError, ValueError, IndexError):
            continue  # it has just ended
    return found


def starve(pid: int) -> None:
    """Give a process no more memory than it has."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
    size = pages * resource.getpagesize()
    resource.prlimit(pid, resource.RLIMIT_AS, (size, size))


def crew(count: int, seed: int) -> list[Row]:
    """Take `count` workers from one run, by kill -9 and by hunger in turn; then take every worker from another."""
    import_all()
    rng = random.Random(seed)
    rounds = f"rounds={max(6, min(ROUNDS, 4 * count))}"
    taken = {"killed": 0, "out of memory": 0}
    with workshop() as place:
        whole = whole_run(place / "whole", rounds, "sensing.initial=400", "train.batch_size=64")
        run, log = place / "run", place / "log"
        hard = ("sensing.initial=400", "train.batch_size=64", "workers=2")
        process = Process(arguments(run, rounds, *hard), log)
        at = 0
        for k in range(count):
            at = max(at + 1, rows_done(run))
            wait_for(lambda at=at: rows_done(run) >= at or process.poll() is not None, 120)  # type: ignore[misc]
            found = workers_of(process.pid)
            if process.poll() is not None or not found:
                break
            time.sleep(rng.uniform(0, 0.05))
            try:
                if k % 2:
                    starve(found[0])
                    taken["out of memory"] += 1
                else:
                    os.kill(rng.choice(found), signal.SIGKILL)
                    taken["killed"] += 1
            except (OSError, ProcessLookupError):
                continue  # it had just been replaced
        code = process.wait()
        last_said = process.said()
        found = digest(run) if code == 0 else f"exit {code}"
        same = found == whole
        code, said, kept = _without_any(place / "bare", rounds, *hard)
    clear = code == 1 and "ended 3 times" in said and "Traceback" not in said and kept
    return [
        Row("workers killed or out of memory inside rounds: repeated on a new worker, the result",
            "identical: weights, metrics, flights" if same else f"DIFFERS: {found} {last_said[-300:]}",
            "identical (hash)", same and (all(taken.values()) or count < 2), taken),
        Row("every worker killed as soon as it works: the end", (said.strip().splitlines() or ["nothing said"])[-1],
            "a clear end after three, finished rounds kept", clear, {"exit": code}),
    ]  # fmt: skip


def _without_any(run: Path, *overrides: str) -> tuple[int, str, bool]:
    """Kill every worker from round 2 on; returns exit code, what was said, and whether rounds were kept."""
    process = Process(arguments(run, *overrides), run.parent / "bare.log")
    wait_for(lambda: rows_done(run) >= 2 or process.poll() is not None, 120)
    end = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < end:
        for pid in workers_of(process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.01)
    return process.wait(), process.said(), rows_done(run) >= 2


if __name__ == "__main__":
    run_part(crew, 8, __doc__)
