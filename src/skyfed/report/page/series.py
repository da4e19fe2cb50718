"""What the charts show of a group of seeds, as plain numbers: accuracy, payloads, classes, the bound."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skyfed.report.bound import diagnoses, shown_form
from skyfed.report.groups import SeedGroup
from skyfed.report.learning_curves import ROUNDS, CostAxis, cost_axes, mean_lines, shares
from skyfed.report.style import MARKERS
from skyfed.report.style import looks as row_looks
from skyfed.report.summary import PARTS, summarise
from skyfed.report.units import megabytes_of_bits
from skyfed.runs.tables import Table, remembered
from skyfed.theory.bound import FORMS, TERMS

_MOST_POINTS = 400  # of a line, and columns of a heat map; a screen shows no more
_MOST_STEPS = 200  # of a distribution
SYMBOLS = dict(zip(MARKERS, (
    "circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "diamond-tall", "x", "triangle-left",
    "triangle-right", "pentagon", "hexagon",
), strict=True))  # fmt: skip

Json = dict[str, Any]


def plain(values: Any, digits: int = 5) -> Any:
    """Turn an array into lists of numbers with so many significant digits; what is not finite becomes null."""
    if isinstance(values, np.ndarray | list | tuple):
        return [plain(value, digits) for value in values]
    if values is None or not np.isfinite(values):
        return None
    number = float(f"{values:.{digits}g}")
    return int(number) if number.is_integer() else number


def looks(groups: Sequence[SeedGroup]) -> Json:
    """Return name, colour and marker of every algorithm, as in the figures."""
    rows = {row.name: row for group in groups for row in group.config.rows}
    return {
        name: {
            "title": look["label"],
            "colour": look["color"],
            "symbol": SYMBOLS[look["marker"]],
            "central": rows[name].central,
        }
        for name, look in row_looks(list(rows.values())).items()
    }


def page_axes(groups: Sequence[SeedGroup]) -> dict[str, CostAxis]:
    """Return what the page draws accuracy over, the costs first: those of missions, unless no run has one."""
    worlds = [group.config.world for group in groups]
    return {**cost_axes(next((world for world in worlds if world.time == "mission"), worlds[0])), "rounds": ROUNDS}


def accuracy(group: SeedGroup, axes: dict[str, CostAxis]) -> list[Json]:
    """Return the lines of accuracy over every axis, one per algorithm; an axis that a run does not have is null."""
    own = {**cost_axes(group.config.world), "rounds": ROUNDS}
    by_axis = {
        name: {line.row.name: line for line in mean_lines(group.curves, axis)} if own[name].label == axis.label else {}
        for name, axis in axes.items()
    }
    whole = {line.row.name: line for line in mean_lines(group.curves, ROUNDS, "accuracy_full")}
    lines = []
    for name, line in by_axis["rounds"].items():
        at = _thinned(len(line.x))
        x = {axis: plain(known[name].x[at]) if name in known else None for axis, known in by_axis.items()}
        y = {
            measure: {part: plain(getattr(curve, part)[at], 4) for part in ("mean", "low", "high")}
            for measure, curve in (("accuracy", line), ("accuracy_full", whole[name]))
        }
        lines.append({"algorithm": name, "seeds": line.seeds, "x": x, "y": y})
    return lines


def energy(group: SeedGroup) -> list[Json]:
    """Return the joules of all vehicles by what they were spent on, the mean over seeds; one record per algorithm."""
    records = []
    for row in group.config.rows if group.config.world.time == "mission" else ():
        seeds = [each for folder in group.folders if (each := summarise(folder, row.name))]
        joules = np.array([[getattr(each, f"{part}_joules") for part in PARTS] for each in seeds], np.float64)
        if seeds and np.isfinite(joules).all():  # else central, or of format 0.1.0
            parts = dict(zip(PARTS, plain(joules.mean(axis=0)), strict=True))
            records.append({"algorithm": row.name, "joules": parts})
    return records


def payloads(group: SeedGroup) -> list[Json]:
    """Return the distributions of the sizes of messages, one record per algorithm that has sent anything."""
    records = []
    for curve in group.curves:
        if curve.wire_bits.size:
            sizes = {"measured": curve.wire_bits, "formula": curve.paper_bits, "down": curve.downlink_bits}
            steps = {
                kind: plain(shares(megabytes_of_bits(bits), _MOST_STEPS)[0], 4)
                for kind, bits in sizes.items()
                if bits.size
            }
            records.append({"algorithm": curve.row.name, "uploads": len(curve.wire_bits), **steps})
    return records


def class_accuracy(group: SeedGroup) -> list[Json]:
    """Return accuracy class by class on the whole test set over the rounds, the mean over seeds."""
    maps = []
    for algorithm in group.config.labels:
        tables = [_by_class(folder, algorithm) for folder in group.folders]
        tables = [table for table in tables if table]
        rounds = sorted(set.intersection(*map(set, tables))) if tables else []
        if rounds:
            rounds = [rounds[k] for k in _thinned(len(rounds))]
            share = np.mean([[table[t] for t in rounds] for table in tables], axis=0).T
            maps.append({"algorithm": algorithm, "rounds": rounds, "percent": plain(100 * share, 3)})
    return maps


def bounds(group: SeedGroup) -> list[Json]:
    """Return Theorem 1's terms in every measured round, of the first seed that recorded them."""
    recorded = [
        (folder, config)
        for folder, config in zip(group.folders, group.configs, strict=True)
        if any(Table(folder / name, "theory").rows() for name in config.labels)
    ]
    records = []
    for folder, config in recorded[:1]:
        own = {row.name: row.own.get("train", {}) for row in config.rows}
        for diagnosis in diagnoses(folder):
            form, by_form = shown_form(diagnosis), diagnosis.bounds
            records.append({
                "algorithm": diagnosis.algorithm,
                "seed": config.seed,
                "rounds": diagnosis.rounds,
                "form": form,
                "terms": {term: plain([bound.terms[term] for bound in by_form[form]]) for term in TERMS},
                "totals": {kind: plain([bound.total for bound in by_form[kind]]) for kind in FORMS},
                "valid": {kind: all(bound.valid for bound in by_form[kind]) for kind in FORMS},
                "measured": plain(diagnosis.realised),
                "rate": plain(diagnosis.largest_rate("corrected"), 3),
                "eta": plain(own[diagnosis.algorithm].get("eta", config.train.eta), 3),
            })  # fmt: skip
    return records


@remembered
def _by_class(folder: Path, label: str) -> dict[int, NDArray[np.float64]]:
    rows = Table(folder / label, "rounds").rows()
    return {row["round"]: np.array(row["accuracy_class"], np.float64) for row in rows if row.get("accuracy_class")}


def _thinned(count: int) -> list[int]:
    """Return which of `count` points to show: all, or _MOST_POINTS evenly spaced ones with first and last."""
    return sorted({round(k) for k in np.linspace(0, count - 1, min(count, _MOST_POINTS))})
