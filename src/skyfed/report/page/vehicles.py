"""The table of accuracy per vehicle: how the figures of fairness compare, and a dot for every vehicle."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import ceil, floor
from statistics import mean

from skyfed.report.groups import SeedGroup
from skyfed.runs.tables import Table
from skyfed.world.fairness import fairness_of, recorded_accuracies

_STEP = 5  # the strip of dots begins and ends at a multiple of so many per cent
_MOST_DOTS = 200


@dataclass(frozen=True)
class VehicleRow:
    """One algorithm of one group: figures in per cent, in the order of `Fairness`; dots are 0..100 on the strip."""

    run: int
    algorithm: str
    title: str
    figures: list[str]
    dots: list[float]


@dataclass(frozen=True)
class VehicleTable:
    """All rows, and the per cent where the strips of dots begin and end."""

    rows: list[VehicleRow]
    low: int
    high: int


def vehicle_table(groups: Sequence[SeedGroup]) -> VehicleTable:
    """Return one row per group and algorithm that recorded accuracy per vehicle, after its last test."""
    known = []
    for run, group in enumerate(groups):
        for row in group.config.rows:
            seeds = [recorded_accuracies(Table(folder / row.name, "rounds").rows()) for folder in group.folders]
            spreads = [fairness for each in seeds if (fairness := fairness_of(each))]
            if spreads:
                names = asdict(spreads[0])
                figures = [f"{100 * mean(getattr(fairness, name) for fairness in spreads):.1f}" for name in names]
                values = [100 * value for each in seeds for value in each or () if value is not None]
                known.append((run, row, figures, values))
    everything = [value for *_, values in known for value in values]
    low = _STEP * floor(min(everything, default=0) / _STEP)
    high = max(_STEP * ceil(max(everything, default=100) / _STEP), low + _STEP)
    rows = [
        VehicleRow(run, row.name, row.title, figures, [_at(value, low, high) for value in values[:_MOST_DOTS]])
        for run, row, figures, values in known
    ]
    return VehicleTable(rows, low, high)


def _at(value: float, low: int, high: int) -> float:
    return round(100 * (value - low) / (high - low), 1)
