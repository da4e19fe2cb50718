"""Theorem 1 for people: tables of the bound's terms, what fails, and a figure of which error dominates."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from rich.table import Table

from skyfed.algorithms import KNOWN
from skyfed.errors import BadInputError
from skyfed.report.style import COLOURS, COLUMN, GRID, in_style, legend_above, whole_rounds
from skyfed.report.terminal_tables import console
from skyfed.runs.folder import RunFolder
from skyfed.runs.tables import Table as Stored
from skyfed.theory.bound import FORMS, TERMS, Form
from skyfed.theory.diagnose import Diagnosis, diagnose

SHADES = dict(zip(TERMS, (COLOURS[8], COLOURS[1], COLOURS[4], COLOURS[0], COLOURS[2], COLOURS[3]), strict=True))
_STROKES: dict[Form, str] = {"printed": ":", "supplement": "--", "corrected": "-"}


def diagnoses(folder: Path) -> list[Diagnosis]:
    """Read a run that recorded the constants of Theorem 1, finished or not."""
    config = RunFolder.config_of(folder)
    found = []
    for name in config.labels:
        rows = Stored(folder / name, "theory").rows() if (folder / name).is_dir() else []
        try:
            if rows:
                found.append(diagnose(name, rows, Stored(folder / name, "uplink").rows()))
        except (KeyError, TypeError, ValueError) as error:
            raise BadInputError(f"{folder / name}: not a table of theory ({type(error).__name__} {error})") from None
    if not found:
        how = "no round was measured (sgd has none; nor have rounds without a useful upload)"
        raise BadInputError(
            f"{folder}: no constants of Theorem 1 recorded; "
            + (how if config.theory.every else "run with --set theory.every=10")
        )
    return found


def print_json(found: Sequence[Diagnosis]) -> None:
    """Print records of round, form, term, value."""
    print(json.dumps([record for one in found for record in one.records()], indent=1))


def print_bounds(found: Sequence[Diagnosis]) -> None:
    """Print what the theorem says, one algorithm after the other."""
    out = console()
    for one in found:
        first = one.constants[0]
        table = Table(title=f"{_title(one)}: bound on the squared gradient, mean of "
                            f"{len(one.rounds)} measured rounds (Eq. 20)")  # fmt: skip
        table.add_column("term")
        for form in FORMS:
            table.add_column(form, justify="right")
        means = {form: one.averages(form) for form in FORMS}
        for term in TERMS:
            table.add_row(term, *(_number(means[form][term]) for form in FORMS))
        table.add_row("bound", *(_number(sum(means[form].values())) for form in FORMS), style="bold")
        table.add_row("measured gradient", *([_number(float(np.mean(one.realised)))] * len(FORMS)))
        out.print(table)
        q = max(float(each.q.max()) for each in one.constants)
        out.print(
            f"beta {first.beta:.3g} (largest curvature seen), rho1 {first.rho1:.3g}, rho2 {first.rho2:.3g}, "
            f"sigma^2 {np.mean([each.sigma2.mean() for each in one.constants]):.3g}, q at most {q:.3g}"
            + (f", measured {one.variance:.3g}" if np.isfinite(one.variance) else "")
        )
        for form in FORMS:
            if form == "supplement":
                continue  # its conditions are the printed ones
            for name, count, factor in one.failing(form):
                by = f"by a factor of {factor:.3g}" if np.isfinite(factor) else "without a bound"
                out.print(f"{form}: condition {name} fails in {count} of {len(one.rounds)} rounds, {by}")
            out.print(f"{form}: largest learning rate it allows, global and local: {one.largest_rate(form):.3g}")
        if not all(bound.valid for bound in one.bounds["corrected"]):
            rate = 0.5 * one.largest_rate("corrected")
            parts = ", ".join(f"{name} {_number(value)}" for name, value in one.errors_at(rate).items())
            out.print(f"corrected, at half that rate ({rate:.3g}), errors beside progress and shift: {parts}")
        if one.pruned:
            out.print(
                f"assumption 5 (delta >= ||w - w_bar||^2 / ||w||^2) holds in {one.uploads - one.broken} of "
                f"{one.uploads} uploads" + (f"; worst excess {one.worst:.3g} times" if one.broken else "")
            )


def _title(one: Diagnosis) -> str:
    return KNOWN[one.algorithm].title if one.algorithm in KNOWN else one.algorithm


def _number(value: float) -> str:
    return f"{value:.3g}" if np.isfinite(value) else "no bound"


def _label(one: Diagnosis, kind: Form) -> str:
    return kind if all(bound.valid for bound in one.bounds[kind]) else f"{kind} (conditions fail)"


def draw_bound(one: Diagnosis, rounds: int) -> Figure:
    """Draw which error dominates, and the bounds beside the measured gradient, over the rounds."""
    with in_style():
        return _drawn(one, rounds)


def _drawn(one: Diagnosis, rounds: int) -> Figure:
    finite = [bound for bound in one.bounds["corrected"] if np.isfinite(bound.total)]
    form: Form = "corrected" if len(finite) == len(one.rounds) else "supplement"
    figure = Figure(figsize=(COLUMN, 3.6), layout="constrained")
    upper, lower = figure.subplots(2, sharex=True, height_ratios=(1, 1))
    parts = np.array([[max(0.0, bound.terms[term]) for term in TERMS] for bound in one.bounds[form]]).T
    shares = parts / np.maximum(parts.sum(axis=0), 1e-300)
    edge = np.zeros(len(one.rounds))
    width = 0.9 * min(np.diff(one.rounds).min(initial=rounds), rounds)
    for term, share in zip(TERMS, shares, strict=True):
        upper.bar(one.rounds, share, width, bottom=edge, color=SHADES[term])
        edge = edge + share
    upper.set(ylabel=f"Share of positive\nterms ({form})", ylim=(0, 1))
    lines = []
    for kind in FORMS:
        totals = np.array([bound.total for bound in one.bounds[kind]])
        if np.isfinite(totals).any():
            (line,) = lower.plot(
                one.rounds,
                np.where(totals > 0, totals, np.nan),
                _STROKES[kind],
                color="0.35",
                label=_label(one, kind),
                marker=".",
                markersize=3,
                linewidth=1.0,
            )
            lines.append(line)
    lines += lower.plot(one.rounds, one.realised, "o-", color=COLOURS[6], markersize=3, linewidth=1.0, label="measured")
    lower.set(yscale="log", xlabel="Round", ylabel=r"$\|\bar\nabla f\|^2$ and its bounds", axisbelow=True)
    lower.grid(**GRID)
    whole_rounds(lower, rounds)
    lower.set_xlim(one.rounds[0] - 0.6 * width, max(rounds - 0.5, one.rounds[-1] + 0.6 * width))
    lower.set_xticks([tick for tick in lower.get_xticks() if 0 <= tick < rounds])
    handles: list[Patch | Line2D] = [Patch(color=SHADES[term], label=term) for term in TERMS]
    legend_above(figure, [*handles, *lines], 2)
    return figure
