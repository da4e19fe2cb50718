"""Tables in terminals of any usual width: no word and no number is cut."""

from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from page_cases import FIVE, settings, without_formula, write_run
from run_cases import rows_of
from skyfed.report import score, terminal_tables
from skyfed.report.score import ModelScore
from skyfed.report.terminal_tables import print_resources, print_seeds, print_summary, print_sweep, show


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
    row = {"algorithm": "2ceoafl", "rounds": 6, "accuracy": 0.5, "accuracy_full": 0.5, "mean_accuracy": 0.4}
    more = {"uplink_bytes": 12_000_000, "measured_seconds": 1234.5}
    print_sweep([{"variant": "delta=0.5", "seed": seed, **row, **more} for seed in (0, 1)], "a sweep")
    text = capsys.readouterr().out
    assert "…" not in text
    assert text.count("AFL-Quant") == 3
    shown = [line for line in text.splitlines() if not line.startswith("in a wider terminal also: ")]
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
    sent, _, formula = line.replace("│", " ").split()[6:9]
    assert float(sent) > 0
    assert formula == "-"
