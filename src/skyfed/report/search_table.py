"""What a search found: a table of its best trials, and the goal of a run."""

import json
from pathlib import Path

from rich.table import Table

from skyfed.report.terminal_tables import show, spread, summarise
from skyfed.runs.search_space import Search, Trials
from skyfed.runs.sweep_file import SweepJob
from skyfed.runs.tables import is_done

_SHOWN = 20
_UNITS = {"uplink_bytes": ("MB", 1e-6), "joules": ("kJ", 1e-3)}  # the others are shares


def goal_of(search: Search, place: Path, job: SweepJob) -> float | None:
    """Return the goal of a finished run; None of any other."""
    folder = place / job.place
    if not is_done(folder / search.algorithm):
        return None
    summary = summarise(folder, search.algorithm)
    value = None if summary is None else getattr(summary, search.table.goal)
    return None if value is None else float(value)


def print_search(search: Search, trials: Trials, title: str) -> None:
    """Print the best trials, one line each, the best first."""
    ranked = trials.ranked(search.table.upwards)
    unit, factor = _UNITS.get(search.table.goal, ("%", 100.0))
    table = Table(title=title)
    table.add_column("trial")
    for key in search.table.ranges:
        table.add_column(key, justify="right", overflow="fold")
    table.add_column(f"{search.algorithm}:\n{search.table.goal} ({unit})", justify="right")
    for trial in ranked[:_SHOWN]:
        shown = [_short(trial.values.get(key)) for key in search.table.ranges]
        table.add_row(trial.name, *shown, spread(list(trial.results), factor))
    show(table)
    failed = sum(trial.state == "failed" for trial in trials)
    more = [f"{len(ranked) - _SHOWN} more in search.json"] if len(ranked) > _SHOWN else []
    more += [f"{failed} failed"] if failed else []
    if more:
        print("; ".join(more))


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)
