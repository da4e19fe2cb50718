"""One line of a benchmark: a measured figure beside what it has to be."""

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Row:
    """A measured value with its bar and goal.

    holds   whether the bar is met by every part of the row; None where an optional peer is not installed
    also    further measured figures of the same row, by name
    """

    name: str
    value: float | None
    unit: str
    bar: str
    goal: str
    holds: bool | None
    also: dict[str, Any] = field(default_factory=dict)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return wall and CPU seconds of this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def load_average() -> str:
    """Return the machine's load over the last 1, 5 and 15 minutes."""
    return " ".join(f"{value:.2f}" for value in os.getloadavg())


def to_json(rows: Sequence[Row]) -> str:
    """Return the rows as a JSON list of records."""
    return json.dumps([asdict(row) for row in rows], indent=2)


def print_rows(title: str, rows: Sequence[Row]) -> None:
    """Print the rows as a table."""
    from rich.console import Console
    from rich.table import Column, Table

    columns = (Column(name, overflow="fold") for name in ("what", "measured", "bar", "goal", "holds"))
    table = Table(*columns, title=title)
    verdict = {True: "yes", False: "NO", None: "not installed"}
    for row in rows:
        measured = "-" if row.value is None else f"{row.value:.4g} {row.unit}"
        for key, value in row.also.items():
            measured += f"\n{key} {value:.4g}" if isinstance(value, float) else f"\n{key} {value}"
        table.add_row(row.name, measured, row.bar, row.goal, verdict[row.holds])
    Console(width=150).print(table)
