"""What the charts show, as plain numbers: accuracy, payloads, classes, the bound."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skyfed.report.bound import SHADES, diagnoses
from skyfed.report.learning_curves import RowCurves, mean_lines, read_curves, shares
from skyfed.report.page.places import SeedGroup
from skyfed.report.style import looks as row_looks
from skyfed.runs.tables import Table
from skyfed.theory.bound import FORMS, TERMS, Form

_AXES = ("rounds", "megabytes", "modelled_seconds", "measured_seconds")
_MOST_POINTS = 400  # of a line, and columns of a heat map; a screen shows no more
_MOST_STEPS = 200  # of a distribution
_SYMBOLS = dict(zip("osD^vPdX<>ph", (
    "circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "diamond-tall", "x", "triangle-left",
    "triangle-right", "pentagon", "hexagon",
), strict=True))  # fmt: skip

Json = dict[str, Any]


def plain(values: Any, digits: int = 5) -> Any:
    """Turn an array into lists of numbers with so many digits; what is not finite becomes null."""
    if isinstance(values, np.ndarray | list | tuple):
        return [plain(value, digits) for value in values]
    number = float(f"{values:.{digits}g}") if values is not None and np.isfinite(values) else None
    return int(number) if number is not None and number.is_integer() else number


def looks(groups: Sequence[SeedGroup]) -> Json:
    """Return name, colour, stroke and marker of every algorithm, as in the figures."""
    found = {}
    rows = {row.name: row for group in groups for row in group.config.rows}
    for name, look in row_looks(list(rows.values())).items():
        stroke = look["linestyle"]
        dash = "solid" if stroke == "-" else ",".join(f"{1.8 * part:.3g}px" for part in stroke[1])
        found[name] = {
            "title": look["label"],
            "colour": look["color"],
            "dash": dash,
            "symbol": _SYMBOLS[look["marker"]],
            "central": rows[name].central,
        }
    return found


def courses(groups: Sequence[SeedGroup]) -> tuple[list[Json], list[Json]]:
    """Return the lines of accuracy, and the distributions of payloads, of every group and algorithm."""
    lines, payloads = [], []
    for run, group in enumerate(groups):
        curves = read_curves(group.folders, group.config.rows)
        lines += [{"run": run, **line} for line in _accuracy(curves)]
        for curve in curves:
            if curve.wire_bits.size:
                sizes = {"measured": curve.wire_bits, "formula": curve.paper_bits}
                steps = {
                    kind: plain(shares(bits / 8e6, _MOST_STEPS)[0], 4) for kind, bits in sizes.items() if bits.size
                }
                payloads.append({"run": run, "algorithm": curve.row.name, "uploads": len(curve.wire_bits), **steps})
    return lines, payloads


def class_accuracy(groups: Sequence[SeedGroup]) -> list[Json]:
    """Return accuracy class by class on the whole test set over the rounds, the mean over seeds."""
    found = []
    for run, group in enumerate(groups):
        for algorithm in group.config.labels:
            tables = [_by_class(Table(folder / algorithm, "rounds").rows()) for folder in group.folders]
            tables = [table for table in tables if table]
            rounds = sorted(set.intersection(*map(set, tables))) if tables else []
            if rounds:
                rounds = [rounds[k] for k in _thinned(len(rounds))]
                share = np.mean([[table[t] for t in rounds] for table in tables], axis=0).T
                found.append({"run": run, "algorithm": algorithm, "rounds": rounds, "percent": plain(100 * share, 3)})
    return found


def bounds(groups: Sequence[SeedGroup]) -> list[Json]:
    """Return Theorem 1's terms in every measured round, of the first seed of each group that recorded them."""
    found = []
    for run, group in enumerate(groups):
        recorded = [
            (folder, config)
            for folder, config in zip(group.folders, group.configs, strict=True)
            if any(Table(folder / name, "theory").rows() for name in config.labels)
        ]
        for folder, config in recorded[:1]:
            own = {row.name: row.own.get("train", {}) for row in config.rows}
            for one in diagnoses(folder):
                whole = all(np.isfinite(bound.total) for bound in one.bounds["corrected"])
                form: Form = "corrected" if whole else "supplement"
                found.append({
                    "run": run,
                    "algorithm": one.algorithm,
                    "seed": config.seed,
                    "rounds": one.rounds,
                    "form": form,
                    "terms": {term: plain([bound.terms[term] for bound in one.bounds[form]]) for term in TERMS},
                    "totals": {kind: plain([bound.total for bound in one.bounds[kind]]) for kind in FORMS},
                    "valid": {kind: all(bound.valid for bound in one.bounds[kind]) for kind in FORMS},
                    "measured": plain(one.realised),
                    "rate": plain(one.largest_rate("corrected"), 3),
                    "eta": plain(own[one.algorithm].get("eta", config.train.eta), 3),
                })  # fmt: skip
    return found


def term_colours() -> dict[str, str]:
    """Return the colour of every term of the bound, as in its figure."""
    return dict(SHADES)


def _accuracy(curves: list[RowCurves]) -> list[Json]:
    by_axis = {axis: {line.row.name: line for line in mean_lines(curves, axis)} for axis in _AXES}
    whole = {line.row.name: line for line in mean_lines(curves, "rounds", "accuracy_full")}
    found = []
    for name, line in by_axis["rounds"].items():
        at = _thinned(len(line.x))
        x = {axis: plain(by_axis[axis][name].x[at]) for axis in _AXES}
        y = {
            kind: {part: plain(getattr(each, part)[at], 4) for part in ("mean", "low", "high")}
            for kind, each in (("accuracy", line), ("accuracy_full", whole[name]))
        }
        found.append({"algorithm": name, "seeds": line.seeds, "x": x, "y": y})
    return found


def _by_class(rows: list[Json]) -> dict[int, NDArray[np.float64]]:
    told = {row["round"]: row.get("accuracy_class") for row in rows}
    return {t: np.array(shares, np.float64) for t, shares in told.items() if shares}


def _thinned(count: int) -> list[int]:
    """Which of so many points to show: all, or the most there may be, evenly, with first and last."""
    return sorted({round(k) for k in np.linspace(0, count - 1, min(count, _MOST_POINTS))})
