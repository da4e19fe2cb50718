"""Streams: equal keys give equal numbers, different keys independent ones, and no global generator is touched."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyfed.config import load_config
from skyfed.rng import stream
from skyfed.world.mission import prepare_mission

keys = st.tuples(
    st.integers(0, 2**63 - 1),
    st.text(max_size=12),
    st.none() | st.integers(0, 10**6),
    st.none() | st.integers(0, 10**6),
)


def draws(key: tuple[int, str, int | None, int | None], count: int = 4) -> list[float]:
    return stream(*key).random(count).tolist()


@given(keys)
def test_equal_keys_give_equal_numbers_whatever_was_drawn_between(key):
    first = draws(key)
    stream(key[0], key[1] + "x", key[2], key[3]).random(100)
    assert draws(key) == first


@given(keys, keys)
def test_different_keys_give_different_numbers(a, b):
    assert (draws(a) == draws(b)) == (a == b)


def test_golden_values_of_one_key():
    assert stream(7, "golden", round=3, vehicle=5).integers(0, 2**32, 3).tolist() == [3107048846, 741075072, 637607433]
    assert stream(7, "golden", round=3, vehicle=5).standard_normal(2).tolist() == [
        -0.6205965104639718,
        0.29120200587364203,
    ]


def test_first_draws_of_many_keys_are_all_distinct():
    firsts = [
        int(stream(seed, purpose, t, u).integers(0, 2**63))
        for seed in range(4)
        for purpose in ("placement", "mixture")
        for t in (None, *range(20))
        for u in (None, *range(20))
    ]
    assert len(set(firsts)) == len(firsts) == 4 * 2 * 21 * 21


def test_neighbouring_streams_are_uncorrelated_and_uniform():
    n, streams = 4000, 40
    numbers = np.stack([stream(0, "noise", round=k // 8, vehicle=k % 8).random(n) for k in range(streams)])
    correlation = np.corrcoef(numbers) - np.eye(streams)
    assert np.abs(correlation).max() < 5 / np.sqrt(n)  # 5 standard deviations of an independent pair
    assert abs(numbers.mean() - 0.5) < 5 * np.sqrt(1 / 12 / numbers.size)


def test_round_and_vehicle_are_not_interchangeable():
    assert draws((0, "x", 1, 2)) != draws((0, "x", 2, 1))
    assert draws((0, "x", 1, None)) != draws((0, "x", None, 1))


@pytest.mark.parametrize("number", [0, 1, -1, 2**32 - 1])
def test_no_round_is_a_key_of_its_own(number):
    assert draws((0, "x", None, None)) != draws((0, "x", number, None))
    assert draws((0, "x", None, None)) != draws((0, "x", None, number))


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_numpy_whole_numbers_are_the_same_key_as_pythons(kind):
    assert draws((kind(3), "x", kind(4), kind(5))) == draws((3, "x", 4, 5))


def test_two_streams_of_one_key_do_not_share_a_state():
    one, other = stream(0, "x"), stream(0, "x")
    one.random(10)
    assert other.random() == stream(0, "x").random()


def test_building_a_mission_leaves_the_global_generators_alone():
    config = load_config("smoke", ["field.estimate=gmm", "field.classes=4"])
    import sklearn.mixture  # noqa: F401  its import alone draws from Python's generator

    python = random.getstate()
    numpy = np.random.get_state(legacy=False)  # noqa: NPY002
    prepare_mission(config.field, config.flight, config.sensing, vehicles=2, rounds=5, seed=0)
    after = np.random.get_state(legacy=False)  # noqa: NPY002
    assert random.getstate() == python
    assert after["state"]["pos"] == numpy["state"]["pos"]
    assert np.array_equal(after["state"]["key"], numpy["state"]["key"])


def test_the_global_seeds_do_not_reach_a_mission():
    config = load_config("smoke")
    found = []
    for seed in (1, 2):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        mission = prepare_mission(config.field, config.flight, config.sensing, 2, 5, 0)
        found.append(np.stack([estimate.centres for estimate in mission.estimates]))
    assert np.array_equal(*found)
