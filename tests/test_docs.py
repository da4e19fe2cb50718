"""What the pages show must be what the code and the results give."""

import html
import importlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import reproduce.__main__
from docs.columns_page import BEGIN, END, further, renewed
from docs.settings_page import settings_page
from reproduce.collect import changes
from reproduce.figures import to_markdown
from reproduce.page.fill import tables
from reproduce.results import read_machines, read_results, run_name
from reproduce.variants import variants_table
from skyfed.config import Config
from skyfed.runs.columns import TABLES, named
from skyfed.runs.sweep_file import read_sweep
from skyfed.runs.tables import read_parquet

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
MODELS = ("safetensors", "pt2", "onnx", "ts")  # endings of files that hold one
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


def test_the_page_of_settings_is_fresh() -> None:
    assert (ROOT / "docs/config.md").read_text() == settings_page()


def test_the_figures_are_those_of_the_recorded_runs() -> None:
    block = r"<!-- figures: python -m reproduce.figures (\S+) -->\n(.*?)\n<!-- end of figures -->"
    shown = [found for page in PAGES for found in re.findall(block, page.read_text(), re.DOTALL)]
    assert sorted(name for name, _ in shown) == sorted(f"results/{path.name}" for path in RESULTS.glob("bench-*.json"))
    for name, table in shown:
        assert table == to_markdown(json.loads((ROOT / name).read_text())), name


def test_the_tables_of_the_reproduction_are_what_its_results_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stand on pages of their own; the words of docs/reproduction.md have tests/test_reproduction_page.py."""
    again = shutil.copytree(ROOT / "docs/reproduction", tmp_path / "again")
    monkeypatch.setattr(sys, "argv", ["reproduce", "page", str(RESULTS / "reproduction"), str(again)])
    reproduce.__main__.main()
    for page in (ROOT / "docs/reproduction").iterdir():
        assert (again / page.name).read_text() == page.read_text()


def test_every_table_of_the_reproduction_is_shown_once_and_is_narrow() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs/reproduction").iterdir())
    made = tables(RESULTS / "reproduction")
    assert sorted(re.findall(r"<!-- table (.+) -->", pages)) == sorted(made)
    assert all(table.splitlines()[0].count("|") <= 7 for table in made.values())  # six columns


def test_the_reproduction_s_results_are_of_the_grid_as_it_is() -> None:
    """Whoever changes a variant must run it again: settings, algorithms and rounds are those of the grid."""
    jobs = {
        run_name({"variant": job.variant, "seed": job.seed}): job for job in read_sweep(ROOT / "reproduce/grid.toml")
    }
    machines = read_machines(RESULTS / "reproduction")
    assert machines.keys() == jobs.keys()  # nothing is left to run, and nothing is of another grid
    for run, known in machines.items():
        assert known["changes"] == json.loads(json.dumps(changes(jobs[run].config))), run
    ends: dict[tuple[str, str], int] = {}
    for row in read_results(RESULTS / "reproduction")["rounds"]:
        ends[run_name(row), row["algorithm"]] = row["round"] + 1
    assert ends == {(run, name): jobs[run].config.rounds for run in machines for name in jobs[run].config.labels}


def test_the_readme_has_the_accuracies_of_the_reproduction() -> None:
    readme, within = (ROOT / "README.md").read_text(), {"within one point": "yes", "more than one point above": "no"}
    rows = table_after("docs/reproduction.md", "# The paper, reproduced")
    for algorithm, printed, measured, seeds, verdict in rows:
        assert f"| {algorithm} | {printed} | {measured} | {within[verdict]} |" in readme
        assert seeds == "3"
    assert "It sends 47 times fewer bytes." in (ROOT / "docs/reproduction.md").read_text()
    assert readme.count("47 times fewer bytes") == 2


def recorded(bench: str, row: str, also: str | None = None) -> str:
    """Return a figure of a recorded bench as pages write it."""
    rows = json.loads((ROOT / f"results/bench-{bench}.json").read_text())
    (found,) = [one for one in rows if one["name"].startswith(row)]
    return f"{found['also'][also] if also else found['value']:.3g}"


def test_tables_of_sweeps_are_those_of_the_recorded_runs() -> None:
    block = r"<!-- sweep: python -m reproduce.variants (\S+) -->\n(.*?)\n<!-- end of sweep -->"
    shown = [found for page in PAGES for found in re.findall(block, page.read_text(), re.DOTALL)]
    assert sorted(name for name, _ in shown) == ["results/attacks.parquet", "results/channels.parquet"]
    for name, table in shown:
        assert table == variants_table(read_parquet(ROOT / name))


def test_the_readmes_figures_are_those_of_the_recorded_runs() -> None:
    table = (ROOT / "README.md").read_text()
    worst = "channel pruning, budget flops"
    for words in (
        f"{recorded('planner', 'CPU seconds')} CPU seconds per drone",
        f"{recorded('planner', 'vmax = 150')} % below a proven bound",
        f"{recorded('wire', 'raw, exact')} of that, and still exact",
        f"{recorded('wire', 'quantised, bucket 512')} of that",
        f"{recorded('engine', worst, 'single weights, delta 0.7')} times that time with a mask",
        f"{recorded('engine', worst)} times that time",
    ):
        assert words in table, words


def test_the_readme_says_of_the_theory_what_its_page_says() -> None:
    readme, theory = (ROOT / "README.md").read_text(), (ROOT / "docs/theory.md").read_text()
    assert "349 of 1,000" in readme
    assert "349" in theory


def test_every_test_file_the_paper_page_names_exists() -> None:
    named = set(re.findall(r"`(tests/[a-z_]+\.py)`", (ROOT / "docs/paper.md").read_text()))
    assert named
    assert all((ROOT / name).exists() for name in named), named


def table_after(page: str, words: str) -> list[list[str]]:
    """Return the rows of the first table after some words."""
    rest = (ROOT / page).read_text().partition(words)[2]
    lines = rest[rest.index("\n|") + 1 :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_settings_and_the_code_of_every_symbol_exist() -> None:
    for _, _, settings, code in table_after("docs/concepts.md", "## Symbols"):
        for name in re.findall(r"`([a-z]\w*(?:\.\w+)*)`", settings):
            assert _is_setting(name), name
        for name in re.findall(r"`([a-z]\w*(?:\.\w+)*)`", code):
            assert _is_code(name), name


@pytest.mark.parametrize("name", TABLES)
def test_the_columns_shown_are_those_of_the_tables(name: str) -> None:
    rows = table_after("docs/recipes.md", f"`{name}.parquet`:")
    shown = {row[0].strip("`"): row[2] for row in rows}
    assert shown == {column.name: column.meaning for column in named(TABLES[name]).values()}


def test_the_columns_of_the_known_algorithms_are_shown() -> None:
    rows = table_after("docs/recipes.md", "`uplink.parquet` of the paper's algorithms")
    assert [row[0].strip("`") for row in rows] == list(further())
    assert {"delta", "paper_bits", "turned"} <= further().keys()


def test_the_tables_of_columns_are_fresh() -> None:
    page = (ROOT / "docs/recipes.md").read_text()
    assert page.count(BEGIN) == page.count(END) == 1
    assert renewed(page) == page


def slug(title: str) -> str:
    """Return the anchor of a heading."""
    words = re.sub(r"[^\w\- ]", "", title.replace("`", "").strip().lower())
    return words.replace(" ", "-")


def anchors(page: Path) -> set[str]:
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    return {slug(title) for title in re.findall(r"^#+ (.*)$", prose, re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!http)([^)]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        aim = page.parent / path if path else page
        assert aim.exists(), target
        assert not anchor or anchor in anchors(aim), target


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_lists_begin_after_an_empty_line(page: Path) -> None:
    """Some readers of Markdown take them for prose otherwise."""
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    assert not re.search(r"^(?![-*#\s]|\d+\.|<!--).+\n(?:[-*]|\d+\.) ", prose, re.MULTILINE)


def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 15
    loads = (
        r'<(?:script|img|iframe)[^>]*\ssrc="(https?:|//)'
        r'|<link[^>]*rel="(?:stylesheet|preload|preconnect|icon)"[^>]*href="(https?:|//)'
    )
    for page in pages:
        assert not re.search(loads, page.read_text()), page.name
    for style in (tmp_path / "site").rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:|//)|@import", style.read_text()), style.name
    shown = html.unescape(re.sub(r"<[^>]*>", "", (tmp_path / "site" / "examples.html").read_text()))
    for example in (ROOT / "examples").glob("*.py"):
        assert example.read_text().strip() in shown, example.name


def test_every_page_has_its_place_in_the_site() -> None:
    """Building the site takes a page without one for an error."""
    named = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(named) == sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))


def _is_code(name: str) -> bool:
    """Tell whether a dotted name is a module of skyfed, or something in one."""
    parts = name.removeprefix("skyfed.").split(".")
    for k in range(len(parts), -1, -1):
        module = ".".join(["skyfed", *parts[:k]])
        if _found(module):
            here: object = importlib.import_module(module)
            for part in parts[k:]:
                if not hasattr(here, part) and part not in getattr(here, "__dataclass_fields__", {}):
                    return False
                here = getattr(here, part, None)
            return True
    return False


def _found(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _is_setting(name: str) -> bool:
    model: object = Config
    for part in name.split("."):
        fields = getattr(model, "model_fields", {})
        if part not in fields:
            return False
        model = fields[part].annotation
    return True


@pytest.mark.parametrize("name", [name for name in NAMES if name != "docs/upgrade.md"])  # it names what is gone
def test_the_code_and_settings_that_a_page_names_are_there(name: str) -> None:
    rooms = {path.stem for path in (ROOT / "src/skyfed").iterdir() if not path.stem.startswith("_")}
    names = re.findall(r"`((?:\w+\.)+\w+)`", (ROOT / name).read_text())
    files = ("py", "md", "toml", "json", "parquet", "npz", "html", "log", "png", "sh", "ipynb", *MODELS)
    gone = [
        name
        for name in names
        if name.split(".")[0] in {*rooms, "skyfed", *Config.model_fields} and name.split(".")[-1] not in files
        if not (_is_setting(name) or _is_code(name) or _is_code(f"kit.Kit.{name.removeprefix('kit.')}"))
        if not re.search(rf"self\.{name.removeprefix('kit.')}\b", (ROOT / "src/skyfed/kit.py").read_text())
    ]
    assert gone == []


@pytest.mark.parametrize("name", [page.name for page in PAGES if page.name != "upgrade.md"])
def test_the_files_and_modules_that_a_page_names_are_there(name: str) -> None:
    """Also outside of code marks, and as paths: `src/skyfed/…`, `flight/planner.py`, skyfed.x.y."""
    text = next(page for page in PAGES if page.name == name).read_text()
    files = set(re.findall(r"(?<![\w./-])((?:\w+/)+\w+\.py)\b", text)) | set(re.findall(r"\bsrc/[\w/.]*\w", text))
    places = [ROOT, ROOT / "src", ROOT / "src/skyfed"]
    lost = [file for file in files - {"path/to/file.py"} if not any((place / file).exists() for place in places)]
    names = set(re.findall(r"(?<![\w./-])skyfed(?:\.[a-z]\w*)+(?:\.[A-Z]\w*)?(?![\w/-])", text))
    assert lost + [dotted for dotted in names if not _is_code(dotted)] == []
