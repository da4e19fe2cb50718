"""What a vehicle has on board for an algorithm: the largest entries, sparse and plain vectors, random streams."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from learning_cases import job_of, start_of, station_of
from run_cases import tiny_config
from skyfed.kit import Kit, NotFiniteError
from skyfed.wire import Message

STATION = station_of(tiny_config('algorithms=["afl"]'), "afl")


def kit(vehicle: int = 1, t: int = 1) -> Kit:
    return STATION.onboard.kit(job_of(STATION, vehicle, t))


@settings(max_examples=300, deadline=None)
@given(
    arrays.arrays(np.float32, st.integers(0, 60), elements=st.sampled_from([-2.0, -1.0, -0.0, 0.0, 0.5, 1.0, 2.0])),
    st.integers(-2, 70),
)
def test_the_largest_entries_are_those_of_a_stable_order(values, count):
    expected = np.sort(np.argsort(-np.abs(values), kind="stable")[: max(0, count)])
    assert kit().top_k(values, count).tolist() == expected.tolist()


def test_the_largest_of_many():
    values = np.random.default_rng(0).normal(size=100_000).astype(np.float32)
    places = kit().top_k(values, 1000)
    assert len(places) == 1000
    assert np.abs(values[places]).min() > np.abs(np.delete(values, places)).max()


def test_a_sparse_upload_holds_the_entries_at_its_places():
    one = kit()
    size, buffers = one.layout.live_size, start_of(STATION)["buffers"]
    values = np.random.default_rng(0).normal(size=size).astype(np.float32)
    places = one.top_k(values, 20)
    message = Message(1, 1, {"update": one.sparse(values, places, buffers)}, one.reference(start_of(STATION)))
    expected = np.zeros(size, np.float32)
    expected[places] = values[places]
    assert np.array_equal(message.vector(), expected)
    assert np.array_equal(message.values(), values[places])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_not_sent(value):
    one = kit()
    values, buffers = np.zeros(one.layout.live_size, np.float32), start_of(STATION)["buffers"].copy()
    one.vector(values, buffers)
    values[3] = value
    with pytest.raises(NotFiniteError):
        one.vector(values, buffers)
    buffers[0] = value
    with pytest.raises(NotFiniteError):
        one.vector(np.zeros_like(values), buffers)


def test_streams_are_those_of_their_purpose_round_and_vehicle():
    drawn = [kit(u, t).rng(purpose).random() for u in (0, 1) for t in (0, 1) for purpose in ("a", "b")]
    assert len(set(drawn)) == 8
    assert kit(1, 1).rng("b").random() == drawn[-1]


def test_notes_add_up_and_the_last_word_counts():
    one = kit()
    one.note(a=1, b=2.0)
    one.note(b=None, c="x")
    assert one.facts == {"a": 1, "b": None, "c": "x"}


def test_work_is_counted_in_dense_local_rounds():
    one, state = kit(), start_of(STATION)
    one.descend(state)
    assert one.work == 3
    assert np.isfinite(one.loss)
    one.descend(state, rounds=2, delta=0.5)
    assert one.work == 4
    one.winning_ticket(state, 0.5)
    assert one.work == 5


def test_an_adjusted_gradient_is_the_one_that_is_used():
    """Proximal and corrected methods change every step; with the gradient taken away nothing moves."""
    state = start_of(STATION)
    still = kit().descend(state, adjust=lambda weights, gradient: 0 * gradient)
    assert not still.gradient.any()
    plain, doubled = kit().descend(state, rounds=1), kit().descend(state, rounds=1, adjust=lambda w, g: 2 * g)
    assert doubled.gradient == pytest.approx(2 * plain.gradient, rel=1e-3, abs=1e-5)


def test_the_mean_loss_of_a_model_on_a_vehicle_s_samples():
    one, state = kit(), start_of(STATION)
    whole, few = one.losses(state), one.losses(state, 5)
    assert whole > 0
    assert few != whole
    assert one.losses(state, len(one.samples)) == whole
