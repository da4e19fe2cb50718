"""What the pages show must be what the code and the results give."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from skyfed.bench.row import to_markdown
from skyfed.report.reproduction import fill, tables
from skyfed.report.settings import settings_page

ROOT = Path(__file__).parents[1]


def test_the_page_of_settings_is_fresh() -> None:
    assert (ROOT / "docs/config.md").read_text() == settings_page()


@pytest.mark.parametrize("name", ["planner", "wire", "engine"])
def test_the_figures_are_those_of_the_recorded_run(name: str) -> None:
    page = (ROOT / f"docs/{name}.md").read_text()
    shown = re.search(r"<!-- figures.*?-->\n(.*?)\n<!-- end of figures -->", page, re.DOTALL)
    assert shown
    assert shown.group(1) == to_markdown(json.loads((ROOT / f"results/bench-{name}.json").read_text()))


def test_the_reproduction_is_what_its_results_give() -> None:
    page = (ROOT / "docs/reproduction.md").read_text()
    assert page == fill(page, tables(ROOT / "results/reproduction"))


def test_the_readmes_python_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_every_local_link_leads_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_test_file_the_paper_page_names_exists() -> None:
    named = set(re.findall(r"`(tests/[a-z_]+\.py)`", (ROOT / "docs/paper.md").read_text()))
    assert named
    assert all((ROOT / name).exists() for name in named), named
