"""`skyfed table`: what stands in a row, what is compared with what, and every form that it is printed in."""

import csv
import io
import json
import re
import shutil
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import skyfed
from page_cases import FIVE, settings, write_run
from skyfed.cli import app
from skyfed.errors import BadInputError
from skyfed.report import terminal_tables
from skyfed.report.result_table import build_table, records
from skyfed.report.seed_model import fit
from skyfed.report.summary import late_mean, summarise
from skyfed.report.table_formats import caption, to_latex, to_markdown


def seeds(place: Path, count: int = 3, *more: str, algorithms: object = FIVE) -> Path:
    for seed in range(count):
        write_run(place / f"seed-{seed}", settings(2, 8, 3, algorithms, f"seed={seed}", *more))  # type: ignore[arg-type]
    return place


def titled(place: Path, title: str) -> Path:
    """Make runs of AFL and of an algorithm whose class gives itself a title."""
    seeds(place, 3, algorithms=["afl", "mine:Mine"])
    for seed in range(3):
        about = {"rows": [{"label": settings(2, 8, 3, ["mine:Mine"]).labels[0], "title": title, "central": False}]}
        (place / f"seed-{seed}" / "manifest.json").write_text(json.dumps(about))
    return place


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return seeds(tmp_path_factory.mktemp("table") / "runs")


def said(*words: object) -> str:
    done = CliRunner().invoke(app, ["table", *map(str, words)])
    assert done.exit_code == 0, done.exception
    return done.stdout


def test_every_cell_is_the_mean_of_its_seeds(three):
    table = build_table([three])
    assert [row.name for row in table.rows] == ["SGD", "AFL", "AFL-Prune", "AFL-Quant", "2CEOAFL"]
    assert [column.name for column in table.columns] == [
        "late_accuracy_full",
        "mission_seconds",
        "uplink_bytes",
        "downlink_bytes",
        "joules",
    ]  # fmt: skip
    sent = [summarise(three / f"seed-{seed}", "afl").uplink_bytes for seed in range(3)]
    _, mission, up, *_ = table.columns
    assert (up.cells[1].n, up.cells[1].mean) == (3, pytest.approx(sum(sent) / 3))
    assert up.cells[0].mean is None  # central training sends nothing
    assert (mission.cells[1].mean, mission.unit.name) == (8 * 60.0, "min")  # eight rounds of a minute
    assert {record["unit"] for record in records(table) if record["column"] == "mission_seconds"} == {"s"}
    assert "Modelled: mission, energy." in caption(table, "Bold")


def test_a_loaded_run_has_the_measures_and_the_curves(three):
    run = skyfed.load(three / "seed-0")
    known = dict(zip(run.summary["algorithm"], run.summary["mission_seconds"], strict=True))
    assert known == {name: None if name == "sgd" else 8 * 60.0 for name in FIVE}
    assert set(run.vehicles["status"]) == {"flying"}
    labels = [run.plot(what).axes[0].get_xlabel() for what in ("mission", "megabytes", "joules", "accuracy")]
    assert [label.partition(",")[0] for label in labels] == [
        "Mission time", "Sent and received by all vehicles", "Energy of all vehicles", "Round $t$",
    ]  # fmt: skip
    with pytest.raises(BadInputError, match="allowed: mission, megabytes, joules, accuracy, payload, map"):
        run.plot("seconds")


def test_verdicts_are_those_of_the_model(three):
    values = {name: {s: summarise(three / f"seed-{s}", name).late_accuracy_full for s in range(3)} for name in FIVE}
    model = fit(values)
    against = build_table([three], against="afl-prune").columns[0]
    assert against.reference == "AFL-Prune"
    known = model.against("afl-prune")
    for name, cell in zip(FIVE, against.cells, strict=True):
        assert cell.verdict == ("reference" if name == "afl-prune" else known[name].verdict())
        assert (cell.comparison is None) == (name == "afl-prune")
    best = build_table([three]).columns[0]
    assert best.reference == "AFL"  # SGD is central: no rival
    assert best.cells[4].comparison == model.pair("2ceoafl", "afl")
    assert [cell.best for cell in best.cells] == [
        False, *(name == "afl" or not model.pair(name, "afl").shown for name in FIVE[1:]),
    ]  # fmt: skip


def test_a_margin_is_in_points(three):
    compared = build_table([three], against="afl").columns[0].cells[4].comparison
    enough = -100 * compared.at_least + 0.01
    verdicts = [
        build_table([three], against="afl", margin=round(m, 2)).columns[0].cells[4].verdict
        for m in (enough + 0.01, 0.01)
    ]
    assert f"not inferior (margin {round(enough + 0.01, 2):g})" in verdicts[0]
    assert "not inferior" not in verdicts[1]


def test_one_seed_gives_no_verdict_and_no_mark(three):
    table = build_table([three / "seed-1"], against="afl", margin=50)
    assert {cell.verdict for cell in table.columns[0].cells} == {"one seed"}
    assert not any(cell.best or cell.comparison for column in table.columns for cell in column.cells)
    assert "One seed: no row is called better." in caption(table, "Bold")
    assert "±" not in to_markdown(table).partition("\n\n")[0]


def test_runs_of_one_config_share_a_row_wherever_they_are(tmp_path):
    for name, seed, algorithms in (("a", 0, ["afl"]), ("b", 1, ["afl"]), ("c", 0, ["2ceoafl"]), ("d", 1, ["2ceoafl"])):
        write_run(tmp_path / name, settings(2, 8, 3, algorithms, f"seed={seed}", f"workers={seed + 1}"))
    table = build_table([tmp_path])
    assert [(row.name, sorted(row.by_seed)) for row in table.rows] == [("AFL", [0, 1]), ("2CEOAFL", [0, 1])]


def test_variants_are_named_by_what_differs(tmp_path):
    for delta in (0.25, 0.5):
        seeds(tmp_path / f"{delta}", 2, f"prune.delta={delta}", algorithms=["2ceoafl"])
    assert [row.name for row in build_table([tmp_path]).rows] == ["delta=0.25", "delta=0.5"]
    seeds(tmp_path / "more", 2, "prune.delta=0.5", "train.eta=0.05", algorithms=["afl", "2ceoafl"])
    assert [row.name for row in build_table([tmp_path]).rows] == [
        "2CEOAFL, eta=0.1 delta=0.25", "2CEOAFL, eta=0.1 delta=0.5", "AFL, eta=0.05 delta=0.5",
        "2CEOAFL, eta=0.05 delta=0.5",
    ]  # fmt: skip
    with pytest.raises(BadInputError, match=r"'2ceoafl': names several rows; allowed: '2CEOAFL, eta=0.1 delta"):
        build_table([tmp_path], against="2ceoafl")
    assert build_table([tmp_path], against="2CEOAFL, eta=0.1 delta=0.5").against


def test_what_is_not_finished_is_left_out_and_named(three, tmp_path):
    place = tmp_path / "runs"
    shutil.copytree(three, place)
    (place / "seed-2" / "afl" / "model.safetensors").unlink()
    shutil.rmtree(place / "seed-1" / "2ceoafl")
    (place / "seed-1" / "manifest.json").write_text(json.dumps({"diverged": {"2ceoafl": "nan"}}))
    table = build_table([place])
    assert [len(row.by_seed) for row in table.rows] == [3, 2, 3, 3, 2]
    words = caption(table, "Bold")
    assert "over 2 to 3 seeds" in words
    assert "Left out: 2CEOAFL of runs, seed 1: diverged; AFL of runs, seed 2: 8 of 8 rounds" in words
    assert table.columns[0].cells[4].comparison is not None  # least squares
    write_run(tmp_path / "begun", settings(2, 8, 3), 2)
    with pytest.raises(BadInputError, match=r"nothing is finished here .SGD of begun, seed 0: 2 of 8 rounds"):
        build_table([tmp_path / "begun"])


def test_other_rounds_other_data_and_the_same_run_twice_are_refused(three, tmp_path):
    write_run(tmp_path / "longer", settings(2, 9, 3))
    with pytest.raises(BadInputError, match=r"rounds is 9, in .* 8; allowed in one table: runs of the same data and"):
        build_table([three, tmp_path / "longer"])
    write_run(tmp_path / "other", settings(2, 8, 3, FIVE, "data.dirichlet=0.5"))
    with pytest.raises(BadInputError, match=r"data.dirichlet is 0.5, in .* None"):
        build_table([three, tmp_path / "other"])
    shutil.copytree(three / "seed-1", tmp_path / "copy")
    with pytest.raises(BadInputError, match=r"copy: the same run as .*seed-1: sgd, seed 1"):
        build_table([three, tmp_path / "copy"])
    assert build_table([three, three / "seed-1"]).seeds == "3"  # the same folder twice is one


def test_latex_has_booktabs_escapes_and_bold(tmp_path):
    text = to_latex(build_table([titled(tmp_path / "runs", "50% & #1_{x} \\ ^~$")]))
    assert text.splitlines()[0] == r"% \usepackage{booktabs}"
    assert r"50\% \& \#1\_\{x\} \textbackslash{} \textasciicircum{}\textasciitilde{}\$ & " in text
    assert text.count(r"\begin{") == text.count(r"\end{") == 2
    body = text.partition(r"\toprule")[2].partition(r"\bottomrule")[0].replace(r"\midrule", "")
    columns = len(re.search(r"\\begin\{tabular\}\{([lr]+)\}", text)[1])
    for line in body.strip().splitlines():
        if line.strip():
            assert line.endswith(r" \\")
            assert len(re.findall(r"(?<!\\)&", line)) == columns - 1
    assert r"\textbf{" in body
    bare = re.sub(r"\\[{}]", "", text)
    assert bare.count("{") == bare.count("}")
    assert not re.search(r"(?<!\\)[%#]", text.partition("\n")[2])
    assert "±" not in text
    assert text.isascii()


def test_markdown_keeps_names_from_being_read(tmp_path):
    text = to_markdown(build_table([titled(tmp_path / "runs", "a|b *c* <i>")]))
    head, rule, *body = text.partition("\n\n")[0].splitlines()
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in (head, rule, *body)} == {len(rule.split("|")) - 1}
    assert r"a\|b \*c\* &lt;i>" in body[1]
    assert "**" in body[0] + body[1]


def test_csv_and_json_are_tidy_and_in_si_units(three):
    lines = list(csv.DictReader(io.StringIO(said(three, "--csv", "--against", "afl"))))
    known = records(build_table([three], against="afl"))
    assert len(lines) == len(known) == 5 * 5
    for line, record in zip(lines, known, strict=True):
        assert line == {key: "" if value is None else str(value) for key, value in record.items()}
    first = known[0]
    assert (first["column"], first["unit"], first["n"]) == ("late_accuracy_full", "1", 3)
    assert 0 < first["low"] < first["mean"] < first["high"] < 1
    told = json.loads(said(three, "--json", "--against", "afl"))
    assert told["cells"] == known
    assert "Dunnett" in told["caption"]


@pytest.mark.parametrize("width", [80, 100, 200])
def test_the_terminal_table_fits(three, width, capsys, monkeypatch):
    monkeypatch.setattr(terminal_tables, "console", lambda: Console(width=width))
    out = said(three, "--against", "afl", "--margin", "0.5")
    assert "…" not in out
    table = [line for line in out.splitlines() if not line.startswith("in a wider terminal also: ")]
    assert max(map(len, table)) <= width
    assert "accuracy" in out
    assert "reference" in out


def test_columns_and_measure_are_chosen_by_name(three):
    table = build_table([three], "accuracy", ["forgetting", "wall_seconds", "accuracy"])
    assert [column.name for column in table.columns] == ["accuracy", "forgetting", "wall_seconds"]
    assert table.columns[2].cells[0].mean is not None  # central training takes time too


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--measure", "joules"], "--measure 'joules': allowed: accuracy, accuracy_full, late_accuracy"),
        (["--columns", "joules,size"], "--columns: 'size': allowed: accuracy"),
        (["--against", "fedavg"], "--against 'fedavg': no such row; allowed: 'SGD', 'AFL'"),
        (["--margin", "0"], "--margin 0: allowed: points of accuracy above 0"),
        (["--margin", "nan"], "--margin nan: allowed"),
        (["--latex", "--csv"], "--latex and --csv: allowed: one of them"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_a_line(three, words, why):
    done = CliRunner().invoke(app, ["table", str(three), *words])
    assert isinstance(done.exception, BadInputError)
    assert why in str(done.exception)


def test_late_tests_are_those_of_the_last_quarter():
    tested = [{"round": t, "accuracy": t / 100} for t in range(4, 100, 5)]
    assert late_mean(tested, "accuracy") == pytest.approx(sum((79, 84, 89, 94, 99)) / 500)
    assert late_mean(tested[:1], "accuracy", 7) == 0.04  # no seventh round: the last test
    assert late_mean([], "accuracy") is None


def test_the_table_as_a_data_frame(three):
    frame = skyfed.table(three, against="afl", columns=["joules"])
    known = records(build_table([three], columns=["joules"], against="afl"))
    assert list(frame.columns) == list(known[0])
    assert list(frame["p"]) == [record["p"] for record in known]
