"""Worker processes killed or out of memory in the middle of rounds: repeated on new ones, same bits, or a clear end."""

import os
import random
import resource
import signal
import time
from pathlib import Path

from endurance.stage import (
    LONG,
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
    taken: dict[str, list[int]] = {"killed": [], "out of memory": []}
    with workshop() as place:
        heavy = ("sensing.initial=400", "train.batch_size=64", "eval_every=2")  # testing asks for new memory
        whole = whole_run(place / "whole", rounds, *heavy)
        run, log = place / "run", place / "log"
        hard = (*heavy, "workers=2")
        process = Process(arguments(run, rounds, *hard), log)
        at = 0
        for k in range(count):
            at = max(at + 1, rows_done(run))
            wait_for(lambda at=at: rows_done(run) >= at or process.poll() is not None)  # type: ignore[misc]
            found = workers_of(process.pid)
            if process.poll() is not None or not found:
                break
            time.sleep(rng.uniform(0, 0.05))
            pid = rng.choice(found)
            try:
                if k % 2:
                    starve(pid)
                    taken["out of memory"].append(pid)
                else:
                    os.kill(pid, signal.SIGKILL)
                    taken["killed"].append(pid)
            except (OSError, ProcessLookupError):
                continue  # it had just been replaced
            wait_for(lambda pid=pid, at=at: pid not in workers_of(process.pid) or rows_done(run) > at + 3)  # type: ignore[misc]
            if pid in workers_of(process.pid):  # it does with the memory it has
                taken["out of memory"].remove(pid)
        code = process.wait()
        last_said = process.said()
        ended = digest(run) if code == 0 else f"exit {code}"
        same = ended == whole
        code, said = _without_any(place / "bare", rounds, *hard)
        again = Process(["resume", str(place / "bare"), "--plain"], log)
        kept = again.wait() == 0 and "rounds were done before" in again.said() and digest(place / "bare") == whole
    clear = code == 1 and "ended 3 times" in said and "Traceback" not in said and kept
    deaths = {how: len(pids) for how, pids in taken.items()}
    return [
        Row("workers killed or out of memory inside rounds: repeated on a new worker, the result",
            "identical: weights, metrics, flights" if same else f"DIFFERS: {ended} {last_said[-300:]}",
            "identical (hash)", same and (all(deaths.values()) or count < 4), deaths),
        Row("every worker killed as soon as it works: the end", (said.strip().splitlines() or ["nothing said"])[-1],
            "a clear end after three, resumed to the same result", clear, {"exit": code}),
    ]  # fmt: skip


def _without_any(run: Path, *overrides: str) -> tuple[int, str]:
    """Kill every worker from round 2 on; returns exit code and what was said."""
    process = Process(arguments(run, *overrides), run.parent / "bare.log")
    wait_for(lambda: rows_done(run) >= 2 or process.poll() is not None)
    end = time.monotonic() + LONG
    while process.poll() is None and time.monotonic() < end:
        for pid in workers_of(process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.01)
    return process.wait(), process.said()


if __name__ == "__main__":
    run_part(crew, 8, __doc__)
