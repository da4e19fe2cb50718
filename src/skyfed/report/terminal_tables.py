"""Tables for people: the flights of a fleet, the algorithms of a run, a sweep, the best trials of a search."""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Column, Table

from skyfed.algorithms import KNOWN, Row
from skyfed.errors import one_line
from skyfed.flight.fleet_plan import FleetPlan, age_of_information
from skyfed.report.live import in_ci
from skyfed.runs.folder import RunFolder
from skyfed.runs.search_space import Search, Trials
from skyfed.runs.sweep_file import SweepJob
from skyfed.runs.tables import Table as Stored
from skyfed.runs.tables import is_done, remembered
from skyfed.world.mission import Mission

_WIDTH = 140  # where the output is not a terminal
_TRIALS = 20  # of a search
_GOAL_UNITS = {"uplink_bytes": ("MB", 1e-6), "joules": ("kJ", 1e-3)}  # the others are shares

# Headers of columns that several tables have, or that a narrow terminal leaves out.
_SO_FAR, _WHOLE, _OVER_TIME = "accuracy\n(test so far, %)", "accuracy\n(whole test, %)", "mean over\ntime (%)"
_FORGETTING, _SENT, _TRAINING = "forgetting\n(%)", "uplink, measured\n(MB)", "training,\nmeasured (s)"
_PERCENT = ("accuracy", "accuracy_full", "mean_accuracy", "forgetting")
_FACTORS = dict.fromkeys(_PERCENT, 100.0) | {"uplink_bytes": 1e-6, "measured_seconds": 1.0}  # to the headers' units


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


@dataclass(frozen=True)
class Summary:
    """One algorithm's figures: accuracy 0..1, bytes, modelled and measured seconds of all vehicles together."""

    algorithm: str
    rounds: int
    accuracy: float | None
    accuracy_full: float | None
    mean_accuracy: float | None
    forgetting: float | None
    uplink_bytes: int
    downlink_bytes: int
    paper_bits: float | None
    modelled_seconds: float
    modelled_energy: float
    measured_seconds: float
    wall_seconds: float
    fly_seconds: float
    send_seconds: float
    fly_joules: float
    send_joules: float
    late: int
    battery: float | None

    @property
    def joules(self) -> float:
        """All vehicles' joules together, modelled; waiting is part of flying."""
        return self.modelled_energy + self.fly_joules + self.send_joules


@remembered
def summarise(folder: Path, algorithm: str) -> Summary | None:
    """Return the figures of an algorithm so far; None where there is nothing."""
    rows = Stored(folder / algorithm, "rounds").rows()
    uplink = Stored(folder / algorithm, "uplink").rows()
    if not rows:
        return None
    tested = [row for row in rows if row["accuracy"] is not None]

    def last(key: str) -> float | None:
        return tested[-1][key] if tested else None

    def total(key: str) -> float:
        return float(sum(row.get(key) or 0 for row in uplink))

    return Summary(
        algorithm=algorithm,
        rounds=len(rows),
        accuracy=last("accuracy"),
        accuracy_full=last("accuracy_full"),
        mean_accuracy=sum(row["accuracy"] for row in tested) / len(tested) if tested else None,
        forgetting=last("forgetting"),
        uplink_bytes=int(total("wire_bytes")),
        downlink_bytes=sum(row["downlink_bytes"] for row in rows),
        paper_bits=total("paper_bits") if any("paper_bits" in row for row in uplink) else None,
        modelled_seconds=total("modelled_seconds"),
        modelled_energy=total("modelled_energy"),
        measured_seconds=total("measured_seconds"),
        wall_seconds=sum(row["seconds"] for row in rows),
        fly_seconds=total("fly_seconds"),
        send_seconds=total("send_seconds"),
        fly_joules=total("fly_joules") + total("wait_joules"),
        send_joules=total("send_joules"),
        late=sum(bool(row.get("late")) for row in uplink),
        battery=min((row["battery_left"] for row in uplink if row.get("battery_left") is not None), default=None),
    )


def print_seeds(folders: list[Path], rows: list[Row], title: str) -> None:
    """Print one line per row: mean and standard deviation over the seeds that have got somewhere."""
    names = ["algorithm", "seeds", _SO_FAR, _WHOLE, _OVER_TIME, _FORGETTING, _SENT, _TRAINING]
    table = table_of(title, names)
    for row in rows:
        summaries = [asdict(summary) for folder in folders if (summary := summarise(folder, row.name))]
        if summaries:
            figures = _spreads(summaries, _FACTORS)
            table.add_row(row.title, str(len(summaries)), *figures[:4], *(["-", "-"] if row.central else figures[4:]))
    show(table, (_FORGETTING, _OVER_TIME, _TRAINING))


def print_summary(folder: Path, rows: list[Row], title: str) -> None:
    """Print one line per row."""
    down, formula = "downlink, measured\n(MB)", "uplink, paper's\nformula (MB)"
    modelled, wall = "training,\nmodelled (s)", "wall\n(s)"
    accuracies = [_SO_FAR, _WHOLE, _OVER_TIME, _FORGETTING]
    table = table_of(title, ["algorithm", "rounds", *accuracies, _SENT, down, formula, modelled, _TRAINING, wall])
    for row in rows:
        summary = summarise(folder, row.name)
        if summary is None:
            continue
        sent = ["-"] * 5
        if not row.central:
            sent = [f"{count / 1e6:.1f}" for count in (summary.uplink_bytes, summary.downlink_bytes)]
            sent += ["-" if summary.paper_bits is None else f"{summary.paper_bits / 8e6:.1f}"]
            sent += [f"{summary.modelled_seconds:.0f}", f"{summary.measured_seconds:.1f}"]
        figures = _spreads([asdict(summary)], _PERCENT)
        table.add_row(row.title, str(summary.rounds), *figures, *sent, f"{summary.wall_seconds:.0f}")
    show(table, (_OVER_TIME, _FORGETTING, wall, formula, modelled, down))


def print_resources(folder: Path, rows: list[Row], title: str) -> None:
    """Print what accuracy cost, one line per row: bytes and seconds measured, seconds and joules modelled."""
    seconds, joules = (f"train / fly / send,\nmodelled ({unit})" for unit in ("s", "kJ"))
    per_mb, per_kj = "points\na MB", "points\na kJ"
    names = ["algorithm", "accuracy\n(%)", "sent\n(MB)", seconds, joules, _TRAINING, per_mb, per_kj]
    table = table_of(title, [*names, "late", "least battery\n(%)"])
    config = RunFolder(folder).read_config()
    for row in rows:
        summary = summarise(folder, row.name)
        if summary is None or row.central:
            continue
        points = None if summary.accuracy is None else 100 * summary.accuracy
        spent = (summary.modelled_energy, summary.fly_joules, summary.send_joules)
        table.add_row(
            row.title,
            spread([points]),
            f"{summary.uplink_bytes / 1e6:.1f}",
            f"{summary.modelled_seconds:.0f} / {summary.fly_seconds:.0f} / {summary.send_seconds:.0f}",
            " / ".join(f"{value / 1e3:.3g}" for value in spent),
            f"{summary.measured_seconds:.1f}",
            _per(points, summary.uplink_bytes / 1e6),
            _per(points, summary.joules / 1e3),
            str(summary.late),
            "-" if summary.battery is None else f"{100 * summary.battery / config.cost.battery:.0f}",
        )
    if table.row_count:
        show(table, (_TRAINING, per_mb, per_kj, seconds))


def _per(points: float | None, cost: float) -> str:
    return "-" if points is None or cost <= 0 else f"{points / cost:.3g}"


def sweep_rows(jobs: list[SweepJob], place: Path) -> list[dict[str, Any]]:
    """Return one row per run and algorithm that has got somewhere."""
    return [
        {"variant": job.variant, "seed": job.seed, **asdict(summary)}
        for job in jobs
        for algorithm in job.config.labels
        if (summary := summarise(place / job.place, algorithm))
    ]


def print_sweep(rows: list[dict[str, Any]], title: str) -> None:
    """Print one line per variant and algorithm: mean and standard deviation over seeds."""
    table = table_of(title, ["variant", "algorithm", "seeds", "rounds", _SO_FAR, _WHOLE, _OVER_TIME, _SENT, _TRAINING])
    figures = [key for key in _FACTORS if key != "forgetting"]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["variant"], row["algorithm"]), []).append(row)
    for (variant, algorithm), seeds in groups.items():
        rounds = [row["rounds"] for row in seeds]
        shown = "-".join(map(str, sorted({min(rounds), max(rounds)})))
        table.add_row(variant, title_of(algorithm), str(len(seeds)), shown, *_spreads(seeds, figures))
    show(table, (_OVER_TIME, _TRAINING, "rounds", "seeds"))


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
    unit, factor = _GOAL_UNITS.get(search.table.goal, ("%", 100.0))
    goal = f"{search.algorithm}:\n{search.table.goal} ({unit})"
    table = table_of(title, ["trial", *search.table.ranges, goal], left=["trial"])
    for column in table.columns[1:-1]:
        column.overflow = "fold"
    for trial in ranked[:_TRIALS]:
        shown = [_short(trial.values.get(key)) for key in search.table.ranges]
        table.add_row(trial.name, *shown, spread(list(trial.results), factor))
    show(table)
    failed = sum(trial.state == "failed" for trial in trials)
    more = [f"{len(ranked) - _TRIALS} more in search.json"] if len(ranked) > _TRIALS else []
    more += [f"{failed} failed"] if failed else []
    if more:
        print("; ".join(more))


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)


def _spreads(summaries: list[dict[str, Any]], keys: Iterable[str]) -> list[str]:
    return [spread([summary[key] for summary in summaries], _FACTORS[key]) for key in keys]


def spread(values: Sequence[float | None], factor: float = 1.0) -> str:
    """Return mean and standard deviation of what is known."""
    known = [factor * value for value in values if value is not None]
    if not known:
        return "-"
    return f"{mean(known):.1f} ± {stdev(known):.1f}" if len(known) > 1 else f"{known[0]:.1f}"
