"""Theorem 1 for people: tables of the bound's terms, what fails, and a figure of which error dominates."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from skyfed.errors import BadInputError
from skyfed.report.style import COLOURS, COLUMN, DASHED, GRID, in_style, legend_above, whole_rounds
from skyfed.report.terminal_tables import console, table_of, title_of
from skyfed.runs.folder import RunFolder
from skyfed.runs.tables import Table as Stored
from skyfed.theory.bound import FORMS, TERMS, Form, averaged
from skyfed.theory.diagnose import Diagnosis, diagnose

SHADES = dict(zip(TERMS, (COLOURS[8], COLOURS[1], COLOURS[4], COLOURS[0], COLOURS[2], COLOURS[3]), strict=True))
_MARKERS: dict[Form, str] = {"printed": "v", "supplement": "s", "corrected": "o"}


def diagnoses(folder: Path) -> list[Diagnosis]:
    """Read a run that recorded the constants of Theorem 1, finished or not."""
    config = RunFolder.config_of(folder)
    recorded = []
    for name in config.labels:
        rows = Stored(folder / name, "theory").rows()
        try:
            if rows:
                recorded.append(diagnose(name, rows, Stored(folder / name, "uplink").rows()))
        except (KeyError, TypeError, ValueError) as error:
            raise BadInputError(f"{folder / name}: not a table of theory ({type(error).__name__} {error})") from None
    if not recorded:
        how = "no round was measured (sgd has none; nor have rounds without a useful upload)"
        how = how if config.theory.every else "run with --set theory.every=10"
        raise BadInputError(f"{folder}: no constants of Theorem 1 recorded; {how}")
    return recorded


def shown_form(diagnosis: Diagnosis) -> Form:
    """Return the form whose terms are drawn: the corrected one where it is finite in all measured rounds."""
    finite = all(np.isfinite(bound.total) for bound in diagnosis.bounds["corrected"])
    return "corrected" if finite else "supplement"


def print_json(diagnosed: Sequence[Diagnosis]) -> None:
    """Print records of round, form, term, value."""
    print(json.dumps([record for diagnosis in diagnosed for record in diagnosis.records()], indent=1))


def print_bound(diagnosis: Diagnosis) -> None:
    """Print what the theorem says of one algorithm."""
    out, constants, measured = console(), diagnosis.constants, len(diagnosis.rounds)
    what = f"bound on the squared gradient, mean of {measured} measured rounds (Eq. 20)"
    table = table_of(f"{title_of(diagnosis.algorithm)}: {what}", ["term", *FORMS])
    means = {form: averaged(constants, form) for form in FORMS}
    for term in TERMS:
        table.add_row(term, *(_number(means[form][term]) for form in FORMS))
    table.add_row("bound", *(_number(sum(means[form].values())) for form in FORMS), style="bold")
    table.add_row("measured gradient", *([_number(float(np.mean(diagnosis.realised)))] * len(FORMS)))
    out.print(table)
    first, q = constants[0], max(float(each.q.max()) for each in constants)
    out.print(
        f"beta {first.beta:.3g} (largest curvature seen), rho1 {first.rho1:.3g}, rho2 {first.rho2:.3g}, "
        f"sigma^2 {np.mean([each.sigma2.mean() for each in constants]):.3g}, q at most {q:.3g}"
        + (f", measured {diagnosis.variance:.3g}" if np.isfinite(diagnosis.variance) else "")
    )
    forms: tuple[Form, ...] = ("printed", "corrected")  # the supplement's conditions are the printed ones
    for form in forms:
        for name, count, factor in diagnosis.failing(form):
            by = f"by a factor of {factor:.3g}" if np.isfinite(factor) else "without a bound"
            out.print(f"{form}: condition {name} fails in {count} of {measured} rounds, {by}")
        out.print(f"{form}: largest learning rate it allows, global and local: {diagnosis.largest_rate(form):.3g}")
    if not _valid(diagnosis, "corrected"):
        rate = 0.5 * diagnosis.largest_rate("corrected")
        parts = ", ".join(f"{name} {_number(value)}" for name, value in diagnosis.errors_at(rate).items())
        out.print(f"corrected, at half that rate ({rate:.3g}), errors beside progress and shift: {parts}")
    if diagnosis.pruned:
        out.print(
            f"assumption 5 (delta >= ||w - w_bar||^2 / ||w||^2) holds in {diagnosis.uploads - diagnosis.broken} of "
            f"{diagnosis.uploads} uploads" + (f"; worst excess {diagnosis.worst:.3g} times" if diagnosis.broken else "")
        )


def _number(value: float) -> str:
    return f"{value:.3g}" if np.isfinite(value) else "no bound"


def _valid(diagnosis: Diagnosis, form: Form) -> bool:
    return all(bound.valid for bound in diagnosis.bounds[form])


@in_style()
def draw_bound(diagnosis: Diagnosis, rounds: int) -> Figure:
    """Draw which error dominates, and the bounds beside the measured gradient, over the rounds."""
    measured, form = diagnosis.rounds, shown_form(diagnosis)
    figure = Figure(figsize=(COLUMN, 3.6), layout="constrained")
    upper, lower = figure.subplots(2, sharex=True, height_ratios=(1, 1))
    parts = np.array([[max(0.0, bound.terms[term]) for term in TERMS] for bound in diagnosis.bounds[form]]).T
    shares = parts / np.maximum(parts.sum(axis=0), 1e-300)
    edge = np.zeros(len(measured))
    width = 0.9 * min(np.diff(measured).min(initial=rounds), rounds)
    for term, share in zip(TERMS, shares, strict=True):
        upper.bar(measured, share, width, bottom=edge, color=SHADES[term])
        edge = edge + share
    upper.set(ylabel=f"Share of positive\nterms ({form})", ylim=(0, 1))
    handles: list[Patch | Line2D] = [Patch(color=SHADES[term], label=term) for term in TERMS]
    for kind, marker in _MARKERS.items():
        totals = np.array([bound.total for bound in diagnosis.bounds[kind]])
        if np.isfinite(totals).any():
            label = kind if _valid(diagnosis, kind) else f"{kind} (conditions fail)"
            look: dict[str, Any] = {"color": "0.35", "label": label, "markersize": 3, "linewidth": 1.0}
            look |= {"marker": marker, "linestyle": DASHED}
            handles += lower.plot(measured, np.where(totals > 0, totals, np.nan), **look)
    look = {"color": COLOURS[6], "label": "measured", "markersize": 3, "linewidth": 1.0}
    handles += lower.plot(measured, diagnosis.realised, "D-", **look)
    lower.set(yscale="log", xlabel="Round", ylabel=r"$\|\bar\nabla f\|^2$ and its bounds", axisbelow=True)
    lower.grid(**GRID)
    whole_rounds(lower, rounds)
    lower.set_xlim(measured[0] - 0.6 * width, max(rounds - 0.5, measured[-1] + 0.6 * width))
    lower.set_xticks([tick for tick in lower.get_xticks() if 0 <= tick < rounds])
    legend_above(figure, handles, 2)
    return figure
