"""Tables for people: the flights of a fleet, the algorithms of a run."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Column, Table

from skyfed.algorithms import KNOWN, Row
from skyfed.flight.fleet_plan import FleetPlan, age_of_information
from skyfed.report.terminal import in_ci
from skyfed.runs.folder import RunFolder
from skyfed.runs.sweep_file import SweepJob
from skyfed.runs.tables import Table as Stored
from skyfed.world.mission import Mission

_WIDTH = 140  # where the output is not a terminal


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


def print_flights(fleet: FleetPlan, mission: Mission) -> None:
    """Print one line a vehicle: objective, proven bound, gap, age of information, estimation error, CPU seconds."""
    table = Table(
        title=f"Flights: {fleet.method}, {fleet.vehicles} vehicles, {fleet.rounds} rounds, {fleet.classes} classes"
    )
    shown = "vehicle|objective\n(nats)|proven bound\n(nats)|gap\n(nats)|loss per\nclass (%)|age mean/worst\n(rounds)"
    for name in [*shown.split("|"), "centre error\nmean/worst (m)", "CPU\n(s)", "note"]:
        table.add_column(name, justify="left" if name == "note" else "right")
    for u in range(fleet.vehicles):
        age = age_of_information(fleet.association[u], fleet.classes)
        error = mission.errors[u]
        proven = fleet.bound[u] < float("inf")
        table.add_row(
            str(u),
            f"{fleet.objective[u]:.4f}",
            f"{fleet.bound[u]:.4f}" if proven else "none",
            f"{fleet.gap[u]:.1e}" if proven else "-",
            f"{100 * fleet.loss[u]:.3f}" if proven else "-",
            f"{age.mean():.1f} / {age.max()}",
            f"{error.centre_mean:.1f} / {error.centre_worst:.1f}",
            f"{fleet.seconds[u]:.2f}",
            str(fleet.note[u]),
        )
    show(table, ("loss per\nclass (%)", "CPU\n(s)", "centre error\nmean/worst (m)", "proven bound\n(nats)"))


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
    paper_bits: float
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
        paper_bits=total("paper_bits"),
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


def _of_algorithms(title: str, names: str) -> Table:
    """Return a table with these columns, numbers to the right."""
    table = Table(title=title)
    for name in names.split("|"):
        table.add_column(name, justify="left" if name in ("algorithm", "variant") else "right")
    return table


def print_seeds(folders: list[Path], rows: list[Row], title: str) -> None:
    """Print one line per row: mean and standard deviation over the seeds that have got somewhere."""
    names = (
        "algorithm|seeds|accuracy\n(test so far, %)|accuracy\n(whole test, %)|mean over\ntime (%)|forgetting\n(%)|"
        "sent, measured\n(MB)|training,\nmeasured (s)"
    )
    table = _of_algorithms(title, names)

    for row in rows:
        found = [one for folder in folders if (one := summarise(folder, row.name))]
        if not found:
            continue
        figures = [
            spread([getattr(one, key) for one in found], 100)
            for key in ("accuracy", "accuracy_full", "mean_accuracy", "forgetting")
        ]
        sent = ["-", "-"]
        if not row.central:
            sent = [
                spread([one.uplink_bytes for one in found], 1e-6),
                spread([one.measured_seconds for one in found], 1),
            ]
        table.add_row(row.title, str(len(found)), *figures, *sent)
    show(table, ("forgetting\n(%)", "mean over\ntime (%)", "training,\nmeasured (s)"))


def print_summary(folder: Path, rows: list[Row], title: str) -> None:
    """Print one line per row."""
    names = (
        "algorithm|rounds|accuracy\n(test so far, %)|accuracy\n(whole test, %)|mean over\ntime (%)|forgetting\n(%)|"
        "sent, measured\n(MB)|sent, paper's\nformula (MB)|training,\nmodelled (s)|training,\nmeasured (s)|wall\n(s)"
    )
    table = _of_algorithms(title, names)

    def percent(value: float | None) -> str:
        return "-" if value is None else f"{100 * value:.1f}"

    for row in rows:
        found = summarise(folder, row.name)
        if found is None:
            continue
        sent: list[Any] = ["-"] * 4
        if not row.central:
            sent = [f"{found.uplink_bytes / 1e6:.1f}", f"{found.paper_bits / 8e6:.1f}"]
            sent += [f"{found.modelled_seconds:.0f}", f"{found.measured_seconds:.1f}"]
        figures = [percent(x) for x in (found.accuracy, found.accuracy_full, found.mean_accuracy, found.forgetting)]
        table.add_row(row.title, str(found.rounds), *figures, *sent, f"{found.wall_seconds:.0f}")
    spare = (
        "mean over\ntime (%)",
        "forgetting\n(%)",
        "wall\n(s)",
        "sent, paper's\nformula (MB)",
        "training,\nmodelled (s)",
    )
    show(table, spare)


def print_resources(folder: Path, rows: list[Row], title: str) -> None:
    """Print what accuracy cost, one line per row: bytes and seconds measured, seconds and joules modelled."""
    names = (
        "algorithm|accuracy\n(%)|sent\n(MB)|train / fly / send,\nmodelled (s)|train / fly / send,\nmodelled (kJ)|"
        "training,\nmeasured (s)|points\na MB|points\na kJ|late|least battery\n(%)"
    )
    table = _of_algorithms(title, names)
    config = RunFolder(folder).read_config()
    for row in rows:
        found = summarise(folder, row.name)
        if found is None or row.central:
            continue
        points = None if found.accuracy is None else 100 * found.accuracy
        seconds = (found.modelled_seconds, found.fly_seconds, found.send_seconds)
        joules = (found.modelled_energy, found.fly_joules, found.send_joules)
        table.add_row(
            row.title,
            "-" if points is None else f"{points:.1f}",
            f"{found.uplink_bytes / 1e6:.1f}",
            " / ".join(f"{value:.0f}" for value in seconds),
            " / ".join(f"{value / 1e3:.3g}" for value in joules),
            f"{found.measured_seconds:.1f}",
            _per(points, found.uplink_bytes / 1e6),
            _per(points, found.joules / 1e3),
            str(found.late),
            "-" if found.battery is None else f"{100 * found.battery / config.cost.battery:.0f}",
        )
    if table.row_count:
        show(table, ("training,\nmeasured (s)", "points\na MB", "points\na kJ", "train / fly / send,\nmodelled (s)"))


def _per(points: float | None, cost: float) -> str:
    return "-" if points is None or cost <= 0 else f"{points / cost:.3g}"


def sweep_rows(jobs: list[SweepJob], place: Path) -> list[dict[str, Any]]:
    """Return one row a run and algorithm that has got somewhere."""
    rows = []
    for job in jobs:
        for algorithm in job.config.labels:
            found = summarise(place / job.place, algorithm) if (place / job.place / algorithm).is_dir() else None
            if found is not None:
                rows.append({"variant": job.variant, "seed": job.seed, **asdict(found)})
    return rows


def print_sweep(rows: list[dict[str, Any]], title: str) -> None:
    """Print one line a variant and algorithm: mean and standard deviation over seeds."""
    names = (
        "variant|algorithm|seeds|rounds|accuracy\n(test so far, %)|accuracy\n(whole test, %)|mean over\ntime (%)|"
        "sent, measured\n(MB)|training,\nmeasured (s)"
    )
    table = _of_algorithms(title, names)
    titles = {name: known.title for name, known in KNOWN.items()}
    for variant, algorithm in dict.fromkeys((row["variant"], row["algorithm"]) for row in rows):
        some = [row for row in rows if (row["variant"], row["algorithm"]) == (variant, algorithm)]
        figures = [spread([row[key] for row in some], 100) for key in ("accuracy", "accuracy_full", "mean_accuracy")]
        figures += [spread([row["uplink_bytes"] for row in some], 1e-6)]
        figures += [spread([row["measured_seconds"] for row in some], 1)]
        rounds = sorted({row["rounds"] for row in some})
        shown = str(rounds[0]) if len(rounds) == 1 else f"{rounds[0]}-{rounds[-1]}"
        table.add_row(variant, titles.get(algorithm, algorithm), str(len(some)), shown, *figures)
    show(table, ("mean over\ntime (%)", "training,\nmeasured (s)", "rounds", "seeds"))


def spread(values: Sequence[float | None], factor: float = 1.0) -> str:
    """Return mean and standard deviation of what is known."""
    known = [factor * value for value in values if value is not None]
    if not known:
        return "-"
    return f"{mean(known):.1f} ± {stdev(known):.1f}" if len(known) > 1 else f"{known[0]:.1f}"
