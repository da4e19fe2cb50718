"""What every recipe must keep: the same bits everywhere, masks respected, uploads unbiased, bytes that decode."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from learning_cases import Memory, fleet_plan, pictures, tiny_config, write_picture_folder
from skyfed.algorithms import RECIPES, Recipe
from skyfed.config import Config
from skyfed.drivers.inline import InlineDriver
from skyfed.drivers.pool import PoolDriver
from skyfed.errors import BadInputError, SkyfedError
from skyfed.learning.local import Batches
from skyfed.records import Update
from skyfed.sensing.datasets import load_data
from skyfed.server import Aggregate
from skyfed.simulate import State, run
from skyfed.vehicle import Upload, Vehicles
from skyfed.wire import Expected, decode, encode, paper_bits

KNOWN = pictures()
PLAN = fleet_plan()
CENTRAL = [name for name, recipe in RECIPES.items() if recipe.central]
FEDERATED = [name for name, recipe in RECIPES.items() if not recipe.central]
PRUNING = [name for name in FEDERATED if RECIPES[name].prune]

every_recipe = pytest.mark.parametrize("algorithm", list(RECIPES))
every_federated = pytest.mark.parametrize("algorithm", FEDERATED)
every_pruning = pytest.mark.parametrize("algorithm", PRUNING)


def inline(config: Config) -> InlineDriver:
    return InlineDriver(Vehicles(config, KNOWN, PLAN))


def run_all(config: Config, algorithm: str, driver: object, first: int = 0, state: State | None = None) -> Memory:
    memory = Memory()
    start = state or State(*Vehicles(config, KNOWN, PLAN).initial())
    final = run(config, algorithm, driver, memory, start, first)
    assert final is memory.states[-1]
    return memory


def bits(memory: Memory) -> list[bytes]:
    return [state.weights.tobytes() + state.buffers.tobytes() for state in memory.states]


def sent(memory: Memory) -> list[bytes]:
    return [upload.data for report in memory.reports for upload in report.uploads]


Model = tuple[np.ndarray, np.ndarray]  # weights and buffers that a round started from


def opened(vehicles: Vehicles, upload: Upload, t: int, model: Model) -> Update:
    expected = Expected(t, upload.vehicle, vehicles.common(*model), vehicles.settings.train.eta_local_at(t))
    return decode(upload.data, expected)


def dense(vehicles: Vehicles, update: Update, model: Model) -> np.ndarray:
    """The upload as the server takes it, in double precision."""
    server = Aggregate(vehicles.common(*model))
    server.add(update, 1.0)
    return server._sum


# the same bits


@every_recipe
def test_two_runs_give_the_same_bits_and_another_seed_others(algorithm):
    config = tiny_config()
    one, again = (run_all(config, algorithm, inline(config)) for _ in range(2))
    assert len(one.states) == config.rounds
    assert bits(one) == bits(again)
    assert sent(one) == sent(again)
    assert [report.accuracy for report in one.reports][-1] == [report.accuracy for report in again.reports][-1]
    other = tiny_config("seed=1")
    assert bits(run_all(other, algorithm, inline(other)))[-1] != bits(one)[-1]


@every_recipe
def test_going_on_from_any_round_gives_the_same_bits(algorithm):
    config = tiny_config()
    whole = run_all(config, algorithm, inline(config))
    for first in range(1, config.rounds):
        rest = run_all(config, algorithm, inline(config), first, whole.states[first - 1])
        assert bits(rest) == bits(whole)[first:]
        assert sent(rest) == [upload.data for report in whole.reports[first:] for upload in report.uploads]


def test_one_driver_can_run_all_recipes_one_after_the_other():
    """What an algorithm leaves behind in the shared model must not reach the next one."""
    config = tiny_config()
    shared, start = inline(config), State(*Vehicles(config, KNOWN, PLAN).initial())
    for algorithm in RECIPES:
        alone = run_all(config, algorithm, inline(config))
        assert bits(run_all(config, algorithm, shared, state=start)) == bits(alone)


@every_federated
def test_the_order_of_the_vehicles_does_not_change_their_uploads(algorithm):
    config = tiny_config()
    state = State(*Vehicles(config, KNOWN, PLAN).initial())
    forwards = {u.vehicle: u.data for u in inline(config).train(algorithm, 1, state, [0, 1, 2])}
    backwards = {u.vehicle: u.data for u in inline(config).train(algorithm, 1, state, [2, 0, 1])}
    (alone,) = inline(config).train(algorithm, 1, state, [2])
    assert forwards == backwards
    assert alone.data == forwards[2]
    assert len(set(forwards.values())) == 3


@every_recipe
def test_what_is_handed_in_is_left_as_it_was(algorithm):
    config = tiny_config()
    driver = inline(config)
    start = State(*Vehicles(config, KNOWN, PLAN).initial())
    before = start.weights.copy(), start.buffers.copy()
    run_all(config, algorithm, driver, state=start)
    assert np.array_equal(start.weights, before[0])
    assert np.array_equal(start.buffers, before[1])


# worker processes


@pytest.fixture(scope="module")
def pooled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, Path]:
    """The tiny experiment with its pictures and flights in files, as worker processes need them."""
    place = tmp_path_factory.mktemp("pooled")
    root = write_picture_folder(place / "pictures", KNOWN)
    config = tiny_config(f'data.name="folder:{root}"', f'data.dir="{place / "cache"}"', "data.size=8")
    (place / "plan.npz").write_bytes(PLAN.to_bytes())
    load_data(config.data)  # into the cache
    return config, place / "plan.npz"


@pytest.mark.parametrize("workers", [2, 3])
def test_the_number_of_workers_changes_nothing(pooled, workers):
    config, plan_file = pooled
    vehicles = Vehicles(config, load_data(config.data), PLAN)
    start = State(*vehicles.initial())
    with PoolDriver(vehicles, config, plan_file, workers) as driver:
        place = driver._place.path
        for algorithm in RECIPES:
            alone = run_all(config, algorithm, InlineDriver(vehicles), state=start)
            many = run_all(config, algorithm, driver, state=start)
            assert bits(many) == bits(alone), algorithm
            assert sent(many) == sent(alone), algorithm
            for one, other in zip(alone.reports, many.reports, strict=True):
                for name in ("accuracy", "accuracy_full", "loss", "train_loss"):
                    assert getattr(one, name) == pytest.approx(getattr(other, name), rel=0, abs=0, nan_ok=True)
                for a, b in zip(one.uploads, other.uploads, strict=True):
                    assert replace(a, seconds=0, cpu=0) == replace(b, seconds=0, cpu=0)
        assert len(list(place.glob("*.f32"))) == 1  # one global model at a time lies in memory ...
    assert not place.exists()  # ... and none when the workers have gone


# masks


@every_federated
def test_masked_entries_are_absent_and_count_as_zero(algorithm):
    config = tiny_config("prune.delta=0.5")
    vehicles = Vehicles(config, KNOWN, PLAN)
    state = vehicles.initial()
    for u in range(config.vehicles):
        upload = vehicles.train(algorithm, u, 1, *state)
        update = opened(vehicles, upload, 1, state)
        assert (update.mask is not None) == RECIPES[algorithm].prune
        if update.mask is None:
            assert upload.kept == update.kept == vehicles.layout.size
            continue
        assert upload.kept == update.kept == int(update.mask.sum())
        assert (~update.mask).sum() == round(0.5 * vehicles.layout.kernels.sum())
        assert update.mask[~vehicles.layout.kernels].all()
        assert not dense(vehicles, update, state)[~update.mask].any()


@every_pruning
def test_an_entry_that_every_vehicle_pruned_stays_as_it_was(algorithm):
    config = tiny_config("prune.delta=0.6")
    driver = inline(config)
    memory = run_all(config, algorithm, driver)
    before = State(*Vehicles(config, KNOWN, PLAN).initial())
    checked = 0
    for state, report in zip(memory.states, memory.reports, strict=True):
        model = (before.weights, before.buffers)
        masks = [opened(driver._vehicles, upload, report.round, model).mask for upload in report.uploads]
        nobody = ~np.logical_or.reduce(masks)
        checked += int(nobody.sum())
        assert np.array_equal(state.weights[nobody], before.weights[nobody])
        before = state
    assert checked > 100


@every_federated
def test_the_server_moves_by_the_mean_of_what_was_decoded(algorithm):
    """Through its own vehicle no masked entry changes: its part of the step is exactly zero there."""
    config = tiny_config("prune.delta=0.5")
    driver = inline(config)
    vehicles = driver._vehicles
    start = State(*vehicles.initial())
    (after, *_), (report, *_) = (lambda m: (m.states, m.reports))(run_all(config, algorithm, driver, state=start))
    model = (start.weights, start.buffers)
    updates = [opened(vehicles, upload, 0, model) for upload in report.uploads]
    mean = sum(dense(vehicles, update, model) for update in updates) / 3
    assert (
        np.array_equal(after.weights, (start.weights - 0.1 * mean).astype(np.float32))
        or np.abs(after.weights - (start.weights - 0.1 * mean)).max() < 1e-7
    )
    assert after.buffers == pytest.approx(np.mean([u.buffers for u in updates], axis=0), rel=1e-6)


# unbiased


@every_federated
@pytest.mark.parametrize("bucket", ["64", "0", "tensor"])
def test_the_mean_upload_is_the_raw_one(algorithm, bucket):
    """Only the quantiser's stream changes between draws; delta, masks and batches stay."""
    config = tiny_config("model.name=mlp", "model.width=2", "prune.delta=0.3", f"quantise.bucket={bucket}")
    vehicles = Vehicles(config, KNOWN, PLAN)
    state = vehicles.initial()
    recipe = RECIPES[algorithm]
    local = vehicles.train_locally(recipe, 0, 1, *state, 0.3 if recipe.prune else 0.0)
    raw = local.gradient.astype(np.float64)
    draws = 600
    total, square, quantised = np.zeros_like(raw), np.zeros_like(raw), 0
    for seed in range(draws):
        vehicles.settings = config.model_copy(update={"seed": seed})
        update = vehicles.update(0, 1, local, vehicles.choice(recipe, 0, 1, state[0])[1])
        quantised += update.quantised
        seen = dense(vehicles, update, state)
        total += seen
        square += seen**2
    share = {"afl": 0.0, "afl-prune": 0.0, "afl-quant": 1.0, "2ceoafl": 0.7}.get(algorithm)
    if share is not None:
        assert abs(quantised / draws - share) <= 5 * (share * (1 - share) / draws) ** 0.5
    mean = total / draws
    spread = np.sqrt(np.maximum(square / draws - mean**2, 0) / draws)
    some = spread > 1e-7 * np.abs(raw).max()
    assert np.abs(mean - raw)[~some].max(initial=0) <= 1e-2 * np.abs(raw).max()
    if some.any():
        errors = (mean - raw)[some] / spread[some]
        assert np.abs(errors.mean()) <= 6 / some.sum() ** 0.5 + 0.2
        assert np.median(np.abs(errors)) < 1.2  # 0.67 for a normal law
        relative = np.linalg.norm(mean - raw) / np.linalg.norm(raw)
        assert relative < 5 * np.linalg.norm(spread) / np.linalg.norm(raw)


# bytes


@every_federated
@pytest.mark.parametrize("bucket", ["64", "0", "tensor"])
def test_the_bytes_decode_to_what_was_sent(algorithm, bucket):
    config = tiny_config(f"quantise.bucket={bucket}")
    vehicles = Vehicles(config, KNOWN, PLAN)
    state = vehicles.initial()
    for t in range(config.rounds):
        for u in range(config.vehicles):
            upload = vehicles.train(algorithm, u, t, *state)
            update = opened(vehicles, upload, t, state)
            assert encode(update, vehicles.common(*state)) == upload.data
            assert (update.round, update.vehicle) == (t, u)
            assert update.quantised == upload.quantised
            assert 0 < upload.buffer_bytes <= 4 * len(update.buffers) == 4 * vehicles.layout.buffers
            recipe = RECIPES[algorithm]
            local = vehicles.train_locally(recipe, u, t, *state, upload.delta)
            raw = local.gradient if local.mask is None else local.gradient[local.mask]
            assert np.array_equal(update.buffers, local.buffers)
            if update.quantised:
                step = np.abs(dense(vehicles, update, state) - local.gradient).max() / np.linalg.norm(raw)
                assert step <= (1 + 2**-7) / config.quantise.s  # norms are rounded up to bfloat16
            else:
                assert np.array_equal(update.body.values, raw)
            expected = paper_bits(vehicles.layout.size, upload.delta, 3, raw=not update.quantised)
            assert upload.paper_bits == expected


# the same for all


class Notebook(Batches):
    """Batches that remember what was drawn."""

    seen: list[bytes]

    def draw(self, *arguments: object) -> Iterator[tuple[Tensor, Tensor]]:
        for images, labels in super().draw(*arguments):
            self.seen.append(images.numpy().tobytes() + labels.numpy().tobytes())
            yield images, labels


def test_all_algorithms_train_on_the_same_batches():
    config = tiny_config()
    drawn = {}
    for algorithm in FEDERATED:
        vehicles = Vehicles(config, KNOWN, PLAN)
        vehicles._batches = Notebook(KNOWN)
        vehicles._batches.seen = []
        vehicles.train(algorithm, 1, 2, *vehicles.initial())
        drawn[algorithm] = vehicles._batches.seen
    kappa, rho = config.train.kappa, config.train.rho
    for algorithm, seen in drawn.items():
        assert len(seen) == kappa + (rho if RECIPES[algorithm].prune else 0)
        assert seen[-kappa:] == drawn["afl"]
    assert drawn["afl-prune"] == drawn["2ceoafl"]
    assert drawn["afl-prune"][0] not in drawn["afl"]  # the dense steps have batches of their own


def test_the_two_algorithms_that_prune_have_the_same_ratios_and_masks():
    config = tiny_config("cost.model=law")
    vehicles = Vehicles(config, KNOWN, PLAN)
    state = vehicles.initial()
    for t in range(config.rounds):
        for u in range(config.vehicles):
            one, other = (vehicles.train(name, u, t, *state) for name in ("afl-prune", "2ceoafl"))
            assert one.delta == other.delta
            assert 0.05 <= one.delta < 0.7
            assert np.array_equal(opened(vehicles, one, t, state).mask, opened(vehicles, other, t, state).mask)
            assert one.spent.train_seconds == pytest.approx(1 + 3 * (1 - one.delta))


def test_without_ratio_and_coin_2ceoafl_is_afl():
    config = tiny_config("prune.delta=0.0", "quantise.raw_probability=1.0", "rounds=1")
    one, other = (run_all(config, name, inline(config)).states[0] for name in ("2ceoafl", "afl"))
    assert np.abs(one.weights - other.weights).max() < 1e-6  # a masked step rounds once where a plain one rounds twice
    assert one.buffers == pytest.approx(other.buffers, rel=1e-5)


# a sixth row


def test_a_sixth_row_with_its_own_coin_runs_like_the_others(monkeypatch):
    asked = []

    def mostly_raw(delta: float, setting: float | str) -> float:
        asked.append((delta, setting))
        return 1 - delta

    monkeypatch.setitem(RECIPES, "afl-mine", Recipe("AFL-Mine", prune=True, raw_probability=mostly_raw))
    config = tiny_config('algorithms=["afl-mine"]', "rounds=4", "prune.delta=[0.2, 0.3, 0.4]")
    driver = InlineDriver(Vehicles(config, KNOWN, fleet_plan(3, 4)))
    memory = run_all(config, "afl-mine", driver)
    uploads = [upload for report in memory.reports for upload in report.uploads]
    assert len(uploads) == 12
    assert {upload.quantised for upload in uploads} == {True, False}
    assert sorted(set(asked)) == [(0.2, "delta"), (0.3, "delta"), (0.4, "delta")]
    assert memory.reports[-1].accuracy > 0
    assert not any(report.dropped for report in memory.reports)


# testing and going wrong


@every_recipe
def test_the_model_is_tested_every_so_many_rounds_and_at_the_end(algorithm):
    config = tiny_config("eval_every=2")
    memory = run_all(config, algorithm, inline(config))
    assert [np.isfinite(report.accuracy) for report in memory.reports] == [False, True, True]
    assert [report.per_class is not None for report in memory.reports] == [False, True, True]
    last = memory.reports[-1]
    assert last.per_class == pytest.approx(last.per_class)
    assert last.accuracy_full == pytest.approx(last.per_class.mean())  # the fixed test set is balanced
    assert [report.round for report in memory.reports] == [0, 1, 2]
    assert np.isfinite(last.train_loss)


@every_federated
def test_a_vehicle_whose_bytes_are_damaged_is_left_out_and_named(algorithm):
    config = tiny_config()
    driver = inline(config)

    class Noisy(InlineDriver):
        def train(self, *arguments: object) -> Iterator[Upload]:
            for upload in super().train(*arguments):
                yield replace(upload, data=upload.data[:-1]) if upload.vehicle == 1 else upload

    noisy = Noisy(driver._vehicles)
    start = State(*driver._vehicles.initial())
    memory = run_all(config, algorithm, noisy, state=start)
    assert all(list(report.dropped) == [1] for report in memory.reports)
    model = (start.weights, start.buffers)
    others = [opened(driver._vehicles, upload, 0, model) for upload in memory.reports[0].uploads if upload.vehicle != 1]
    mean = sum(dense(driver._vehicles, update, model) for update in others) / 2
    assert np.abs(memory.states[0].weights - (start.weights - 0.1 * mean)).max() < 1e-7


def test_training_that_diverges_everywhere_ends_with_one_line():
    config = tiny_config("train.eta_local=1e30")
    with pytest.raises(SkyfedError) as caught:
        run_all(config, "afl", inline(config))
    assert "round 0" in str(caught.value)
    assert "eta_local" in str(caught.value)
    assert "\n" not in str(caught.value)
    config = tiny_config("train.eta=1e30")
    with pytest.raises(SkyfedError, match="sgd stops at round 0"):
        run_all(config, "sgd", inline(config))


def test_vehicles_without_any_picture_are_told_so():
    """More vehicles than pictures of a class: pools are empty, and that is not a matter of learning rates."""
    config = tiny_config("vehicles=3")
    few = pictures(train=2, test=15)
    with pytest.raises(BadInputError) as caught:
        run(
            config,
            "afl",
            InlineDriver(Vehicles(config, few, PLAN)),
            Memory(),
            State(*Vehicles(config, few, PLAN).initial()),
        )
    assert "\n" not in str(caught.value)


def test_a_batch_too_small_for_batch_norm_is_refused_in_one_line():
    """On 1 x 1 maps batch norm needs two pictures; torch says so deep inside."""
    config = tiny_config("model.name=resnet18", "train.batch_size=1")
    vehicles = Vehicles(config, KNOWN, PLAN)
    with pytest.raises(BadInputError) as caught:
        vehicles.train("afl", 0, 0, *vehicles.initial())
    assert "\n" not in str(caught.value)


def test_flights_for_another_number_of_classes_are_refused():
    with pytest.raises(BadInputError, match=r"field.classes = 5, but the data has 4 classes"):
        Vehicles(tiny_config(), KNOWN, fleet_plan(classes=5))


# a user's own module


class Dropping(nn.Module):
    """A module with dropout, whose coins come from torch's own generator."""

    def __init__(self, classes: int, side: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(3 * side * side, 8), nn.Dropout(0.5), nn.Linear(8, classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Counting(nn.Module):
    """A module whose batch norm averages over all steps so far, counted in an integer buffer."""

    def __init__(self, classes: int, side: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4, momentum=None)
        self.head = nn.Linear(4, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.convolution(x)).mean(dim=(2, 3)))


@pytest.mark.parametrize("name", ["Dropping", "Counting"])
def test_a_module_with_coins_or_counters_of_its_own_keeps_the_contract(name):
    config = tiny_config(f"model.name={__name__}:{name}")
    state = State(*Vehicles(config, KNOWN, PLAN).initial())
    torch.manual_seed(1)
    forwards = {u.vehicle: u.data for u in inline(config).train("afl", 1, state, [0, 1, 2])}
    torch.manual_seed(2)
    backwards = {u.vehicle: u.data for u in inline(config).train("afl", 1, state, [2, 1, 0])}
    assert forwards == backwards


def test_global_generators_are_neither_used_nor_touched():
    config = tiny_config()
    torch.manual_seed(3)
    before, plain = torch.get_rng_state(), np.random.get_state()[1].tobytes()  # noqa: NPY002
    run_all(config, "2ceoafl", inline(config))
    assert torch.equal(torch.get_rng_state(), before)
    assert np.random.get_state()[1].tobytes() == plain  # noqa: NPY002


def test_central_recipes_send_nothing():
    config = tiny_config()
    for algorithm in CENTRAL:
        assert sent(run_all(config, algorithm, inline(config))) == []
