"""Figures of training: accuracy over what it cost to get there, over rounds, and the sizes of the uploads."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from skyfed.report import style
from skyfed.report.learning_curves import ROUNDS, CostAxis, MeanCurve, RowCurves, mean_lines, shares
from skyfed.report.units import megabytes_of_bits
from skyfed.types import Floats

Look = dict[str, Any]
Looks = dict[str, Look]

_IN_PRINT = {"t_tr": r"$t_\mathrm{tr}$"}  # units that are symbols of the paper
_MEASURED: Look = {"linestyle": "-", "markersize": 3.0, "markeredgewidth": 0.6, "markeredgecolor": None}
_FORMULA = _MEASURED | {"linestyle": style.DASHED, "markerfacecolor": "white"}
_FAR_APART = 20.0  # ratio of two algorithms' costs beyond which only a logarithmic axis shows both


@style.in_style()
def draw_accuracy(curves: list[RowCurves], printed: dict[str, float] | None = None) -> Figure:
    """Draw test accuracy over the rounds: the mean of the seeds and, around it, their least and best (Fig. 3).

    printed  final accuracies (%) of others to mark on the right edge, by algorithm
    """
    lines = mean_lines(curves, ROUNDS)
    figure, axes = style.blank_column("Round $t$", "Test accuracy (%)")
    style.whole_rounds(axes, 1 + max((int(line.x[-1]) for line in lines), default=0))
    all_looks = style.looks([curve.row for curve in curves])
    handles = _draw_lines(axes, lines, all_looks)
    larger = _magnify_end(axes, lines, all_looks) if len(lines) > 1 else None
    if printed and lines:
        handles.append(_mark_printed(larger or axes, lines, printed, all_looks))
    _close(figure, axes, handles, "" if lines else "not tested yet")
    return figure


def _mark_printed(axes: Axes, lines: list[MeanCurve], printed: dict[str, float], all_looks: Looks) -> Artist:
    """Mark the paper's final accuracies by arrowheads on the right edge; returns what the legend shall show."""
    edge = axes.get_xlim()[1]
    look: Look = {"marker": "<", "markersize": 4.5, "linestyle": "", "markeredgewidth": 0.5, "zorder": 5}
    for line in lines:
        if line.row.name in printed:
            own = {"color": all_looks[line.row.name]["color"], "markeredgecolor": "white", "clip_on": False}
            axes.plot([edge], [printed[line.row.name]], **own, **look)
    axes.set_xlim(right=edge)
    return Line2D([], [], color="0.4", label="the paper, in the end", **look)


@style.in_style()
def draw_accuracy_over(curves: list[RowCurves], axis: CostAxis) -> Figure:
    """Draw test accuracy over what it cost; with several seeds both are means after equal rounds.

    Central training has no vehicles and no costs: its final accuracy is drawn as a level to compare with.
    """
    lines = [line for line in mean_lines(curves, axis) if not line.row.central and line.x[-1] > 0]
    central = [line for line in mean_lines(curves, ROUNDS) if line.row.central]
    all_looks = style.looks([curve.row for curve in curves])
    ends = [float(line.x[-1]) for line in lines]
    figure, axes = style.blank_column(f"{axis.label} ({_IN_PRINT.get(axis.unit, axis.unit)})", "Test accuracy (%)")
    if lines:
        scale = style.logarithmic if max(ends) > _FAR_APART * min(ends) else style.linear
        scale(axes, np.concatenate([line.x[line.x > 0] for line in lines]))
    handles: list[Artist] = []
    for line in central:
        look = all_looks[line.row.name] | {"marker": "", "linewidth": 0.7, "zorder": 1.9}
        look["label"] = f"{look['label']} (central), final"
        handles.append(axes.axhline(float(line.mean[-1]), **look))
    handles += _draw_lines(axes, lines, all_looks)
    _close(figure, axes, handles, "" if lines else "not tested yet, or not recorded")
    return figure


@style.in_style()
def draw_payloads(curves: list[RowCurves]) -> Figure:
    """Draw the empirical distribution of the sizes of all uploads, measured and by the paper's formula (Fig. 4)."""
    shown = [curve for curve in curves if curve.wire_bits.size]
    all_looks = style.looks([curve.row for curve in curves])
    handles: list[Artist] = []
    figure, axes = style.blank_column("Size of an upload (MB)", "Empirical CDF")
    axes.set_ylim(0, 1.02)
    for k, curve in enumerate(shown):
        look, shift = all_looks[curve.row.name], (k + 0.5) / len(shown)
        if curve.paper_bits.size:
            _draw_shares(axes, megabytes_of_bits(curve.paper_bits), look | _FORMULA, shift)
        handles += _draw_shares(axes, megabytes_of_bits(curve.wire_bits), look | _MEASURED, shift)
    if shown:
        bits = [bits for curve in shown for bits in (curve.paper_bits, curve.wire_bits)]
        style.logarithmic(axes, megabytes_of_bits(np.concatenate(bits)))
        kinds = (_MEASURED | {"label": "measured"}, _FORMULA | {"label": "paper's formula"})
        handles += [Line2D([], [], marker="o", color="0.4", linewidth=1.0, **kind) for kind in kinds]
    _close(figure, axes, handles, "" if shown else "nothing has been sent")
    return figure


@style.in_style()
def draw_law(deltas: Sequence[float], modelled: Sequence[float], measured: dict[str, Sequence[float]]) -> Figure:
    """Draw a vehicle-round's time over the pruning ratio, measured and by the paper's law, in dense steps."""
    figure, axes = style.blank_column(r"Pruning ratio $\delta$", "Vehicle-round (dense local rounds)")
    handles: list[Artist] = list(axes.plot(deltas, modelled, color="0.35", linestyle=style.DASHED, label="paper's law"))
    for marker, (name, times) in zip("osD^", measured.items(), strict=False):
        handles += axes.plot(deltas, times, marker=marker, label=f"measured, {name}")
    axes.set_ylim(0, None)
    _close(figure, axes, handles, "")
    return figure


def _draw_lines(axes: Axes, lines: list[MeanCurve], all_looks: Looks, marks: int = 6) -> list[Artist]:
    """Draw lines and bands; returns what the legend shall show."""
    handles: list[Artist] = []
    for k, line in enumerate(lines):
        look = all_looks[line.row.name]
        if line.seeds > 1:
            stroke = 4.0 if len(line.x) == 1 else 0.0  # or one could not see a single point's band
            axes.fill_between(line.x, line.low, line.high, color=look["color"], alpha=0.15, linewidth=stroke)
        scaled = np.log(np.maximum(line.x, axes.get_xlim()[0])) if axes.get_xscale() == "log" else line.x
        handles += axes.plot(line.x, line.mean, markevery=style.marked(scaled, marks, (k + 0.5) / len(lines)), **look)
    if seeds := sorted({line.seeds for line in lines if line.seeds > 1}):
        count = "–".join(str(n) for n in dict.fromkeys([seeds[0], seeds[-1]]))
        handles.append(Patch(color="0.4", alpha=0.3, linewidth=0, label=f"min to max, {count} seeds"))
    return handles


def _magnify_end(axes: Axes, lines: list[MeanCurve], all_looks: Looks) -> Axes | None:
    """Show the last fifth of the rounds larger in the lower right, where many were tested and no line passes there.

    Returns the axes of what is shown larger.
    """
    x, low, high = (np.concatenate([getattr(line, name) for line in lines]) for name in ("x", "low", "high"))
    tail = x >= 0.8 * x.max()
    bottom, top = axes.get_ylim()
    free = float(low[x >= 0.35 * x.max()].min() - bottom) / (top - bottom)  # share of the height
    if tail.sum() < 6 * len(lines) or free < 0.55:
        return None
    inset = axes.inset_axes((0.42, 0.13, 0.55, free - 0.22))
    inset.set(xlim=(x[tail].min(), x.max()), ylim=(low[tail].min() - 0.3, high[tail].max() + 0.3), axisbelow=True)
    inset.grid(**style.GRID)
    inset.tick_params(labelsize=6, length=2, pad=2)
    inset.spines[:].set_color("0.5")
    inset.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    inset.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    _draw_lines(inset, lines, all_looks, marks=25)
    (left, right), (below, above) = inset.get_xlim(), inset.get_ylim()
    axes.add_patch(Rectangle((left, below), right - left, above - below, fill=False, color="0.5", linewidth=0.6))
    return inset


def _draw_shares(axes: Axes, sizes: Floats, look: Look, shift: float) -> list[Line2D]:
    at, share = shares(sizes)
    return axes.plot(at, share, drawstyle="steps-post", markevery=style.marked(share, 3, shift), **look)


def _close(figure: Figure, axes: Axes, handles: list[Artist], note: str) -> None:
    """Add the legend, or a note where there is nothing to see, and keep the y axis from going below 0."""
    if note:
        axes.text(0.5, 0.25, note, transform=axes.transAxes, ha="center", va="center", color="0.4")
        axes.set_xticks([])
    if handles:
        style.legend_above(figure, handles, 3)
    else:
        axes.set_yticks([])
    axes.set_ylim(bottom=max(0.0, axes.get_ylim()[0]))
