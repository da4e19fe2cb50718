"""The runs in a folder: every run's state, by its lock and its files, and its key figures.

Configs are read as plain TOML and not validated: folders of older versions and damaged ones are listed too.
"""

import tomllib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skyfed.algorithms import check_rows
from skyfed.errors import BadInputError, SkyfedError, one_line
from skyfed.runs.folder import RunFolder
from skyfed.runs.lock import in_use
from skyfed.runs.seeds import by_seed
from skyfed.runs.tables import Table, is_done
from skyfed.world.fairness import Fairness, fairness_of, recorded_accuracies

_COLUMNS = [
    "round", "accuracy", "accuracy_vehicle", "wire_bytes", "downlink_bytes", "seconds", "mission_seconds", "joules",
]  # fmt: skip


@dataclass(frozen=True)
class Trained:
    """How far an algorithm of a run is; accuracy is that of the last test, 0..1, and fairness its spread.

    bytes            sent by all vehicles, measured; total_bytes  sent and received
    seconds          of the simulator, measured
    mission_seconds  on the mission clock, modelled, and joules of all vehicles; None where the tables do not know them
    """

    algorithm: str
    done: bool
    rounds: int
    accuracy: float | None
    bytes: int
    seconds: float
    fairness: Fairness | None = None
    total_bytes: int = 0
    mission_seconds: float | None = None
    joules: float | None = None


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
    """Return what is in a folder, oldest first: runs, seeds of a config, sweeps; for a run the run itself."""
    if _is_run(place):
        return [look(place)]
    listed = [entry for path in _folders(place) if (entry := _entry(path))]
    return sorted(listed, key=lambda entry: (entry.started or "", entry.path.name))


def look(path: Path) -> ListedRun:
    """Return a run's state and figures; whatever is wrong with it becomes a note."""
    known = RunFolder(path).manifest()
    started = known.get("started") if isinstance(known.get("started"), str) else None
    try:
        names, rounds, seed, law = _config(path)
        trained = [_trained(path / name, name, law) for name in names]
    except (SkyfedError, OSError) as error:
        return ListedRun(path, "damaged", one_line(str(error).replace(f"{path}/", ""), 500), started=started)
    so_far = [row for row in trained if row.rounds or row.done]
    state, note = _state(path, known, trained, bool(so_far))
    return ListedRun(path, state, note, seed, rounds, started, so_far)


def _state(path: Path, known: dict[str, Any], trained: list[Trained], begun: bool) -> tuple[str, str]:
    if in_use(path):
        return "running", ""
    if trained and all(row.done for row in trained):
        return "done", ""
    diverged = known.get("diverged")
    if isinstance(diverged, dict) and diverged and all(row.done or row.algorithm in diverged for row in trained):
        return "diverged", one_line("; ".join(str(line) for line in diverged.values()), 500)
    if known.get("failed"):
        return "failed", one_line(str(known["failed"]), 500)
    if begun or (path / "plans").is_dir():
        return "interrupted", ""
    return ("planned", "") if (path / "plan.npz").is_file() else ("not begun", "")


def _config(path: Path) -> tuple[list[str], int, int, bool]:
    """Return a run's algorithms, rounds and seed, and whether its time is the paper's law."""
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
    world = tree.get("world")
    return names, rounds, seed, isinstance(world, dict) and world.get("time") == "law"


def _trained(path: Path, name: str, law: bool) -> Trained:
    rows = Table(path, "rounds").rows(_COLUMNS)
    tested = [row["accuracy"] for row in rows if row["accuracy"] is not None]
    sent, received, seconds = (sum(row[key] for row in rows) for key in ("wire_bytes", "downlink_bytes", "seconds"))
    fairness, last = fairness_of(recorded_accuracies(rows)), tested[-1] if tested else None
    mission, joules = (
        sum(row[key] for row in rows) if rows and all(row.get(key) is not None for row in rows) else None
        for key in ("mission_seconds", "joules")
    )
    took = None if law else mission  # the law has no mission
    return Trained(name, is_done(path), len(rows), last, sent, seconds, fairness, sent + received, took, joules)


def _entry(path: Path) -> ListedRun | RunGroup | None:
    """Tell what a folder is: a run, several seeds, a sweep, or a folder with runs below."""
    if _is_run(path):
        return look(path)
    inner = _folders(path)
    seeds = by_seed(inner)
    if seeds:
        return RunGroup(path, "seeds", [look(seed) for seed in seeds], in_use(path))
    seeds = [seed for variant in inner for seed in by_seed(_folders(variant))]
    if seeds or (inner and (path / "logs").is_dir() and in_use(path, shared=True)):
        return RunGroup(path, "sweep", [look(seed) for seed in seeds], in_use(path, shared=True))
    runs = [look(run) for run in inner if _is_run(run)]
    return RunGroup(path, "folder", runs) if runs else None


def _is_run(path: Path) -> bool:
    """Tell a run's folder, even one that has lost its config."""
    has = {name for name in ("config.toml", "manifest.json", "plan.npz") if (path / name).exists()}
    return "config.toml" in has or len(has) == 2


def _folders(place: Path) -> list[Path]:
    try:
        return sorted(path for path in place.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError:
        return []
