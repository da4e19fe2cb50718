"""Magnitude pruning: exactly as many as asked for, the smallest ones, ties by index; and who draws which ratio."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from learning_cases import exchanged, onboard_of, station_of
from run_cases import tiny_config
from skyfed.config import load_config
from skyfed.errors import BadInputError
from skyfed.learning.flat import FlatModel, merged_runs
from skyfed.learning.models import build_model
from skyfed.learning.prune import magnitude_mask, scope_of
from skyfed.learning.settings import ModelSettings, PruneSettings


def mask_of(weights: np.ndarray, delta: float, scope: np.ndarray | None = None) -> np.ndarray:
    runs = None if scope is None else merged_runs((k, k + 1) for k in np.flatnonzero(scope).tolist())
    return magnitude_mask(weights, delta, runs)[0]


def by_sorting(weights: np.ndarray, delta: float, scope: np.ndarray | None) -> np.ndarray:
    """The definition: of the entries in scope, the round(delta * n) first in order of magnitude, then index, go."""
    inside = range(len(weights)) if scope is None else [i for i in range(len(weights)) if scope[i]]
    order = sorted(inside, key=lambda i: (abs(float(weights[i])), i))
    mask = np.ones(len(weights), bool)
    mask[order[: round(delta * len(order))]] = False
    return mask


# masks


def test_the_smallest_magnitudes_go():
    weights = np.array([0.3, -0.1, 0.2, -0.5, 0.05], np.float32)
    assert mask_of(weights, 0.4).tolist() == [True, False, True, True, False]


def test_one_threshold_for_all_entries_not_one_a_tensor():
    weights = np.concatenate([np.full(50, 0.01), np.full(50, 1.0)]).astype(np.float32)
    assert mask_of(weights, 0.5).tolist() == [False] * 50 + [True] * 50


@pytest.mark.parametrize(
    ("delta", "n", "gone"),
    [(0.0, 10, 0), (0.05, 10, 0), (0.051, 10, 1), (0.25, 10, 2), (0.999, 10, 10), (0.3, 1000, 300), (0.7, 11, 8)],
)
@pytest.mark.parametrize("kind", ["spread", "all equal", "all zero"])
def test_exactly_the_rounded_number_goes(delta, n, gone, kind):
    rng = np.random.default_rng(0)
    weights = {"spread": rng.normal(size=n), "all equal": np.full(n, -2.5), "all zero": np.zeros(n)}[kind]
    assert (~mask_of(weights.astype(np.float32), delta)).sum() == gone


def test_ties_at_the_threshold_go_by_index():
    weights = np.array([1, -1, 0.5, 1, 2, -1, 1], np.float32)
    assert mask_of(weights, 3 / 7).tolist() == [False, False, False, True, True, True, True]


def test_zeros_of_both_signs_are_equal():
    weights = np.array([-0.0, 0.0, 1e-30, -0.0, 5], np.float32)
    assert mask_of(weights, 0.4).tolist() == [False, False, True, True, True]


def test_entries_out_of_scope_are_never_pruned_and_never_counted():
    weights = np.array([0.0, 0.001, 3, 4, 5, 6], np.float32)
    scope = np.array([False, False, True, True, True, True])
    assert mask_of(weights, 0.5, scope).tolist() == [True, True, False, False, True, True]
    assert mask_of(weights, 0.9, np.zeros(6, bool)).all()


def test_a_scope_of_everything_is_no_scope():
    weights = np.random.default_rng(0).normal(size=99)
    assert np.array_equal(mask_of(weights, 0.6), mask_of(weights, 0.6, np.ones(99, bool)))


def test_the_weights_are_left_alone():
    weights = np.random.default_rng(0).normal(size=99)
    before = weights.copy()
    mask_of(weights, 0.6)
    assert np.array_equal(weights, before)


SOME = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, -1e-45, 3e38]) | st.floats(width=32, allow_nan=False)


@settings(max_examples=300, deadline=None)
@given(st.data(), st.integers(1, 60), st.floats(0, 0.999))
def test_selection_equals_sorting(data, n, delta):
    weights = data.draw(arrays.arrays(np.float32, n, elements=SOME))
    scope = data.draw(st.none() | arrays.arrays(bool, n))
    assert np.array_equal(mask_of(weights, delta, scope), by_sorting(weights, delta, scope))


def test_a_large_vector_equals_sorting():
    weights = np.random.default_rng(0).normal(size=200_000).astype(np.float32)
    weights[::3] = np.float32(0.25)
    for delta in (0.05, 0.4, 0.7):
        assert np.array_equal(mask_of(weights, delta), by_sorting(weights, delta, None))


@pytest.mark.parametrize("kind", ["normal", "sorted", "few values", "striped"])
def test_a_vector_large_enough_to_be_sampled_equals_partition(kind):
    rng = np.random.default_rng(1)
    weights = rng.normal(size=400_000).astype(np.float32)
    if kind == "sorted":
        weights.sort()
    elif kind == "few values":
        weights = np.round(weights)
    elif kind == "striped":  # what every twelfth entry shows is not what the others are
        weights[::12] *= 1000
    for delta in (1e-5, 0.05, 0.4, 0.7, 0.99999):
        gone = round(delta * len(weights))
        mask, threshold, left = magnitude_mask(weights, delta)
        assert left == len(weights) - gone
        assert (~mask).sum() == gone
        assert threshold == np.partition(np.abs(weights), gone - 1)[gone - 1]
        assert np.abs(weights[~mask]).max() <= threshold <= np.abs(weights[mask]).min()


@pytest.mark.parametrize("delta", [0.0, 1e-3, 0.3, 0.7, 0.999])
def test_entries_without_a_gradient_count_but_need_no_mask(delta):
    """The same threshold and the same number as with all of them in one vector."""
    rng = np.random.default_rng(2)
    for size in (50, 400_000):
        weights = rng.normal(size=size).astype(np.float32)
        dead = rng.random(size) < 0.6
        mask, threshold, left = magnitude_mask(weights, delta)
        others = np.sort(np.abs(weights[dead]))
        found = magnitude_mask(weights[~dead], delta, None, others)
        assert np.array_equal(found[0], mask[~dead])
        assert found[1:] == (threshold, left)


def test_of_equal_entries_those_without_a_gradient_go_first():
    weights = np.array([1.0, 2.0, 2.0, 3.0], np.float32)
    mask, threshold, left = magnitude_mask(weights, 0.5, None, np.array([2.0, 2.0], np.float32))
    assert (threshold, left) == (2.0, 3)
    assert mask.tolist() == [False, True, True, True]


def test_the_scope_is_that_of_the_weights_it_is_made_for():
    module = build_model(ModelSettings(width=4), 4, (3, 32, 32), 0)
    model = FlatModel(module, inputs=(3, 32, 32), wide=True)
    layout, weights = model.layout, model.weights.numpy().copy()
    first = scope_of(layout, True, weights)
    assert first.size == layout.kernels.sum()
    assert len(first.dead) == layout.size - layout.live_size
    other = scope_of(layout, True, weights * 2)
    assert np.array_equal(other.dead, first.dead * 2)
    assert scope_of(layout, False, weights).size == layout.size


def test_an_engine_keeps_one_scope_for_kernels_and_one_for_all():
    engine = onboard_of(tiny_config("model.name=resnet18")).engine
    kernels, every = (engine.scope(PruneSettings(scope=scope)) for scope in ("kernels", "all"))
    assert engine.scope(PruneSettings(scope="kernels", delta=0.3)) is kernels
    assert (kernels.size, every.size) == (engine.layout.kernels.sum(), engine.layout.size)


# ratios


def test_ratios_are_drawn_anew_for_every_vehicle_and_round_and_stay_inside():
    uniform = PruneSettings(delta=[0.05, 0.7])
    drawn = np.array([[uniform.draw(0, t, u) for t in range(60)] for u in range(20)])
    assert ((drawn >= 0.05) & (drawn < 0.7)).all()
    assert len(np.unique(drawn)) == drawn.size
    assert drawn.mean() == pytest.approx(0.375, abs=4 * 0.65 / 12**0.5 / drawn.size**0.5)
    assert uniform.draw(1, 0, 0) != drawn[0, 0]


def test_a_draw_does_not_depend_on_what_was_drawn_before():
    uniform = PruneSettings(delta=[0.05, 0.7])
    backwards = [uniform.draw(0, t, 3) for t in reversed(range(5))]
    assert backwards[::-1] == [uniform.draw(0, t, 3) for t in range(5)]


def test_a_constant_ratio_is_the_same_everywhere():
    assert {PruneSettings(delta=0.3).draw(0, t, u) for t in range(5) for u in range(5)} == {0.3}


def test_a_list_gives_each_vehicle_its_own():
    own = PruneSettings(delta=[0.1, 0.2, 0.3])
    assert [[own.draw(0, t, u) for u in range(3)] for t in range(2)] == [[0.1, 0.2, 0.3]] * 2


def test_equal_ends_are_a_constant():
    assert PruneSettings(delta=[0.4, 0.4]).draw(0, 1, 2) == 0.4


@pytest.mark.parametrize(
    "delta", ["1.0", "-0.1", "[0.7, 0.05]", "[]", "[0.1, 0.2, 1.5]", "nan", "[0.1, nan]", '"half"']
)
def test_ratios_out_of_range_are_refused_in_one_line(delta):
    with pytest.raises(BadInputError) as caught:
        load_config("smoke", [f"prune.delta={delta}"])
    assert "delta" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("delta", ["[0.05, 0.7]", "0.3", "[0.1, 0.2, 0.3]"])
def test_algorithms_that_prune_share_their_ratios_and_the_others_have_none(delta):
    config = tiny_config(f"prune.delta={delta}")
    onboard = onboard_of(config)
    drawn = {}
    for name in ("afl", "afl-prune", "afl-quant", "2ceoafl"):
        _, report = exchanged(station_of(config, name, onboard=onboard), 1)
        drawn[name] = [upload.facts["delta"] for upload in report.uploads]
    assert drawn["afl"] == drawn["afl-quant"] == [0.0] * 3
    assert drawn["afl-prune"] == drawn["2ceoafl"] == [config.prune.draw(config.seed, 1, u) for u in range(3)]


@pytest.mark.parametrize(("scope", "of"), [("kernels", "kernels"), ("all", "size")])
def test_what_was_kept_is_recorded_beside_what_was_drawn(scope, of):
    config = tiny_config(f"prune.scope={scope}", "prune.delta=0.37")
    onboard = onboard_of(config)
    layout = onboard.engine.layout
    n = int(layout.kernels.sum()) if of == "kernels" else layout.size
    assert n < layout.size or of == "size"
    pruned, whole = (
        exchanged(station_of(config, name, onboard=onboard), 0, vehicles=[0])[1].uploads[0].facts
        for name in ("afl-prune", "afl")
    )
    assert pruned["kept"] == layout.size - round(0.37 * n)
    assert whole["kept"] == layout.size
