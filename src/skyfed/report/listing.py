"""The list of runs in a folder, for people and as JSON."""

import json
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from skyfed.errors import printable
from skyfed.report.measures import column
from skyfed.report.numbers import number
from skyfed.report.seed_model import mean_and_half
from skyfed.report.terminal_tables import console
from skyfed.runs.listing import ListedRun, RunGroup, Trained

_HEADS = (
    "mission,\nmodelled\n(min)",
    "up + down\n(MB)",
    "energy,\nmodelled\n(kJ)",
    "wall\n(s)",
)  # of one run, except the last: of all
_STYLES = {"done": "green", "running": "cyan", "interrupted": "yellow", "planned": "", "not begun": "dim"}


def print_listing(entries: list[ListedRun | RunGroup], place: Path) -> None:
    """Print one line per algorithm of a run or of all its seeds, and one line per sweep; then what is wrong."""
    table = Table(title=str(place), title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in ("run", "state", "algorithm", "rounds", "accuracy\n(%)", *_HEADS, "started"):
        right = name not in ("run", "state", "algorithm", "started")
        table.add_column(name, justify="right" if right else "left", no_wrap=name != "run", overflow="fold")
    for entry in entries:
        _add(table, entry)
    console().print(table)
    for run in (run for entry in entries for run in (entry.runs if isinstance(entry, RunGroup) else [entry])):
        if run.note:
            console().print(f"{printable(str(run.path))}: {run.note}", markup=False, highlight=False, soft_wrap=True)


def listing_json(entries: list[ListedRun | RunGroup]) -> str:
    """Return the list as JSON: accuracy 0..1, bytes, seconds."""
    return json.dumps([_record(entry) for entry in entries], indent=2)


def _add(table: Table, entry: ListedRun | RunGroup) -> None:
    name = printable(entry.path.name or str(entry.path))
    if isinstance(entry, ListedRun):
        lines = _by_algorithm([entry])
    else:
        lines = _by_algorithm(entry.runs) if entry.kind == "seeds" else [_together(entry)]
        name += f" ({len(entry.runs)} {'seed' if entry.kind == 'seeds' else 'run'}{'s' * (len(entry.runs) != 1)})"
    state = Text(entry.state, _STYLES.get(entry.state, "red"))
    first, *others = lines or [["-"] * (3 + len(_HEADS))]
    table.add_row(name, state, *first, _when(entry.started))
    for line in others:
        table.add_row("", "", *line, "")


def _by_algorithm(runs: list[ListedRun]) -> list[list[str]]:
    """Return one line per algorithm of a run, or of all its seeds together: means, and the sum of wall seconds."""
    total = sum(run.rounds or 0 for run in runs)
    seeds: dict[str, list[Trained]] = {}
    for run in runs:
        for trained in run.trained:
            seeds.setdefault(trained.algorithm, []).append(trained)
    lines = []
    for name, each in seeds.items():
        rounds = sum(trained.rounds for trained in each)
        _, (accuracy,) = column("accuracy", [[trained.accuracy for trained in each]])
        lines.append([name, f"{rounds}/{total}", accuracy, *_means(each), _wall(each)])
    return lines


def _together(group: RunGroup) -> list[str]:
    """Return a sweep's line: how many runs are in which state, what they have done together."""
    trained = [trained for run in group.runs for trained in run.trained]
    states = ", ".join(f"{count} {state}" for state, count in group.counts.items())
    return [states, str(sum(each.rounds for each in trained)), *[""] * len(_HEADS), _wall(trained)]


def _means(trained: list[Trained]) -> list[str]:
    """Return mission minutes, megabytes both ways and kilojoules: of one run, or the mean over seeds."""
    minutes = [each.mission_seconds / 60 for each in trained if each.mission_seconds is not None]
    sent, joules = [each.total_bytes / 1e6 for each in trained], [each.joules for each in trained]
    spent = [each / 1e3 for each in joules if each is not None]
    return [number(mean_and_half(values)[0]) for values in (minutes, sent, spent)]


def _wall(trained: list[Trained]) -> str:
    return number(sum(each.seconds for each in trained))


def _when(started: str | None) -> str:
    try:
        return f"{datetime.fromisoformat(started or '').astimezone():%Y-%m-%d %H:%M}"
    except ValueError:
        return "-"


def _record(entry: ListedRun | RunGroup) -> dict[str, Any]:
    if isinstance(entry, ListedRun):
        return {"kind": "run", **asdict(entry), "path": str(entry.path)}
    head = {"kind": entry.kind, "path": str(entry.path), "state": entry.state, "started": entry.started}
    return {**head, "runs": [_record(run) for run in entry.runs]}
