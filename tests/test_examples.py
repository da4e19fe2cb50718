"""Every example runs as its own words say."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

import in_process
from skyfed.algorithms import Row, find_class
from skyfed.flight import load_fleet_plan
from skyfed.runs.tables import read_parquet

EXAMPLES = Path(__file__).parents[1] / "examples"
TINY = ("rounds=4", "vehicles=2", "workers=1", "model.width=4", "eval_every=2", "flight.method=greedy")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A copy of the examples, where they may write."""
    return Path(shutil.copytree(EXAMPLES, tmp_path / "examples"))


def python(place: Path, *arguments: str) -> str:
    """Run a program as a user does."""
    environment = {**os.environ, "SKYFED_DATA": str(place / "data")}
    done = subprocess.run([sys.executable, *arguments], cwd=place, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def program(place: Path, name: str, *arguments: str) -> str:
    """Run an example in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SKYFED_DATA", str(place / "data"))
        return in_process.program(place, place / name, *arguments)


def skyfed(place: Path, *arguments: str, settings: tuple[str, ...] = TINY) -> str:
    chosen = [word for setting in settings for word in ("--set", setting)]
    done = in_process.skyfed(place, *arguments, "--plain", *chosen)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_example_is_longer_than_a_hundred_lines() -> None:
    assert all(len(path.read_text().splitlines()) < 100 for path in EXAMPLES.glob("*.py"))


def test_methods_of_one_file_run_side_by_side_by_their_paths(place: Path) -> None:
    uses = ["fedprox.py:FedProx", "topk_error_feedback.py:TopK", "clustered.py:Clustered"]
    settings = (*TINY, f"algorithms={['2ceoafl', *uses]}".replace("'", '"'))
    said = skyfed(place, "run", "smoke", "--out", "run", settings=settings)
    assert "FedProx" in said
    assert "Clustered" in said
    assert sorted(path.name for path in (place / "run" / "Clustered" / "models").iterdir()) == [
        "cluster 0.safetensors", "cluster 1.safetensors"
    ]  # fmt: skip
    assert all(0 < row["left_out"] < 1 for row in read_parquet(place / "run" / "TopK" / "uplink.parquet"))


def test_radio_signals_with_several_labels_are_learnt(place: Path) -> None:
    task = ("data.name=radio_task.py:load", "model.name=cnn", "field.classes=4", 'algorithms=["sgd", "2ceoafl"]')
    skyfed(place, "run", "smoke", "--out", "run", settings=(*TINY, *task, "rounds=12", "model.width=16"))
    rounds = read_parquet(place / "run" / "sgd" / "rounds.parquet")
    assert rounds[-1]["accuracy_full"] > 0.6  # a coin gives 0.5
    assert 0 <= rounds[-1]["all_right"] <= rounds[-1]["accuracy_full"]
    assert "harbour" in in_process.skyfed(place, "evaluate", "run").stdout


def test_a_camera_world_brings_what_lies_in_a_folder(place: Path) -> None:
    for label in range(10):
        (place / "camera" / "vehicle-1" / str(label)).mkdir(parents=True)
        for k in range(2):
            Image.new("RGB", (8, 8), (25 * label, 60 * k, 0)).save(place / "camera" / "vehicle-1" / f"{label}/{k}.png")
    settings = (*TINY, "world.use=camera_world.py:CameraWorld", 'algorithms=["sgd", "afl"]')
    skyfed(place, "run", "smoke", "--out", "run", settings=settings)
    held = {row["samples"] for row in read_parquet(place / "run" / "afl" / "uplink.parquet") if row["vehicle"] == 1}
    assert held == {20}


def test_every_example_is_tested() -> None:
    here = Path(__file__).read_text() + (Path(__file__).parent / "test_notebook.py").read_text()
    assert all(path.stem in here for path in EXAMPLES.iterdir() if path.suffix in (".py", ".ipynb"))


def test_an_algorithm_of_ones_own_runs_beside_the_others(place: Path) -> None:
    settings = (*TINY, 'algorithms=["afl", "own_algorithm:AFLCoin"]', "vehicles=3", "workers=2")
    assert "AFL-Coin" in skyfed(place, "run", "smoke", "--out", "run", settings=settings)
    rows = read_parquet(place / "run" / "AFLCoin" / "uplink.parquet")
    assert len(rows) == 12
    assert {row["quantised"] for row in rows} == {True, False}


def test_known_rows_are_found_by_name() -> None:
    assert find_class(Row(use="2ceoafl")).title == "2CEOAFL"


def test_a_model_of_ones_own_is_trained(place: Path) -> None:
    assert program(place, "own_model.py") == "6,346 weights\n"
    skyfed(
        place, "run", "smoke", "--out", "run", settings=(*TINY, "model.name=own_model:build", 'algorithms=["2ceoafl"]')
    )
    assert {row["kept"] for row in read_parquet(place / "run/2ceoafl/uplink.parquet")} <= set(range(6347))


def test_a_planner_of_ones_own_plans_a_fleet(place: Path) -> None:
    settings = ("rounds=20", "vehicles=3", "workers=2", "flight.vmax=unlimited", "flight.method=own_planner:patrol")
    assert "Flights: own_planner:patrol" in skyfed(place, "plan", "smoke", "--out", "run", settings=settings)
    fleet = load_fleet_plan(place / "run" / "plan.npz")
    assert set(fleet.note) == {""}
    assert (fleet.association == [t % 10 for t in range(20)]).mean() > 0.9


def test_flights_keep_out_of_a_no_fly_polygon(place: Path) -> None:
    """As no_fly.py says in its first lines; tests/test_constraints.py checks the geometry."""
    settings = (
        "rounds=12", "vehicles=2", "workers=2", "flight.method=greedy",
        'flight.constraints=[{use="no_fly.py:NoFly", polygon=[[-50,-400],[50,-400],[0,400]]}]',
    )  # fmt: skip
    assert "Flights: greedy" in skyfed(place, "plan", "smoke", "--out", "detour", settings=settings)
    fleet = load_fleet_plan(place / "detour" / "plan.npz")
    assert str(place / "no_fly.py") in str(fleet.constraints[0])


def test_a_planner_that_is_not_there_leaves_no_folder(place: Path) -> None:
    command = [sys.executable, "-m", "skyfed", "plan", "smoke", "--set", "flight.method=nowhere:solve", "--out", "run"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True)
    assert (done.returncode, (place / "run").exists()) == (2, False)
    assert "flight.method = 'nowhere:solve': ModuleNotFoundError" in done.stderr


def test_pictures_of_ones_own_are_learnt(place: Path) -> None:
    assert program(place, "own_data.py").endswith(" % right\n1 pictures, 100 % right\n")


def test_two_settings_are_compared(place: Path) -> None:
    lines = program(place, "compare_settings.py").splitlines()
    assert [line.rsplit(None, 5)[0] for line in lines[-2:]] == ["seven levels", "one level"]
    assert "one level" in program(place, "compare_settings.py")  # nothing is run again
    sent = [float(line.split()[-3]) for line in lines[-2:]]
    assert sent[0] > sent[1]


def test_results_become_a_figure(place: Path) -> None:
    skyfed(place, "run", "smoke", "--out", "mine", settings=(*TINY, 'algorithms=["sgd", "afl", "2ceoafl"]'))
    assert [line.split()[0] for line in program(place, "read_results.py", "mine").splitlines()[1:3]] == [
        "2ceoafl",
        "afl",
    ]
    with Image.open(place / "mine" / "own-figure.png") as figure:
        assert figure.width == 750


def test_flights_are_planned_in_several_ways(place: Path) -> None:
    lines = program(place, "plan_only.py").splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["exact", "sca", "greedy", "random", "hover", "exact,"]
    assert len((place / "waypoints.csv").read_text().splitlines()) == 25
