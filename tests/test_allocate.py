"""Choosing delta and the probability of a raw upload from the bound."""

import numpy as np
import pytest

from learning_cases import TINY, Memory, fleet_plan, pictures, tiny_config
from skyfed.algorithms import find_recipe
from skyfed.config import load_config
from skyfed.cost import local_rounds
from skyfed.drivers.inline import InlineDriver
from skyfed.errors import BadInputError
from skyfed.simulate import State, run
from skyfed.theory.allocate import DELTAS, RAWS, choose, pruning_errors
from skyfed.vehicle import Vehicles
from skyfed.wire import paper_bits

KNOWN, PLAN = pictures(), fleet_plan()


def test_pruning_errors_are_those_of_the_smallest_entries():
    weights = np.random.default_rng(0).standard_normal(2000)
    squares = np.sort(weights**2)
    for delta, found in zip(DELTAS, pruning_errors(weights), strict=True):
        assert found == pytest.approx(squares[: round(delta * 2000)].sum())


def test_of_many_weights_a_sample_is_near_enough():
    weights = np.random.default_rng(1).standard_normal(3_000_000).astype(np.float32)
    exact = np.sort(np.square(weights.astype(np.float64)))
    found = pruning_errors(weights)
    for k in (4, 12, 24, 36):
        assert found[k] == pytest.approx(exact[: round(DELTAS[k] * len(weights))].sum(), rel=0.03)


def chosen(may_prune: bool = True, raws: np.ndarray = RAWS, fits=lambda delta, raw: True, cost=lambda d, r: d + r):
    return choose(pruning_errors(np.ones(100)), 10.0, 0.1, 0.1, 1.0, 8.0, may_prune, raws, fits, cost)


def test_without_budgets_nothing_is_pruned_and_all_is_raw():
    found = chosen()
    assert (found.delta, found.raw, found.error, found.fits) == (0.0, 1.0, 0.0, True)


def test_the_least_error_of_what_fits_is_found():
    """By going through all pairs: a budget on a mixture of both."""

    def fits(delta: float, raw: float) -> bool:
        return raw + 2 * (1 - delta) <= 1.9

    found = chosen(fits=fits)
    best = min(
        100 * 0.1 * 100 * delta + 2 * 10 * 0.1 * 0.01 * (1 - raw) * 8
        for delta in DELTAS
        for raw in RAWS
        if fits(delta, raw)
    )
    assert found.error == pytest.approx(best, rel=0.02)
    assert fits(found.delta, found.raw)


def test_where_nothing_fits_the_cheapest_is_taken():
    found = chosen(fits=lambda delta, raw: False, cost=lambda delta, raw: raw - delta)
    assert (found.delta, found.raw, found.fits) == (DELTAS[-1], 0.0, False)


def test_an_algorithm_that_does_not_prune_has_no_choice():
    assert chosen(may_prune=False, raws=np.array([0.0])).delta == 0


def vehicles(*overrides: str) -> Vehicles:
    return Vehicles(load_config("smoke", [*TINY, 'prune.delta="bound"', *overrides]), KNOWN, PLAN)


@pytest.mark.parametrize("payload", [0.1, 0.2, 0.3, 0.6, 1.0])
def test_the_mean_payload_stays_within_its_budget(payload):
    fleet = vehicles(f"theory.payload={payload}")
    delta, raw = fleet.choice(find_recipe("2ceoafl"), 0, 1, fleet.initial()[0])
    size = fleet.layout.size
    bits = raw * paper_bits(size, delta, 3, raw=True) + (1 - raw) * paper_bits(size, delta, 3, raw=False)
    assert bits <= payload * paper_bits(size, 0.0, 3, raw=True)
    if payload == 1.0:
        assert (delta, raw) == (0.0, 1.0)
    assert delta <= 0.05 or payload < 0.12  # quantising comes before pruning but for what is nearly zero


@pytest.mark.parametrize("work", [1.5, 2.0, 2.9])
def test_the_work_stays_within_its_budget(work):
    fleet = vehicles(f"theory.work={work}")
    delta, raw = fleet.choice(find_recipe("afl-prune"), 0, 1, fleet.initial()[0])
    assert local_rounds(fleet.settings.train, True, delta) <= work + 1e-9
    assert raw == 1
    assert local_rounds(fleet.settings.train, True, delta - 0.025) > work


def test_joules_and_deadlines_count_too():
    loose = vehicles()
    start = loose.initial()[0]
    spent = loose._spent(find_recipe("2ceoafl"), 0, 1, 0.0, loose.layout.size * 4)
    tight = vehicles(f"theory.joules={0.3 * (spent.train_joules + spent.send_joules)}")
    late = vehicles(f"cost.deadline={spent.fly_seconds + 0.5 * (spent.train_seconds + spent.send_seconds)}")
    recipe = find_recipe("2ceoafl")
    assert loose.choice(recipe, 0, 1, start) == (0.0, 1.0)
    assert tight.choice(recipe, 0, 1, start) != (0.0, 1.0)
    assert late.choice(recipe, 0, 1, start) != (0.0, 1.0)


def test_without_pruning_there_are_no_dense_steps():
    fleet = vehicles()
    state = fleet.initial()
    upload = fleet.train("2ceoafl", 0, 1, *state)
    assert (upload.delta, upload.kept, upload.pruned_share) == (0.0, fleet.layout.size, 0.0)
    law = vehicles("cost.model=law").train("2ceoafl", 0, 1, *state)
    assert law.spent.train_seconds == 3  # kappa, and no rho


def test_a_whole_run_with_choices():
    config = load_config("smoke", [*TINY, 'prune.delta="bound"', "theory.payload=0.26", "theory.work=2.5"])
    fleet = Vehicles(config, KNOWN, PLAN)
    memory = Memory()
    run(config, "2ceoafl", InlineDriver(fleet), memory, State(*fleet.initial()))
    for report in memory.reports:
        assert not report.dropped
        assert {upload.delta for upload in report.uploads} == {0.5}


def test_other_words_for_delta_are_refused():
    with pytest.raises(BadInputError) as caught:
        tiny_config('prune.delta="best"')
    assert "prune.delta" in str(caught.value)
    assert "\n" not in str(caught.value)
