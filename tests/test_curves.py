"""The figures of training: what they read, what they show, and the same bytes every time."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from run_cases import blank, rows_of, table_of
from skyfed.algorithms import KNOWN, PAPER
from skyfed.report import live
from skyfed.report.curves import draw_accuracy, draw_accuracy_over, draw_payloads
from skyfed.report.figures import save
from skyfed.report.learning_curves import CostAxis, RowCurves, SeedCurve, cost_axes, read_curves
from skyfed.report.style import looks
from skyfed.runs.tables import Row, Table
from skyfed.wire import paper_bits
from skyfed.world.settings import WorldSettings

FINAL = {"sgd": 0.515, "afl": 0.487, "afl-prune": 0.484, "afl-quant": 0.482, "2ceoafl": 0.475}  # the paper's
ALL = list(PAPER)
PRUNED, RAW = {"afl-prune", "2ceoafl"}, {"afl": 1.0, "afl-prune": 1.0, "afl-quant": 0.0}  # else drawn
AXES = cost_axes(WorldSettings())


def make_run(
    folder: Path,
    algorithm: str,
    seed: int = 0,
    rounds: int = 20,
    every: int = 1,
    vehicles: int = 4,
    size: int = 11_181_642,
    finish: bool = True,
) -> None:
    """Write tables like those of a run: accuracy that saturates, sizes near the wire's, one row an upload."""
    random = np.random.default_rng([seed, *algorithm.encode()])
    rows: list[Row] = []
    uploads: list[Row] = []
    for t in range(rounds):
        accuracy = FINAL[algorithm] * (1 - 0.8 * np.exp(-t / 18)) + random.normal(0, 0.008) + 0.004 * seed
        tested = (t + 1) % every == 0 or t == rounds - 1
        scores = (
            {"accuracy": float(accuracy), "accuracy_full": float(accuracy) - 0.01} if tested else {"accuracy": None}
        )
        rows.append({"round": t, **scores})
        before = len(uploads)
        for u in range(0 if KNOWN[algorithm].central else vehicles):
            delta = float(random.uniform(0.05, 0.7)) if algorithm in PRUNED else 0.0
            raw = bool(random.random() < RAW.get(algorithm, delta))
            work = 1 + 5 * (1 - delta) if delta else 5.0
            wire = size / 8 * (19 if raw else 0.7) * (1 - delta) * random.normal(1, 0.01)
            uploads.append({
                "round": t, "vehicle": u, "delta": delta, "quantised": not raw, "wire_bytes": int(wire),
                "paper_bits": paper_bits(size, delta, 3, raw), "modelled_seconds": work,
                "measured_seconds": float(random.normal(1.3, 0.1)),
            })  # fmt: skip
        if not KNOWN[algorithm].central:
            sent = sum(upload["wire_bytes"] for upload in uploads[before:])
            rows[-1] |= {"wire_bytes": sent, "downlink_bytes": 1000, "mission_seconds": 60.0 + t, "joules": 1e5}
    (folder / algorithm).mkdir(parents=True)
    for name, found in (("uplink", uploads), ("rounds", rows)):
        table = table_of(folder / algorithm, name)
        table.append([blank(name) | row for row in found])
        if finish:
            table.finish()


def make_curves(
    root: Path, algorithms: list[str], seeds: int = 1, rounds: int = 20, every: int = 1, size: int = 10_000
) -> list[RowCurves]:
    folders = [root / str(seed) for seed in range(seeds)]
    for seed, folder in enumerate(folders):
        for algorithm in algorithms:
            make_run(folder, algorithm, seed, rounds, every, size=size)
    return read_curves(folders, rows_of(*ALL))


def write_by_hand(folder: Path, rounds: list[Row], uploads: list[tuple[int, int]]) -> None:
    """Write what the figures need: the rounds; of every upload its round and its bytes."""
    folder.mkdir(parents=True)
    Table(folder, "rounds").append([blank("rounds") | {"round": t} | row for t, row in enumerate(rounds)])
    known = blank("uplink") | {"paper_bits": 100.0}
    Table(folder, "uplink").append([known | {"round": t, "wire_bytes": sent} for t, sent in uploads])


def flat_curve(algorithm: str, megabytes: float, points: int = 3) -> RowCurves:
    """A curve that gains nothing and sends so much a round."""
    rounds = np.arange(points)
    level, sent = np.full(points, 0.5), (1.0 + rounds) * megabytes
    bits = np.full(points, 8e6 * megabytes)
    (row,) = rows_of(algorithm)
    return RowCurves(row, (SeedCurve(rounds, level, level, 60 * sent, sent, sent),), bits, bits)


def draw_all(curves: list[RowCurves]) -> dict[str, Figure]:
    figures = {name: draw_accuracy_over(curves, axis) for name, axis in AXES.items()}
    return figures | {"accuracy": draw_accuracy(curves), "payloads": draw_payloads(curves)}


def legend_texts(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


# reading


def test_costs_add_up_over_untested_rounds_and_both_directions(tmp_path: Path) -> None:
    spent = [(30, 5, 40.0, 100.0), (30, 6, 50.0, 200.0), (90, 0, 60.0, 300.0)]
    names = ("wire_bytes", "downlink_bytes", "mission_seconds", "joules")
    tests = [{"accuracy": 0.2, "accuracy_full": 0.1}, {"accuracy": None}, {"accuracy": 0.4, "accuracy_full": 0.2}]
    rounds = [test | dict(zip(names, row, strict=True)) for test, row in zip(tests, spent, strict=True)]
    write_by_hand(tmp_path / "afl", rounds, [(0, 10), (0, 20), (1, 30), (2, 40), (2, 50)])
    (curve,) = read_curves([tmp_path], rows_of(*ALL))
    (run,) = curve.runs
    assert curve.row.name == "afl"
    np.testing.assert_array_equal(run.rounds, [0, 2])
    np.testing.assert_array_equal(run.accuracy, [0.2, 0.4])
    np.testing.assert_array_equal(run.accuracy_full, [0.1, 0.2])
    np.testing.assert_array_equal(run.seconds, [40, 150])
    np.testing.assert_allclose(run.megabytes, [35e-6, 161e-6])
    np.testing.assert_array_equal(run.joules, [100, 600])
    np.testing.assert_array_equal(curve.wire_bits, [80, 160, 240, 320, 400])
    np.testing.assert_array_equal(curve.paper_bits, [100] * 5)


def test_a_round_cut_short_and_an_upload_never_sent_do_not_count(tmp_path: Path) -> None:
    write_by_hand(tmp_path / "afl", [{"accuracy": 0.2, "wire_bytes": 10}], [(0, 10), (0, 0), (1, 10)])
    (curve,) = read_curves([tmp_path], rows_of("afl"))
    np.testing.assert_array_equal(curve.wire_bits, [80])
    np.testing.assert_array_equal(curve.paper_bits, [100])


def test_costs_that_a_round_does_not_know_are_not_known_from_there_on(tmp_path: Path) -> None:
    """As where a run of format 0.1.0 was resumed, or has not been."""
    known = {"accuracy": 0.3, "mission_seconds": 60.0, "joules": 5.0}
    unknown = {"accuracy": 0.4, "mission_seconds": None, "joules": None}
    write_by_hand(tmp_path / "afl", [known, unknown, known], [])
    curves = read_curves([tmp_path], rows_of("afl"))
    np.testing.assert_array_equal(curves[0].runs[0].seconds, [60, np.nan, np.nan])
    np.testing.assert_array_equal(curves[0].runs[0].joules, [5, np.nan, np.nan])
    assert not draw_accuracy_over(curves, AXES["mission"]).axes[0].lines


def test_unfinished_tables_read_like_finished_ones(tmp_path: Path) -> None:
    for name, finish in (("done", True), ("going", False)):
        make_run(tmp_path / name, "2ceoafl", rounds=7, every=3, finish=finish)
    done, going = (read_curves([tmp_path / name], rows_of(*ALL))[0] for name in ("done", "going"))
    for name in ("rounds", "accuracy", "accuracy_full", "seconds", "megabytes", "joules"):
        np.testing.assert_array_equal(getattr(done.runs[0], name), getattr(going.runs[0], name))
    np.testing.assert_array_equal(done.wire_bits, going.wire_bits)
    np.testing.assert_array_equal(done.runs[0].rounds, [2, 5, 6])


def test_seeds_are_pooled_and_algorithms_without_rows_left_out(tmp_path: Path) -> None:
    make_run(tmp_path / "0", "afl", seed=0, rounds=5)
    make_run(tmp_path / "1", "afl", seed=1, rounds=5)
    make_run(tmp_path / "1", "sgd", seed=1, rounds=5)
    curves = read_curves([tmp_path / "0", tmp_path / "1", tmp_path / "none"], rows_of(*ALL))
    assert [(curve.row.name, len(curve.runs), curve.wire_bits.size) for curve in curves] == [
        ("sgd", 1, 0), ("afl", 2, 40),
    ]  # fmt: skip
    assert not curves[0].runs[0].megabytes.any()


# drawing


@pytest.mark.parametrize(
    ("algorithms", "seeds", "rounds", "every"),
    [(ALL, 1, 40, 1), (ALL, 3, 40, 10), (["sgd"], 1, 5, 1), (["2ceoafl"], 3, 5, 1), (ALL, 2, 1, 1), ([], 1, 1, 1)],
)
def test_every_case_is_drawn_one_column_wide_with_units(
    algorithms: list[str], seeds: int, rounds: int, every: int, tmp_path: Path
) -> None:
    figures = draw_all(make_curves(tmp_path, algorithms, seeds, rounds, every))
    for name, figure in figures.items():
        png, pdf = save(figure, tmp_path / name)
        assert int.from_bytes(png.read_bytes()[16:20]) == 1050  # 3.5 inches at 300 dots an inch
        assert 3_000 < pdf.stat().st_size < 200_000
    assert [figures[name].axes[0].get_xlabel() for name in ("accuracy", "payloads", *AXES)] == [
        "Round $t$", "Size of an upload (MB)", "Mission time, modelled (min)",
        "Sent and received by all vehicles, measured (MB)", "Energy of all vehicles, modelled (kJ)",
    ]  # fmt: skip


def test_the_papers_law_has_its_own_units() -> None:
    axes = cost_axes(WorldSettings(time="law", t_train=2.5))
    assert [(axis.factor, axis.unit) for axis in axes.values()] == [(0.4, "t_tr"), (1.0, "MB"), (1.0, "J")]
    figure = draw_accuracy_over([flat_curve("afl", 2.5)], axes["mission"])
    assert figure.axes[0].get_xlabel() == r"Modelled training time ($t_\mathrm{tr}$)"
    np.testing.assert_allclose(figure.axes[0].lines[0].get_xdata(), [60, 120, 180])


def test_accuracy_has_a_line_an_algorithm_by_the_papers_names(tmp_path: Path) -> None:
    curves = make_curves(tmp_path, ALL)
    figure = draw_accuracy(curves)
    lines = figure.axes[0].lines
    assert [line.get_label() for line in lines] == ["SGD", "AFL", "AFL-Prune", "AFL-Quant", "2CEOAFL"]
    assert sorted(legend_texts(figure)) == sorted(str(line.get_label()) for line in lines)
    each = list(looks(rows_of(*ALL)).values())
    for kind in ("color", "marker"):
        assert len({str(look[kind]) for look in each}) == 5
    assert {line.get_linestyle() for line in lines} == {"-"}  # dashed is what a formula says
    assert [line.get_color() for line in lines] == [look["color"] for look in each]
    for line, curve in zip(lines, curves, strict=True):
        np.testing.assert_allclose(line.get_ydata(), 100 * curve.runs[0].accuracy)
        assert len(line.get_markevery()) <= 6


def test_an_algorithm_looks_the_same_whoever_is_drawn_with_it(tmp_path: Path) -> None:
    colours = set()
    for names in (ALL, ["afl-quant", "2ceoafl"], ["2ceoafl"]):
        for figure in draw_all(make_curves(tmp_path / str(len(names)), names)).values():
            lines = [line for line in figure.axes[0].lines if line.get_label() == "2CEOAFL"]
            colours |= {(line.get_color(), line.get_marker()) for line in lines}
    assert len(colours) == 1


def test_seeds_give_a_mean_and_a_band_from_least_to_best(tmp_path: Path) -> None:
    curves = make_curves(tmp_path, ["afl"], seeds=3)
    figure = draw_accuracy(curves)
    (line,), (band,) = figure.axes[0].lines, figure.axes[0].collections
    values = 100 * np.stack([run.accuracy for run in curves[0].runs])
    np.testing.assert_allclose(line.get_ydata(), values.mean(axis=0))
    corners = band.get_paths()[0].vertices
    for t in range(20):
        here = corners[corners[:, 0] == t, 1]
        np.testing.assert_allclose([here.min(), here.max()], [values[:, t].min(), values[:, t].max()])
    assert "min to max, 3 seeds" in legend_texts(figure)
    assert legend_texts(draw_accuracy(make_curves(tmp_path / "one", ["afl"]))) == ["AFL"]


def test_seeds_are_averaged_only_where_all_were_tested(tmp_path: Path) -> None:
    make_run(tmp_path / "0", "afl", seed=0, rounds=9)
    make_run(tmp_path / "1", "afl", seed=1, rounds=5, finish=False)
    (line,) = draw_accuracy(read_curves([tmp_path / "0", tmp_path / "1"], rows_of("afl"))).axes[0].lines
    np.testing.assert_array_equal(line.get_xdata(), range(5))


@pytest.mark.parametrize("axis", AXES.values(), ids=AXES)
def test_central_training_is_a_level_where_there_is_no_cost(axis: CostAxis, tmp_path: Path) -> None:
    curves = make_curves(tmp_path, ["sgd", "afl"])
    level, line = draw_accuracy_over(curves, axis).axes[0].lines
    assert level.get_label() == "SGD (central), final"
    np.testing.assert_allclose(level.get_ydata(), 100 * curves[0].runs[0].accuracy[-1])
    np.testing.assert_allclose(line.get_xdata(), axis.factor * getattr(curves[1].runs[0], axis.figure))


@pytest.mark.parametrize(("ratio", "scale"), [(19.0, "linear"), (21.0, "log")])
def test_costs_far_apart_get_a_logarithmic_axis(ratio: float, scale: str) -> None:
    axes = draw_accuracy_over([flat_curve("afl", 2.0 * ratio), flat_curve("afl-quant", 2.0)], AXES["megabytes"]).axes[0]
    assert axes.get_xscale() == scale
    low, high = axes.get_xlim()
    assert low < 2.0
    assert high > 6.0 * ratio


def test_the_end_is_magnified_where_there_is_room(tmp_path: Path) -> None:
    (inset,) = draw_accuracy(make_curves(tmp_path / "long", ALL, rounds=100)).axes[0].child_axes
    assert len(inset.lines) == 5
    assert inset.get_xlim() == (80, 99)
    for name, algorithms, rounds in (("short", ALL, 12), ("alone", ["afl"], 100)):
        assert not draw_accuracy(make_curves(tmp_path / name, algorithms, rounds=rounds)).axes[0].child_axes


@pytest.mark.parametrize("uploads", [1, 7, 1000, 2500])
def test_payloads_are_empirical_distributions_in_megabytes(uploads: int) -> None:
    random = np.random.default_rng(1)
    formula, wire = random.uniform(1e6, 9e6, uploads), random.uniform(1e4, 9e4, uploads)
    ours, central = rows_of("2ceoafl", "sgd")
    figure = draw_payloads([RowCurves(ours, (), formula, wire), RowCurves(central, (), formula[:0], wire[:0])])
    dashed, solid = figure.axes[0].lines
    assert (dashed.get_linestyle(), solid.get_linestyle()) == ("--", "-")
    for line, bits in ((dashed, formula), (solid, wire)):
        for x, y in zip(line.get_xdata()[1:], line.get_ydata()[1:], strict=True):
            assert 0 <= (bits / 8e6 <= x).mean() - y < 1e-3
    assert set(legend_texts(figure)) == {"2CEOAFL", "measured", "paper's formula"}
    assert figure.axes[0].get_xscale() == "log"


def test_equal_sizes_and_numbers_written_out(tmp_path: Path) -> None:
    figure = draw_payloads([flat_curve("afl", 2000.0)])
    save(figure, tmp_path / "payloads")
    low, high = figure.axes[0].get_xlim()
    shown = [text.get_text() for text in figure.axes[0].get_xticklabels() if low < text.get_position()[0] < high]
    assert shown == ["1,000", "2,000", "5,000"]


def test_bytes_hang_on_neither_the_process_nor_its_settings(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib, matplotlib; sys.path.insert(0, sys.argv[1])\n"
        "matplotlib.rcParams['axes.grid'] = True\n"
        "from test_curves import *\n"
        "place = pathlib.Path(sys.argv[2]) / sys.argv[3]\n"
        "for name, figure in draw_all(make_curves(place, ALL, 2)).items(): save(figure, place / name)\n"
    )
    command = [sys.executable, "-c", script, str(Path(__file__).parent), str(tmp_path), "1"]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": "1"})
    for name, figure in draw_all(make_curves(tmp_path / "2", ALL, 2)).items():  # with the hashes of this process
        save(figure, tmp_path / "2" / name)
    names = sorted(path.name for path in (tmp_path / "1").iterdir() if path.is_file())
    assert len(names) == 10
    for name in names:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


def test_figures_need_no_torch() -> None:
    script = "import sys, skyfed.report.curves; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


# downloads


def test_downloads_are_told_in_lines_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 1.0, 4.0, 6.0, 8.0, 9.0, 10.0, 11.0])
    monkeypatch.setattr(live.time, "monotonic", lambda: next(clock))
    with live.transferring(plain=True) as show:
        for done in (10, 20, 40, 70, 90, 100):
            show("archive", done * 10**6, 100 * 10**6)
        show("package", 0, 0)
        show("package", 0, 0)
    assert capsys.readouterr().err.splitlines() == [
        "fetching archive, 100.0 MB",
        "archive: 70.0 of 100.0 MB, 10.0 MB/s, 3 s left",
        "archive: 100.0 of 100.0 MB, 10.0 MB/s, 0 s left",
        "fetching package",
    ]


def test_downloads_have_a_bar_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with live.transferring(plain=False) as show:
        show("package", 0, 0)
        show("package", 0, 0)
        show("archive", 10**6, 4 * 10**6)
        show("archive", 4 * 10**6, 4 * 10**6)
    told = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    assert told.count("fetching package") == 1
    assert "4.0/4.0 MB" in told
