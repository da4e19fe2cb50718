"""The ground station: Eq. 13 by hand, masks, weights of the vehicles, who is present, buffers."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learning_cases import common, raw_update, tiny_config
from skyfed.config import load_config
from skyfed.errors import BadInputError
from skyfed.records import Quantised, Update
from skyfed.server import Aggregate, ServerSettings, alphas, broadcast_bytes
from skyfed.wire import Common, DecodeError, encode_model

STARTS = [0, 2, 3]


def aggregate(size: int = 3, buffers: int = 0) -> Aggregate:
    return Aggregate(common(size, buffers, STARTS if size == 3 else ()))


def quantised(levels: list[int], norms: list[float], s: int, bucket: int, mask: np.ndarray | None = None) -> Update:
    size = len(levels) if mask is None else len(mask)
    body = Quantised("qsgd", np.array(levels, np.int8), np.array(norms, np.float32), s, bucket)
    return Update(0, 0, size, mask, body, np.empty(0, np.float32))


# Eq. 13


def test_the_step_by_hand():
    """w - eta * (d_0 + d_1) / 2."""
    server = aggregate()
    server.add(raw_update(np.array([1.0, 2.0, 3.0])), 1.0)
    server.add(raw_update(np.array([3.0, -2.0, 1.0])), 1.0)
    weights, _ = server.step(np.array([1.0, 1.0, 1.0], np.float32), 0.5)
    assert weights.dtype == np.float32
    assert weights.tolist() == [0.0, 1.0, 0.0]


def test_entries_that_a_vehicle_pruned_count_as_zero():
    """The sum is over all vehicles; who pruned an entry sends nothing for it but still weighs."""
    server = aggregate()
    server.add(raw_update(np.array([4.0, 8.0]), np.array([True, False, True])), 1.0)
    server.add(raw_update(np.array([2.0, 2.0, 2.0])), 1.0)
    weights, _ = server.step(np.zeros(3, np.float32), 1.0)
    assert weights.tolist() == [-3.0, -1.0, -5.0]


def test_quantised_uploads_are_taken_at_norm_times_level_over_s():
    server = aggregate()
    server.add(quantised([1, -2, 4], [8.0], 4, 0), 1.0)
    assert server.step(np.zeros(3, np.float32), 1.0)[0].tolist() == [-2.0, 4.0, -8.0]
    server = aggregate()
    server.add(quantised([1, -2, 4], [8.0, 1.0], 4, -1), 1.0)  # a norm for each tensor: entries 0-1 and 2
    assert server.step(np.zeros(3, np.float32), 1.0)[0].tolist() == [-2.0, 4.0, -1.0]
    server = aggregate()
    server.add(quantised([1, 4], [8.0, 1.0], 4, -1, np.array([False, True, True])), 1.0)
    assert server.step(np.zeros(3, np.float32), 1.0)[0].tolist() == [0.0, -2.0, -1.0]


def test_weights_are_rescaled_to_those_who_are_present():
    server = aggregate(1)
    server.add(raw_update(np.array([1.0])), 0.2)
    server.add(raw_update(np.array([5.0])), 0.6)  # the third, of weight 0.2, is missing
    assert server.total == pytest.approx(0.8)
    assert server.step(np.zeros(1, np.float32), 1.0)[0] == pytest.approx([-(0.2 * 1 + 0.6 * 5) / 0.8])


def test_a_scale_common_to_all_weights_changes_nothing():
    results = []
    for scale in (1.0, 1e-6, 12345.0):
        server = aggregate(2, 1)
        server.add(raw_update(np.array([1.0, -3.0]), buffers=[2.0]), 0.3 * scale)
        server.add(raw_update(np.array([0.5, 9.0]), buffers=[4.0]), 0.7 * scale)
        results.append(np.concatenate(server.step(np.ones(2, np.float32), 0.1)))
    assert results[1] == pytest.approx(results[0], rel=1e-6)
    assert results[2] == pytest.approx(results[0], rel=1e-6)


def test_buffers_are_averaged_with_the_same_weights():
    server = aggregate(1, 2)
    server.add(raw_update(np.zeros(1), buffers=[1.0, 10.0]), 1.0)
    server.add(raw_update(np.zeros(1), buffers=[5.0, 50.0]), 3.0)
    weights, buffers = server.step(np.full(1, 7.0, np.float32), 0.1)
    assert weights.tolist() == [7.0]
    assert buffers.dtype == np.float32
    assert buffers.tolist() == [4.0, 40.0]


def test_the_sum_is_kept_in_double_precision():
    """A float32 sum would lose the small upload between the two large ones."""
    server = aggregate(1)
    for value in (1e8, 1.0, -1e8):
        server.add(raw_update(np.array([value])), 1.0)
    assert server.step(np.zeros(1, np.float32), 3.0)[0].tolist() == [-1.0]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_the_step_is_the_double_sum_in_the_order_of_the_vehicles(seed, vehicles):
    rng = np.random.default_rng(seed)
    size = 17
    server = Aggregate(common(size, 3))
    total, moved, kept = 0.0, np.zeros(size), np.zeros(3)
    for _ in range(vehicles):
        mask = rng.random(size) < 0.6 if rng.random() < 0.5 else None
        count = size if mask is None else int(mask.sum())
        values = (rng.normal(size=count) * 10.0 ** rng.integers(-8, 8, count)).astype(np.float32)
        buffers, weight = rng.normal(size=3).astype(np.float32), float(rng.uniform(0.1, 2))
        server.add(raw_update(values, mask, buffers), weight)
        dense = np.zeros(size)
        dense[slice(None) if mask is None else mask] = values
        total, moved, kept = total + weight, moved + weight * dense, kept + weight * buffers.astype(np.float64)
    start = rng.normal(size=size).astype(np.float32)
    weights, buffers = server.step(start, 0.1)
    assert weights.tobytes() == (start.astype(np.float64) - (0.1 / total) * moved).astype(np.float32).tobytes()
    assert buffers.tobytes() == (kept / total).astype(np.float32).tobytes()


# weights of the vehicles


def test_uniform_weights_are_equal():
    assert len(set(alphas(ServerSettings(), 4, np.array([1, 2, 3, 4])).tolist())) == 1


def test_weights_by_data_size_are_in_proportion():
    found = alphas(ServerSettings(alpha="data"), 3, np.array([10, 30, 60]))
    assert (found / found.sum()).tolist() == pytest.approx([0.1, 0.3, 0.6])


def test_weights_of_ones_own_are_taken_as_they_are():
    assert alphas(ServerSettings(alpha=[0.5, 0.0, 2.0]), 3, np.ones(3, np.int64)).tolist() == [0.5, 0.0, 2.0]


@pytest.mark.parametrize(
    "alpha", ["[1.0, 1.0]", "[1.0, 1.0, 1.0, 1.0]", "[]", "[0.0, 0.0, 0.0]", "[-1.0, 1.0, 1.0]", "[nan, 1, 1]", "best"]
)
def test_weights_that_cannot_be_are_refused_before_anything_is_trained(alpha):
    with pytest.raises(BadInputError) as caught:
        load_config("smoke", ["vehicles=3", f"server.alpha={alpha}"])
    assert "server.alpha" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert tiny_config("server.alpha=[0.0, 1.0, 2]").server.alpha == [0.0, 1.0, 2.0]


def test_a_second_upload_of_a_vehicle_is_refused():
    server = aggregate()
    server.add(raw_update(np.ones(3), vehicle=4), 1.0)
    with pytest.raises(DecodeError, match="vehicle 4 has already sent"):
        server.add(raw_update(np.ones(3), vehicle=4), 1.0)
    server.add(raw_update(np.ones(3), vehicle=5), 1.0)


def test_long_uploads_are_clipped_and_short_ones_are_not():
    server = Aggregate(common(2), clip=5.0)
    server.add(raw_update(np.array([30.0, 40.0])), 1.0)
    server.add(raw_update(np.array([0.0, 1.0]), vehicle=1), 1.0)
    assert server.step(np.zeros(2, np.float32), 2.0)[0] == pytest.approx([-3.0, -5.0])


def test_entries_that_do_not_travel_stay():
    server = Aggregate(common(2), live=(slice(1, 2), slice(3, 4)))
    server.add(raw_update(np.array([1.0, 2.0])), 1.0)
    assert server.step(np.ones(4, np.float32), 1.0)[0].tolist() == [1.0, 0.0, 1.0, -1.0]


def test_the_broadcast_is_a_difference_for_those_who_had_the_last_model():
    rng = np.random.default_rng(0)
    last = Common(rng.normal(size=5000).astype(np.float32), np.zeros(0, np.float32), np.array([0, 5000]))
    model = replace(last, weights=last.weights * np.float32(1.0001))
    dense, less = len(encode_model(3, model, None)), len(encode_model(3, model, last))
    assert less < 0.6 * dense
    settings = ServerSettings()
    assert broadcast_bytes(settings, 3, model, last, [0, 1, 2], [0, 1]) == 2 * less
    assert broadcast_bytes(settings, 3, model, last, [0], [0, 1, 2]) == less + 2 * dense
    assert broadcast_bytes(settings, 3, model, last, [0], []) == 0
    assert broadcast_bytes(ServerSettings(downlink="dense"), 3, model, last, [0, 1], [0, 1]) == 2 * dense
