"""What tables compare: every measure is declared once, with its unit, its source and which end of it is better."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from skyfed.report.numbers import Unit, unit_of, with_interval
from skyfed.report.seed_model import mean_and_half
from skyfed.report.summary import Summary

Better = Literal["high", "low"]


@dataclass(frozen=True)
class Measure:
    """A figure of a summary.

    title, about  what it is, and of what       kind  its unit without a prefix; shares are shown in %
    source        measured or modelled          vehicles  whether it is of vehicles, so that central training has none
    """

    title: str
    about: str
    kind: str
    source: Literal["measured", "modelled"]
    better: Better
    vehicles: bool = True

    def header(self, unit: Unit) -> str:
        """Return the head of a column: two lines."""
        words = ", ".join(word for word in (self.about, unit.name) if word)
        return f"{self.title}\n({words})"


def _share(about: str, title: str = "accuracy", better: Better = "high") -> Measure:
    return Measure(title, about, "%", "measured", better, vehicles=False)


MEASURES = {
    "accuracy": _share("test so far"),
    "accuracy_full": _share("whole test"),
    "late_accuracy": _share("late, test so far"),
    "late_accuracy_full": _share("late, whole test"),
    "mean_accuracy": _share("mean over time"),
    "forgetting": _share("", "forgetting", "low"),
    "uplink_bytes": Measure("sent", "measured", "B", "measured", "low"),
    "downlink_bytes": Measure("received", "measured", "B", "measured", "low"),
    "paper_bytes": Measure("sent", "paper's formula", "B", "modelled", "low"),
    "modelled_seconds": Measure("training", "modelled", "s", "modelled", "low"),
    "measured_seconds": Measure("training", "measured", "s", "measured", "low"),
    "wall_seconds": Measure("wall", "", "s", "measured", "low", vehicles=False),
    "fly_seconds": Measure("flying", "modelled", "s", "modelled", "low"),
    "send_seconds": Measure("sending", "modelled", "s", "modelled", "low"),
    "joules": Measure("energy", "modelled", "J", "modelled", "low"),
}
ACCURACIES = [name for name, measure in MEASURES.items() if measure.better == "high"]


def value_of(name: str, summary: Summary, central: bool) -> float | None:
    """Return a measure of a summary; None where central training has no such thing."""
    value = None if central and MEASURES[name].vehicles else getattr(summary, name)
    return None if value is None else float(value)


def column(name: str, rows: Sequence[Sequence[float | None]]) -> tuple[str, list[str]]:
    """Return the head and the cells of a column from the values by seed of every row: mean ± 95 % interval."""
    known = [mean_and_half([value for value in row if value is not None]) for row in rows]
    unit = unit_of(MEASURES[name].kind, [mean for mean, _ in known])
    return MEASURES[name].header(unit), [scaled(mean, half, unit) for mean, half in known]


def scaled(mean: float | None, half: float | None, unit: Unit, sign: str = "") -> str:
    """Return a mean and its interval in a unit."""
    both = [None if each is None else unit.factor * each for each in (mean, half)]
    return with_interval(both[0], both[1], sign)
