"""QSGD (Eq. 12): one contract for every bucket, norm and number of levels; an example by hand; extreme values."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from skyfed.config import load_config
from skyfed.errors import BadInputError
from skyfed.rng import stream
from skyfed.wire import QuantiseSettings, bucket_starts, dequantise, quantise, variance_bound

TENSORS = np.array([0, 20, 21, 21, 80, 140])  # sizes 20, 1, 0, 59, 60
SIZE = int(TENSORS[-1])
BUCKETS = [0, "tensor", 1, 7, 512]
NORMS = ["l2", "linf"]
LEVELS = [1, 3, 7]


def code(bucket: int | str) -> int:
    return QuantiseSettings(bucket=bucket).bucket_code


def starts_of(bucket: int | str, mask: np.ndarray | None = None) -> np.ndarray:
    return bucket_starts(SIZE if mask is None else int(mask.sum()), code(bucket), TENSORS, mask)


def gradient(seed: int = 0) -> np.ndarray:
    """A vector as gradients are: many scales, some zeros, a bucket and a tensor without anything."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=SIZE) * 10.0 ** rng.integers(-4, 2, SIZE)
    values[rng.random(SIZE) < 0.2] = 0
    values[20:36] = 0
    return values.astype(np.float32)


def send(values: np.ndarray, starts: np.ndarray, s: int, norm: str, rng: np.random.Generator) -> np.ndarray:
    return dequantise(*quantise(values, starts, s, norm, rng), starts, s)


every_kind = pytest.mark.parametrize("bucket", BUCKETS)
every_norm = pytest.mark.parametrize("norm", NORMS)
every_s = pytest.mark.parametrize("s", LEVELS)


# the contract


@every_kind
@every_norm
@every_s
def test_levels_and_norms_are_of_the_right_kind(bucket, norm, s):
    values, starts = gradient(), starts_of(bucket)
    levels, norms = quantise(values, starts, s, norm, stream(0, "q"))
    assert levels.dtype == np.int8
    assert norms.dtype == np.float32
    assert levels.shape == values.shape
    assert len(norms) == len(starts) - 1
    assert np.abs(levels).max() <= s
    assert (norms >= 0).all()
    assert (levels[values == 0] == 0).all()
    assert (np.sign(levels) * np.sign(values) >= 0).all()
    for k, (a, b) in enumerate(pairwise(starts)):
        wide = values[a:b].astype(np.float64)
        exact = np.abs(wide).max(initial=0) if norm == "linf" else np.sqrt((wide**2).sum())
        assert norms[k] == pytest.approx(exact, rel=2e-7)
        assert (np.abs(values[a:b]) <= norms[k]).all()


@every_kind
@every_norm
@every_s
def test_an_entry_gets_one_of_its_two_nearest_levels(bucket, norm, s):
    values, starts = gradient(), starts_of(bucket)
    levels, norms = quantise(values, starts, s, norm, stream(0, "q"))
    scale = np.repeat(norms.astype(np.float64), np.diff(starts))
    exact = np.divide(np.abs(values.astype(np.float64)) * s, scale, out=np.zeros(SIZE), where=scale > 0)
    assert (np.abs(np.abs(levels.astype(int)) - exact) < 1 + 1e-5).all()


@every_kind
@every_norm
@every_s
def test_the_mean_over_many_draws_is_the_vector(bucket, norm, s):
    values, starts = gradient(), starts_of(bucket)
    draws = 400
    rng = stream(0, "unbiased")
    sent = np.stack([send(values, starts, s, norm, rng) for _ in range(draws)]).astype(np.float64)
    _, norms = quantise(values, starts, s, norm, rng)
    step = np.repeat(norms.astype(np.float64) / s, np.diff(starts))
    place = np.divide(np.abs(values), step, out=np.zeros(SIZE), where=step > 0)
    spread = step * np.sqrt((place % 1) * (1 - place % 1)) / np.sqrt(draws)  # of the mean, by Bernoulli's law
    error = sent.mean(axis=0) - values
    slack = 1e-6 * np.maximum(np.abs(values), step)
    assert (np.abs(error) <= 6 * spread + slack + 12 * step / draws).all()  # the last: rare jumps are not normal
    some = spread > 0
    if some.sum() > 30:  # taken together the errors must look like draws of a standard normal
        normal = (error[some] / spread[some]).sum() / np.sqrt(some.sum())
        assert abs(normal) < 5


@every_kind
@every_norm
@every_s
def test_the_variance_stays_below_its_bound(bucket, norm, s):
    values, starts = gradient(), starts_of(bucket)
    rng = stream(0, "variance")
    errors = [float(((send(values, starts, s, norm, rng).astype(np.float64) - values) ** 2).sum()) for _ in range(100)]
    relative = np.array(errors) / float((values.astype(np.float64) ** 2).sum())
    bound = variance_bound(starts, s, norm)
    assert relative.mean() - 4 * relative.std() / len(errors) ** 0.5 <= bound + 1e-9


@every_kind
@every_norm
def test_the_stream_alone_decides_the_draw(bucket, norm):
    values, starts = gradient(), starts_of(bucket)
    one, again, other = (quantise(values, starts, 3, norm, stream(0, "q", 5, u))[0] for u in (1, 1, 2))
    assert np.array_equal(one, again)
    if bucket != 1:  # an entry is its own norm there: nothing is drawn
        assert not np.array_equal(one, other)


@every_kind
@every_norm
@every_s
def test_zeros_are_sent_as_zeros(bucket, norm, s):
    starts = starts_of(bucket)
    levels, norms = quantise(np.zeros(SIZE, np.float32), starts, s, norm, stream(0, "q"))
    assert not levels.any()
    assert not norms.any()
    assert not dequantise(levels, norms, starts, s).any()


@every_kind
@every_norm
@every_s
@pytest.mark.parametrize("size", [1e-38, 1e-30, 1e30])
def test_tiny_and_huge_values_stay_finite_and_near(bucket, norm, s, size):
    values, starts = (np.sign(gradient()) * np.float32(size)).astype(np.float32), starts_of(bucket)
    levels, norms = quantise(values, starts, s, norm, stream(0, "q"))
    sent = dequantise(levels, norms, starts, s)
    assert np.isfinite(norms).all()
    assert np.isfinite(sent).all()
    assert np.abs(levels).max() <= s
    if norm == "linf" and size >= 1e-30:  # all entries lie on the highest level: nothing is lost
        assert sent == pytest.approx(values, rel=1e-6)


@pytest.mark.parametrize("size", [1e-45, 1e-42, 1e-39, 1e-38])
@every_norm
def test_values_whose_scale_would_overflow_do_no_harm(norm, size):
    """With s levels and a norm n, s / n passes the largest float32 where n is below s / 3.4e38."""
    values = np.array([0, size, -size / 4, size / 8, 0, size / 2, 0, 0], np.float32)
    for starts in (np.array([0, 8]), np.array([0, 3, 3, 8])):
        for s in (1, 7, 127):
            levels, norms = quantise(values, starts, s, norm, stream(0, "q"))
            assert np.abs(levels.astype(int)).max() <= s
            assert (levels[values == 0] == 0).all()
            assert np.abs(dequantise(levels, norms, starts, s) - values).max() <= 1e-36


def test_a_single_entry_is_sent_exactly():
    for value in (3.7, -1e-20, 1e30, 0.0):
        values = np.array([value], np.float32)
        for norm in NORMS:
            assert send(values, np.array([0, 1]), 1, norm, stream(0, "q")) == pytest.approx(values, rel=1e-6)


def test_an_empty_vector_is_sent_as_nothing():
    for bucket in (0, 7, 512):
        starts = bucket_starts(0, bucket, TENSORS, None)
        levels, norms = quantise(np.empty(0, np.float32), starts, 3, "l2", stream(0, "q"))
        assert len(levels) == 0
        assert not norms.any()
        assert len(dequantise(levels, norms, starts, 3)) == 0


# by hand


def test_an_example_by_hand():
    """d = (3, -4, 0), norm 5, s = 5: levels 3, -4, 0 exactly; s = 1: level 1 with probability 3/5 and 4/5."""
    values, starts = np.array([3, -4, 0], np.float32), np.array([0, 3])
    levels, norms = quantise(values, starts, 5, "l2", stream(0, "q"))
    assert norms.tolist() == [5.0]
    assert levels.tolist() == [3, -4, 0]
    assert dequantise(levels, norms, starts, 5).tolist() == [3.0, -4.0, 0.0]
    rng = stream(0, "by hand")
    drawn = np.stack([quantise(values, starts, 1, "l2", rng)[0] for _ in range(4000)])
    assert set(np.unique(drawn[:, 0])) == {0, 1}
    assert set(np.unique(drawn[:, 1])) == {-1, 0}
    assert drawn[:, 0].mean() == pytest.approx(0.6, abs=5 * (0.24 / 4000) ** 0.5)
    assert drawn[:, 1].mean() == pytest.approx(-0.8, abs=5 * (0.16 / 4000) ** 0.5)
    assert not drawn[:, 2].any()


def test_the_linf_norm_by_hand():
    values, starts = np.array([1, -2, 4, 8], np.float32), np.array([0, 2, 4])
    levels, norms = quantise(values, starts, 2, "linf", stream(0, "q"))
    assert norms.tolist() == [2.0, 8.0]
    assert levels.tolist() == [1, -2, 1, 2]
    assert dequantise(levels, norms, starts, 2).tolist() == [1.0, -2.0, 4.0, 8.0]


def test_variance_bounds_by_hand():
    one = np.array([0, 512])
    assert variance_bound(one, 3, "l2") == pytest.approx(512**0.5 / 3)  # less than 512 / 9
    assert variance_bound(np.array([0, 4]), 3, "l2") == pytest.approx(4 / 9)  # less than 2 / 3
    assert variance_bound(one, 2, "linf") == 512 / 16
    assert variance_bound(np.array([0, 5, 5, 105]), 3, "l2") == pytest.approx(10 / 3)  # the largest bucket counts
    assert variance_bound(np.array([0]), 3, "l2") == 0
    assert variance_bound(np.array([0, 11_181_642]), 3, "l2") == pytest.approx(1114.6, abs=0.1)


# many buckets go another way through the code


@every_norm
@every_s
@pytest.mark.parametrize("width", [1, 3, 5])
def test_many_buckets_give_what_each_would_alone(norm, s, width):
    values = np.random.default_rng(1).normal(size=5200).astype(np.float32)
    values[100:110] = 0
    starts = bucket_starts(len(values), width, TENSORS, None)
    assert len(starts) > 1000
    levels, norms = quantise(values, starts, s, norm, stream(0, "q"))
    for k in range(0, len(norms), 97):
        part = values[starts[k] : starts[k + 1]]
        alone = quantise(part, np.array([0, len(part)]), s, norm, stream(0, "q"))[1]
        assert norms[k] == pytest.approx(alone[0], rel=1e-6)
    sent = dequantise(levels, norms, starts, s)
    expected = levels * np.repeat(norms, np.diff(starts)) / np.float32(s)
    assert sent == pytest.approx(expected, rel=1e-6)
    mean = np.mean([send(values, starts, s, norm, stream(1, "q", k)) for k in range(200)], axis=0)
    step = np.repeat(norms, np.diff(starts)) / s
    assert np.abs(mean - values).max() <= float((step / 2 * 6 / 200**0.5).max()) + 1e-6


def test_many_empty_buckets_do_no_harm():
    starts = np.sort(np.random.default_rng(0).integers(0, 500, 3000))
    starts[0], starts[-1] = 0, 500
    values = np.random.default_rng(1).normal(size=500).astype(np.float32)
    for norm in NORMS:
        levels, norms = quantise(values, starts, 3, norm, stream(0, "q"))
        assert (norms[np.diff(starts) == 0] == 0).all()
        assert (norms[np.diff(starts) > 0] > 0).all()
        assert np.isfinite(dequantise(levels, norms, starts, 3)).all()
        assert np.abs(levels).max() <= 3


# buckets


def test_bucket_starts_by_hand():
    assert bucket_starts(10, 0, TENSORS, None).tolist() == [0, 10]
    assert bucket_starts(10, 4, TENSORS, None).tolist() == [0, 4, 8, 10]
    assert bucket_starts(8, 4, TENSORS, None).tolist() == [0, 4, 8]
    assert bucket_starts(10, 512, TENSORS, None).tolist() == [0, 10]
    assert bucket_starts(0, 4, TENSORS, None).tolist() == [0]
    assert bucket_starts(SIZE, -1, TENSORS, None).tolist() == TENSORS.tolist()


def test_under_a_mask_a_tensor_s_bucket_holds_its_kept_entries():
    mask = np.ones(SIZE, bool)
    mask[:20] = False  # the first tensor loses everything
    mask[21:80:2] = False
    starts = bucket_starts(int(mask.sum()), -1, TENSORS, mask)
    sizes = [int(mask[a:b].sum()) for a, b in pairwise(TENSORS)]
    assert np.diff(starts).tolist() == sizes
    assert sizes[0] == sizes[2] == 0
    assert bucket_starts(0, -1, TENSORS, np.zeros(SIZE, bool)).tolist() == [0] * len(TENSORS)


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(0, 60), st.sampled_from([0, -1, 1, 7, 512]), st.sampled_from(NORMS), st.integers(1, 127))
def test_any_vector_and_mask_keep_the_contract(data, size, bucket, norm, s):
    tensors = np.sort(data.draw(arrays.arrays(np.int64, 4, elements=st.integers(0, size))))
    tensors = np.concatenate([[0], tensors, [size]])
    mask = data.draw(st.none() | arrays.arrays(bool, size))
    kept = size if mask is None else int(mask.sum())
    values = data.draw(arrays.arrays(np.float32, kept, elements=st.floats(-(2.0**99), 2.0**99, width=32)))
    starts = bucket_starts(kept, bucket, tensors, mask)
    assert starts[0] == 0 or len(starts) == 1
    assert starts[-1] == kept
    assert (np.diff(starts) >= 0).all()
    levels, norms = quantise(values, starts, s, norm, stream(0, "q"))
    sent = dequantise(levels, norms, starts, s)
    assert np.isfinite(norms).all()
    assert np.abs(levels.astype(int)).max(initial=0) <= s
    step = np.repeat(norms.astype(np.float64), np.diff(starts)) / s
    assert (np.abs(sent.astype(np.float64) - values) <= step * (1 + 1e-4) + 1e-36).all()


@pytest.mark.parametrize("bucket", ["-1", "-512", "1099511627776", "1.5", '"layer"'])
def test_buckets_that_cannot_be_are_refused_by_the_settings(bucket):
    """A bucket beyond 31 bits would not fit into the message's header."""
    with pytest.raises(BadInputError, match=r"quantise\.bucket"):
        load_config("smoke", [f"quantise.bucket={bucket}"])


@pytest.mark.parametrize(("key", "value"), [("s", "0"), ("s", "128"), ("norm", "l1"), ("raw_probability", "1.1"),
                                            ("raw_probability", "nan"), ("scheme", "eden")])  # fmt: skip
def test_other_settings_out_of_range_are_refused(key, value):
    with pytest.raises(BadInputError, match=rf"quantise\.{key}"):
        load_config("smoke", [f"quantise.{key}={value}"])
