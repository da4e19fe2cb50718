"""A thousand rounds: memory, net of the data, and open files stay where they were; capped data sets stay so."""

import os
import time
from pathlib import Path
from statistics import median

from endurance.crew import workers_of
from endurance.stage import ALGORITHM, Process, Row, arguments, import_all, rows_done, run_part, wait_for, workshop

KEPT = 40  # samples a vehicle keeps


def memory(pid: int) -> int:
    """Return a process's own bytes in memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon", "RssShmem")))


def handles(pid: int) -> int:
    """Return how many files a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def soak(count: int, seed: int) -> list[Row]:
    """Run `count` rounds without worker processes, and again with two."""
    import_all()
    from skyfed.tasks.synthetic import generate

    data = sum(part.nbytes for part in vars(generate()).values() if hasattr(part, "nbytes"))
    rows = []
    for workers in (1, 2) if count >= 100 else (1,):
        rows += _watched(count, seed, workers, data)
    return rows


def _watched(count: int, seed: int, workers: int, data: int) -> list[Row]:
    from skyfed.runs.tables import read_parquet

    begin = max(4, count // 10)
    words = (f"rounds={count}", f"seed={seed}", f"workers={workers}", f"sensing.keep_last={KEPT}", "eval_every=50")
    used: list[tuple[int, int]] = []
    with workshop() as place:
        run = place / "run"
        process = Process(arguments(run, *words), place / "log")
        if not wait_for(lambda: rows_done(run) >= begin or process.poll() is not None):
            raise RuntimeError(process.said())
        began = time.monotonic()
        while (
            process.poll() is None
            and rows_done(run) < count - 1
            and not (run / ALGORITHM / "model.safetensors").exists()
        ):
            try:
                all_of_them = [process.pid, *workers_of(process.pid)]
                used.append((sum(map(memory, all_of_them)) - data * len(all_of_them), sum(map(handles, all_of_them))))
            except OSError:
                break  # it has just ended
            time.sleep(0.1 if count >= 100 else 0.02)
        seconds = time.monotonic() - began
        code = process.wait()
        most = max(row["samples"] for row in read_parquet(run / ALGORITHM / "uplink.parquet")) if not code else -1
    tenth = max(1, len(used) // 10)
    first, last = (median(m for m, _ in part) for part in (used[:tenth], used[-tenth:]))
    opened = [median(h for _, h in part) for part in (used[:tenth], used[-tenth:])]
    grown = last / first - 1
    how = "one process" if workers == 1 else "two workers"
    return [
        Row(f"{count} rounds, {how}: memory net of data, from the first tenth after round {begin} to the last",
            f"{100 * grown:+.1f} %", "within 5 %", code == 0 and abs(grown) <= 0.05,
            {"MB": f"{first / 1e6:.0f} → {last / 1e6:.0f}", "ms a round": round(1000 * seconds / (count - begin))}),
        Row(f"{count} rounds, {how}: open files", f"{opened[0]:.0f} → {opened[1]:.0f}", "flat",
            abs(opened[1] - opened[0]) <= 1, {"sampled": len(used)}),
        Row(f"samples a vehicle holds with sensing.keep_last = {KEPT}, {how}", str(most), f"≤ {KEPT}",
            0 < most <= KEPT),
    ]  # fmt: skip


if __name__ == "__main__":
    run_part(soak, 1000, __doc__)
