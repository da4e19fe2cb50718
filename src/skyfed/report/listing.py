"""The list of runs in a folder, for people and as JSON."""

import json
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from skyfed.report.terminal_tables import console, spread
from skyfed.runs.listing import ListedRun, RunGroup, Trained

_STYLES = {"done": "green", "running": "cyan", "interrupted": "yellow", "planned": "", "not begun": "dim"}


def print_listing(found: list[ListedRun | RunGroup], place: Path) -> None:
    """Print a line an algorithm of every run and of all seeds together, one a sweep; then what is wrong."""
    table = Table(title=str(place), title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in ("run", "state", "algorithm", "rounds", "accuracy\n(%)", "sent\n(MB)", "time\n(s)", "started"):
        right = name not in ("run", "state", "algorithm", "started")
        table.add_column(name, justify="right" if right else "left", no_wrap=name != "run", overflow="fold")
    for entry in found:
        _add(table, entry)
    console().print(table)
    for path, note in notes(found):
        console().print(f"{path}: {note}", markup=False, highlight=False, soft_wrap=True)


def listing_json(found: list[ListedRun | RunGroup]) -> str:
    """Return the list as JSON: accuracy 0..1, bytes, seconds."""
    return json.dumps([_record(entry) for entry in found], indent=2)


def notes(found: list[ListedRun | RunGroup]) -> list[tuple[Path, str]]:
    """Return what is wrong, with the folder it is wrong in."""
    runs = [run for entry in found for run in (entry.runs if isinstance(entry, RunGroup) else [entry])]
    return [(run.path, run.note) for run in runs if run.note]


def _add(table: Table, entry: ListedRun | RunGroup) -> None:
    if isinstance(entry, ListedRun):
        lines = [_line(one, entry.rounds) for one in entry.trained]
    elif entry.kind == "seeds":
        lines = _over_seeds(entry)
    else:
        lines = [_together(entry)]
    name = entry.path.name or str(entry.path)
    if isinstance(entry, RunGroup):
        name += f" ({len(entry.runs)} {'seed' if entry.kind == 'seeds' else 'run'}{'s' * (len(entry.runs) != 1)})"
    state = Text(entry.state, _STYLES.get(entry.state, "red"))
    first, *others = lines or [["-", "-", "-", "-", "-"]]
    table.add_row(name, state, *first, _when(entry.started))
    for line in others:
        table.add_row("", "", *line, "")


def _line(one: Trained, rounds: int | None) -> list[str]:
    accuracy = "-" if one.accuracy is None else f"{100 * one.accuracy:.1f}"
    return [one.algorithm, f"{one.rounds}/{rounds}", accuracy, f"{one.bytes / 1e6:.1f}", f"{one.seconds:.0f}"]


def _over_seeds(group: RunGroup) -> list[list[str]]:
    lines = []
    names = dict.fromkeys(one.algorithm for run in group.runs for one in run.trained)
    for name in names:
        some = [one for run in group.runs for one in run.trained if one.algorithm == name]
        rounds = sum(one.rounds for one in some)
        total = sum(run.rounds or 0 for run in group.runs)
        accuracy = spread([one.accuracy for one in some], 100)
        lines.append([name, f"{rounds}/{total}", accuracy, *_totals(some)])
    return lines


def _totals(some: list[Trained]) -> list[str]:
    return [f"{sum(one.bytes for one in some) / 1e6:.1f}", f"{sum(one.seconds for one in some):.0f}"]


def _together(group: RunGroup) -> list[str]:
    """Return a sweep's line: how many runs are in which state, what they have done together."""
    some = [one for run in group.runs for one in run.trained]
    states = ", ".join(f"{count} {state}" for state, count in group.counts.items())
    return [states, str(sum(one.rounds for one in some)), "", *_totals(some)]


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
