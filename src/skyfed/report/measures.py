"""What tables compare: every measure is declared once, with its unit, its source and which end of it is better."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from skyfed.report.numbers import Unit, unit_of, with_interval
from skyfed.report.seed_model import mean_and_half
from skyfed.report.summary import PARTS, PHASES, Summary

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
        """Return the head of a column: two lines, or one where there is no more to say."""
        words = ", ".join(word for word in (self.about, unit.name) if word)
        return f"{self.title}\n({words})" if words else self.title


def _share(about: str, title: str = "accuracy", better: Better = "high") -> Measure:
    return Measure(title, about, "%", "measured", better, vehicles=False)


def _modelled(title: str, about: str, kind: str, better: Better = "low") -> Measure:
    return Measure(title, about, kind, "modelled", better)


def _bytes(title: str, about: str = "") -> Measure:
    return Measure(title, about, "B", "measured", "low")


_WORDS = {
    "fly": "flying", "sense": "sensing", "receive": "receiving", "train": "training", "send": "sending",
    "wait": "waiting", "home": "way home", "hover": "hovering",
}  # fmt: skip
MEASURES = {
    "accuracy": _share("test so far"),
    "accuracy_full": _share("whole test"),
    "late_accuracy": _share("late, test so far"),
    "late_accuracy_full": _share("late, whole test"),
    "mean_accuracy": _share("mean over time"),
    "online_accuracy": _share("over mission time, whole test"),
    "forgetting": _share("", "forgetting", "low"),
    "accuracy_start": _share("as at take-off, whole test"),
    "forgetting_start": _share("of the look at take-off", "forgetting", "low"),
    "drop": _share("by a sudden change", "drop", "low"),
    "recovery_seconds": Measure("recovery", "modelled", "min", "modelled", "low", vehicles=False),
    "mission_seconds": _modelled("mission", "", "min"),
    "law_time": _modelled("training time", "paper's law", "t_tr"),
    "total_bytes": _bytes("up and down"),
    "uplink_bytes": _bytes("up"),
    "downlink_bytes": _bytes("down"),
    "broadcast_bytes": _bytes("broadcast"),
    "paper_bytes": _modelled("up", "paper's formula", "B"),
    "joules": _modelled("energy", "", "J"),
    **{f"{part}_joules": _modelled(_WORDS[part], "", "J") for part in PARTS},
    "radio_joules": _modelled("radio", "", "J"),
    "least_battery": _modelled("least battery", "", "%", "high"),
    "landed": _modelled("landed early", "", ""),
    "late": _modelled("late", "", ""),
    **{f"{phase}_seconds": _modelled(_WORDS[phase], "", "vehicle-s") for phase in PHASES},
    "measured_seconds": Measure("training", "measured", "vehicle-s", "measured", "low"),
    "wall_seconds": Measure("wall", "", "s", "measured", "low", vehicles=False),
}
ACCURACIES = [name for name in MEASURES if "accuracy" in name]


def value_of(name: str, summary: Summary, central: bool) -> float | None:
    """Return a measure of a summary; None where central training has no such thing."""
    value = None if central and MEASURES[name].vehicles else getattr(summary, name)
    return None if value is None else float(value)


def known(names: Sequence[str], rows: Sequence[tuple[Summary, bool]]) -> list[str]:
    """Return the measures that some row has; a row is its summary and whether it was trained centrally."""
    return [name for name in names if any(value_of(name, *row) is not None for row in rows)]


def modelled(names: Sequence[str]) -> list[str]:
    """Return the titles of measures that come from a model, where their heads do not say so."""
    return [MEASURES[name].title for name in names if MEASURES[name].source == "modelled" and not MEASURES[name].about]


def column(name: str, rows: Sequence[Sequence[float | None]]) -> tuple[str, list[str]]:
    """Return the head and the cells of a column from the values by seed of every row: mean ± 95 % interval."""
    means = [mean_and_half([value for value in row if value is not None]) for row in rows]
    unit = unit_of(MEASURES[name].kind, [mean for mean, _ in means])
    return MEASURES[name].header(unit), [scaled(mean, half, unit) for mean, half in means]


def scaled(mean: float | None, half: float | None, unit: Unit, sign: str = "") -> str:
    """Return a mean and its interval in a unit."""
    if not unit.name and mean is not None and half is None and mean == int(mean):  # a count
        return f"{int(mean):{sign},d}"
    both = [None if each is None else unit.factor * each for each in (mean, half)]
    return with_interval(both[0], both[1], sign)
