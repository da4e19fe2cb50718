"""Robust aggregation by hand: medians and trimming that know of masks, and clipping."""

import numpy as np
import pytest

from learning_cases import common, raw_update
from skyfed.robust import Opinion, combine
from skyfed.server import Aggregate


def opinion(values: list[float], mask: list[bool] | None = None, weight: float = 1.0, buffers: tuple[float, ...] = ()):
    places = None if mask is None else np.array(mask)
    return Opinion(np.array(values, np.float32), places, np.array(buffers, np.float32), weight)


def rows(*values: list[float]) -> list[Opinion]:
    return [opinion(row) for row in values]


def test_the_median_is_each_entrys_own():
    down, _ = combine("median", rows([1, 5], [2, -9], [90, 4]), 2, 0)
    assert down.tolist() == [2, 4]
    assert combine("median", rows([1, 5], [3, 7]), 2, 0)[0].tolist() == [2, 6]


def test_trimming_leaves_out_the_ends():
    found = combine("trimmed", rows([-100], [1], [2], [3], [1000]), 1, 0.2)[0]
    assert found.tolist() == [2]
    assert combine("trimmed", rows([1], [2], [6]), 1, 0.0)[0].tolist() == [3]


def test_pruned_entries_are_no_zeros_but_weigh_less():
    """Two of three kept the first entry: its median is theirs, and counts two thirds."""
    three = [opinion([3, 1]), opinion([5, 1]), opinion([1], [False, True])]
    assert combine("median", three, 2, 0)[0] == pytest.approx([4 * 2 / 3, 1])
    assert combine("trimmed", three, 2, 0.0)[0] == pytest.approx([8 / 3, 1])  # the mean of Eq. 13


def test_an_entry_that_nobody_kept_stays():
    nobody = [opinion([1], [False, True]), opinion([3], [False, True]), opinion([2], [False, True])]
    assert combine("median", nobody, 2, 0)[0].tolist() == [0, 2]


def test_clipping_takes_long_ones_down_to_the_median_length():
    down, _ = combine("clip", rows([3, 4], [0, 5], [300, 400]), 2, 0)
    assert down == pytest.approx([2, 13 / 3])


def test_buffers_follow_and_weights_count():
    weighted = [opinion([1], weight=3, buffers=(1,)), opinion([5], weight=1, buffers=(5,))]
    assert combine("clip", weighted, 1, 0)[1].tolist() == [2]
    assert combine("trimmed", weighted, 1, 0)[1].tolist() == [2]
    assert combine("median", weighted, 1, 0)[1].tolist() == [3]


@pytest.mark.parametrize("how", ["clip", "trimmed", "median"])
def test_the_server_steps_by_it(how):
    server = Aggregate(common(3, 1), how=how, trim=0.25)
    sent = np.array([1.0, 2.0, 3.0])
    for _ in range(4):
        server.add(raw_update(sent, None, [2.0]), 1.0)
    weights, buffers = server.step(np.zeros(3, np.float32), 0.5)
    assert weights.tolist() == [-0.5, -1.0, -1.5]
    assert buffers.tolist() == [2.0]
