"""Compares with peers where their scripts are: in a checkout of the repository, not in an installed package."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from skyfed.bench.row import Progress, Row
from skyfed.errors import SkyfedError
from skyfed.imports import import_path


def peers_folder() -> Path | None:
    """Return the checkout's folder of scripts, or None for an installed package."""
    source = Path(__file__).parents[2]
    folder = source.parent / "reproduce" / "peers"
    return folder if source.name == "src" and folder.is_dir() else None


def student_round() -> Callable[..., object] | None:
    """Return a vehicle's round as a good student writes it in plain PyTorch; None for an installed package."""
    folder = peers_folder()
    return import_path(f"{folder / 'student.py'}:student_round", "bench engine") if folder else None


def against_peers(flower: str, pfl: str, progress: Progress) -> list[Row]:
    """Return one row per peer, or none without the scripts; `flower` and `pfl` are Pythons that have these packages."""
    folder = peers_folder()
    if folder is None:
        progress("no comparison with a PyTorch loop, Flower and pfl: its scripts are in skyfed's repository only")
        return []
    command = [sys.executable, str(folder / "compare.py"), "--flower", flower, "--pfl", pfl]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SkyfedError(f"{folder / 'compare.py'} failed with exit code {done.returncode}")
    return [Row(**record) for record in json.loads(done.stdout)]
