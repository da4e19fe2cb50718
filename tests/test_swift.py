"""Swift: what vehicles are sent leads to the station's own model, to the bit; bytes of buffers and of changes."""

from functools import partial

import numpy as np
import pytest
import torch

from learning_cases import run_row, start_of, station_of
from run_cases import tiny_config
from skyfed.algorithms.swift import Swift
from skyfed.blocks.optimise import OptimiserSettings, advance, moments
from skyfed.station import HAVE, Station
from skyfed.types import Arrays, Raw, Update, same_arrays
from skyfed.wire import (
    MOST_CHANGES,
    DecodeError,
    Expected,
    Reference,
    decode,
    decode_changes,
    digest_of,
    encode,
    encode_changes,
    encode_content,
    quantise_buffers,
    restored,
)
from skyfed.wire.buffers import pack_buffers, unpack_buffers


def station(*overrides: str) -> Station:
    return station_of(tiny_config('algorithms=["swift"]', *overrides), "swift")


def content(row: Station, state: Arrays) -> Arrays:
    return row.algorithm.send(state, 0, 0)


@pytest.mark.parametrize("kind", ["plain", "momentum", "nesterov", "adam", "yogi"])
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_changes_lead_to_the_content_of_every_later_round(kind, norm):
    rows = f'algorithms=[{{use="swift", optimiser={{kind="{kind}"}}}}]'
    row = station(rows, f"model.norm='{norm}'", "rounds=5")
    memory = run_row(row)
    states = [start_of(row), *memory.states]
    for since, before in enumerate(states):
        for now in states[max(since, 1) :]:
            sent = content(row, before)
            changes = row.algorithm.changes(now, since)
            if changes is None:
                continue  # forgotten: the whole model is shorter
            for change in changes:
                sent = row.algorithm.follow(sent, change)
            assert same_arrays(sent, content(row, now))
    assert row.algorithm.changes(states[-1], 4) is not None


def test_the_bytes_sent_down_are_those_of_the_changes():
    row = station("rounds=4")
    memory = run_row(row)
    for t, (state, report) in enumerate(zip(memory.states[:-1], memory.reports, strict=False)):
        message = encode_changes(t + 1, t, row.algorithm.changes(state, t), digest_of(content(row, state)))
        assert report.broadcast_bytes == len(message)
        assert report.downlink_bytes == 3 * len(message)


def test_who_was_away_is_sent_all_that_it_lacks():
    row = station("rounds=6", "faults.absent=0.4", "seed=3")
    memory = run_row(row)
    missed = 0
    for t, (state, report) in enumerate(zip(memory.states[:-1], memory.reports, strict=False)):
        chosen, expected = memory.reports[t + 1].chosen, 0
        for u in chosen:
            since = int(state[HAVE][u])
            changes = row.algorithm.changes(state, since)
            whole = sum(array.nbytes for array in content(row, state).values())
            missed += since < t
            message = encode_changes(t + 1, since, changes or [], digest_of(content(row, state)))
            if changes is None or len(message) >= whole:
                message = encode_content(t + 1, content(row, state), None)
            expected += len(message)
        assert report.downlink_bytes == expected
    assert missed


def test_changes_that_a_model_would_be_shorter_than_are_forgotten():
    row = station("rounds=40")
    memory = run_row(row)
    state = memory.states[-1]
    kept = [name for name in state if name.startswith("change ")]
    assert 0 < len(kept) <= MOST_CHANGES
    assert sum(state[name].nbytes for name in kept) <= state["weights"].nbytes
    assert row.algorithm.changes(state, 0) is None
    assert len(row.algorithm.changes(state, 39)) == 1


@pytest.mark.parametrize("kind", ["plain", "momentum", "nesterov"])
def test_steps_are_those_of_torch(kind):
    settings, rng = OptimiserSettings(kind=kind, beta=0.8), np.random.default_rng(0)
    start = rng.normal(size=50).astype(np.float32)
    theirs = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    momentum = 0.0 if kind == "plain" else 0.8
    optimiser = torch.optim.SGD([theirs], lr=0.1, momentum=momentum, nesterov=kind == "nesterov")
    weights, state = start, moments(settings, 50)
    for _ in range(5):
        gradient = rng.normal(size=50)
        theirs.grad = torch.tensor(gradient)
        optimiser.step()
        weights, state = advance(weights, gradient, state, 0.1, settings)
    np.testing.assert_allclose(weights, theirs.detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["adam", "yogi"])
def test_adaptive_steps_are_those_of_their_paper(kind):
    """Reddi et al. 2021, Algorithm 2, one entry at a time."""
    settings = OptimiserSettings(kind=kind, beta=0.9, beta2=0.99, tau=1e-3)
    weights, state = np.array([1.0, -2.0], np.float32), moments(settings, 2)
    m, v, x = [0.0, 0.0], [0.0, 0.0], [1.0, -2.0]
    for gradient in ([0.5, -1.0], [0.1, 2.0], [-0.3, 0.2]):
        weights, state = advance(weights, np.array(gradient), state, 0.01, settings)
        for k, g in enumerate(gradient):
            m[k] = 0.9 * m[k] + 0.1 * g
            if kind == "adam":
                v[k] = 0.99 * v[k] + 0.01 * g * g
            else:
                v[k] -= 0.01 * g * g * np.sign(v[k] - g * g)
            x[k] -= 0.01 * m[k] / (np.sqrt(v[k]) + 1e-3)
    np.testing.assert_allclose(weights, x, rtol=1e-5)


def model(seed: int = 0, channels: int = 300) -> Reference:
    """Running means and variances of some channels, as a model has them."""
    rng = np.random.default_rng(seed)
    buffers = np.concatenate([rng.normal(size=channels), rng.uniform(0.1, 2, channels)]).astype(np.float32)
    variances = np.tile(np.arange(channels) + channels, 2)
    return Reference(np.zeros(10, np.float32), buffers, np.array([0, 10]), variances=variances)


def test_quantised_buffers_have_the_right_mean_and_the_variance_of_eden():
    known, rng = model(), np.random.default_rng(1)
    new = (known.buffers * (1 + 0.1 * rng.normal(size=600))).astype(np.float32)
    draws = np.stack([restored(quantise_buffers(new, known, 1, rng), known) for _ in range(400)]).astype(np.float64)
    apart = float(np.square(new - known.buffers).sum())
    assert np.square(draws.mean(axis=0) - new).sum() < 0.02 * apart
    assert 0.3 < np.square(draws - new).sum(axis=1).mean() / apart < 1.0


@pytest.mark.parametrize("s", [1, 2, 4])
@pytest.mark.parametrize("same", [True, False])
def test_quantised_buffers_travel_with_an_upload(s, same):
    known, rng = model(), np.random.default_rng(s)
    new = known.buffers if same else (1.1 * known.buffers).astype(np.float32)
    code = quantise_buffers(new, known, s, rng)
    update = Update(3, 1, 10, None, Raw(np.ones(10, np.float32)), restored(code, known), code=code)
    data = encode(update, known)
    read = decode(data, Expected(3, 1, known))
    np.testing.assert_array_equal(read.buffers, update.buffers)
    assert encode(read, known) == data
    assert len(data) < len(encode(Update(3, 1, 10, None, update.body, new), known)) or same
    if same:
        np.testing.assert_array_equal(read.buffers, known.buffers)


def test_variances_stay_above_zero_however_large_the_noise():
    known, rng = model(), np.random.default_rng(2)
    new = known.buffers.copy()
    new[300:] *= np.float32(1e-3)
    for _ in range(50):
        assert (restored(quantise_buffers(new, known, 1, rng), known)[300:] > 0).all()


def test_damaged_buffers_are_refused_or_read_as_what_they_are():
    known, rng = model(channels=40), np.random.default_rng(3)
    form, data = pack_buffers(known.buffers, quantise_buffers(known.buffers + 1, known, 2, rng), known)
    for trial in range(2000):
        wrong = bytearray(data)
        for _ in range(1 + trial % 3):
            wrong[rng.integers(len(wrong))] = rng.integers(256)
        wrong = wrong[: rng.integers(1, len(wrong) + 1)] if trial % 5 == 0 else wrong
        try:
            buffers, code = unpack_buffers(form, memoryview(bytes(wrong)), known)
        except DecodeError:
            continue
        assert pack_buffers(buffers, code, known)[1] == wrong


def test_messages_of_changes_are_read_as_they_were_written():
    data = encode_changes(7, 4, [b"one", b"", b"three"], 99)
    assert decode_changes(data, 7) == (4, [b"one", b"", b"three"], 99)
    refused = partial(pytest.raises, DecodeError)
    with refused(match="not changes up to round 8"):
        decode_changes(data, 8)
    with refused(match="truncated"):
        decode_changes(data[:10], 7)
    with refused(match="checksum"):
        decode_changes(data[:-9] + b"x" + data[-8:], 7)
    with refused(match="not changes"):  # three changes in two rounds
        decode_changes(encode_changes(7, 5, [b"", b"", b""], 0), 7)
    with pytest.raises(ValueError, match=f"at most {MOST_CHANGES}"):
        encode_changes(99, 0, [b""] * (MOST_CHANGES + 1), 0)


def test_a_change_of_another_model_is_refused():
    row = station("rounds=3")
    memory = run_row(row)
    (change,) = row.algorithm.changes(memory.states[1], 1)
    assert isinstance(row.algorithm, Swift)
    with pytest.raises(DecodeError, match="digest"):
        row.algorithm.follow(content(row, memory.states[1]), change)
