"""Every block of code on docs/constraint.md runs as the page says."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from in_process import program as run_program
from in_process import skyfed
from skyfed.config import load_config
from skyfed.flight import load_fleet_plan

PAGE = Path(__file__).parents[1] / "docs" / "constraint.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the files that the page tells to save; each block names its file in its first line."""
    for language, block in BLOCKS:
        named = re.match(r"# (\w+\.py)\n", block)
        if language == "python" and named:
            (tmp_path / named[1]).write_text(block)
    return tmp_path


def test_the_page_has_no_block_that_is_not_run() -> None:
    assert [language for language, _ in BLOCKS] == ["python", "sh", "toml", "python", "python", "python"]


def test_the_command_plans_east_of_the_line(place: Path) -> None:
    (command,) = [block for language, block in BLOCKS if language == "sh"]
    program, *words = shlex.split(command.replace("\\\n", " "))
    assert program == "skyfed"
    done = skyfed(place, *words)
    assert done.returncode == 0, done.stderr
    assert (load_fleet_plan(place / "east" / "plan.npz").positions[..., 0] >= -100).all()


def test_the_config_file_says_the_same(place: Path) -> None:
    (text,) = [block for language, block in BLOCKS if language == "toml"]
    assert tomllib.loads(text)["flight"]["constraints"] == [{"use": "curfew.py:KeepEast", "x": -100}]
    (place / "mine.toml").write_text(text)
    (spec,) = load_config(str(place / "mine.toml")).flight.constraints
    assert (spec.use, spec.settings) == (f"{place / 'curfew.py'}:KeepEast", {"x": -100})


def test_the_program_prints_what_its_comments_say(place: Path) -> None:
    (program,) = [block for language, block in BLOCKS if language == "python" and "print(" in block]
    (place / "program.py").write_text(program)
    note, violation = run_program(place, place / "program.py").splitlines()
    assert note == "KeepEast closes the disc of class 0"
    assert re.fullmatch(r"Range at round 5: flies \d+ m too far", violation)


def test_the_planner_of_ones_own_is_taken_for_what_it_declares(place: Path) -> None:
    program = (
        "import sys; sys.path.insert(0, '.')\n"
        "from dataclasses import replace\n"
        "from battery import Range\n"
        "from skyfed.flight import Problem, plan\n"
        "problem = Problem([[0, 0]], [40], [[1.0, 1.0]], [[2, 2]], constraints=[Range(metres=1000)])\n"
        "print(plan(problem, 'my_planner:short_flight').association.tolist())\n"
    )
    (place / "try_it.py").write_text(program)
    assert run_program(place, place / "try_it.py") == "[0, 0]\n"
