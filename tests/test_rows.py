"""Rows of one algorithm with settings of their own, side by side: folders, tables, figures, page, and every verb."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from in_process import Popen, undrawn
from page_cases import settings, write_run, write_theory
from run_cases import in_toml, rows_of
from skyfed.algorithms import KNOWN
from skyfed.cli import run_arguments
from skyfed.report.bound import diagnoses
from skyfed.report.curves import draw_accuracy
from skyfed.report.groups import find_groups
from skyfed.report.learning_curves import read_curves
from skyfed.report.page import write_page
from skyfed.report.page.headline import headline
from skyfed.report.style import looks
from skyfed.runs.checkpoint import unpack_model
from skyfed.runs.folder import RunFolder
from skyfed.runs.listing import look
from skyfed.runs.sweep_file import read_sweep
from skyfed.runs.tables import read_parquet

EDEN = {"use": "afl-quant", "label": "EDEN, 1 bit", "quantise": {"scheme": "eden", "s": 1}}
SLOW = {"use": "2ceoafl", "label": "two steps", "train": {"kappa": 2}, "pruning": False}
ROWS: list[str | dict[str, object]] = ["afl", EDEN, SLOW]
LABELS = ["afl", "EDEN, 1 bit", "two steps"]
SMALL = ["rounds=2", "vehicles=2", "eval_every=1", "flight.method=greedy", "train.kappa=1", "workers=1"]


def words_for(out: Path, rows: list[str | dict[str, object]], *more: str) -> list[str]:
    words = [*SMALL, f"algorithms={in_toml(rows)}", *more]
    chosen = [part for word in words for part in ("--set", word)]
    return ["run", "smoke", "--plain", "--out", str(out), *chosen]


def run(out: Path, rows: list[str | dict[str, object]], *more: str) -> int:
    """Run without figures."""
    with pytest.MonkeyPatch.context() as patch:
        undrawn(patch)
        return run_arguments(words_for(out, rows, *more))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("rows") / "run"
    assert run_arguments(words_for(place, ROWS)) == 0
    return place


def words_of(shown: str) -> list[str]:
    """Return the first two columns of tables, with words that stand below each other put together."""
    cells: list[str] = []
    for line in shown.splitlines():
        parts = [part.strip() for part in line.split("│")[1:-1]]
        if len([part for part in parts if part]) > 2:
            cells += parts[:2]
        elif parts and parts[:2] != ["", ""]:  # goes on
            cells[-2:] = [" ".join(filter(None, pair)) for pair in zip(cells[-2:], parts[:2], strict=True)]
    return cells


def uplink(place: Path, label: str) -> list[dict[str, object]]:
    return read_parquet(place / label / "uplink.parquet")


def test_every_row_has_a_folder_by_its_label(done: Path) -> None:
    config = RunFolder.config_of(done)
    assert config.labels == LABELS
    for label in LABELS:
        for name in ("rounds.parquet", "uplink.parquet", "vehicles.parquet", "model.safetensors"):
            assert (done / label / name).is_file(), (label, name)
        assert unpack_model(done / label / "model.safetensors")[2]["algorithm"] == label
    known = json.loads((done / "manifest.json").read_text())["rows"]
    assert known == [
        {"label": "afl", "title": "AFL", "central": False},
        {"label": "EDEN, 1 bit", "title": "EDEN, 1 bit", "central": False},
        {"label": "two steps", "title": "two steps", "central": False},
    ]


def test_every_row_goes_by_settings_of_its_own(done: Path) -> None:
    afl, eden, slow = (uplink(done, label) for label in LABELS)
    assert not any(row["quantised"] for row in afl)
    assert all(row["quantised"] for row in eden)
    size = min(row["wire_bytes"] for row in afl)
    assert max(row["wire_bytes"] for row in eden) < size / 8  # a bit or two per weight, of 19 or more
    assert {row["delta"] for row in slow} == {0.0}
    for row, other in zip(afl, slow, strict=True):  # 2 dense local rounds instead of 1
        assert other["modelled_seconds"] == pytest.approx(2 * row["modelled_seconds"])


def test_a_row_without_settings_of_its_own_gives_the_bits_of_its_algorithm(done: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    assert run(alone, [{"use": "afl", "label": "mine"}, "afl"]) == 0
    for label in ("mine", "afl"):
        for one, other in zip(
            unpack_model(done / "afl" / "model.safetensors")[:2],
            unpack_model(alone / label / "model.safetensors")[:2],
            strict=True,
        ):
            assert one.tobytes() == other.tobytes(), label
        assert [row["digest"] for row in uplink(done, "afl")] == [row["digest"] for row in uplink(alone, label)]


def test_settings_of_a_row_are_those_that_the_whole_run_could_have(done: Path, tmp_path: Path) -> None:
    assert run(tmp_path / "alone", ["afl-quant"], "quantise.scheme=eden", "quantise.s=1") == 0
    one, other = uplink(done, "EDEN, 1 bit"), uplink(tmp_path / "alone", "afl-quant")
    assert [row["digest"] for row in one] == [row["digest"] for row in other]


def test_evaluate_names_rows_by_their_labels(done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_arguments(["evaluate", str(done), "--json"]) == 0
    assert [score["algorithm"] for score in json.loads(capsys.readouterr().out)] == LABELS
    assert run_arguments(["evaluate", str(done), "--algorithm", "EDEN, 1 bit"]) == 0
    shown = words_of(capsys.readouterr().out)
    assert "EDEN, 1 bit" in shown
    assert "two steps" not in shown
    assert run_arguments(["evaluate", str(done), "--algorithm", "afl-quant"]) == 2
    said = capsys.readouterr().err
    assert said.splitlines() == [
        "skyfed: --algorithm 'afl-quant': allowed in this run: afl, EDEN, 1 bit, two steps"
    ]  # fmt: skip


def test_evaluate_gives_the_accuracy_of_the_last_round(done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_arguments(["evaluate", str(done), "--json"]) == 0
    for score in json.loads(capsys.readouterr().out):
        last = read_parquet(done / score["algorithm"] / "rounds.parquet")[-1]
        assert score["accuracy"] == pytest.approx(last["accuracy_full"])


def test_runs_lists_rows_by_their_labels(done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = look(done)
    assert (found.state, [one.algorithm for one in found.trained]) == ("done", LABELS)
    assert run_arguments(["runs", str(done.parent)]) == 0
    assert "done" in capsys.readouterr().out
    assert run_arguments(["runs", str(done), "--json"]) == 0
    assert "EDEN, 1 bit" in capsys.readouterr().out


def test_resume_goes_on_with_the_row_that_was_stopped(
    done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Path(shutil.copytree(done, tmp_path / "run"))
    for name in ("rounds.parquet", "uplink.parquet", "vehicles.parquet", "model.safetensors"):
        (place / "EDEN, 1 bit" / name).unlink()
    assert look(place).state == "interrupted"
    capsys.readouterr()
    assert run_arguments(["resume", str(place), "--plain"]) == 0
    assert "EDEN, 1 bit: round 2 of 2" in capsys.readouterr().err
    for label in LABELS:
        assert (place / label / "model.safetensors").read_bytes() == (done / label / "model.safetensors").read_bytes()
    assert run_arguments(["resume", str(place), "--plain"]) == 0
    assert "nothing to resume" in capsys.readouterr().out


def test_the_same_command_goes_on_and_other_settings_of_a_row_are_refused(
    done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Path(shutil.copytree(done, tmp_path / "run"))
    assert run(place, ROWS) == 0
    other = {**EDEN, "quantise": {"scheme": "eden", "s": 2}}
    capsys.readouterr()
    assert run(place, ["afl", other, SLOW]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert "holds another run (algorithms: " in said


def test_tables_show_labels_and_titles(done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = done.parent / "again"
    shutil.copytree(done, place)
    (place / "figures" / "fig3-accuracy.png").unlink()
    assert run_arguments(["resume", str(place), "--plain"]) == 0
    shown = words_of(capsys.readouterr().out)
    for title in ("AFL", "EDEN, 1 bit", "two steps"):
        assert shown.count(title) >= 2, title  # the run, and what it cost


def test_curves_have_a_look_each_and_known_ones_keep_theirs() -> None:
    alone, beside = looks(rows_of(*KNOWN)), looks(rows_of(*KNOWN, EDEN, SLOW))
    assert all(beside[name] == look for name, look in alone.items())
    assert [beside[label]["label"] for label in ("EDEN, 1 bit", "two steps")] == ["EDEN, 1 bit", "two steps"]
    assert len({(look["color"], str(look["linestyle"]), look["marker"]) for look in beside.values()}) == len(beside)
    assert len({look["color"] for look in beside.values()}) == len(beside)


def test_a_row_looks_the_same_whoever_stands_before_it() -> None:
    """As long as no other row has a label of its own, which come in the order of the config."""
    first, second = looks(rows_of("afl", EDEN)), looks(rows_of(EDEN, "2ceoafl", "sgd"))
    assert first["EDEN, 1 bit"] == second["EDEN, 1 bit"]


def test_the_figure_has_a_line_per_row(done: Path) -> None:
    curves = read_curves([done], RunFolder.config_of(done).rows)
    assert [curve.row.name for curve in curves] == LABELS
    lines = draw_accuracy(curves).axes[0].lines
    assert [line.get_label() for line in lines] == ["AFL", "EDEN, 1 bit", "two steps"]
    for line, label in zip(lines, LABELS, strict=True):
        expected = [row["accuracy"] for row in read_parquet(done / label / "rounds.parquet")]
        np.testing.assert_allclose(line.get_ydata(), 100 * np.array(expected))


def test_the_page_has_every_row(done: Path, tmp_path: Path) -> None:
    text = write_page([done], tmp_path / "page.html").read_text()
    data = json.loads(re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', text, re.DOTALL)[1])
    assert list(data["looks"]) == LABELS
    assert [line["algorithm"] for line in data["accuracy"]] == LABELS
    assert [line["algorithm"] for line in data["payload"]] == LABELS
    assert [line["algorithm"] for line in data["classes"]] == LABELS
    assert [line.title for line in headline(find_groups([done])).lines] == ["AFL", "EDEN, 1 bit", "two steps"]


def test_runs_with_other_rows_stand_side_by_side_on_one_page(tmp_path: Path) -> None:
    one = write_run(tmp_path / "one", settings(2, 4, 3, ["afl", EDEN]))
    other = write_run(tmp_path / "other", settings(2, 4, 3, [EDEN, SLOW]))
    lines = headline(find_groups([one, other])).lines
    assert [(line.run, line.algorithm) for line in lines] == [
        (0, "afl"), (0, "EDEN, 1 bit"), (1, "EDEN, 1 bit"), (1, "two steps"),
    ]  # fmt: skip
    assert "EDEN, 1 bit" in write_page([one, other], tmp_path / "page.html").read_text()


def test_a_central_row_with_a_label_is_central(tmp_path: Path) -> None:
    config = settings(2, 4, 3, [{"use": "sgd", "label": "upper bound"}, "afl"])
    place = write_run(tmp_path / "run", config)
    central, line = headline(find_groups([place])).lines
    assert (central.title, central.central) == ("upper bound", True)
    assert not line.central
    assert [curve.row.central for curve in read_curves([place], config.rows)] == [True, False]


def test_the_bound_of_a_row_goes_by_its_own_rate(tmp_path: Path) -> None:
    own = {"use": "afl", "label": "gentle", "train": {"eta": 0.02}}
    place = write_run(tmp_path / "run", settings(2, 6, 3, ["afl", own], "theory.every=3", "train.eta=0.1"))
    for label in ("afl", "gentle"):
        write_theory(place / label, [2, 5], 2)
    assert [one.algorithm for one in diagnoses(place)] == ["afl", "gentle"]
    text = write_page([place], tmp_path / "page.html").read_text()
    data = json.loads(re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', text, re.DOTALL)[1])
    assert [(each["algorithm"], each["eta"]) for each in data["bound"]] == [("afl", 0.1), ("gentle", 0.02)]


# sweeps


def write_sweep(tmp_path: Path, text: str) -> Path:
    (tmp_path / "sweep.toml").write_text(text)
    return tmp_path / "sweep.toml"


def test_a_sweep_trains_rows_with_settings_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    undrawn(monkeypatch)
    monkeypatch.setattr("skyfed.drivers.sweep_jobs.Popen", Popen)
    lines = [*SMALL, f"algorithms={in_toml(['afl', EDEN])}"]
    path = write_sweep(tmp_path, f'base = "smoke"\nset = {json.dumps(lines)}\n[grid]\n"quantise.s" = [3, 5]\n')
    out = tmp_path / "out"
    assert run_arguments(["sweep", str(path), "--out", str(out), "--plain", "--jobs", "2"]) == 0
    assert words_of(capsys.readouterr().out).count("EDEN, 1 bit") == 2
    rows = read_parquet(out / "sweep.parquet")
    assert [(row["variant"], row["algorithm"]) for row in rows] == [
        (variant, label) for variant in ("s=3", "s=5") for label in ("afl", "EDEN, 1 bit")
    ]
    one, other = (uplink(out / variant / "seed-0", "EDEN, 1 bit") for variant in ("s=3", "s=5"))
    assert [row["digest"] for row in one] == [row["digest"] for row in other]  # its own s, whatever the grid says


def test_a_grid_may_go_over_rows(tmp_path: Path) -> None:
    path = write_sweep(tmp_path, f'base = "smoke"\n[grid]\nalgorithms = [["afl"], {in_toml(["afl", EDEN])}]\n')
    jobs = read_sweep(path)
    assert [job.variant for job in jobs] == ["algorithms=afl", "algorithms=afl-EDEN--1-bit"]
    assert [job.config.labels for job in jobs] == [["afl"], ["afl", "EDEN, 1 bit"]]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({**EDEN, "quantise": {"sheme": "eden"}}, "quantise.sheme is not a setting; did you mean scheme?"),
        ({**EDEN, "label": "a/b"}, "label 'a/b' cannot name a folder"),
        ({**EDEN, "label": "AFL"}, "'afl' is there twice; allowed: a label of its own for each row"),
        ({**EDEN, "train": {"kappa": 0}}, "row 'EDEN, 1 bit': train.kappa = 0"),
        ({**EDEN, "server": {"alpha": [1.0]}}, "server.alpha: allowed: one number for each of the 2 vehicles"),
        ({**EDEN, "us": "afl"}, "us is not a setting"),
    ],
)
@pytest.mark.parametrize("verb", ["run", "plan", "sweep"])
def test_a_bad_row_costs_one_line_and_leaves_nothing(
    row: dict[str, object], expected: str, verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [*SMALL, f"algorithms={in_toml(['afl', row])}"]
    out = tmp_path / "out"
    if verb == "sweep":
        words = ["sweep", str(write_sweep(tmp_path, f'base = "smoke"\nset = {json.dumps(lines)}\n'))]
    else:
        words = [verb, "smoke", *(part for line in lines for part in ("--set", line))]
    assert run_arguments([*words, "--plain", "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert expected in said
    assert not out.exists()


# the table of vehicles


def test_vehicles_have_a_row_per_round_absent_ones_included(tmp_path: Path) -> None:
    absent = [[0, 1], [2, 0], [2, 2]]
    more = ["rounds=3", "vehicles=3", f"faults.absent={absent}"]
    assert run(tmp_path / "run", ["afl"], *more) == 0
    rows = read_parquet(tmp_path / "run" / "afl" / "vehicles.parquet")
    assert [(row["round"], row["vehicle"]) for row in rows] == [(t, u) for t in range(3) for u in range(3)]
    gone = {(u, t) for u, t in absent}
    for row in rows:
        there = (row["vehicle"], row["round"]) not in gone
        assert (row["present"], row["chosen"], row["uploaded"]) == (there, there, there)
        assert row["reason"] is None
        assert row["samples"] > 0
    sent = {(row["round"], row["vehicle"]): row for row in uplink(tmp_path / "run", "afl")}
    for row in rows:
        if row["uploaded"]:
            upload = sent[row["round"], row["vehicle"]]
            assert (row["samples"], row["train_seconds"]) == (upload["samples"], upload["modelled_seconds"])
    for u in range(3):
        left = [row["battery_left"] for row in rows if row["vehicle"] == u]
        assert left == sorted(left, reverse=True)


def test_who_was_dropped_has_its_reason_in_the_table_of_vehicles(tmp_path: Path) -> None:
    assert run(tmp_path / "run", ["afl"], "vehicles=3", 'faults.spoil=[[1, 1, "garbage"]]') == 0
    rows = read_parquet(tmp_path / "run" / "afl" / "vehicles.parquet")
    reasons = {(row["vehicle"], row["round"]): row["reason"] for row in rows if row["reason"]}
    uploads = uplink(tmp_path / "run", "afl")
    assert reasons == {(row["vehicle"], row["round"]): row["dropped"] for row in uploads if row["dropped"]}
    assert list(reasons) == [(1, 1)]
    assert all(row["uploaded"] for row in rows)  # it did arrive


def test_what_has_no_vehicles_has_no_rows_of_them(tmp_path: Path) -> None:
    assert run(tmp_path / "run", ["sgd"]) == 0
    assert read_parquet(tmp_path / "run" / "sgd" / "vehicles.parquet") == []


# what an algorithm of one's own returns


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            "return parts",
            "local, round 0, vehicle 0: TypeError: it returns two things: the vectors of its message, and",
        ),
        ("return parts, {'n': 3}", "TypeError: its memory['n'] is a int; allowed: NumPy arrays of numbers"),
        ("return parts, [1]", "TypeError: its memory is a list; allowed: a dictionary of named arrays"),
        ("return parts, {'n': np.array(['x'])}", "TypeError: its memory['n'] is a ndarray; allowed: NumPy arrays of"),
    ],
)
def test_what_is_no_memory_is_named_in_a_line(
    body: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = f"""
import numpy as np
from skyfed.algorithms.twoceoafl import TwoCEOAFL
class Mine(TwoCEOAFL):
    def local(self, kit, received, memory):
        parts, _ = super().local(kit, received, memory)
        {body}
"""
    (tmp_path / "mine.py").write_text(source)
    assert run(tmp_path / "run", [f"{tmp_path / 'mine.py'}:Mine"]) == 1
    said = capsys.readouterr().err.splitlines()
    assert expected in said[-1]
    assert "Traceback" not in "".join(said)


def test_what_is_no_state_is_named_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = """
from skyfed.algorithms.twoceoafl import TwoCEOAFL
class Mine(TwoCEOAFL):
    def step(self, state, messages, t):
        return {**super().step(state, messages, t), "count": t}
"""
    (tmp_path / "mine.py").write_text(source)
    assert run(tmp_path / "run", [f"{tmp_path / 'mine.py'}:Mine"]) == 1
    assert "step, round 0: TypeError: its state['count'] is a int" in capsys.readouterr().err.splitlines()[-1]
