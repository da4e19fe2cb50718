"""Tables for people: the flights of a fleet, the algorithms of a run, a sweep, the best trials of a search."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Column, Table

from skyfed.algorithms import KNOWN, Row
from skyfed.errors import one_line
from skyfed.flight.fleet_plan import FleetPlan, age_of_information
from skyfed.report.live import in_ci
from skyfed.report.measures import MEASURES, column, known, modelled, scaled, value_of
from skyfed.report.numbers import unit_of
from skyfed.report.seed_model import mean_and_half
from skyfed.report.summary import Summary, summarise
from skyfed.runs.folder import RunFolder
from skyfed.runs.search_space import Search, Trials
from skyfed.runs.sweep_file import SweepJob
from skyfed.runs.tables import is_done
from skyfed.world.mission import Mission

_WIDTH = 140  # where the output is not a terminal
_TRIALS = 20  # of a search

_REACHED = ("accuracy", "accuracy_full", "mean_accuracy", "forgetting")
_TOOK = ("mission_seconds", "law_time", "total_bytes", "joules")
_ASIDE = ("paper_bytes", "measured_seconds", "wall_seconds")
_COST = (
    "mission_seconds", "law_time", "uplink_bytes", "downlink_bytes", "broadcast_bytes", "fly_joules", "hover_joules",
    "train_joules", "radio_joules", "least_battery", "late", "landed",
)  # fmt: skip
_LAW_HAS_NONE = ("fly_joules", "hover_joules", "radio_joules", "late", "landed")  # what only a mission has


Line = tuple[list[str], list[Summary], bool]  # words, the summaries of its seeds, whether it was trained centrally


def console() -> Console:
    """Return a console for standard output that does not squeeze tables into pipes, and is plain text in CI."""
    return Console(width=None if sys.stdout.isatty() else _WIDTH, force_terminal=False if in_ci() else None)


def fits(table: Table) -> bool:
    """Tell whether every word and number of a table has its place in the terminal."""
    gaps = 3 * len(table.columns) + 1 if table.box else 2 * len(table.columns)
    return sum(map(_least, table.columns)) + gaps <= console().width


def show(table: Table, spare: Sequence[str] = ()) -> None:
    """Print a table; in a narrow terminal without lines, then without columns that can be spared, which it names."""
    target, left_out = console(), []
    if not fits(table):
        table.box = None
    for name in spare:
        if not fits(table):
            left_out += [" ".join(str(column.header).split()) for column in table.columns if column.header == name]
            table.columns = [column for column in table.columns if column.header != name]
    if Measurement.get(target, target.options.update_width(1000), table).maximum > target.width:
        for column in table.columns:  # or rich would cut words of one where another has room
            column.width = _least(column) if column.justify == "right" or column.header == "algorithm" else None
    target.print(table)
    if left_out:
        print(f"in a wider terminal also: {'; '.join(left_out)}")


def _least(column: Column) -> int:
    """Return how wide a column is at least: words may stand below each other, numbers stay whole."""
    parts = [str(cell) for cell in column.cells]
    if column.justify != "right":
        parts = " ".join(parts).split()
    return max(map(cell_len, [*parts, *str(column.header).split()]), default=0)


def table_of(title: str, names: Sequence[str], left: Sequence[str] = ("algorithm", "variant", "note", "term")) -> Table:
    """Return a table without rows. Its columns hold numbers, aligned right, except those named in `left`."""
    table = Table(title=title)
    for name in names:
        table.add_column(name, justify="left" if name in left else "right")
    return table


def title_of(algorithm: str) -> str:
    """Return the title of a known algorithm; any other is shown by its own name."""
    return KNOWN[algorithm].title if algorithm in KNOWN else algorithm


def print_flights(fleet: FleetPlan, mission: Mission) -> None:
    """Print one line per vehicle: objective, proven bound, gap, age of information, estimation error, CPU seconds."""
    bound, loss, error, cpu = "proven bound\n(nats)", "loss per\nclass (%)", "centre error\nmean/worst (m)", "CPU\n(s)"
    table = table_of(
        f"Flights: {fleet.method}, {fleet.vehicles} vehicles, {fleet.rounds} rounds, {fleet.classes} classes",
        ["vehicle", "objective\n(nats)", bound, "gap\n(nats)", loss, "age mean/worst\n(rounds)", error, cpu, "note"],
    )
    for u in range(fleet.vehicles):
        age, errors = age_of_information(fleet.association[u], fleet.classes), mission.errors[u]
        proven = fleet.bound[u] < float("inf")
        table.add_row(
            str(u),
            f"{fleet.objective[u]:.4f}",
            f"{fleet.bound[u]:.4f}" if proven else "none",
            f"{fleet.gap[u]:.1e}" if proven else "-",
            f"{100 * fleet.loss[u]:.3f}" if proven else "-",
            f"{age.mean():.1f} / {age.max()}",
            f"{errors.mean():.1f} / {errors.max():.1f}",
            f"{fleet.seconds[u]:.2f}",
            one_line(str(fleet.note[u])),
        )
    show(table, (loss, cpu, error, bound))


def print_seeds(folders: list[Path], rows: list[Row], title: str) -> None:
    """Print one line per row: mean and 95 % interval over the seeds that have got somewhere."""
    by_row = [(row, [each for folder in folders if (each := summarise(folder, row.name))]) for row in rows]
    lines = [([row.title, str(len(seeds))], seeds, row.central) for row, seeds in by_row if seeds]
    spare = ("forgetting", "mean_accuracy", "accuracy_full")
    _print_measures(title, ["algorithm", "seeds"], lines, (*_REACHED, *_TOOK), spare)


def _print_measures(
    title: str, words: list[str], lines: list[Line], names: Sequence[str], spare: Sequence[str]
) -> None:
    """Print lines of words and then measures, those that some line has; `spare` names what a narrow terminal drops."""
    shown = known(names, [(each, central) for _, seeds, central in lines for each in seeds])
    columns = {
        name: column(name, [[value_of(name, each, central) for each in seeds] for _, seeds, central in lines])
        for name in shown
    }
    table = table_of(title, [*words, *(head for head, _ in columns.values())])
    for k, (line, _, _) in enumerate(lines):
        table.add_row(*line, *(cells[k] for _, cells in columns.values()))
    show(table, [columns[name][0] if name in columns else name for name in spare])
    if named := modelled(shown):
        print(f"modelled: {', '.join(named)}")


def print_summary(folder: Path, rows: list[Row], title: str) -> None:
    """Print what every row reached and what it took, one line per row."""
    lines = [([row.title, str(each.rounds)], [each], row.central) for row, each in _summaries(folder, rows)]
    spare = ("mean_accuracy", "forgetting", "measured_seconds", "wall_seconds", "paper_bytes", "accuracy_full")
    _print_measures(title, ["algorithm", "rounds"], lines, (*_REACHED, *_TOOK, *_ASIDE), spare)


def print_resources(folder: Path, rows: list[Row], title: str) -> None:
    """Print what the mission of every row took: time, bytes, energy and batteries; then who landed early."""
    world = RunFolder(folder).read_config().world
    dropped = _LAW_HAS_NONE if world.time == "law" else () if world.deadline is not None else ("late",)
    summaries = [(row, each) for row, each in _summaries(folder, rows) if not row.central]
    if summaries:
        lines = [([row.title], [each], False) for row, each in summaries]
        names = [name for name in _COST if name not in dropped]
        _print_measures(title, ["algorithm"], lines, names, ("broadcast_bytes", "radio_joules", "late", "train_joules"))
    for row, each in summaries:
        if each.landed:
            print(f"{row.title}: {each.landed} landed early, the first in round {each.first_landing}")


def _summaries(folder: Path, rows: list[Row]) -> list[tuple[Row, Summary]]:
    return [(row, each) for row in rows if (each := summarise(folder, row.name))]


def sweep_rows(jobs: list[SweepJob], place: Path) -> list[dict[str, Any]]:
    """Return one row per run and algorithm that has got somewhere."""
    return [
        {"variant": job.variant, "seed": job.seed, **asdict(summary)}
        for job in jobs
        if (place / job.place / "config.toml").exists()  # else it has not begun
        for algorithm in job.config.labels
        if (summary := summarise(place / job.place, algorithm))
    ]


def print_sweep(rows: list[dict[str, Any]], title: str) -> None:
    """Print one line per variant and algorithm: mean and 95 % interval over seeds."""
    groups: dict[tuple[str, str], list[Summary]] = {}
    for row in rows:
        summary = Summary(**{field.name: row[field.name] for field in fields(Summary)})
        groups.setdefault((row["variant"], row["algorithm"]), []).append(summary)
    lines = []
    for (variant, algorithm), seeds in groups.items():
        rounds = sorted({min(each.rounds for each in seeds), max(each.rounds for each in seeds)})
        words = [variant, title_of(algorithm), str(len(seeds)), "-".join(map(str, rounds))]
        central = algorithm in KNOWN and KNOWN[algorithm].central
        lines.append((words, seeds, central))
    spare = ("mean_accuracy", "rounds", "seeds", "accuracy_full")
    _print_measures(title, ["variant", "algorithm", "seeds", "rounds"], lines, (*_REACHED[:3], *_TOOK), spare)


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
    unit = unit_of(MEASURES[search.table.goal].kind, [trial.result for trial in ranked])
    goal = f"{search.algorithm}:\n{search.table.goal} ({unit.name})"
    table = table_of(title, ["trial", *search.table.ranges, goal], left=["trial"])
    for values in table.columns[1:-1]:
        values.overflow = "fold"
    for trial in ranked[:_TRIALS]:
        shown = [_short(trial.values.get(key)) for key in search.table.ranges]
        mean, half = mean_and_half(list(trial.results))
        table.add_row(trial.name, *shown, scaled(mean, half, unit))
    show(table)
    failed = sum(trial.state == "failed" for trial in trials)
    more = [f"{len(ranked) - _TRIALS} more in search.json"] if len(ranked) > _TRIALS else []
    more += [f"{failed} failed"] if failed else []
    if more:
        print("; ".join(more))


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)
