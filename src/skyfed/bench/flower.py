"""What a round across processes costs beyond training, on this machine: a station and vehicles, through Flower."""

import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from statistics import median

from skyfed.bench.row import Progress, Row
from skyfed.drivers.flower.looks import cpu_seconds, find_link, measure_looks, resident
from skyfed.errors import SkyfedError
from skyfed.runs.tables import Table

_FLOWER = 3.0  # seconds that Flower's SuperNode sleeps between two looks for messages


def bench_fleet(vehicles: int, rounds: int, announce: Progress) -> list[Row]:
    """Measure rounds with vehicles that look for work often, rounds with Flower's own pauses, and big uploads."""
    small = ['algorithms=["2ceoafl"]', f"rounds={rounds}", f"eval_every={rounds}", "flight.method=greedy"]
    announce(f"{vehicles} vehicles, small CNN, looking for work every 0.2 s")
    often = _run("smoke", vehicles, [*small, "fleet.poll=0.2"])
    announce(f"{vehicles} vehicles, small CNN, Flower's own pauses of {_FLOWER:g} s")
    seldom = _run("smoke", vehicles, [*small, f"fleet.poll={_FLOWER}"])
    announce("2 vehicles, ResNet18 of full width, raw uploads")
    big = ['algorithms=["afl"]', "rounds=6", "eval_every=6", "flight.method=greedy", "data.name=synthetic"]
    large = _run("paper", 2, [*big, "sensing.n_max=10", "sensing.initial=64", "train.kappa=1", "fleet.poll=0.2"])
    announce("a vehicle that only looks for work")
    looks = measure_looks()
    return [
        Row(
            "overhead of a round", often["beyond"], "s", "≤ 1.5", "≤ 0.5", often["beyond"] <= 1.5,
            {"round (s)": often["round"], "slowest training (s)": often["train"], "worst (s)": often["worst"]},
        ),
        Row(
            "the same with Flower's own pauses", seldom["beyond"], "s", "-", "-", True,
            {"of it pauses (s)": max(0.0, seldom["beyond"] - often["beyond"]), "round (s)": seldom["round"]},
        ),
        Row(
            "raw ResNet18 upload", large["bytes"] / 1e6, "MB", "goes through", "-", large["in"] == 2,
            {"overhead of a round (s)": large["beyond"]},
        ),
        Row(
            "what a vehicle's look for work costs the SuperLink", looks["kept"] * 1e3, "ms CPU", "-", "-", True,
            {"with a new connection (ms)": looks["fresh"] * 1e3, "nobody asks (ms a second)": looks["idle"] * 1e3,
             "vehicles that wait and keep a core busy": int(_FLOWER * (1 - looks["idle"]) / looks["kept"]),
             "memory at rest (MB)": looks["memory"] / 1e6},
        ),
        Row(
            "what a vehicle's part in a round costs the SuperLink", seldom["part"], "s CPU", "-", "-", True,
            {"with looks every 0.2 s (s)": often["part"],
             f"with an upload of {large['bytes'] / 1e6:.1f} MB (s)": large["part"],
             "memory in the end, small (MB)": seldom["memory"] / 1e6,
             "memory in the end, big uploads (MB)": large["memory"] / 1e6},
        ),
    ]  # fmt: skip


def _run(preset: str, vehicles: int, settings: list[str]) -> dict[str, float]:
    """Return medians over the rounds that are neither the first nor tested."""
    overrides = [word for setting in settings for word in ("--set", setting)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with tempfile.TemporaryDirectory() as name:
        place = Path(name) / "run"
        command = [sys.executable, "-m", "skyfed", "fleet", "try", preset, "--vehicles", str(vehicles), *overrides]
        command += ["--out", str(place), "--plain"]
        log = Path(name) / "log"
        with log.open("wb") as out:
            process = subprocess.Popen(command, env=environment, stdout=out, stderr=out)
            watched = _watch(process)
        if process.returncode:
            raise SkyfedError(f"fleet try: {log.read_text(errors='replace').strip().splitlines()[-1]}")
        (folder,) = [path.parent for path in place.glob("*/model.safetensors")]
        every, uplink = Table(folder, "rounds").rows(), Table(folder, "uplink").rows()
    rounds = every[1:-1]
    slowest = [max(sent["measured_seconds"] for sent in uplink if sent["round"] == row["round"]) for row in rounds]
    beyond = [row["seconds"] - train for row, train in zip(rounds, slowest, strict=True)]
    end, cpu, memory = watched[-1]  # the SuperLink ends with the last round
    first = end - sum(row["seconds"] for row in every[1:])
    used = cpu - next(before for moment, before, _ in watched if moment >= first)
    return {
        "round": median(row["seconds"] for row in rounds),
        "train": median(slowest),
        "beyond": median(beyond),
        "worst": max(beyond),
        "bytes": max(row["wire_bytes"] for row in uplink),
        "in": min(row["uploads"] for row in rounds),
        "part": used / (vehicles * (len(every) - 1)),
        "memory": memory,
    }


def _watch(process: subprocess.Popen[bytes]) -> list[tuple[float, float, float]]:
    """Wait for a fleet to end; returns time, CPU seconds and memory of its SuperLink, ten times a second."""
    samples: list[tuple[float, float, float]] = []
    link = 0
    while process.poll() is None:
        time.sleep(0.1)
        link = link or find_link(process.pid)
        with suppress(OSError):
            if link and (memory := resident(link)):  # none is left once it has ended
                samples.append((time.monotonic(), cpu_seconds(link), memory))
    return samples
