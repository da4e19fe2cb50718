"""The headline table: what every algorithm reached and what it cost, the best of measured figures marked."""

from collections.abc import Sequence
from dataclasses import dataclass

from skyfed.report.groups import SeedGroup
from skyfed.report.measures import MEASURES, Measure, known, scaled, value_of
from skyfed.report.numbers import Unit, unit_of
from skyfed.report.seed_model import leaders, mean_and_half
from skyfed.report.summary import Summary, summarise

SHOWN = (
    "accuracy", "accuracy_full", "mission_seconds", "law_time", "uplink_bytes", "downlink_bytes", "paper_bytes",
    "joules", "least_battery", "landed",
)  # fmt: skip
_NONE = "–"


@dataclass
class Cell:
    """What a cell shows: mean and half interval over seeds, its share of the column's largest, whether it is best."""

    text: str = _NONE
    value: float | None = None
    spread: str = ""
    share: float = 0.0
    best: bool = False


@dataclass
class HeadlineRow:
    """One algorithm of one group; `by_seed` holds its summaries."""

    run: int
    algorithm: str
    title: str
    central: bool
    rounds: int
    by_seed: dict[int, Summary]
    cells: list[Cell]

    @property
    def seeds(self) -> int:
        """How many seeds there are."""
        return len(self.by_seed)


@dataclass(frozen=True)
class Headline:
    """The whole table; every column has its measure and the unit that suits it. `names` are those of the measures."""

    names: list[str]
    columns: list[tuple[Measure, Unit]]
    lines: list[HeadlineRow]


def headline(groups: Sequence[SeedGroup]) -> Headline:
    """Return one line per group and algorithm that has got somewhere."""
    lines = []
    for run, group in enumerate(groups):
        for row in group.config.rows:
            seeds = zip(group.configs, group.folders, strict=True)
            by_seed = {config.seed: each for config, folder in seeds if (each := summarise(folder, row.name))}
            if by_seed:
                rounds = min(summary.rounds for summary in by_seed.values())
                lines.append(HeadlineRow(run, row.name, row.title, row.central, rounds, by_seed, []))
    names = known(SHOWN, [(each, line.central) for line in lines for each in line.by_seed.values()])
    return Headline(names, [(MEASURES[name], _fill(lines, name)) for name in names], lines)


def _fill(lines: list[HeadlineRow], name: str) -> Unit:
    """Add a column's cells to all lines; returns its unit."""
    values = [_values(line, name) for line in lines]
    cells = [mean_and_half([*by_seed.values()]) for by_seed in values]
    means = [mean for mean, _ in cells if mean is not None]
    unit, largest = unit_of(MEASURES[name].kind, means), max(means, default=0.0)
    measure = MEASURES[name]
    best = _best(lines, values, measure.better == "high") if measure.source == "measured" else set()
    for k, (line, (mean, half)) in enumerate(zip(lines, cells, strict=True)):
        if mean is None:
            line.cells.append(Cell())
            continue
        text, _, spread = scaled(mean, half, unit).partition(" ± ")
        line.cells.append(Cell(text, mean, spread, mean / largest if largest > 0 else 0.0, str(k) in best))
    return unit


def _values(line: HeadlineRow, name: str) -> dict[int, float]:
    by_seed = {seed: value_of(name, summary, line.central) for seed, summary in line.by_seed.items()}
    return {seed: value for seed, value in by_seed.items() if value is not None}


def _best(lines: list[HeadlineRow], values: list[dict[int, float]], high: bool) -> set[str]:
    """Return the numbers of the best among those that trained on vehicles for as many rounds as any."""
    longest = max((line.rounds for line in lines if not line.central), default=0)
    fit = {str(k): by_seed for k, by_seed in enumerate(values) if by_seed and not lines[k].central}
    return leaders({k: by_seed for k, by_seed in fit.items() if lines[int(k)].rounds == longest}, high)
