"""The headline table: what every algorithm reached and what it cost, the best marked."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from skyfed.report.page.places import SeedGroup
from skyfed.report.terminal_tables import Summary, spread, summarise


@dataclass(frozen=True)
class HeadlineColumn:
    """A figure: its name, its unit, where it comes from, what is better."""

    name: str
    unit: str
    source: str
    high: bool
    central: bool  # whether what trains without vehicles has it


COLUMNS = (
    HeadlineColumn("Accuracy", "%, test set so far", "measured", high=True, central=True),
    HeadlineColumn("Accuracy", "%, whole test set", "measured", high=True, central=True),
    HeadlineColumn("Sent", "MB", "measured", high=False, central=False),
    HeadlineColumn("Sent", "MB, paper’s formula", "modelled", high=False, central=False),
    HeadlineColumn("Training", "s", "modelled", high=False, central=False),
    HeadlineColumn("Training", "s", "measured", high=False, central=False),
    HeadlineColumn("Energy", "kJ", "modelled", high=False, central=False),
)


@dataclass
class Cell:
    """What a cell shows: mean and deviation over seeds, its share of the column's largest, whether it is best."""

    text: str
    value: float | None
    spread: str = ""
    share: float = 0.0
    best: bool = False


@dataclass
class HeadlineRow:
    """One algorithm of one group."""

    run: int
    algorithm: str
    title: str
    central: bool
    seeds: int
    rounds: int
    cells: list[Cell]


def headline(groups: Sequence[SeedGroup]) -> list[HeadlineRow]:
    """Return one line a group and algorithm that has got somewhere."""
    lines = []
    for run, group in enumerate(groups):
        for row in group.config.rows:
            found = [one for folder in group.folders if (one := summarise(folder, row.name))]
            if found:
                cells = _cells(found, row.central)
                rounds = min(one.rounds for one in found)
                lines.append(HeadlineRow(run, row.name, row.title, row.central, len(found), rounds, cells))
    for k, column in enumerate(COLUMNS):
        _mark([line for line in lines if line.cells[k].value is not None], k, column.high)
    return lines


def _cells(found: list[Summary], central: bool) -> list[Cell]:
    each: list[list[float | None]] = [
        [one.accuracy for one in found],
        [one.accuracy_full for one in found],
        [one.uplink_bytes / 1e6 for one in found],
        [one.paper_bits / 8e6 for one in found],
        [one.modelled_seconds for one in found],
        [one.measured_seconds for one in found],
        [one.joules / 1e3 for one in found],
    ]
    cells = []
    for column, values in zip(COLUMNS, each, strict=True):
        known = [value for value in values if value is not None]
        if not known or (central and not column.central):
            cells.append(Cell("–", None))
        else:
            text, _, apart = (spread(values, 100) if column.central else _figure(known)).partition(" ± ")
            cells.append(Cell(text, mean(known), apart))
    return cells


def _figure(values: list[float]) -> str:
    """Write mean and deviation with three digits, as many decimals in both."""
    middle = mean(values)
    size = abs(middle)
    decimals = 0 if size >= 100 or size == 0 else 1 if size >= 10 else 2 if size >= 1 else 3 if size >= 0.01 else 5
    text = f"{middle:,.{decimals}f}"
    return f"{text} ± {stdev(values):,.{decimals}f}" if len(values) > 1 else text


def _mark(lines: list[HeadlineRow], k: int, high: bool) -> None:
    """Mark the best of those that trained on vehicles for as many rounds as any; what looks equal is equal."""
    values = [line.cells[k].value or 0.0 for line in lines]
    for line, value in zip(lines, values, strict=True):
        line.cells[k].share = value / max(values) if max(values) > 0 else 0.0
    fleet = [line for line in lines if not line.central]
    longest = max((line.rounds for line in fleet), default=0)
    fit = [line for line in fleet if line.rounds == longest]
    if len(fit) < 2:
        return
    first = (max if high else min)(fit, key=lambda line: line.cells[k].value or 0.0)
    alike = [line for line in fit if line.cells[k].text == first.cells[k].text]
    for line in alike if len(alike) < len(fit) else []:
        line.cells[k].best = True
