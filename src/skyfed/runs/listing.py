"""What lies in a folder of runs: every run's state, by its lock and its files, and its key figures.

Configs are read as plain TOML, not checked as a run would: folders of older versions and damaged ones are listed too.
"""

import json
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skyfed.algorithms import check_rows
from skyfed.errors import BadInputError, SkyfedError
from skyfed.runs.folder import in_use
from skyfed.runs.tables import Table, is_done

_COLUMNS = ["round", "accuracy", "wire_bytes", "seconds"]


@dataclass(frozen=True)
class Trained:
    """How far an algorithm of a run is; accuracy is that of the last test, 0..1."""

    algorithm: str
    done: bool
    rounds: int
    accuracy: float | None
    bytes: int
    seconds: float


@dataclass(frozen=True)
class ListedRun:
    """A run's folder.

    state  running, done, diverged, failed, interrupted, planned, "not begun" or damaged
    note   what is wrong, where something is
    """

    path: Path
    state: str
    note: str = ""
    seed: int | None = None
    rounds: int | None = None
    started: str | None = None
    trained: list[Trained] = field(default_factory=list)


@dataclass(frozen=True)
class RunGroup:
    """Runs that belong together: the seeds of a config, a sweep, or a folder below."""

    path: Path
    kind: str
    runs: list[ListedRun]
    running: bool = False

    @property
    def counts(self) -> Counter[str]:
        """How many runs are in which state."""
        return Counter(run.state for run in self.runs)

    @property
    def state(self) -> str:
        """The state of them all: running if one is, one that all have, or interrupted."""
        states = self.counts
        if self.running or states["running"]:
            return "running"
        if len(states) == 1:
            return self.runs[0].state
        ended = next((bad for bad in ("damaged", "failed", "diverged") if states[bad]), "interrupted")
        return ended if not states.keys() - {"done", "diverged", "failed", "damaged"} else "interrupted"

    @property
    def started(self) -> str | None:
        """When the first of them was started."""
        return min((run.started for run in self.runs if run.started), default=None)


def list_runs(place: Path) -> list[ListedRun | RunGroup]:
    """Return what lies in a folder, oldest first: runs, seeds of a config, sweeps; of a run the run itself."""
    if _is_run(place):
        return [look(place)]
    found = [entry for path in _folders(place) if (entry := _entry(path))]
    return sorted(found, key=lambda entry: (entry.started or "", entry.path.name))


def look(path: Path) -> ListedRun:
    """Return a run's state and figures; whatever is wrong with it becomes a note."""
    known = _manifest(path)
    started = known.get("started") if isinstance(known.get("started"), str) else None
    try:
        names, rounds, seed = _config(path)
        trained = [_trained(path / name, name) for name in names]
    except (SkyfedError, OSError) as error:
        text = " ".join(str(error).split()).replace(f"{path}/", "")
        return ListedRun(path, "damaged", text, started=started)
    so_far = [one for one in trained if one.rounds or one.done]
    state, note = _state(path, known, trained, bool(so_far))
    return ListedRun(path, state, note, seed, rounds, started, so_far)


def _state(path: Path, known: dict[str, Any], trained: list[Trained], begun: bool) -> tuple[str, str]:
    if in_use(path):
        return "running", ""
    if trained and all(one.done for one in trained):
        return "done", ""
    gone = known.get("diverged")
    gone = gone if isinstance(gone, dict) else {}
    if gone and all(one.done or one.algorithm in gone for one in trained):
        return "diverged", "; ".join(str(line) for line in gone.values())
    if known.get("failed"):
        return "failed", str(known["failed"])
    if begun or (path / "plans").is_dir():
        return "interrupted", ""
    return ("planned", "") if (path / "plan.npz").is_file() else ("not begun", "")


def _config(path: Path) -> tuple[list[str], int, int]:
    """Return a run's algorithms, rounds and seed."""
    if not (path / "config.toml").exists():
        raise BadInputError("config.toml is missing")
    try:
        tree = tomllib.loads((path / "config.toml").read_bytes().decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"config.toml: {error}") from None
    rows, rounds, seed = (tree.get(key) for key in ("algorithms", "rounds", "seed"))
    try:
        names = [row.name for row in check_rows(rows if isinstance(rows, list) else [""])]
    except ValueError:
        raise BadInputError("config.toml: names no algorithms") from None
    if type(rounds) is not int or type(seed) is not int:
        raise BadInputError("config.toml: has no rounds or no seed")
    return names, rounds, seed


def _trained(path: Path, name: str) -> Trained:
    rows = Table(path, "rounds").rows(_COLUMNS)
    tested = [row["accuracy"] for row in rows if row["accuracy"] is not None]
    sent, seconds = sum(row["wire_bytes"] for row in rows), sum(row["seconds"] for row in rows)
    return Trained(name, is_done(path), len(rows), tested[-1] if tested else None, sent, seconds)


def _entry(path: Path) -> ListedRun | RunGroup | None:
    """Tell what a folder is: a run, several seeds, a sweep, or a folder with runs below."""
    if _is_run(path):
        return look(path)
    inner = _folders(path)
    seeds = [one for one in inner if _is_seed(one)]
    if seeds:
        return RunGroup(path, "seeds", [look(one) for one in _by_seed(seeds)], in_use(path))
    below = [one for folder in inner for one in _by_seed([seed for seed in _folders(folder) if _is_seed(seed)])]
    if below or (inner and (path / "logs").is_dir() and in_use(path)):
        return RunGroup(path, "sweep", [look(one) for one in below], in_use(path))
    runs = [one for one in inner if _is_run(one)]
    return RunGroup(path, "folder", [look(one) for one in runs]) if runs else None


def _is_run(path: Path) -> bool:
    """Tell a run's folder, even one that has lost its config."""
    has = {name for name in ("config.toml", "manifest.json", "plan.npz") if (path / name).exists()}
    return "config.toml" in has or len(has) == 2


def _is_seed(path: Path) -> bool:
    return path.name.startswith("seed-") and path.name[5:].isdigit()


def _by_seed(paths: list[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: int(path.name[5:]))


def _folders(place: Path) -> list[Path]:
    try:
        return sorted(path for path in place.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError:
        return []


def _manifest(path: Path) -> dict[str, Any]:
    try:
        known = json.loads((path / "manifest.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}
