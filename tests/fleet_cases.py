"""Small fleets for tests: quick settings, runs in this process to compare with, vehicles that misbehave."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from skyfed.cli import run_arguments
from skyfed.runs.checkpoint import unpack_model

SMALL = ["rounds=4", "eval_every=4", "flight.method=greedy", "train.kappa=1", "fleet.poll=0.2", "fleet.grace=1"]
RECIPES = ["afl", "afl-prune", "afl-quant", "2ceoafl"]


def sets(*settings: str) -> list[str]:
    """Return command line arguments for settings."""
    return [word for setting in settings for word in ("--set", setting)]


def in_process(place: Path, *settings: str, workers: int = 1) -> Path:
    """Run smoke in this process, or in a pool."""
    arguments = ["run", "smoke", *sets(*SMALL, *settings, f"workers={workers}"), "--out", str(place), "--plain"]
    assert run_arguments(arguments) == 0
    return place


def start(*words: str, log: Path) -> subprocess.Popen[bytes]:
    """Start a verb as a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with log.open("ab") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "skyfed.cli", "fleet", *words],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, process_group=0,
        )  # fmt: skip


def weights(place: Path, algorithm: str) -> np.ndarray:
    """Return the final weights and buffers of a run."""
    found = unpack_model(place / algorithm / "model.safetensors")
    return np.concatenate(found[:2])


def until(said: Callable[[], bool], seconds: float = 120) -> None:
    """Wait for something to be so."""
    end = time.monotonic() + seconds
    while not said():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def says(path: Path, words: str) -> bool:
    """Tell whether a log has these words."""
    return path.exists() and words in path.read_text(errors="replace")
