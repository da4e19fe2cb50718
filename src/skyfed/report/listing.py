"""The list of runs in a folder, for people and as JSON."""

import json
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from skyfed.errors import printable
from skyfed.report.terminal_tables import console, spread
from skyfed.report.units import megabytes, percent
from skyfed.runs.listing import ListedRun, RunGroup, Trained

_STYLES = {"done": "green", "running": "cyan", "interrupted": "yellow", "planned": "", "not begun": "dim"}


def print_listing(entries: list[ListedRun | RunGroup], place: Path) -> None:
    """Print one line per algorithm of a run or of all its seeds, and one line per sweep; then what is wrong."""
    table = Table(title=str(place), title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in ("run", "state", "algorithm", "rounds", "accuracy\n(%)", "sent\n(MB)", "time\n(s)", "started"):
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
    first, *others = lines or [["-", "-", "-", "-", "-"]]
    table.add_row(name, state, *first, _when(entry.started))
    for line in others:
        table.add_row("", "", *line, "")


def _by_algorithm(runs: list[ListedRun]) -> list[list[str]]:
    """Return one line per algorithm of a run, or of all its seeds together."""
    total = sum(run.rounds or 0 for run in runs)
    seeds: dict[str, list[Trained]] = {}
    for run in runs:
        for trained in run.trained:
            seeds.setdefault(trained.algorithm, []).append(trained)
    lines = []
    for name, each in seeds.items():
        rounds = sum(trained.rounds for trained in each)
        accuracy = spread([trained.accuracy for trained in each], percent)
        lines.append([name, f"{rounds}/{total}", accuracy, *_totals(each)])
    return lines


def _together(group: RunGroup) -> list[str]:
    """Return a sweep's line: how many runs are in which state, what they have done together."""
    trained = [trained for run in group.runs for trained in run.trained]
    states = ", ".join(f"{count} {state}" for state, count in group.counts.items())
    return [states, str(sum(each.rounds for each in trained)), "", *_totals(trained)]


def _totals(trained: list[Trained]) -> list[str]:
    return [f"{megabytes(sum(each.bytes for each in trained)):.1f}", f"{sum(each.seconds for each in trained):.0f}"]


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
