"""Batch-norm buffers of hostile vehicles: refused, left out or cut, and honest ones are averaged to the bit."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from learning_cases import message_of, raw_update
from run_cases import fleet_plan, pictures, tiny_config
from skyfed import evaluation
from skyfed.blocks.aggregate import ServerSettings, aggregate
from skyfed.onboard import Onboard
from skyfed.runs.start import world_of
from skyfed.simulate import federated_round
from skyfed.station import Station
from skyfed.types import Singles
from skyfed.wire import DecodeError, Expected, Reference, decode, encode

CHANNELS = 50
MEANS = np.arange(2 * CHANNELS) < CHANNELS
VARIANCES = np.tile(np.arange(CHANNELS, 2 * CHANNELS), 2)


def honest(rng: np.random.Generator, vehicles: int, apart: float = 0.05) -> np.ndarray:
    """Return running means about 3 and variances about 4, as vehicles with slightly different data have them."""
    means = 3 + 2 * apart * rng.standard_normal((vehicles, CHANNELS))
    return np.hstack([means, 4 * np.exp(apart * rng.standard_normal((vehicles, CHANNELS)))]).astype(np.float32)


def last() -> Reference:
    buffers = np.where(MEANS, 2.5, 3.0).astype(np.float32)
    return Reference(np.zeros(2, np.float32), buffers, np.array([0, 2]), variances=VARIANCES)


def gather(rows: np.ndarray, how: str = "mean", known: Reference | None = None) -> tuple[Singles, list[bool]]:
    known = known or last()
    sent = [message_of(raw_update(np.ones(2), buffers=row, vehicle=u), known) for u, row in enumerate(rows)]
    together = aggregate(sent, ServerSettings(aggregate=how), len(rows), {})
    assert together is not None
    return together.buffers, [bool(message.notes.get("buffers_ignored")) for message in sent]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("apart", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("how", ["mean", "consensus"])
def test_honest_buffers_are_averaged_to_the_bit(seed, apart, how):
    rng = np.random.default_rng(seed)
    rows = honest(rng, int(rng.integers(1, 9)), apart)
    buffers, ignored = gather(rows, how)
    summed = np.zeros(2 * CHANNELS)
    for row in rows:
        summed += row.astype(np.float64)
    assert not any(ignored)
    assert np.array_equal(buffers, (summed / len(rows)).astype(np.float32))


@pytest.mark.parametrize("how", ["mean", "clip", "consensus"])
@pytest.mark.parametrize("vehicles", [2, 3, 10])
@pytest.mark.parametrize(
    "spoil",
    [
        lambda row: np.full_like(row, 1e6),
        lambda row: np.where(MEANS, -1e6, row),
        lambda row: np.where(MEANS, row + 3, row),  # 1.5 standard deviations, in every channel
        lambda row: np.where(np.arange(2 * CHANNELS) == 7, row + 100, row),  # one channel
        lambda row: np.where(MEANS, row, 50 * row),
        lambda row: np.where(MEANS, row, 0),
        lambda row: np.full_like(row, 3.4e38),
    ],
)
def test_a_hostile_vehicles_buffers_are_left_out(how, vehicles, spoil):
    rows = honest(np.random.default_rng(1), vehicles)
    good, _ = gather(rows[:-1], how)
    rows[-1] = spoil(rows[-1])
    buffers, ignored = gather(rows, how)
    assert ignored == [False] * (vehicles - 1) + [True]
    assert np.allclose(buffers, good, rtol=0.02, atol=0.05)


@pytest.mark.parametrize(("how", "most"), [("clip", 0.25), ("consensus", 0.25)])
def test_what_is_not_far_enough_to_be_left_out_is_cut(how, most):
    rows = honest(np.random.default_rng(2), 5)
    rows[-1] = np.where(MEANS, rows[-1] + 0.8, rows[-1])  # 0.4 standard deviations: eight times an honest one's
    buffers, ignored = gather(rows, how)
    plain, _ = gather(rows, "mean")
    good, _ = gather(rows[:-1], how)
    assert not any(ignored)
    assert np.abs(buffers - good)[MEANS].mean() < most * np.abs(plain - good)[MEANS].mean()


def test_two_of_five_are_found():
    rows = honest(np.random.default_rng(3), 5)
    rows[1] *= 1000
    rows[4] = 0
    assert gather(rows)[1] == [False, True, False, False, True]


def test_a_channel_that_is_dead_elsewhere_may_live():
    rows = honest(np.random.default_rng(4), 4)
    rows[:, 0], rows[:, CHANNELS] = 0, 0  # everywhere but on the first
    rows[0, 0], rows[0, CHANNELS] = 0.5, 1.0
    assert not any(gather(rows)[1])


def test_alone_there_is_nobody_to_compare_with():
    row = honest(np.random.default_rng(5), 1) * 1000
    buffers, ignored = gather(row)
    assert not any(ignored)
    assert np.array_equal(buffers, row[0])


def test_if_all_are_too_far_the_last_ones_stay():
    known = last()
    rows = np.stack([known.buffers * 1e4, known.buffers * 1e-9])
    buffers, ignored = gather(rows, known=known)
    assert ignored == [True, True]
    assert buffers is known.buffers


def test_a_variance_below_zero_is_refused_by_the_decoder():
    known = last()
    buffers = known.buffers.copy()
    buffers[CHANNELS] = -1e-6
    with pytest.raises(DecodeError, match="a running variance is below 0"):
        decode(encode(raw_update(np.ones(2), buffers=buffers, vehicle=0), known), Expected(0, 0, known))


def bent(onboard: Onboard, bend: Callable[[Singles], Singles] | None) -> Onboard:
    """Bend the last vehicle's buffers before it sends them."""
    real = onboard._encode

    def encode(algorithm, parts, job):
        if bend is not None and job.vehicle == onboard.config.vehicles - 1:
            parts = {name: replace(part, buffers=bend(part.buffers)) for name, part in parts.items()}
        return real(algorithm, parts, job)

    onboard._encode = encode
    return onboard


ATTACKS = {
    "below": lambda buffers: np.full_like(buffers, -1e6),
    "above": lambda buffers: np.full_like(buffers, 1e6),
    "means": lambda buffers: np.where(np.arange(len(buffers)) % 2, buffers, -1e6).astype(np.float32),
}


@pytest.mark.parametrize("how", ["mean", "clip", "consensus", "trimmed", "median"])
def test_one_vehicle_of_three_cannot_wreck_the_model_by_its_buffers(how):
    def accuracy(bend: Callable[[Singles], Singles] | None) -> tuple[float, list[str]]:
        config = tiny_config(
            'algorithms=["afl"]', f"server.aggregate={how}", "vehicles=3", "rounds=12", "train.kappa=3"
        )
        task, lines = pictures().task(), []
        onboard = Onboard(config, task)
        plan = fleet_plan(config.vehicles, config.rounds)
        station = Station("afl", onboard, world_of(config, task, plan), bent(onboard, bend), say=lines.append)
        state = onboard.algorithms["afl"].start(onboard.engine.initial())
        for t in range(config.rounds):
            state, report = federated_round(station, t, state)
            lines += [f"dropped: {reason}" for reason in report.dropped.values()]
        return evaluation.test_models(station, t, state).accuracy_full, lines

    unbent, silence = accuracy(None)
    assert not silence
    for name, bend in ATTACKS.items():
        reached, lines = accuracy(bend)
        assert reached > unbent - 0.1, name
        assert len(lines) == 12
        assert all("dropped" in line or "vehicle 2 are left out" in line for line in lines)
