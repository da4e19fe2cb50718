import numpy as np
import pytest

from flight_cases import case
from skyfed.errors import BadInputError
from skyfed.flight.problem import Problem, spread_imax, window_spans


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
