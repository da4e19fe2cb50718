"""The headline table: what every algorithm reached and what it cost, the best of measured figures marked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from skyfed.report.page.places import SeedGroup
from skyfed.report.terminal_tables import Summary, summarise


@dataclass(frozen=True)
class HeadlineColumn:
    """A figure: its name, its unit, where it comes from, and how to read it from a summary.

    An accuracy is a share that is better when high, and central training has it too. Any other figure is a cost of
    the vehicles.
    """

    name: str
    unit: str
    source: str
    value: Callable[[Summary], float | None]
    accuracy: bool = False


COLUMNS = (
    HeadlineColumn("Accuracy", "%, test set so far", "measured", lambda run: run.accuracy, accuracy=True),
    HeadlineColumn("Accuracy", "%, whole test set", "measured", lambda run: run.accuracy_full, accuracy=True),
    HeadlineColumn("Uplink", "MB", "measured", lambda run: run.uplink_bytes / 1e6),
    HeadlineColumn("Downlink", "MB", "measured", lambda run: run.downlink_bytes / 1e6),
    HeadlineColumn("Uplink", "MB, paper’s formula", "modelled", lambda run: run.paper_bits and run.paper_bits / 8e6),
    HeadlineColumn("Training", "s", "modelled", lambda run: run.modelled_seconds),
    HeadlineColumn("Training", "s", "measured", lambda run: run.measured_seconds),
    HeadlineColumn("Energy", "kJ", "modelled", lambda run: run.joules / 1e3),
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
    """Return one line per group and algorithm that has got somewhere."""
    lines = []
    for run, group in enumerate(groups):
        for row in group.config.rows:
            seeds = [summary for folder in group.folders if (summary := summarise(folder, row.name))]
            if seeds:
                cells = [_cell(column, seeds, row.central) for column in COLUMNS]
                rounds = min(summary.rounds for summary in seeds)
                lines.append(HeadlineRow(run, row.name, row.title, row.central, len(seeds), rounds, cells))
    for k, column in enumerate(COLUMNS):
        known = [line for line in lines if line.cells[k].value is not None]
        _share(known, k)
        if column.source == "measured":  # a model's figure wins nothing
            _mark(known, k, column.accuracy)
    return lines


def _cell(column: HeadlineColumn, seeds: list[Summary], central: bool) -> Cell:
    known = [value for summary in seeds if (value := column.value(summary)) is not None]
    if not known or (central and not column.accuracy):
        return Cell("–", None)
    middle, shown, digits = mean(known), [100 * value for value in known], ".1f"
    if not column.accuracy:  # three digits, as many decimals in mean and deviation
        shown, size = known, abs(middle)
        decimals = 0 if size >= 100 or size == 0 else 1 if size >= 10 else 2 if size >= 1 else 3 if size >= 0.01 else 5
        digits = f",.{decimals}f"
    return Cell(f"{mean(shown):{digits}}", middle, f"{stdev(shown):{digits}}" if len(shown) > 1 else "")


def _share(lines: list[HeadlineRow], k: int) -> None:
    """Note how large every cell is beside the largest of its column."""
    values = [line.cells[k].value or 0.0 for line in lines]
    for line, value in zip(lines, values, strict=True):
        line.cells[k].share = value / max(values) if max(values) > 0 else 0.0


def _mark(lines: list[HeadlineRow], k: int, high: bool) -> None:
    """Mark the best of those that trained on vehicles for as many rounds as any; what looks equal is equal."""
    fleet = [line for line in lines if not line.central]
    longest = max((line.rounds for line in fleet), default=0)
    fit = [line for line in fleet if line.rounds == longest]
    if len(fit) < 2:
        return
    first = (max if high else min)(fit, key=lambda line: line.cells[k].value or 0.0)
    alike = [line for line in fit if line.cells[k].text == first.cells[k].text]
    for line in alike if len(alike) < len(fit) else []:
        line.cells[k].best = True
