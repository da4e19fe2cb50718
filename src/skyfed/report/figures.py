"""Figures for papers: class shares over time, visits over time, and the map of the flights."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import EllipseCollection, LineCollection
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize, PowerNorm, to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from skyfed.files import replacing
from skyfed.flight.fleet_plan import FleetPlan
from skyfed.report import style
from skyfed.types import IDLE, Floats

_POINTS = 72  # in an inch
_MOST_LINES = 12  # classes that can still be told apart as lines
_MOST_PANELS, _PANELS_A_ROW = 24, 4  # maps that fit one page, and one row of it
_CROWD = 30  # classes on one map beyond which numbers are thinned, and a single map gets the whole page

# On the map colour means time, so that all else is grey, but for the footprint's green, which no round has.
_DISC, _TRUTH, _REGION, _FOOTPRINT = "0.25", "0.45", "0.7", "#009E73"
_CLOSED = "#F2C4C4"  # the light red of what constraints forbid
_DOTS: Any = (0, (1.2, 1.4))  # the truth, where it is not as planned


@style.in_style()
def draw_psi(fleet: FleetPlan, vehicle: int) -> Figure:
    """Draw one vehicle's share of every class over the rounds: lines, or a heat map where classes are many (Fig. 1)."""
    psi = fleet.psi[vehicle]
    classes, rounds = psi.shape
    if classes > _MOST_LINES:
        figure, axes, *_ = _heat_map(psi, fade=0.0)
        axes.set_title(f"Vehicle {vehicle}", pad=3)
        return figure
    figure = Figure(figsize=(style.COLUMN, 2.3), layout="constrained")
    axes = figure.subplots()
    every = max(1, rounds // 6)
    for c, share in enumerate(psi):
        colour, marker = (each[c % len(each)] for each in (style.COLOURS, style.MARKERS))
        axes.plot(
            share, color=colour, linewidth=1.0, marker=marker, label=f"$c={c}$",
            markevery=(c * every // classes, every), **style.MARKER_LOOK,
        )  # fmt: skip
    axes.set(xlabel="Round $t$", ylabel=r"Class share $\psi_{u,c}^{t}$", ylim=(0, 1.05 * float(psi.max()) or 1.0))
    axes.set_title(f"Vehicle {vehicle}", pad=3)
    style.whole_rounds(axes, rounds)
    style.legend_above(figure, axes.lines, 6)
    return figure


@style.in_style()
def draw_association(fleet: FleetPlan, vehicle: int) -> Figure:
    """Draw which class one vehicle visits in every round, over the class shares that make it do so (Fig. 2)."""
    psi, association = fleet.psi[vehicle], fleet.association[vehicle]
    visits = np.flatnonzero(association != IDLE)
    labels = association[visits]
    figure, axes, norm, colours = _heat_map(psi, fade=0.6)
    axes.set_title(f"Vehicle {vehicle}", pad=3)
    row, column = 0.7 * _POINTS * figure.get_size_inches()[::-1] / psi.shape
    side = float(np.clip(min(row, 2 * column), 2.0, 4.5))
    axes.scatter(
        visits, labels, c=psi[labels, visits], cmap=colours, norm=norm, s=side**2, edgecolors="black",
        linewidths=0.12 * side, clip_on=False, zorder=3,
    )  # fmt: skip
    return figure


@style.in_style()
def draw_map(fleet: FleetPlan, footprint_side: float, vehicles: list[int] | None = None) -> Figure:
    """Draw the flights of some vehicles, or of all, over the discs they were planned on and the true ones.

    footprint_side  m, side of the square of ground the camera sees; drawn at the last position
    vehicles        which; none means all, as far as 24 panels go (the figure says so when it leaves some out)
    """
    shown = vehicles or list(range(min(fleet.vehicles, _MOST_PANELS)))
    columns = min(_PANELS_A_ROW, len(shown))
    rows = math.ceil(len(shown) / columns)
    ragged = rows > 1 and len(shown) % columns > 0
    width = style.COLUMN if columns == 1 and fleet.classes <= _CROWD else style.PAGE
    low, high = _extent(fleet, footprint_side, shown)
    across, along = (high - low).tolist()
    panel = (width - 0.95 - 0.15 * (columns - 1)) / columns
    height = rows * (panel * along / across + 0.2) + (0.5 if width == style.PAGE else 0.65) + 0.3 * ragged
    norm, colours = Normalize(0, max(1, fleet.rounds - 1)), _shade("plasma", 0.88)
    figure = Figure(figsize=(width, height), layout="compressed")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid[len(shown) :]:
        axes.set_visible(False)
    for k, (axes, vehicle) in enumerate(zip(grid, shown, strict=False)):
        axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
        axes.set_title(f"Vehicle {vehicle}", pad=3)
        last, sides = fleet.positions[vehicle, -1], np.full(2, footprint_side)
        _shade_closed(axes, fleet)
        _draw_square(axes, np.zeros(2), fleet.region, edgecolor=_REGION, linewidth=0.6)
        _draw_square(axes, last, sides, edgecolor=_FOOTPRINT, linewidth=1.0, zorder=4)
        _draw_flight(axes, fleet, vehicle, norm, colours)
        _label_discs(axes, fleet.centres[vehicle], fleet.radii[vehicle], last, sides, panel * _POINTS / across)
        for axis, name, outer in (
            (axes.xaxis, "East $x$ (m)", k + columns >= len(shown)),  # also above an empty place
            (axes.yaxis, "North $y$ (m)", k % columns == 0),
        ):
            axis.set_major_locator(MaxNLocator(9 - columns, steps=[1, 2, 5, 10]))
            axis.set_tick_params(labelbottom=outer, labelleft=outer)
            axis.set_label_text(name if outer else "")
    bar = figure.colorbar(ScalarMappable(norm, colours), ax=list(grid), shrink=0.9, aspect=12 * height, pad=0.02)
    bar.set_label("Round $t$")
    bar.ax.yaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
    handles = _map_legend(any(_misplaced(fleet, vehicle).any() for vehicle in shown), bool(fleet.allowed.size))
    if not vehicles and fleet.vehicles > len(shown):
        handles.append(Line2D([], [], linestyle="none", label=f"{len(shown)} of {fleet.vehicles} vehicles"))
    figure.legend(handles=handles, loc="outside lower center", ncols=3 if width == style.COLUMN else 6, borderpad=0.1)
    return figure


def save(figure: Figure, path_without_suffix: Path) -> list[Path]:
    """Write a figure as PNG (300 dpi) and PDF (embedded TrueType fonts), whole, and the same bytes every time."""
    written = []
    for kind, unset in (("png", ["Software"]), ("pdf", ["CreationDate", "Creator", "Producer"])):
        written.append(path_without_suffix.with_name(f"{path_without_suffix.name}.{kind}"))
        with style.in_style(), replacing(written[-1]) as part:
            figure.savefig(part, format=kind, metadata=dict.fromkeys(unset))
        figure.set_layout_engine("none")  # the PDF keeps the places of the PNG, which take long to work out
    return written


def _shade(name: str, last: float, fade: float = 0.0) -> Colormap:
    """Cut a colour map at last, 0..1, and mix it with white by fade (0 leaves it, 1 is white)."""
    colours = colormaps[name](np.linspace(0, last, 256))[:, :3]
    return LinearSegmentedColormap.from_list(name, (1 - fade) * colours + fade)


def _heat_map(psi: Floats, fade: float) -> tuple[Figure, Axes, Normalize, Colormap]:
    """Draw psi (C, T), one row per class, mixed with white by `fade`, and a colour bar at full strength."""
    height = float(np.clip(1.4 + 0.08 * len(psi), 1.6, 4.0))
    figure = Figure(figsize=(style.COLUMN, height), layout="constrained")
    axes = figure.subplots()
    # By the square root, since among many classes even a peak is a small share.
    norm, colours = PowerNorm(0.5, 0.0, float(psi.max()) or 1.0), _shade("YlGnBu", 1.0)
    axes.imshow(psi, cmap=_shade("YlGnBu", 1.0, fade), norm=norm)
    bar = figure.colorbar(ScalarMappable(norm, colours), ax=axes, pad=0.02, aspect=12 * height)
    bar.set_label(r"Class share $\psi_{u,c}^{t}$")
    axes.set(xlabel="Round $t$", ylabel="Class $c$")
    style.whole_rounds(axes, psi.shape[1])
    axes.yaxis.set_major_locator(MaxNLocator(10, integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
    return figure, axes, norm, colours


def _draw_flight(axes: Axes, fleet: FleetPlan, vehicle: int, norm: Normalize, colours: Colormap) -> None:
    positions, rounds = fleet.positions[vehicle], np.arange(fleet.rounds)
    _draw_discs(axes, fleet.centres[vehicle], fleet.radii[vehicle], facecolors="0.94", edgecolors=_DISC, linewidths=0.6)
    wrong = _misplaced(fleet, vehicle)
    look = {"facecolors": "none", "edgecolors": _TRUTH, "linewidths": 0.5, "linestyles": [_DOTS]}
    _draw_discs(axes, fleet.true_centres[vehicle, wrong], fleet.true_radii[vehicle, wrong], **look)
    # Long flights are drawn thinner, so that the dots, not the legs between them, are what one sees.
    room = float(np.clip(100 / fleet.rounds, 0.15, 1.0))
    legs = LineCollection(
        list(np.stack([positions[:-1], positions[1:]], axis=1)), array=rounds[1:], cmap=colours, norm=norm,
        linewidths=0.2 + 0.2 * room, alpha=0.1 + 0.4 * room, zorder=2,
    )  # fmt: skip
    axes.add_collection(legs, autolim=False)
    x, y = positions.T
    axes.scatter(x, y, c=rounds, cmap=colours, norm=norm, s=1.5 + 3.5 * room, linewidths=0, zorder=3)
    axes.plot(0, 0, marker="^", color="black", markersize=4, zorder=6)


def _shade_closed(axes: Axes, fleet: FleetPlan) -> None:
    """Shade the points of the region that constraints of the user's own close."""
    if fleet.allowed.size:
        x, y = (fleet.region / 2).tolist()
        shade = np.zeros((*fleet.allowed.shape, 4))
        shade[~fleet.allowed] = to_rgba(_CLOSED)
        axes.imshow(shade, extent=(-x, x, -y, y), aspect="equal", zorder=0.5)


def _draw_discs(axes: Axes, centres: Floats, radii: Floats, **look: Any) -> None:
    look |= {"units": "xy", "offsets": centres, "offset_transform": axes.transData}
    axes.add_collection(EllipseCollection(2 * radii, 2 * radii, 0 * radii, **look), autolim=False)


def _draw_square(axes: Axes, middle: Floats, sides: Floats, **look: Any) -> None:
    x, y = (middle - sides / 2).tolist()
    axes.add_patch(Rectangle((x, y), *sides.tolist(), fill=False, **look))


def _label_discs(axes: Axes, centres: Floats, radii: Floats, last: Floats, sides: Floats, scale: float) -> None:
    """Write class numbers beside their discs, clear of the footprint, where there is room; scale: points per metre."""
    centres, radii = centres * scale, radii * scale
    edges = np.array([axes.get_xlim(), axes.get_ylim()]).T * scale
    paper = {"boxstyle": "square,pad=0", "facecolor": "white", "edgecolor": "none", "alpha": 0.6}
    gap = 0.0 if len(radii) <= _CROWD else 4.0
    taken = [(np.zeros(2), np.full(2, 4.0)), (last * scale, sides * scale / 2)]  # middles and half sizes
    for c in range(0, len(radii), math.ceil(len(radii) / 200)):
        half = np.array([1.6 * len(str(c)) + 0.6, 2.8])
        for way in ((1, 1), (-1, 1), (1, -1), (-1, -1), (0, 1), (0, -1), (1, 0), (-1, 0)):
            middle = centres[c] + np.array(way) * (radii[c] / math.hypot(*way) + half)
            inside = (middle - half > edges[0]).all() and (middle + half < edges[1]).all()
            over_disc = np.hypot(*np.maximum(np.abs(centres - middle) - half, 0.0).T) < 0.8 * radii
            apart = all((np.abs(middle - m) > half + h + gap).any() for m, h in taken)
            if inside and apart and not over_disc.any():
                taken.append((middle, half))
                x, y = (middle / scale).tolist()
                axes.text(x, y, str(c), fontsize=6, ha="center", va="center_baseline", zorder=3.5, bbox=paper)
                break


def _extent(fleet: FleetPlan, footprint_side: float, shown: list[int]) -> tuple[Floats, Floats]:
    """Lower left and upper right corner that hold the region and all that is drawn, with a margin; metres."""
    last = fleet.positions[shown, -1]
    reach = [-fleet.region[None] / 2, fleet.region[None] / 2, last - footprint_side / 2, last + footprint_side / 2]
    for centres, radii in ((fleet.centres, fleet.radii), (fleet.true_centres, fleet.true_radii)):
        reach += [centres[shown] - radii[shown, :, None], centres[shown] + radii[shown, :, None]]
    points = np.concatenate([corner.reshape(-1, 2) for corner in [*reach, fleet.positions[shown]]])
    low, high = points.min(axis=0), points.max(axis=0)
    margin = 0.02 * (high - low).max()
    return low - margin, high + margin


def _misplaced(fleet: FleetPlan, vehicle: int) -> NDArray[np.bool_]:
    same = np.isclose(fleet.centres[vehicle], fleet.true_centres[vehicle]).all(axis=1)
    return np.asarray(~(same & np.isclose(fleet.radii[vehicle], fleet.true_radii[vehicle])))


def _map_legend(truth: bool, closed: bool) -> list[Line2D]:
    return [
        Line2D([], [], color="black", marker="^", markersize=4, linestyle="none", label="Station"),
        Line2D([], [], color=_DISC, linewidth=0.8, label="Disc planned on"),
        *([Line2D([], [], color=_TRUTH, linewidth=0.8, linestyle=_DOTS, label="True disc")] if truth else []),
        Line2D([], [], color=_FOOTPRINT, marker="s", fillstyle="none", linestyle="none", label="Camera footprint"),
        Line2D([], [], color=_REGION, linewidth=0.8, label="Region"),
        *([Line2D([], [], color=_CLOSED, marker="s", linestyle="none", label="Not allowed")] if closed else []),
    ]
