import subprocess
import sys
from pathlib import Path

from skyfed.algorithms import find_recipe
from skyfed.runs.store import read_parquet

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_no_example_is_longer_than_sixty_lines() -> None:
    assert all(len(path.read_text().splitlines()) <= 60 for path in EXAMPLES.glob("*.py"))


def test_an_algorithm_of_ones_own_runs_beside_the_others(tmp_path: Path) -> None:
    settings = ['algorithms=["afl", "own_algorithm:AFL_COIN"]', "rounds=4", "vehicles=3", "workers=2", "model.width=4"]
    command = [sys.executable, "-m", "skyfed.cli", "run", "smoke", "--plain", "--out", str(tmp_path / "run")]
    for setting in settings:
        command += ["--set", setting]
    done = subprocess.run(command, cwd=EXAMPLES, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "AFL-Coin" in done.stdout
    rows = read_parquet(tmp_path / "run" / "own_algorithm:AFL_COIN" / "uplink.parquet")
    assert len(rows) == 12
    assert {row["quantised"] for row in rows} == {True, False}


def test_known_rows_are_found_by_name() -> None:
    assert find_recipe("2ceoafl").title == "2CEOAFL"
