"""Errors that vanish with the learning rates and one that does not, on quadratic losses."""

from pathlib import Path

import numpy as np
import pytest

from reproduce.floor import RATES, Errors, one_at_a_time, settle
from reproduce.results import FLOOR, read_results

RESULTS = Path(__file__).parents[1] / "results/reproduction"

HESSIAN = np.array([[[1.0, 0.5], [0.5, 1.0]]])


def test_a_pruned_weight_leaves_its_pull_by_hand():
    """One vehicle, centre (2, 1), the smaller weight always pruned and so never moved from 1.

    Without it the other settles at 2 + 0.5 * 1, where w (not pruned) has the gradient 0.5 in that direction.
    """
    found = settle(Errors(HESSIAN, np.array([[2.0, 1.0]]), delta=(0.5, 0.5)), 0.5, copies=1)
    assert found == pytest.approx(0.25, rel=1e-2)


def test_nothing_is_left_without_an_error():
    assert settle(Errors(HESSIAN, np.array([[2.0, 1.0]])), 0.5) == pytest.approx(0.0, abs=1e-20)


def test_noise_by_hand():
    """One weight, one vehicle: w' = a w + noise has a variance known in closed form; the quantiser multiplies it."""
    noise, kappa, rate = 2.0, 5, 0.5 / 20
    one = Errors(np.ones((1, 1, 1)), np.zeros((1, 1)), noise=noise)
    a = (1 - rate) ** kappa
    fresh = rate**2 * noise * sum((1 - rate) ** (2 * k) for k in range(kappa))
    assert settle(one, 0.5, copies=2000) == pytest.approx(fresh / (1 - a**2), rel=0.02)


@pytest.mark.parametrize(
    ("error", "left"), [("gradient noise x quantisation", 0.1), ("dissimilarity", 0.01), ("pruning", 1.0)]
)
def test_errors_shrink_with_the_rate_or_its_square_or_not_at_all(error, left):
    problem = one_at_a_time()[error]
    assert settle(problem, RATES[1]) / settle(problem, RATES[0]) == pytest.approx(left, rel=0.2)


def test_the_recorded_ones_are_these():
    recorded = {(row["error"], row["share"]): row["gradient2"] for row in read_results(RESULTS)[FLOOR]}
    assert recorded.keys() == {(error, share) for error in one_at_a_time() for share in RATES}
    for error, problem in one_at_a_time().items():
        assert settle(problem, RATES[0]) == pytest.approx(recorded[error, RATES[0]], rel=1e-6)
