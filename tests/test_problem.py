import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flight_cases import case
from skyfed.config import load_config
from skyfed.errors import BadInputError
from skyfed.flight.problem import Problem, spread_imax, window_spans
from skyfed.pipeline import prepare


@pytest.mark.parametrize(
    ("classes", "rounds", "windows", "spans"),
    [
        (10, 25, "paper", [[9, 20], [19, 25]]),
        (10, 9, "paper", np.empty((0, 2))),
        (10, 10, "paper", [[9, 10]]),
        (1, 3, "paper", [[0, 2], [1, 3], [2, 3]]),
        (3, 1, "paper", np.empty((0, 2))),
        (3, 5, "rolling", [[0, 3], [1, 4], [2, 5]]),
        (5, 3, "rolling", [[0, 3]]),
    ],
)
def test_windows_by_hand(classes: int, rounds: int, windows: str, spans: list[list[int]]) -> None:
    np.testing.assert_array_equal(window_spans(classes, rounds, windows), spans)


def test_objective_by_hand() -> None:
    problem = Problem(
        np.array([[0.0, 0.0], [500.0, 500.0]]), np.ones(2), np.array([[0.7, 0.6], [0.3, 0.4]]), np.full((2, 1), 2)
    )
    assert problem.objective(np.array([0, 1])) == pytest.approx(np.log(0.7 + 1e-6) + np.log(0.4 + 1e-6))
    assert problem.objective(np.array([-1, -1])) == pytest.approx(2 * np.log(1e-6))


def test_imax_broadcasts_as_numpy_does() -> None:
    assert spread_imax(2, 3, 4, 5).shape == (3, 4, 5)
    assert spread_imax([[[1]], [[2]], [[3]]], 3, 4, 5)[2, 0, 0] == 3
    assert spread_imax([[1], [2], [3], [4]], 3, 4, 5)[0, 3, 4] == 4
    assert spread_imax([1, 2, 3, 4, 5], 3, 4, 5)[0, 0, 4] == 5
    for bad in ([1, 2], [[1, 2], [3]]):
        with pytest.raises(BadInputError, match=r"flight\.imax"):
            spread_imax(bad, 3, 4, 5)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"centres": np.zeros((2, 2))}, "centres"),
        ({"radii": np.array([1.0, -1.0, 1.0])}, "radii"),
        ({"radii": np.array([1.0, np.nan, 1.0])}, "radii"),
        ({"psi": -np.ones((3, 6))}, "psi"),
        ({"psi": np.empty((3, 0))}, "psi"),
        ({"imax": np.zeros((3, 9), int)}, "imax"),
        ({"dmin": -1.0}, "dmin"),
        ({"vmax": 1.0}, "vmax"),
        ({"epsilon": 0.0}, "epsilon"),
    ],
)
def test_an_impossible_problem_is_refused(change: dict, says: str) -> None:
    given = {key: getattr(case(0), key) for key in ("centres", "radii", "psi", "imax", "dmin", "vmax", "epsilon")}
    with pytest.raises(BadInputError, match=says):
        Problem(**{**given, **change})


@pytest.mark.parametrize(
    ("classes", "rounds", "windows", "spans"),
    [
        (1, 1, "paper", [[0, 1]]),
        (1, 3, "rolling", [[0, 1], [1, 2], [2, 3]]),
        (2, 2, "paper", [[1, 2]]),
        (10, 30, "paper", [[9, 20], [19, 30], [29, 30]]),
        (4, 4, "rolling", [[0, 4]]),
    ],
)
def test_windows_at_the_ends(classes: int, rounds: int, windows: str, spans: list[list[int]]) -> None:
    np.testing.assert_array_equal(window_spans(classes, rounds, windows), spans)


@given(st.integers(1, 12), st.integers(1, 60))
def test_windows_are_the_printed_ones(classes: int, rounds: int) -> None:
    printed = [[t, t + classes] for t in range(rounds) if (t + 1) % classes == 0]  # both ends inside
    spans = window_spans(classes, rounds, "paper")
    assert [[first, stop - 1] for first, stop in spans] == [[t, min(last, rounds - 1)] for t, last in printed]
    rolling = window_spans(classes, rounds, "rolling")
    assert {stop - first for first, stop in rolling} == {min(classes, rounds)}
    assert set(np.concatenate([np.arange(first, stop) for first, stop in rolling])) == set(range(rounds))


def test_collected_by_hand() -> None:
    psi = np.array([[0.7, 0.6, 0.5], [0.3, 0.4, 0.5]])
    problem = Problem(np.array([[0.0, 0.0], [500.0, 500.0]]), np.ones(2), psi, np.full((2, 1), 2))
    np.testing.assert_allclose(problem.collected(np.array([0, -1, 0])), [1.2, 0.0])
    np.testing.assert_allclose(problem.collected(np.array([1, 1, 1])), [0.0, 1.2])


def changed(**change: Any) -> Problem:
    given = {key: getattr(case(0), key) for key in ("centres", "radii", "psi", "imax", "dmin", "vmax", "epsilon")}
    return Problem(**{**given, **change})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"centres": np.full((3, 2), np.nan)}, "centres"),
        ({"centres": np.zeros((3, 3))}, "centres"),
        ({"radii": np.zeros(3)}, "radii"),
        ({"radii": np.array([1.0, np.inf, 1.0])}, "radii"),
        ({"radii": np.ones(2)}, "radii"),
        ({"psi": np.full((3, 6), np.nan)}, "psi"),
        ({"psi": np.full((3, 6), np.inf)}, "psi"),
        ({"psi": np.empty((0, 6))}, "psi"),
        ({"imax": np.zeros((2, 2), int)}, "imax"),
        ({"dmin": np.nan}, "dmin"),
        ({"vmax": 0.0}, "vmax"),
        ({"vmax": np.nan}, "vmax"),
        ({"epsilon": np.nan}, "epsilon"),
        ({"epsilon": -1.0}, "epsilon"),
    ],
)
def test_more_impossible_problems_are_refused(change: dict, says: str) -> None:
    with pytest.raises(BadInputError, match=says):
        changed(**change)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"psi": np.ones(6)}, "psi"),
        ({"imax": np.full((3, 2), -1)}, "imax"),
        ({"imax": np.full((3, 2), 1.5)}, "imax"),
        ({"dmin": np.inf, "vmax": np.inf}, "dmin"),
        ({"epsilon": np.inf}, "epsilon"),
        ({"windows": "weekly", "imax": np.full((3, 4), 2)}, "windows"),
        ({"decay_length": 0.0}, "decay_length"),
    ],
)
def test_what_a_script_could_pass_by_mistake_is_refused(change: dict, says: str) -> None:
    with pytest.raises(BadInputError, match=says):
        changed(**change)


def test_plain_lists_are_taken_for_arrays() -> None:
    problem = Problem([[0, 0], [500, 500]], [1, 1], [[0.7, 0.6], [0.3, 0.4]], [[2], [2]])
    assert problem.centres.dtype == problem.radii.dtype == np.float64
    assert problem.objective(np.array([0, 1])) == pytest.approx(np.log(0.7 + 1e-6) + np.log(0.4 + 1e-6))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"centres": [[0, 0], [1]]}, "centres is not an array of numbers"),
        ({"psi": "much"}, "psi is not an array of numbers"),
        ({"imax": [[1.5]]}, "imax must be whole numbers"),
        ({"imax": [["two"]]}, "imax must be whole numbers"),
        ({"imax": [[1], [2, 3]]}, "imax is not an array of numbers"),
        ({"constraints": ["no_fly.py:NoFly"]}, "constraints must be objects"),
    ],
)
def test_what_is_no_array_is_refused_in_one_line(change: dict, says: str) -> None:
    with pytest.raises(BadInputError, match=f"^flight problem: {says}"):
        changed(**change)


# flights that could not stay in the region


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["flight.dmin=2000"], "flight.dmin = 2000: no two points of the region of 1000 x 1000 m are so far apart"),
        (["flight.dmin=2000"], "allowed: at most 1414, or a larger field.region"),
        (["field.region=[10,10]"], "field.region: no point of the 10 x 10 m lies over a single disc"),
        (["field.region=[10,10]", "field.radii=[400,500]", "flight.field='true'"], "smaller field.radii or field.zeta"),
    ],
)
def test_a_mission_that_leaves_the_region_is_refused(settings: list[str], says: str) -> None:
    with pytest.raises(BadInputError, match=re.escape(says)):
        prepare(load_config("smoke", ["flight.vmax=unlimited", *settings]))


@pytest.mark.parametrize(
    "settings",
    [
        ["flight.dmin=1400"],
        ["field.region=[10,10]", "field.radii=[0.5,1]", "rounds=3"],
        ["rounds=1", "flight.dmin=2000"],
        ["field.classes=1", "field.region=[10,10]"],
    ],
)
def test_a_mission_that_can_stay_in_the_region_is_prepared(settings: list[str]) -> None:
    assert prepare(load_config("smoke", ["flight.vmax=unlimited", *settings])).problems


def test_a_survey_far_away_widens_the_region(tmp_path: Path) -> None:
    rows = [f"{c},{5000 + 900 * c},{4000 * (c % 2)},40" for c in range(10)]
    (tmp_path / "far.csv").write_text("\n".join(["class,x,y,deviation", *rows]))
    assert prepare(
        load_config("smoke", [f"field.file={tmp_path / 'far.csv'}", "flight.dmin=2000", "flight.vmax=unlimited"])
    ).problems
