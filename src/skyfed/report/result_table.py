"""A table of results for a paper: rows by columns, every cell a mean over seeds, compared by the declared model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skyfed.errors import BadInputError
from skyfed.report.measures import ACCURACIES, MEASURES, Measure, value_of
from skyfed.report.numbers import Unit, unit_of
from skyfed.report.seed_model import ONE_SEED, Comparison, SeedModel, fit, leaders, mean_and_half
from skyfed.report.table_rows import TableRow, read_rows

_COSTS = ("mission_seconds", "law_time", "uplink_bytes", "downlink_bytes", "joules")
DEFAULT_MEASURE = "late_accuracy_full"


@dataclass(frozen=True)
class TableCell:
    """One measure of one row, in SI units: the mean over n seeds, and half of its 95 % interval.

    comparison  with the reference row; None for that row itself, and where a comparison is not possible
    verdict     the comparison in words        best  whether the cell is marked
    """

    n: int
    mean: float | None
    half: float | None
    comparison: Comparison | None
    verdict: str
    best: bool


@dataclass(frozen=True)
class TableColumn:
    """A measure with the unit that suits it, the row that others are compared with, and a cell for every row."""

    name: str
    measure: Measure
    unit: Unit
    reference: str
    cells: list[TableCell]


@dataclass(frozen=True)
class ResultTable:
    """The whole table; the verdicts shown are those of its first column."""

    rows: list[TableRow]
    columns: list[TableColumn]
    against: str | None
    left_out: list[str]

    @property
    def seeds(self) -> str:
        """How many seeds the rows have, as "3" or "2 to 3"."""
        counts = [len(row.by_seed) for row in self.rows]
        return " to ".join(map(str, sorted({min(counts), max(counts)})))

    @property
    def one_seed(self) -> bool:
        """Whether no row has two seeds, so that nothing is compared."""
        return max(len(row.by_seed) for row in self.rows) < 2


def build_table(
    places: Sequence[Path],
    measure: str = DEFAULT_MEASURE,
    columns: Sequence[str] | None = None,
    against: str | None = None,
    margin: float | None = None,
) -> ResultTable:
    """Build the table of the runs at these places; raises BadInputError for what cannot be compared.

    measure  the accuracy that the first column shows and verdicts are about
    columns  other columns than the costs; None for those
    against  the reference of all comparisons (Dunnett's test), by label or name; None for the best row (Tukey's)
    margin   points of the first column up to which less counts as not inferior
    """
    if measure not in ACCURACIES:
        raise BadInputError(f"--measure {measure!r}: allowed: {', '.join(ACCURACIES)}")
    strangers = [name for name in columns or () if name not in MEASURES]
    if strangers:
        raise BadInputError(f"--columns: {strangers[0]!r}: allowed: {', '.join(MEASURES)}")
    if margin is not None and not 0 < margin < 100:
        raise BadInputError(f"--margin {margin:g}: allowed: points of accuracy above 0 and below 100")
    known = read_rows(places)
    reference = None if against is None else _reference(known.rows, against)
    names = dict.fromkeys([measure, *(_costs(known.rows) if columns is None else columns)])
    built = [_column(name, known.rows, reference, margin if name == measure else None) for name in names]
    return ResultTable(known.rows, built, reference, known.left_out)


def records(table: ResultTable) -> list[dict[str, Any]]:
    """Return the table in tidy form, one record per cell; values in SI units, accuracy 0 to 1."""
    return [
        {
            "row": row.name,
            "algorithm": row.label,
            "column": column.name,
            "unit": {"%": "1", "min": "s", "vehicle-s": "s", "": "1"}.get(column.measure.kind, column.measure.kind),
            "source": column.measure.source,
            "n": cell.n,
            "mean": cell.mean,
            "low": None if cell.mean is None or cell.half is None else cell.mean - cell.half,
            "high": None if cell.mean is None or cell.half is None else cell.mean + cell.half,
            "reference": column.reference or None,
            "difference": cell.comparison and cell.comparison.difference,
            "p": cell.comparison and cell.comparison.p,
            "verdict": cell.verdict or None,
            "best": cell.best,
        }
        for column in table.columns
        for row, cell in zip(table.rows, column.cells, strict=True)
    ]


def _reference(rows: list[TableRow], asked: str) -> str:
    """Return the name of the row that a user names by its label, its title or its whole name."""
    named = [row.name for row in rows if asked == row.name] or [
        row.name for row in rows if asked in (row.label, row.title)
    ]
    if len(named) != 1:
        what = "names several rows" if named else "no such row"
        raise BadInputError(f"--against {asked!r}: {what}; allowed: {', '.join(repr(row.name) for row in rows)}")
    return named[0]


def _costs(rows: list[TableRow]) -> list[str]:
    """Return the costs that some row has: a mission has no law, the law no mission, and old tables know neither."""
    return [
        name
        for name in _COSTS
        if any(value_of(name, summary, row.central) for row in rows for summary in row.by_seed.values())
    ]


def _column(name: str, rows: list[TableRow], against: str | None, margin: float | None) -> TableColumn:
    measure = MEASURES[name]
    high = measure.better == "high"
    values = {row.name: _values(name, row) for row in rows}
    central = {row.name for row in rows if row.central}
    model, best = fit(values), leaders(values, high, central)
    reference, comparisons = _compared(model, high, against, central)
    known = {row: mean_and_half([*by_seed.values()]) for row, by_seed in values.items()}
    unit = unit_of(measure.kind, [mean for mean, _ in known.values()])
    cells = []
    for row, (mean, half) in known.items():
        comparison = comparisons.get(row)
        verdict = _without_comparison(row, len(values[row]), model, reference)
        if comparison is not None:
            verdict = comparison.verdict(high, margin, unit.factor)
        cells.append(TableCell(len(values[row]), mean, half, comparison, verdict, row in best))
    return TableColumn(name, measure, unit, reference, cells)


def _values(name: str, row: TableRow) -> dict[int, float]:
    known = {seed: value_of(name, summary, row.central) for seed, summary in row.by_seed.items()}
    return {seed: value for seed, value in known.items() if value is not None}


def _compared(
    model: SeedModel, high: bool, against: str | None, central: set[str]
) -> tuple[str, Mapping[str, Comparison]]:
    """Return the reference and every other row's comparison with it: by Dunnett, or by Tukey with the best row."""
    rivals = set(model.rows) - central
    if model.trouble or not (against in model.rows if against else rivals):
        return against or "", {}
    if against:
        return against, model.against(against)
    best = model.best(high, central)
    return best, {row: model.pair(row, best) for row in model.rows if row != best}


def _without_comparison(row: str, seeds: int, model: SeedModel, reference: str) -> str:
    """Say what stands where a row is not compared."""
    if not seeds:
        return ""
    if seeds == 1 or (reference and reference not in model.rows):
        return ONE_SEED
    if row == reference:
        return "reference"
    return "" if model.trouble == ONE_SEED else model.trouble  # the only row with several seeds
