"""The figures: labels, sizes, and the same bytes every time."""

import os
import struct
import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from skyfed.flight.fleet_plan import FleetPlan
from skyfed.report.figures import draw_association, draw_map, draw_psi, save
from skyfed.types import IDLE

SHAPES = [(1, 1, 1), (2, 1, 7), (1, 4, 1), (3, 10, 40), (2, 30, 60), (5, 3, 2)]


def hand_made_fleet(vehicles: int, classes: int, rounds: int, misjudged: float = 5.0) -> FleetPlan:
    """Discs on a ring, shares that peak one class after the other, every seventh round idle."""
    t, c = np.arange(rounds), np.arange(classes)
    share = 1 + np.cos(2 * np.pi * (t[None] / rounds - c[:, None] / classes))
    psi = np.tile(share / share.sum(axis=0), (vehicles, 1, 1))
    angle = 2 * np.pi * c / classes + np.arange(vehicles)[:, None]
    true_centres = 300 * np.stack([np.cos(angle), np.sin(angle)], axis=2)
    true_radii = np.full((vehicles, classes), 40.0)
    centres = true_centres + misjudged
    association = np.tile(np.where(t % 7 == 6, IDLE, t % classes), (vehicles, 1))
    positions = np.take_along_axis(centres, np.maximum(association, 0)[..., None], axis=1) + t[:, None] % 5
    positions[association == IDLE] = [123.0, -45.0]
    return FleetPlan(
        positions=positions, association=association, centres=centres, radii=true_radii.copy(),
        true_centres=true_centres, true_radii=true_radii, psi=psi, imax=np.full((vehicles, classes, 1), 2),
        dmin=np.array(5.0), vmax=np.array(np.inf), epsilon=np.array(1e-6), region=np.array([1000.0, 800.0]),
        windows=np.array("paper"), method=np.array("exact"), objective=np.zeros(vehicles), bound=np.zeros(vehicles),
        seconds=np.zeros(vehicles), note=np.array([""] * vehicles),
    )  # fmt: skip


def draw_all(fleet: FleetPlan) -> dict[str, Figure]:
    last = fleet.vehicles - 1
    return {
        "psi": draw_psi(fleet, last),
        "association": draw_association(fleet, last),
        "map": draw_map(fleet, 57.7),
        "one": draw_map(fleet, 57.7, [last]),
    }


def legend_texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def labels(figure: Figure) -> set[str]:
    return {text for axes in figure.axes for text in (axes.get_xlabel(), axes.get_ylabel())} - {""}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_size_is_drawn_and_saved(shape: tuple[int, int, int], tmp_path: Path) -> None:
    for name, figure in draw_all(hand_made_fleet(*shape)).items():
        png, pdf = save(figure, tmp_path / f"{name}.of.u1")
        assert [png.name, pdf.name] == [f"{name}.of.u1.png", f"{name}.of.u1.pdf"]
        width, height = struct.unpack(">II", png.read_bytes()[16:24])
        assert width in (1050, 2148)  # 3.5 and 7.16 inches at 300 dots an inch
        assert 300 < height < 3000
        assert 5_000 < pdf.stat().st_size < 2_000_000


def test_two_calls_write_the_same_bytes(tmp_path: Path) -> None:
    written: list[list[bytes]] = []
    for _ in range(2):
        figures = draw_all(hand_made_fleet(3, 10, 40))
        written.append([path.read_bytes() for name in figures for path in save(figures[name], tmp_path / name)])
    assert written[0] == written[1]


def test_bytes_hang_on_neither_the_process_nor_its_settings(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib, matplotlib; sys.path.insert(0, sys.argv[1])\n"
        "matplotlib.rcParams['axes.grid'] = sys.argv[3] == '1'\n"
        "from test_figures import *\n"
        "save(draw_map(hand_made_fleet(1, 3, 9), 50.0), pathlib.Path(sys.argv[2]) / sys.argv[3])\n"
    )
    for seed in "12":
        command = [sys.executable, "-c", script, str(Path(__file__).parent), str(tmp_path), seed]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": seed})
    for suffix in ("png", "pdf"):
        assert (tmp_path / f"1.{suffix}").read_bytes() == (tmp_path / f"2.{suffix}").read_bytes()


def test_files_hold_truetype_and_no_date(tmp_path: Path) -> None:
    png, pdf = (path.read_bytes() for path in save(draw_psi(hand_made_fleet(1, 3, 9), 0), tmp_path / "psi"))
    assert b"/FontFile2" in pdf  # a TrueType program
    assert b"/Type3" not in pdf
    for word in (b"CreationDate", b"Producer", b"Software"):
        assert word not in pdf + png


def test_drawing_leaves_global_settings_alone(tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    save(draw_map(hand_made_fleet(2, 3, 9), 50.0), tmp_path / "map")
    assert dict(matplotlib.rcParams) == before


def test_psi_has_a_line_a_class_each_with_its_own_look() -> None:
    fleet = hand_made_fleet(2, 12, 50)
    figure = draw_psi(fleet, 1)
    lines = figure.axes[0].lines
    np.testing.assert_array_equal([line.get_ydata() for line in lines], fleet.psi[1])
    assert len({(line.get_color(), str(line.get_linestyle()), line.get_marker()) for line in lines}) == 12
    assert sorted(legend_texts(figure)) == sorted(f"$c={c}$" for c in range(12))
    assert labels(figure) == {"Round $t$", r"Class share $\psi_{u,c}^{t}$"}


def test_psi_of_many_classes_is_a_heat_map() -> None:
    fleet = hand_made_fleet(1, 13, 50)
    axes = draw_psi(fleet, 0).axes[0]
    assert not axes.lines
    np.testing.assert_array_equal(axes.images[0].get_array(), fleet.psi[0])


def test_association_marks_every_visit_and_no_idle_round() -> None:
    fleet = hand_made_fleet(1, 5, 21)
    figure = draw_association(fleet, 0)
    axes = figure.axes[0]
    (marks,) = [artist for artist in axes.collections if isinstance(artist, PathCollection)]
    visits = np.flatnonzero(fleet.association[0] != IDLE)
    wanted = np.stack([visits, fleet.association[0, visits]], axis=1)
    np.testing.assert_array_equal(marks.get_offsets(), wanted)
    np.testing.assert_array_equal(marks.get_array(), fleet.psi[0, wanted[:, 1], wanted[:, 0]])
    assert isinstance(axes.images[0], AxesImage)
    assert labels(figure) == {"Round $t$", "Class $c$", r"Class share $\psi_{u,c}^{t}$"}


def test_association_of_an_idle_vehicle_is_drawn(tmp_path: Path) -> None:
    fleet = hand_made_fleet(1, 3, 9)
    fleet.association[:] = IDLE
    assert len(save(draw_association(fleet, 0), tmp_path / "idle")) == 2


def test_map_has_a_panel_a_vehicle_with_path_positions_and_class_numbers() -> None:
    fleet = hand_made_fleet(6, 10, 30)
    figure = draw_map(fleet, 60.0)
    panels = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title() for axes in panels] == [f"Vehicle {u}" for u in range(6)]
    assert labels(figure) == {"East $x$ (m)", "North $y$ (m)", "Round $t$"}
    for axes, positions in zip(panels, fleet.positions, strict=True):
        assert axes.get_aspect() == 1.0
        (path,) = [artist for artist in axes.collections if isinstance(artist, LineCollection)]
        np.testing.assert_array_equal(np.array(path.get_segments())[:, 0], positions[:-1])
        assert {text.get_text() for text in axes.texts} == {str(c) for c in range(10)}
        region, footprint = axes.patches
        assert region.get_bbox().bounds == (-500, -400, 1000, 800)
        np.testing.assert_allclose(footprint.get_bbox().bounds, (*(positions[-1] - 30), 60, 60))


def test_true_discs_stand_in_the_legend_only_where_they_differ() -> None:
    assert "True disc" in legend_texts(draw_map(hand_made_fleet(1, 3, 9), 50.0))
    assert "True disc" not in legend_texts(draw_map(hand_made_fleet(1, 3, 9, misjudged=0.0), 50.0))


def test_crowded_map_thins_its_numbers() -> None:
    axes = draw_map(hand_made_fleet(1, 400, 9), 50.0).axes[0]
    assert 10 < len(axes.texts) < 200


def test_map_says_when_it_leaves_vehicles_out() -> None:
    figure = draw_map(hand_made_fleet(30, 2, 3), 50.0)
    assert "24 of 30 vehicles" in legend_texts(figure)
    chosen = draw_map(hand_made_fleet(30, 2, 3), 50.0, [29, 4])
    assert [axes.get_title() for axes in chosen.axes][:2] == ["Vehicle 29", "Vehicle 4"]
