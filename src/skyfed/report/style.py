"""How every figure looks: an IEEE page's widths and letters, colours that all eyes tell apart, axes, legends."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib import style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter
from numpy.typing import NDArray

from skyfed.algorithms import KNOWN, Row

COLUMN, PAGE = 3.5, 7.16  # inches, one and both columns of an IEEE page

# From the defaults, so that no machine's own settings matter. STIX looks like the Times of IEEE pages and comes with
# matplotlib, so that every machine draws the same letters.
_STYLE: Any = ["default", {
    "font.family": "STIXGeneral", "mathtext.fontset": "stix", "font.size": 8, "axes.titlesize": 8, "axes.labelsize": 8,
    "xtick.labelsize": 7, "ytick.labelsize": 7, "legend.fontsize": 7, "legend.frameon": False, "axes.linewidth": 0.6,
    "xtick.major.width": 0.6, "ytick.major.width": 0.6, "xtick.major.size": 2.5, "ytick.major.size": 2.5,
    "image.aspect": "auto", "image.origin": "lower", "image.interpolation": "nearest",
    "savefig.dpi": 300, "pdf.fonttype": 42,
}]  # fmt: skip
in_style = partial(style.context, _STYLE)  # decorates what draws, and is the context of what saves

# Okabe and Ito's colours (their yellow is lost on white paper), then three of Tol's; markers differ too.
COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#882255", "#888888", "#999933",
)  # fmt: skip
# Vehicles have colours that no algorithm has.
VEHICLES = (
    "#8F1FE8", "#12A112", "#E6117A", "#1F3BE0", "#4B5A12", "#B5121B", "#8C7BEA", "#D018D0", "#7A4A1E", "#0A5A5A",
)  # fmt: skip
# And what joules are spent on has colours of neither: greys for staying in the air, pale ones for the rest.
PARTS = {"fly": "#2E3640", "hover": "#A3B1BC", "train": "#D9C79B", "receive": "#B5D9B9", "send": "#EDB9A4"}
MARKERS = "osD^vPdX<>ph"
MARKER_LOOK: dict[str, Any] = {"markersize": 3.6, "markeredgecolor": "white", "markeredgewidth": 0.3}
DASHED: Any = (0, (4, 1.6))  # computed by a formula; what was measured is a full line
_HUES = [COLOURS[k] for k in (6, 0, 2, 3, 1, 4, 5, 7, 8, 9)]  # one per known algorithm, in order; the central one black
GRID: dict[str, Any] = {"color": "0.92", "linewidth": 0.5}
_NUMBERS = "{x:,.10g}"  # of a tick, written out in full


def blank_column(x: str, y: str) -> tuple[Figure, Axes]:
    """Return a figure one column wide with axes of these labels and a faint grid."""
    figure = Figure(figsize=(COLUMN, 2.4), layout="constrained")
    axes = figure.subplots()
    axes.set(xlabel=x, ylabel=y, axisbelow=True)
    axes.grid(**GRID)
    return figure, axes


def looks(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Return colour, marker and name of every row's line, by label, the same in every figure of a run."""
    # skyfed's own algorithms look the same in all runs
    names = [*KNOWN, *(row.name for row in rows if row.name not in KNOWN)]
    by_name = {}
    for row in rows:
        k = names.index(row.name)
        look = {"color": _HUES[k % len(_HUES)], "linestyle": "-", "linewidth": 1.0}
        by_name[row.name] = look | {"marker": MARKERS[k % len(MARKERS)], "label": row.title} | MARKER_LOOK
    return by_name


def marked(x: NDArray[np.float64], count: int, shift: float) -> list[int]:
    """Return which points get a marker: about `count`, evenly along x, moved by a part (0..1) of their distance."""
    places = x[0] + (np.arange(count) + shift) / count * (x[-1] - x[0])
    return sorted({int(np.abs(x - place).argmin()) for place in places})


def whole_rounds(axes: Axes, rounds: int) -> None:
    """Let the x axis show rounds 0 to rounds - 1, numbered by whole numbers."""
    axes.set_xlim(-0.5, rounds - 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))


def legend_above(figure: Figure, handles: Sequence[Artist], most: int) -> None:
    """Put the legend above the axes, where it covers no data, in at most so many columns; one reads along its rows."""
    columns = math.ceil(len(handles) / math.ceil(len(handles) / most))
    along = [handle for k in range(columns) for handle in handles[k::columns]]
    figure.legend(
        handles=along, loc="outside upper center", ncols=columns, handlelength=2.6, columnspacing=1.0,
        handletextpad=0.4, labelspacing=0.25, borderpad=0.2, borderaxespad=0.2,
    )  # fmt: skip


def linear(axes: Axes, values: NDArray[np.float64]) -> None:
    """Let the x axis go from 0 past all values (positive), with ticks written out in full."""
    axes.set_xlim(0, 1.04 * float(values.max()))
    axes.xaxis.set_major_formatter(StrMethodFormatter(_NUMBERS))


def logarithmic(axes: Axes, values: NDArray[np.float64]) -> None:
    """Let the x axis be logarithmic, with room for all values (positive) and ticks written out in full."""
    low, high = float(values.min()), float(values.max())
    margin = max(1.15, (10 * low / high) ** 0.5)  # at least a decade, so that there are ticks
    axes.set(xscale="log", xlim=(low / margin, high * margin))
    steps = (1.0, 2.0, 5.0) if high / low * margin**2 < 400 else (1.0,)
    axes.xaxis.set_major_locator(LogLocator(subs=steps, numticks=20))
    axes.xaxis.set_major_formatter(StrMethodFormatter(_NUMBERS))
    axes.xaxis.set_minor_locator(LogLocator(subs=range(2, 10), numticks=20))
    axes.xaxis.set_minor_formatter(NullFormatter())
