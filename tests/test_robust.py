"""Robust aggregation by hand: medians and trimming that know of masks, clipping, and who agrees with whom."""

import numpy as np
import pytest

from learning_cases import message_of, raw_update, reference
from skyfed.blocks.aggregate import AGREEMENT, Aggregate, ServerSettings, aggregate, moved
from skyfed.blocks.buffers import Buffers
from skyfed.blocks.robust import Opinion, against, combine, factors, middle_buffers, no_agreement, noted
from skyfed.runs.checkpoint import Checkpoints
from skyfed.types import Arrays, Floats, Update
from skyfed.wire import Message


def messages(uploads: list[Update], weights: list[float] | None = None) -> list[Message]:
    known = reference(uploads[0].size, len(uploads[0].buffers))
    return [message_of(u, known, w) for u, w in zip(uploads, weights or [1.0] * len(uploads), strict=True)]


def gathered(how: str, sent: list[Message], state: Arrays | None = None, **more: float) -> Aggregate:
    return aggregate(sent, ServerSettings(aggregate=how, **more), 5, state or {})


def opinion(
    values: list[float], mask: list[bool] | None = None, weight: float = 1.0, buffers: tuple[float, ...] = (), vehicle=0
):
    places = None if mask is None else np.array(mask)
    return Opinion(vehicle, np.array(values, np.float32), places, np.array(buffers, np.float32), weight)


def rows(*values: list[float]) -> list[Opinion]:
    return [opinion(row) for row in values]


def test_the_median_is_each_entrys_own():
    down = combine("median", rows([1, 5], [2, -9], [90, 4]), 2, 0)
    assert down.tolist() == [2, 4]
    assert combine("median", rows([1, 5], [3, 7]), 2, 0).tolist() == [2, 6]


def test_trimming_leaves_out_the_ends():
    found = combine("trimmed", rows([-100], [1], [2], [3], [1000]), 1, 0.2)
    assert found.tolist() == [2]
    assert combine("trimmed", rows([1], [2], [6]), 1, 0.0).tolist() == [3]


def test_pruned_entries_are_no_zeros_but_weigh_less():
    """Two of three kept the first entry: its median is theirs, and counts two thirds."""
    three = [opinion([3, 1]), opinion([5, 1]), opinion([1], [False, True])]
    assert combine("median", three, 2, 0) == pytest.approx([4 * 2 / 3, 1])
    assert combine("trimmed", three, 2, 0.0) == pytest.approx([8 / 3, 1])  # the mean of Eq. 13


def test_an_entry_that_nobody_kept_stays():
    nobody = [opinion([1], [False, True]), opinion([3], [False, True]), opinion([2], [False, True])]
    assert combine("median", nobody, 2, 0).tolist() == [0, 2]


def test_clipping_takes_long_ones_down_to_the_median_length():
    assert factors("clip", rows([3, 4], [0, 2], [300, 400]), []) == [1, 1, 5 / 500]


def test_consensus_cuts_wild_ones_only_and_turns_the_opposed_round():
    assert factors("consensus", rows([3, 4], [0, 19], [0, 2]), []) == [1, 1, 1]
    assert factors("consensus", rows([3, 4], [0, 21], [0, 2]), []) == [1, 5 / 21, 1]
    three = [opinion([3, 4]), opinion([0, 5], vehicle=1), opinion([300, 400], vehicle=2)]
    assert factors("consensus", three, [0, 2]) == [-1, 1, -5 / 500]


def test_buffers_follow_and_weights_count():
    weighted = [Buffers(np.array([1.0]), 3, {}), Buffers(np.array([5.0]), 1, {})]
    assert middle_buffers("trimmed", weighted, 0).tolist() == [2]
    assert middle_buffers("median", weighted, 0).tolist() == [3]


def seen(signs: list[int], rounds: int, seed: int = 0, cosine: float = 0.02, absent: float = 0.0) -> list[list[int]]:
    """Return who is found against the others, round by round; uploads share a direction but for their signs."""
    rng, size, agreement = np.random.default_rng(seed), 4000, no_agreement(len(signs))
    found = []
    for _ in range(rounds):
        way, there = rng.normal(size=size), rng.random(len(signs)) >= absent
        uploads = [
            opinion(sign * (cosine**0.5 * way + (1 - cosine) ** 0.5 * rng.normal(size=size)), vehicle=u)
            for u, sign in enumerate(signs)
            if there[u]
        ]
        agreement = noted(agreement, uploads, size)
        found.append(against(agreement))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_over_rounds_it_shows_who_pulls_against_the_others(seed):
    """In one round the cosines of 0.02 drown in noise of 0.016; the eigenvector of ten rounds is right."""
    attacked = seen([-1, -1, -1, *[1] * 7], 40, seed)
    assert attacked[14:] == [[0, 1, 2]] * 26
    assert seen([1] * 10, 40, seed) == [[]] * 40
    assert seen([-1, 1, 1, -1, *[1] * 6], 60, seed, absent=0.3)[39:] == [[0, 3]] * 21


@pytest.mark.parametrize("seed", range(5))
def test_where_nobody_agrees_nobody_is_turned(seed):
    assert seen([1] * 10, 60, seed, cosine=0.0) == [[]] * 60


def test_who_changes_sides_is_found_out():
    rng, agreement, found = np.random.default_rng(0), no_agreement(6), []
    for t in range(120):
        way = rng.normal(size=4000)
        signs = [1 if t < 30 else -1, 1, 1, 1, 1, 1]
        uploads = [opinion(s * (0.3 * way + rng.normal(size=4000)), vehicle=u) for u, s in enumerate(signs)]
        agreement = noted(agreement, uploads, 4000)
        found.append(against(agreement))
    assert found[29] == []
    assert found[-1] == [0]


def test_agreement_counts_what_both_kept_and_forgets():
    one, other = opinion([3, 4], [True, True, False]), opinion([4, 3], [False, True, True], vehicle=1)
    once = noted(no_agreement(3), [one, other], 3)
    assert once[0, 0, 1] == pytest.approx(1 / 2)
    assert once[1, 0, 1] == pytest.approx(1 / 4)
    assert once[0, 2].tolist() == [0, 0, 0]
    assert noted(once, [one], 3)[0, 0, 1] == pytest.approx(0.97 / 2)


def test_a_few_wild_entries_do_not_rule_who_agrees():
    calm, wild = opinion([1, -2, 3, -1]), opinion([2, -1, 1, 1e9], vehicle=1)
    assert noted(no_agreement(2), [calm, wild], 4)[0, 0, 1] == pytest.approx(1 / 2)


def test_signs_are_counted_exactly_so_that_threads_do_not_matter():
    rng = np.random.default_rng(0)
    uploads = [opinion(rng.normal(size=200_000), vehicle=u) for u in range(5)]
    signs = np.sign(np.stack([each.values for each in uploads])).astype(np.int64)
    counts = np.einsum("ik,jk->ij", signs, signs)
    found = noted(no_agreement(5), uploads, 200_000)[0]
    assert np.array_equal(found[0, 1:], counts[0, 1:] / (200_000**0.5 * 200_000**0.5))


def test_agreement_survives_a_checkpoint_bit_by_bit(tmp_path):
    agreement: Floats = np.random.default_rng(0).normal(size=(2, 5, 5))
    model = {"weights": np.ones(3, np.float32), "buffers": np.zeros(1, np.float32)}
    checkpoints = Checkpoints(tmp_path, "run", "afl")
    checkpoints.save(7, {**model, AGREEMENT: agreement}, {}, {})
    found = checkpoints.last(model, lambda whole: whole, 3, 3)
    assert found.round == 7
    assert found.state[AGREEMENT].tobytes() == agreement.tobytes()
    assert found.state[AGREEMENT].shape == agreement.shape


def test_the_server_turns_an_attacker_round():
    """With the agreement of earlier rounds the step is that of honest vehicles."""
    rng, state = np.random.default_rng(0), {}
    for _ in range(30):
        way = rng.normal(size=4000)
        honest = [0.3 * way + rng.normal(size=4000) for _ in range(5)]
        sent = messages([raw_update(d, vehicle=u) for u, d in enumerate([-honest[0], *honest[1:]])])
        found = gathered("consensus", sent, state)
        state = found.memory
    assert [message.notes["turned"] for message in sent] == [True, False, False, False, False]
    clean = gathered("mean", messages([raw_update(d, vehicle=u) for u, d in enumerate(honest)]))
    start = np.zeros(4000, np.float32)
    assert np.array_equal(moved(start, found.times(1.0)), moved(start, clean.times(1.0)))


def test_where_nobody_attacks_consensus_is_the_mean_to_the_bit():
    rng, steps = np.random.default_rng(0), []
    masks = [None, rng.random(500) < 0.7, rng.random(500) < 0.4]
    uploads = [(rng.normal(size=500 if mask is None else mask.sum()), mask) for mask in masks]
    for how in ("mean", "consensus"):
        updates = [raw_update(values, mask, [u, 0.3], vehicle=u) for u, (values, mask) in enumerate(uploads)]
        found = gathered(how, messages(updates, [1.0, 2.0, 3.0]), {AGREEMENT: no_agreement(5)})
        steps.append(np.concatenate([moved(np.ones(500, np.float32), found.times(0.1)), found.buffers]))
    assert np.array_equal(*steps)


@pytest.mark.parametrize("how", ["clip", "consensus", "trimmed", "median"])
def test_the_server_steps_by_it(how):
    sent = messages([raw_update(np.array([1.0, 2.0, 3.0]), None, [2.0], vehicle=u) for u in range(4)])
    found = gathered(how, sent, trim=0.25)
    assert moved(np.zeros(3, np.float32), found.times(0.5)).tolist() == [-0.5, -1.0, -1.5]
    assert found.buffers.tolist() == [2.0]
