"""What a round across processes costs beyond training, on this machine: a station and vehicles, through Flower."""

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from skyfed.bench.row import Row
from skyfed.errors import SkyfedError
from skyfed.runs.store import Table

_FLOWER = 3.0  # seconds that Flower's SuperNode sleeps between two looks for messages


def bench_fleet(vehicles: int, rounds: int, announce: Callable[[str], None]) -> list[Row]:
    """Measure rounds with vehicles that look for work often, rounds with Flower's own pauses, and big uploads."""
    small = ['algorithms=["2ceoafl"]', f"rounds={rounds}", f"eval_every={rounds}", "flight.method=greedy"]
    announce(f"{vehicles} vehicles, small CNN, looking for work every 0.2 s")
    often = _run("smoke", vehicles, [*small, "fleet.poll=0.2"])
    announce(f"{vehicles} vehicles, small CNN, Flower's own pauses of {_FLOWER:g} s")
    seldom = _run("smoke", vehicles, [*small, f"fleet.poll={_FLOWER}"])
    announce("2 vehicles, ResNet18 of full width, raw uploads")
    big = ['algorithms=["afl"]', "rounds=3", "eval_every=3", "flight.method=greedy", "data.name=synthetic"]
    large = _run("paper", 2, [*big, "sensing.n_max=10", "sensing.initial=64", "train.kappa=1", "fleet.poll=0.2"])
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
    ]  # fmt: skip


def _run(preset: str, vehicles: int, settings: list[str]) -> dict[str, float]:
    """Return medians over the rounds that are neither the first nor tested."""
    words = [word for setting in settings for word in ("--set", setting)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with tempfile.TemporaryDirectory() as name:
        place = Path(name) / "run"
        command = [sys.executable, "-m", "skyfed.cli", "fleet", "try", preset, "--vehicles", str(vehicles), *words]
        done = subprocess.run([*command, "--out", str(place), "--plain"], env=environment, capture_output=True)
        if done.returncode:
            raise SkyfedError(f"fleet try: {done.stderr.decode(errors='replace').strip().splitlines()[-1]}")
        (folder,) = [path.parent for path in place.glob("*/model.safetensors")]
        rounds, uplink = Table(folder, "rounds").rows()[1:-1], Table(folder, "uplink").rows()
    slowest = {
        row["round"]: max(each["measured_seconds"] for each in uplink if each["round"] == row["round"])
        for row in rounds
    }
    beyond = [row["seconds"] - slowest[row["round"]] for row in rounds]
    return {
        "round": statistics.median(row["seconds"] for row in rounds),
        "train": statistics.median(slowest.values()),
        "beyond": statistics.median(beyond),
        "worst": max(beyond),
        "bytes": max(row["wire_bytes"] for row in uplink),
        "in": min(row["uploads"] for row in rounds),
    }
