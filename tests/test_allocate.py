"""Choosing delta and the probability of a raw upload from the bound."""

import numpy as np
import pytest

from learning_cases import exchanged, job_of, run_row, start_of, station_of
from run_cases import LAW, tiny_config
from skyfed.errors import BadInputError
from skyfed.station import Station
from skyfed.theory.allocate import DELTAS, RAWS, choose, pruning_errors
from skyfed.wire import paper_bits
from skyfed.world import round_flops


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


def chosen(deltas: int = len(DELTAS), raws: np.ndarray = RAWS, excess=lambda delta, raw: 0.0) -> tuple[float, float]:
    return choose(pruning_errors(np.ones(100))[:deltas], 10.0, 0.1, 0.1, 1.0, 8.0, raws, excess)


def error_of(delta: float, raw: float) -> float:
    return 100 * 0.1 * 100 * delta + 2 * 10 * 0.1 * 0.01 * (1 - raw) * 8


def test_without_budgets_nothing_is_pruned_and_all_is_raw():
    assert chosen() == (0.0, 1.0)


def test_the_least_error_of_what_fits_is_found():
    """By going through all pairs: a budget on a mixture of both."""

    def excess(delta: float, raw: float) -> float:
        return (raw + 2 * (1 - delta)) / 1.9

    found = chosen(excess=excess)
    best = min(error_of(delta, raw) for delta in DELTAS for raw in RAWS if excess(delta, raw) <= 1)
    assert error_of(*found) == pytest.approx(best, rel=0.02)
    assert excess(*found) <= 1


def test_where_nothing_fits_the_cheapest_is_taken():
    assert chosen(excess=lambda delta, raw: 3 + raw - delta) == (DELTAS[-1], 0.0)


def test_an_algorithm_that_does_not_prune_has_no_choice():
    assert chosen(deltas=1, raws=np.array([0.0])) == (0.0, 0.0)


def fleet(label: str, *overrides: str) -> Station:
    return station_of(tiny_config('prune.delta="bound"', *overrides), label)


def choice(station: Station) -> tuple[float, float]:
    """Delta and the probability of a raw upload of vehicle 0 in round 1."""
    return station.algorithm.choice(station.onboard.kit(job_of(station, 0, 1)), start_of(station))


@pytest.mark.parametrize("payload", [0.1, 0.2, 0.3, 0.6, 1.0])
def test_the_mean_payload_stays_within_its_budget(payload):
    station = fleet("2ceoafl", f"theory.payload={payload}")
    delta, raw = choice(station)
    size = station.onboard.engine.layout.size
    bits = raw * paper_bits(size, delta, 3, raw=True) + (1 - raw) * paper_bits(size, delta, 3, raw=False)
    assert bits <= payload * paper_bits(size, 0.0, 3, raw=True)
    if payload == 1.0:
        assert (delta, raw) == (0.0, 1.0)
    assert delta <= 0.05 or payload < 0.12  # quantising comes before pruning but for what is nearly zero


@pytest.mark.parametrize("work", [1.5, 2.0, 2.9])
def test_the_work_stays_within_its_budget(work):
    station = fleet("afl-prune", f"theory.work={work}")
    delta, raw = choice(station)
    train = station.onboard.config.train
    assert train.rho + train.kappa * (1 - delta) <= work + 1e-9
    assert raw == 1
    assert train.rho + train.kappa * (1 - (delta - 0.025)) > work


def test_joules_and_deadlines_count_too():
    """Vehicle 0 flies 200 m in round 1, looks at the ground for 10 s, trains and sends; by hand from its means."""
    loose = fleet("2ceoafl")
    engine, train = loose.onboard.engine, loose.onboard.config.train
    kit = loose.onboard.kit(job_of(loose, 0, 1))
    flops = round_flops(train, engine.multiplications, len(loose.world.observe(0, 1)))
    work, size, brief = train.rho + train.kappa, engine.layout.size * 4, loose.world.brief(0, 1)
    training, sending = work * flops / 29.6e9, 8 * size / brief["rate"]
    spent = kit.spend(work, size)
    assert brief["elapsed"] == 200 / 10 + 10
    assert spent.seconds == pytest.approx(30 + training + sending)
    assert spent.joules == pytest.approx(11 * training + (0.1 / 0.35 + 0.1) * sending)
    tight = fleet("2ceoafl", f"theory.joules={0.3 * spent.joules}")
    assert choice(loose) == (0.0, 1.0)
    assert choice(tight) != (0.0, 1.0)
    assert choice(fleet("2ceoafl", f"world.deadline={30 + 0.5 * (training + sending)}")) != (0.0, 1.0)
    assert choice(fleet("2ceoafl", f"world.deadline={30 + 1.2 * (training + sending)}")) == (0.0, 1.0)


def test_without_pruning_there_are_no_dense_steps():
    station = fleet("2ceoafl", *LAW)
    _, report = exchanged(station, 1, vehicles=[0])
    facts = report.uploads[0].facts
    assert (facts["delta"], facts["kept"], facts["pruned_share"]) == (0.0, station.onboard.engine.layout.size, 0.0)
    station.world.close(1)
    assert station.world.upload_costs(0)["modelled_seconds"] == 3  # kappa, and no rho


def test_a_whole_run_with_choices():
    memory = run_row(fleet("2ceoafl", "theory.payload=0.26", "theory.work=2.5"))
    for report in memory.reports:
        assert not report.dropped
        assert {upload.facts["delta"] for upload in report.uploads} == {0.5}


def test_other_words_for_delta_are_refused():
    with pytest.raises(BadInputError) as caught:
        tiny_config('prune.delta="best"')
    assert "prune.delta" in str(caught.value)
    assert "\n" not in str(caught.value)
