"""Two starts on one folder at the same moment: exactly one wins, and a kill -9 frees the lock."""

import os
import random
import signal
from pathlib import Path

from endurance.stage import Process, Row, arguments, import_all, run_part, wait_for, workshop


def races(count: int, seed: int) -> list[Row]:
    """Let two processes race for a new folder, `count` times; every third time for one that already has a run."""
    import_all()
    rng = random.Random(seed)
    failures: list[str] = []
    freed = 0
    with workshop() as place:
        for k in range(count):
            run = place / (f"run-{k}" if k % 3 or not k else f"run-{k - 1}")
            wrong = _race(place, run, rng.choice([0.0, 0.0, 0.01, 0.05]))
            if wrong:
                failures.append(f"race {k}: {wrong}")
            else:
                freed += 1
    won = count - len(failures)
    return [
        Row("two starts on one folder: exactly one wins, the other ends with 3 and one line", f"{won} of {count}",
            "all", won == count, {"failures": failures[:5]} if failures else {}),
        Row("lock free at once after kill -9 of its holder", f"{freed} of {count}", "all", freed == count),
    ]  # fmt: skip


def _race(place: Path, run: Path, apart: float) -> str:
    """Start two at once; returns what was wrong."""
    from skyfed.runs.lock import in_use

    ready, go = os.pipe()
    words = arguments(run, "rounds=2000", "eval_every=2000")

    def at_once() -> None:
        os.close(go)
        os.read(ready, 1)  # ends when the gate is closed

    both = [Process(words, place / f"log-{k}", at_once) for k in range(2)]
    os.close(ready)
    if apart:
        both[0].signal(signal.SIGSTOP)
        os.close(go)
        wait_for(lambda: False, apart)
        both[0].signal(signal.SIGCONT)
    else:
        os.close(go)
    try:
        if not wait_for(lambda: any(one.poll() is not None for one in both)):
            return "both go on"
        loser, winner = both if both[0].poll() is not None else reversed(both)
        said = [line for line in loser.said().splitlines() if line.startswith("skyfed:")]
        if loser.code != 3 or len(said) != 1 or "in use by another process" not in said[0]:
            return f"the loser ended with {loser.code}: {loser.said()[-300:]}"
        if winner.poll() is not None or not in_use(run):
            return f"the winner ended with {winner.code}: {winner.said()[-300:]}"
        winner.kill()
        return "the lock is still held" if in_use(run) else ""
    finally:
        for one in both:
            one.kill()


if __name__ == "__main__":
    run_part(races, 50, __doc__)
