"""Which samples: pools that no two vehicles share, sets that only grow, pools that run dry (Eq. 7)."""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from run_cases import fleet_plan
from skyfed.faults import FaultSettings
from skyfed.world import (
    Conditions,
    SensingSettings,
    SensorSettings,
    VehicleSettings,
    WorldSettings,
    initial_counts,
    new_counts,
)
from skyfed.world.sensing import Growth, Schedule, psi_at, split_pools

CLASSES, VEHICLES, ROUNDS = 4, 3, 8


@dataclass(frozen=True)
class Flight:
    """Where a vehicle is, and what is really there."""

    positions: np.ndarray
    psi: np.ndarray
    centres: np.ndarray
    radii: np.ndarray


def flights(vehicles: int = VEHICLES, classes: int = CLASSES, rounds: int = ROUNDS, seed: int = 0) -> list[Flight]:
    """Return flights over discs 200 m apart, a few metres off the centres, idle now and then."""
    rng = np.random.default_rng(seed)
    centres = np.stack([200.0 * np.arange(classes), np.zeros(classes)], axis=1)
    found = []
    for _ in range(vehicles):
        visited = rng.integers(0, classes, rounds)
        positions = centres[visited] + rng.uniform(-20, 20, (rounds, 2))
        positions[rng.random(rounds) < 0.2] = [100.0, 100.0]
        psi = rng.dirichlet(np.ones(classes), rounds).T
        found.append(Flight(positions, psi, centres, np.full(classes, 40.0)))
    return found


def labels(per_class: int, classes: int = CLASSES, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(classes), per_class)).astype(np.uint8)


SMALL = SensingSettings(model="eq6", n_max=30, n_max_test=8, initial=40, initial_test=12, decay_length=50.0)


def grow(
    flown: list[Flight],
    train: np.ndarray,
    test: np.ndarray,
    sensing: SensingSettings,
    seed: int,
) -> Schedule:
    """Return what vehicles sense along whole flights, where psi follows the rounds."""
    psi, centres, radii, positions = (
        np.stack([getattr(flight, name) for flight in flown]) for name in ("psi", "centres", "radii", "positions")
    )
    empty = fleet_plan(len(flown), positions.shape[1], len(flown[0].centres))
    plan = replace(empty, psi=psi, radii=radii, true_centres=centres, true_radii=radii)
    grown = Schedule(plan, {"train": train, "test": test}, conditions(sensing, seed))
    for t in range(1, positions.shape[1]):  # round 0 has the initial set
        now = np.full(len(flown), float(t))
        grown.sense(positions[:, t], now, now)
    return grown


def conditions(sensing: SensingSettings, seed: int) -> Conditions:
    """Return the paper's conditions, with this sensing and seed."""
    return Conditions(WorldSettings(), VehicleSettings(), SensorSettings(), sensing, FaultSettings(), seed)


def schedule(train: int = 300, test: int = 90, seed: int = 0, sensing: SensingSettings = SMALL) -> Schedule:
    return grow(flights(), labels(train), labels(test, seed=2), sensing, seed)


# pools


@pytest.mark.parametrize("part", ["train", "test"])
def test_pools_are_disjoint_even_and_of_one_class(part):
    truth = labels(50)
    pools = split_pools(truth, CLASSES, VEHICLES, 0, part)
    assert [[len(own) for own in pool] for pool in pools] == [[16] * CLASSES] * VEHICLES  # 50 // 3, two left over
    everything = np.concatenate([own for pool in pools for own in pool])
    assert len(np.unique(everything)) == len(everything)
    for pool in pools:
        for c, own in enumerate(pool):
            assert (truth[own] == c).all()


def test_the_parts_are_shared_out_independently_of_each_other():
    truth = labels(50)
    one, other = (split_pools(truth, CLASSES, VEHICLES, 0, part) for part in ("train", "test"))
    assert not np.array_equal(one[0][0], other[0][0])


def test_more_vehicles_than_samples_leave_empty_pools():
    pools = split_pools(labels(2), CLASSES, VEHICLES, 0, "train")
    assert all(len(own) == 0 for pool in pools for own in pool)


@pytest.mark.parametrize("part", ["train", "test"])
def test_no_two_vehicles_ever_hold_the_same_sample(part):
    grown = getattr(schedule(), part)
    everything = np.concatenate([growth.samples for growth in grown])
    assert len(everything) > 80
    assert len(np.unique(everything)) == len(everything)


# the initial set and the growth


@pytest.mark.parametrize(("part", "initial", "per_class"), [("train", 40, 300), ("test", 12, 90)])
def test_round_zero_holds_exactly_the_initial_set(part, initial, per_class):
    grown, truth = getattr(schedule(), part), labels(per_class, seed=1 if part == "train" else 2)
    for flight, growth in zip(flights(), grown, strict=True):
        wanted = initial_counts(flight.psi, initial)
        assert growth.size[0] == wanted.sum()
        assert np.bincount(truth[growth.at(0)], minlength=CLASSES).tolist() == wanted.tolist()


@pytest.mark.parametrize(("part", "n_max", "per_class"), [("train", 30, 300), ("test", 8, 90)])
def test_every_later_round_brings_the_counts_of_equation_6(part, n_max, per_class):
    grown, truth = getattr(schedule(), part), labels(per_class, seed=1 if part == "train" else 2)
    for flight, growth in zip(flights(), grown, strict=True):
        wanted = new_counts(flight.positions, flight.psi, flight.centres, flight.radii, n_max, 50.0)
        for t in range(1, ROUNDS):
            fresh = growth.samples[growth.size[t - 1] : growth.size[t]]
            assert np.bincount(truth[fresh], minlength=CLASSES).tolist() == wanted[:, t].tolist()
        assert not growth.dry.any()


def test_a_set_is_the_union_of_what_was_before_and_what_is_new():
    for growth in (*schedule().train, *schedule().test):
        for t in range(1, ROUNDS):
            before, now = growth.at(t - 1), growth.at(t)
            assert now[: len(before)].tolist() == before.tolist()
        assert len(growth.at(ROUNDS - 1)) == len(growth.samples)


def test_samples_of_a_round_come_in_no_order_of_class():
    growth, truth = schedule().train[0], labels(300)
    first = truth[growth.at(0)]
    assert (np.diff(first.astype(int)) < 0).any()


@pytest.mark.parametrize("cuts", [(3,), (1, 2), tuple(range(1, ROUNDS))])
def test_several_rounds_at_once_bring_what_they_bring_one_by_one(cuts):
    """Also where pools run dry on the way."""
    wanted = np.random.default_rng(0).integers(0, 7, (CLASSES, ROUNDS))
    for per_class in (300, 36):
        pool = split_pools(labels(per_class), CLASSES, VEHICLES, 0, "train")[0]
        whole, cut = (Growth(pool, np.random.default_rng(3)) for _ in range(2))
        whole.extend(wanted)
        for a, b in pairwise([0, *cuts, ROUNDS]):
            cut.extend(wanted[:, a:b])
        assert len(whole.size) == ROUNDS
        assert (whole.dry.sum() > 0) == (per_class == 36)
        for name in ("samples", "size", "dry"):
            assert getattr(whole, name).tolist() == getattr(cut, name).tolist(), name


# psi in mission time


def test_psi_between_two_rounds_is_in_between_and_constant_after_the_last():
    psi = np.array([[0.2, 0.6, 0.5], [0.8, 0.4, 0.5]])
    assert psi_at(psi, 0.0).tolist() == [0.2, 0.8]
    assert psi_at(psi, 0.25) == pytest.approx([0.3, 0.7])
    assert psi_at(psi, 1.0).tolist() == [0.6, 0.4]
    assert psi_at(psi, 1.5) == pytest.approx([0.55, 0.45])
    assert psi_at(psi, 2.0).tolist() == psi_at(psi, 9.75).tolist() == [0.5, 0.5]


def test_a_visit_between_two_rounds_brings_the_counts_of_psi_then():
    flown, wanted = flights(1)[0], []
    plan = replace(fleet_plan(1, ROUNDS), psi=flown.psi[None], true_centres=flown.centres[None],
                   true_radii=flown.radii[None])  # fmt: skip
    grown = Schedule(plan, {"train": labels(300), "test": labels(90)}, conditions(SMALL, 0))
    for phase in (0.5, 2.75, ROUNDS + 5.0):
        place = flown.centres[[1]] + 5.0
        grown.sense(place, np.array([60 * phase]), np.array([phase]))
        then = psi_at(flown.psi, phase)[:, None]
        wanted.append(new_counts(place, then, flown.centres, flown.radii, 30, 50.0).sum())
    assert np.diff(grown.train[0].size).tolist() == wanted
    assert len(set(wanted)) > 1


def test_who_senses_nothing_gets_nothing():
    """Vehicle 1 is on the ground in both rounds."""
    flown = flights()
    plan = replace(fleet_plan(3, ROUNDS), psi=np.stack([flight.psi for flight in flown]))
    grown = Schedule(plan, {"train": labels(300), "test": labels(90)}, conditions(SMALL, 0))
    for t in (1.0, 2.0):
        now = np.array([t, np.nan, t])
        grown.sense(plan.true_centres[:, 0], now, now)
    sizes = [growth.size.tolist() for growth in grown.train]
    assert sizes[1] == [sizes[1][0]] * 3
    assert sizes[0][2] > sizes[0][0]
    assert sizes[2][2] > sizes[2][0]


# dry pools


def test_a_dry_pool_is_reported_and_never_exceeded():
    found = schedule(train=36, test=9)  # pools of 12 and 3 a class
    for part, per_class, n_max, initial in (("train", 12, 30, 40), ("test", 3, 8, 12)):
        truth = labels(36 if part == "train" else 9, seed=1 if part == "train" else 2)
        for flight, growth in zip(flights(), getattr(found, part), strict=True):
            assert np.bincount(truth[growth.samples], minlength=CLASSES).max() <= per_class
            assert len(np.unique(growth.samples)) == len(growth.samples)
            wanted = new_counts(flight.positions, flight.psi, flight.centres, flight.radii, n_max, 50.0)
            wanted[:, 0] = initial_counts(flight.psi, initial)
            got = np.diff(growth.size, prepend=0)
            assert (got + growth.dry).tolist() == wanted.sum(axis=0).tolist()
            assert growth.dry.sum() > 0
            assert (growth.dry >= 0).all()


def test_a_class_that_ran_dry_does_not_stop_the_others():
    truth = np.array([0] * 2 + [1] * 100, np.uint8)
    psi = np.full((2, 4), 0.5)
    centres = np.array([[0.0, 0.0], [500.0, 0.0]])
    flight = Flight(centres[[0, 0, 1, 1]], psi, centres, np.full(2, 50.0))
    growth = grow([flight], truth, truth, SensingSettings(model="eq6", n_max=10, initial=4, initial_test=4), 0).train[0]
    assert growth.size.tolist() == [4, 4, 9, 14]
    assert growth.dry.tolist() == [0, 5, 0, 0]


def test_empty_pools_give_empty_sets_and_count_everything_as_dry():
    found = schedule(train=2)
    for growth in found.train:
        assert len(growth.samples) == 0
        assert growth.size.tolist() == [0] * ROUNDS
        assert growth.dry.sum() > 0


# what is held


def test_keep_last_keeps_the_newest():
    whole, cut = schedule(), schedule(sensing=SMALL.model_copy(update={"keep_last": 45}))
    for u in range(VEHICLES):
        for t in range(ROUNDS):
            expected = whole.train_set(u, t)[-45:]
            assert cut.train_set(u, t).tolist() == expected.tolist()
    assert len(cut.train_set(0, ROUNDS - 1)) == 45
    assert whole.test_members(ROUNDS - 1, 360).tolist() == cut.test_members(ROUNDS - 1, 360).tolist()


def test_test_members_are_the_vehicles_test_sets_together():
    found = schedule()
    for t in range(ROUNDS):
        inside = found.test_members(t, 360)
        assert inside.dtype == bool
        assert np.flatnonzero(inside).tolist() == sorted(s for growth in found.test for s in growth.at(t))


# seeds


def test_the_same_seed_gives_the_same_schedule_and_another_seed_another():
    one, again, other = schedule(seed=5), schedule(seed=5), schedule(seed=6)
    for part in ("train", "test"):
        for a, b, c in zip(getattr(one, part), getattr(again, part), getattr(other, part), strict=True):
            assert a.samples.tolist() == b.samples.tolist()
            assert a.size.tolist() == b.size.tolist() == c.size.tolist()  # the seed decides which, not how many
            assert a.samples.tolist() != c.samples.tolist()


def test_a_vehicles_pools_do_not_depend_on_how_much_others_sense():
    together = grow(flights(), labels(300), labels(90), SMALL, 0)
    moved = [*flights()[:2], flights(seed=9)[2]]
    changed = grow(moved, labels(300), labels(90), SMALL, 0)
    for u in (0, 1):
        assert together.train[u].samples.tolist() == changed.train[u].samples.tolist()


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 4), st.integers(1, 5), st.integers(1, 6), st.integers(0, 40), st.integers(0, 60), st.integers(0, 99)
)
def test_growth_holds_for_any_shape(vehicles, classes, rounds, per_class, n_max, seed):
    truth = labels(per_class, classes)
    found = grow(
        flights(vehicles, classes, rounds, seed),
        truth,
        truth,
        SensingSettings(model="eq6", n_max=n_max, initial=20),
        seed,
    )
    everything = np.concatenate([growth.samples for growth in found.train])
    assert len(np.unique(everything)) == len(everything)
    for growth in found.train:
        assert (np.diff(growth.size) >= 0).all()
        assert growth.size[-1] == len(growth.samples) <= classes * (per_class // vehicles)
        assert (growth.dry >= 0).all()
