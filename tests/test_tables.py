"""Tables in terminals of any usual width: no word and no number is cut."""

import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from page_cases import FIVE, settings, without_formula, write_run
from run_cases import rows_of
from skyfed.errors import BadInputError
from skyfed.report import score, terminal_tables
from skyfed.report.score import ModelScore
from skyfed.report.summary import PARTS, PHASES, summarise
from skyfed.report.terminal_tables import print_resources, print_seeds, print_summary, print_sweep, show
from skyfed.runs.tables import Table as Stored


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("tables") / "run", settings(2, 6, 3))


@pytest.fixture(params=[72, 80, 100, 120, 200])
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(terminal_tables, "console", lambda: Console(width=request.param))
    return int(request.param)


def test_no_word_and_no_number_is_cut(run: Path, width: int, capsys: pytest.CaptureFixture[str]) -> None:
    print_summary(run, rows_of(*FIVE), "a run")
    print_resources(run, rows_of(*FIVE), "its cost")
    print_seeds([run, run], rows_of(*FIVE), "seeds")
    row = {"variant": "delta=0.5", **asdict(summarise(run, "2ceoafl"))}
    print_sweep([{**row, "seed": seed, "total_bytes": (12 + seed) * 10**6} for seed in (0, 1)], "a sweep")
    text = capsys.readouterr().out
    assert "…" not in text
    assert text.count("AFL-Quant") == 3
    shown = [line for line in text.splitlines() if not line.startswith(("in a wider terminal also: ", "modelled: "))]
    assert max(map(len, shown)) <= width
    assert ("in a wider terminal also: " in text) == (width < 120)


def test_what_is_left_out_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal_tables, "console", lambda: Console(width=20))
    table = Table("algorithm")
    for name in ("accuracy\n(%)", "wall\n(s)"):
        table.add_column(name, justify="right")
    table.add_row("2CEOAFL", "48.7", "1234567")
    show(table, ["wall\n(s)"])
    text = capsys.readouterr().out
    assert "48.7" in text
    assert "1234567" not in text
    assert text.endswith("in a wider terminal also: wall (s)\n")


def test_many_classes_stand_below_each_other(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    classes: dict[str, float | None] = {f"class-{c:02}": 0.5 for c in range(20)}
    score.print_scores([ModelScore(name, 100, 0.5, 1.0, classes) for name in FIVE], as_json=False)
    text = capsys.readouterr().out
    assert "…" not in text
    assert "class-19" in text
    assert max(map(len, text.splitlines())) <= width


def test_an_algorithm_without_the_paper_s_sizes_shows_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal_tables, "console", lambda: Console(width=200))
    run = write_run(tmp_path / "run", settings(2, 6, 3, ["afl"]))
    without_formula(run / "afl")
    print_summary(run, rows_of("afl"), "Run")
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "AFL" in line]
    sent, joules, *others = line.replace("│", " ").split()[7:]
    assert float(sent) > 0
    assert float(joules) > 0
    assert len(others) == 2  # no column of sizes by the formula: training and wall seconds


def test_a_summary_adds_up_what_the_tables_say(run: Path) -> None:
    summary = summarise(run, "2ceoafl")
    vehicles, rounds = (Stored(run / "2ceoafl", name).rows() for name in ("vehicles", "rounds"))
    for name in ("fly_seconds", "wait_seconds", "hover_joules", "send_joules"):
        assert getattr(summary, name) == pytest.approx(sum(row[name] for row in vehicles))
    assert summary.mission_seconds == rounds[-1]["clock"] == 360
    assert summary.total_bytes == sum(row["wire_bytes"] + row["downlink_bytes"] for row in rounds)
    assert summary.joules == pytest.approx(sum(getattr(summary, f"{part}_joules") for part in PARTS))
    assert summary.least_battery == pytest.approx(0.5)
    assert (summary.landed, summary.first_landing, summary.law_time) == (0, None, None)
    central = summarise(run, "sgd")
    assert {central.mission_seconds, central.joules, central.fly_joules, central.landed, central.least_battery} == {
        None
    }


def test_vehicles_that_went_home_are_counted_once_with_the_first_round(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = settings(3, 6, 3, ["afl"], "world.deadline=50")
    run = write_run(tmp_path / "run", config, done=6)
    table = Stored(run / "afl", "vehicles")
    status = {(3, 1): "going home", (4, 1): "on the ground", (2, 2): "going home"}
    rows = [row | {"status": status.get((row["round"], row["vehicle"]), "flying")} for row in table.rows()]
    table.keep(0)
    table.append(rows)
    summary = summarise(run, "afl")
    assert (summary.landed, summary.first_landing) == (2, 2)
    print_resources(run, config.rows, "its cost")
    out = capsys.readouterr().out
    assert "late" in out  # there is a deadline
    assert "AFL: 2 landed early, the first in round 2" in out


def test_the_papers_law_has_no_mission_and_no_batteries(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    law = ["world.time=law", "world.t_train=2.5", "field.follows=rounds", "sensing.model=eq6"]
    run = write_run(tmp_path / "run", settings(2, 6, 3, ["afl"], *law))
    summary = summarise(run, "afl")
    assert (summary.mission_seconds, summary.law_time, summary.landed) == (None, 360 / 2.5, None)
    print_resources(run, rows_of("afl"), "its cost")
    out = capsys.readouterr().out
    assert "t_tr" in out
    assert out.splitlines()[-1] == "modelled: training"  # the law’s time says so in its head
    assert not [word for word in ("mission", "flying", "landed") if word in out]


@pytest.mark.parametrize("kind", ["done", "stopped"])
def test_what_old_tables_do_not_know_is_left_out_and_never_0(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(Path(__file__).parent / "formats" / "0.1.0" / kind, tmp_path / "run"))
    summary = summarise(run, "2ceoafl")
    unknown = {name for name, value in asdict(summary).items() if value is None}
    assert unknown >= {"mission_seconds", "law_time", "joules", "least_battery", "landed", "broadcast_bytes"}
    assert unknown >= {f"{part}_joules" for part in PARTS} | {f"{phase}_seconds" for phase in PHASES}
    assert summary.total_bytes == summary.uplink_bytes + summary.downlink_bytes > summary.uplink_bytes > 0
    print_resources(run, rows_of("2ceoafl"), "its cost")
    print_summary(run, rows_of("2ceoafl"), "a run")
    assert not [word for word in ("mission", "energy", "battery") if word in capsys.readouterr().out]


def test_a_summary_of_what_is_not_there_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"no algorithm 'fedavg'; allowed in this run: .*2ceoafl"):
        summarise(run, "fedavg")
    with pytest.raises(BadInputError, match="not a run's folder"):
        summarise(tmp_path / "nope", "afl")
