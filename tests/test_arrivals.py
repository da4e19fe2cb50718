"""How many samples: Eq. 6 worked by hand, the initial set, and what must hold for every flight."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from skyfed.world import initial_counts, new_counts


def over_one_disc(distance: float, psi: float, n_max: int, decay_length: float, radius: float = 60.0) -> int:
    """Samples of a round spent `distance` metres east of the centre of a single disc."""
    counts = new_counts(
        np.array([[distance, 0.0]]), np.array([[psi]]), np.zeros((1, 2)), np.array([radius]), n_max, decay_length
    )
    assert counts.shape == (1, 1)
    assert counts.dtype == np.int64
    return int(counts[0, 0])


# Eq. 6 by hand


@pytest.mark.parametrize(
    ("distance", "psi", "decay_length", "expected"),
    [
        (0.0, 0.25, 50.0, 105),  # 420 * 0.25 = 105: no rounding
        (0.0, 0.1, 50.0, 42),  # 420 * 0.1 is a little above 42 in floats; the ceiling must not see that
        (50.0, 0.25, 50.0, 39),  # 105 / e = 38.63
        (25.0, 0.25, 50.0, 64),  # 105 * exp(-0.5) = 63.69
        (3.0, 0.25, 1.0, 6),  # the paper's exp(-metres): 105 * exp(-3) = 5.23
        (4.7, 0.25, 1.0, 1),  # 105 * exp(-4.7) = 0.955
        (0.0, 1.0, 1.0, 420),
    ],
)
def test_samples_over_one_disc_by_hand(distance, psi, decay_length, expected):
    assert over_one_disc(distance, psi, 420, decay_length) == expected


@pytest.mark.parametrize("distance", [10.0, 20.0, 24.0, 25.0, 30.0, 45.0, 59.0])
def test_the_ceiling_gives_one_sample_a_visit_however_far_from_the_centre(distance):
    """exp(-metres) all but vanishes tens of metres out, but it stays above zero, and so does its ceiling."""
    assert over_one_disc(distance, 0.1, 420, 1.0) == 1


def test_a_share_near_the_smallest_float_still_counts_as_one():
    assert over_one_disc(35.9, 0.1, 420, 0.05) == 1  # 42 * exp(-718) = 1e-310
    assert over_one_disc(59.0, 0.1, 420, 0.05) == 0  # exp(-1180) is nothing in floats


def test_distance_is_euclidean():
    counts = new_counts(
        np.array([[33.0, 44.0]]), np.array([[0.25]]), np.array([[3.0, 4.0]]), np.array([60.0]), 420, 50.0
    )
    assert counts.tolist() == [[39]]  # 30 and 40 metres off: 50 in all


def test_the_rim_is_inside_and_beyond_it_nothing_is_sensed():
    assert over_one_disc(60.0, 0.5, 420, 50.0) == math.ceil(210 * math.exp(-1.2))
    assert over_one_disc(60.001, 0.5, 420, 50.0) == 0


def test_nothing_is_sensed_where_n_max_is_zero():
    assert over_one_disc(0.0, 0.5, 0, 50.0) == 0


def test_each_round_counts_for_the_disc_it_is_over():
    centres = np.array([[0.0, 0.0], [500.0, 0.0]])
    positions = np.array([[0.0, 0.0], [500.0, 50.0], [250.0, 0.0]])
    psi = np.array([[0.5, 0.9, 0.5], [0.5, 0.1, 0.5]])
    counts = new_counts(positions, psi, centres, np.array([60.0, 60.0]), 100, 50.0)
    assert counts.tolist() == [[50, 0, 0], [0, 4, 0]]  # 100 * 0.1 / e = 3.68


# overlapping discs


def test_where_discs_overlap_the_ceiling_is_of_the_sum_and_the_shares_are_in_proportion():
    centres = np.array([[0.0, 0.0], [0.0, 0.0]])
    psi = np.array([[0.105], [0.206]])
    counts = new_counts(np.zeros((1, 2)), psi, centres, np.array([10.0, 10.0]), 100, 50.0)
    # 10.5 + 20.6 = 31.1 -> 32 in all (not 11 + 21 by themselves); 10.80 and 21.20 of 32
    assert counts[:, 0].tolist() == [11, 21]


def test_the_largest_remainder_gets_the_odd_sample():
    psi = np.array([[0.014], [0.014], [0.013]])
    counts = new_counts(np.zeros((1, 2)), psi, np.zeros((3, 2)), np.full(3, 10.0), 100, 50.0)
    assert counts[:, 0].tolist() == [2, 2, 1]  # 4.1 -> 5: 1.71, 1.71, 1.59


def test_a_tie_goes_to_the_first_class():
    psi = np.array([[0.015], [0.015]])
    counts = new_counts(np.zeros((1, 2)), psi, np.zeros((2, 2)), np.full(2, 10.0), 100, 50.0)
    assert counts[:, 0].tolist() == [2, 1]


# the initial set


def test_initial_counts_by_hand():
    psi = np.array([[0.2, 0.4], [0.8, 0.6]])  # means 0.3 and 0.7
    assert initial_counts(psi, 512).tolist() == [154, 359]  # 153.6 and 358.4
    assert initial_counts(psi, 10).tolist() == [3, 7]


def test_initial_counts_do_not_grow_by_float_noise():
    psi = np.full((10, 7), 0.1)  # its mean is 0.1 up to an ulp
    assert initial_counts(psi, 500).tolist() == [50] * 10


# every flight


@st.composite
def flights(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    classes, rounds = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    place = st.floats(-60, 60)
    positions = draw(arrays.arrays(np.float64, (rounds, 2), elements=place))
    centres = draw(arrays.arrays(np.float64, (classes, 2), elements=place))
    radii = draw(arrays.arrays(np.float64, classes, elements=st.floats(1, 90)))
    psi = draw(arrays.arrays(np.float64, (classes, rounds), elements=st.floats(1e-3, 1)))
    return positions, psi / psi.sum(axis=0), centres, radii


@settings(max_examples=200, deadline=None)
@given(flights(), st.integers(0, 500), st.sampled_from([1.0, 7.0, 50.0, 1e4]))
def test_every_round_brings_the_ceiling_of_the_sum(flight, n_max, decay_length):
    positions, psi, centres, radii = flight
    counts = new_counts(positions, psi, centres, radii, n_max, decay_length)
    assert counts.shape == psi.shape
    assert (counts >= 0).all()
    for t in range(len(positions)):
        part = []
        for c in range(len(centres)):
            distance = math.dist(positions[t], centres[c])
            over = distance <= radii[c] + 1e-9
            part.append(n_max * psi[c, t] * math.exp(-distance / decay_length) if over else 0.0)
            if not over:
                assert counts[c, t] == 0
        total = math.fsum(part)
        noise = 1e-11  # relative; floats may be that far off a whole number
        assert math.ceil(total * (1 - noise)) <= counts[:, t].sum() <= math.ceil(total * (1 + noise))
        if total:
            share = np.array(part) / total * counts[:, t].sum()
            assert (np.abs(counts[:, t] - share) < 1 + 1e-6).all()
