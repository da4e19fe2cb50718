"""Every example runs as its own words say."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from skyfed.algorithms import find_recipe
from skyfed.flight import load_fleet_plan
from skyfed.runs.store import read_parquet

EXAMPLES = Path(__file__).parents[1] / "examples"
TINY = ("rounds=4", "vehicles=2", "workers=1", "model.width=4", "eval_every=2")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A copy of the examples, where they may write."""
    return Path(shutil.copytree(EXAMPLES, tmp_path / "examples"))


def python(place: Path, *arguments: str) -> str:
    environment = {**os.environ, "SKYFED_DATA": str(place / "data")}
    done = subprocess.run([sys.executable, *arguments], cwd=place, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def skyfed(place: Path, *arguments: str, settings: tuple[str, ...] = TINY) -> str:
    chosen = [word for setting in settings for word in ("--set", setting)]
    return python(place, "-m", "skyfed", *arguments, "--plain", *chosen)


def test_no_example_is_longer_than_sixty_lines() -> None:
    assert all(len(path.read_text().splitlines()) <= 60 for path in EXAMPLES.glob("*.py"))


def test_every_example_is_tested() -> None:
    here = Path(__file__).read_text() + (Path(__file__).parent / "test_notebook.py").read_text()
    assert all(path.stem in here for path in EXAMPLES.iterdir() if path.suffix in (".py", ".ipynb"))


def test_an_algorithm_of_ones_own_runs_beside_the_others(place: Path) -> None:
    settings = ('algorithms=["afl", "own_algorithm:AFL_COIN"]', "rounds=4", "vehicles=3", "workers=2", "model.width=4")
    assert "AFL-Coin" in skyfed(place, "run", "smoke", "--out", "run", settings=settings)
    rows = read_parquet(place / "run" / "own_algorithm:AFL_COIN" / "uplink.parquet")
    assert len(rows) == 12
    assert {row["quantised"] for row in rows} == {True, False}


def test_known_rows_are_found_by_name() -> None:
    assert find_recipe("2ceoafl").title == "2CEOAFL"


def test_a_model_of_ones_own_is_trained(place: Path) -> None:
    assert python(place, "own_model.py") == "6,346 weights\n"
    skyfed(
        place, "run", "smoke", "--out", "run", settings=(*TINY, "model.name=own_model:build", 'algorithms=["2ceoafl"]')
    )
    assert {row["kept"] for row in read_parquet(place / "run/2ceoafl/uplink.parquet")} <= set(range(6347))


def test_a_planner_of_ones_own_plans_a_fleet(place: Path) -> None:
    settings = ("rounds=20", "vehicles=3", "workers=2", "flight.method=own_planner:patrol")
    assert "Flights: own_planner:patrol" in skyfed(place, "plan", "smoke", "--out", "run", settings=settings)
    fleet = load_fleet_plan(place / "run" / "plan.npz")
    assert set(fleet.note) == {""}
    assert (fleet.association == [t % 10 for t in range(20)]).mean() > 0.9


def test_a_planner_that_is_not_there_leaves_no_folder(place: Path) -> None:
    command = [sys.executable, "-m", "skyfed", "plan", "smoke", "--set", "flight.method=nowhere:solve", "--out", "run"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True)
    assert (done.returncode, (place / "run").exists()) == (2, False)
    assert "flight.method = 'nowhere:solve': ModuleNotFoundError" in done.stderr


def test_pictures_of_ones_own_are_learnt(place: Path) -> None:
    assert python(place, "own_data.py").endswith(" % right\n1 pictures, 100 % right\n")


def test_two_settings_are_compared(place: Path) -> None:
    lines = python(place, "compare_settings.py").splitlines()
    assert [line.rsplit(None, 5)[0] for line in lines[-2:]] == ["seven levels", "one level"]
    assert "one level" in python(place, "compare_settings.py")  # nothing is run again
    sent = [float(line.split()[-3]) for line in lines[-2:]]
    assert sent[0] > sent[1]


def test_results_become_a_figure(place: Path) -> None:
    skyfed(place, "run", "smoke", "--out", "mine", settings=(*TINY, 'algorithms=["sgd", "afl", "2ceoafl"]'))
    assert [line.split()[0] for line in python(place, "read_results.py", "mine").splitlines()[1:3]] == [
        "2ceoafl",
        "afl",
    ]
    with Image.open(place / "mine" / "own-figure.png") as figure:
        assert figure.width == 750


def test_flights_are_planned_in_several_ways(place: Path) -> None:
    lines = python(place, "plan_only.py").splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["exact", "sca", "greedy", "random", "hover", "exact,"]
    assert len((place / "waypoints.csv").read_text().splitlines()) == 25
