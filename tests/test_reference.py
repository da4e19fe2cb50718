"""One round of all five recipes against a plain PyTorch reference in double precision, written without skyfed's code.

The reference shares with skyfed only what a user would have to share to compare two programs: the initial model, the
pictures, who holds which samples, and the random streams. Everything else is spelt out: batches, SGD, masks, QSGD,
the server's step.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from learning_cases import fleet_plan, pictures, tiny_config
from skyfed.config import Config
from skyfed.learning.flat import FlatModel
from skyfed.learning.local import Batches, descend, train_locally
from skyfed.learning.models import build_model
from skyfed.learning.prune import Scopes
from skyfed.rng import stream
from skyfed.sensing.datasets import Pictures
from skyfed.server import Aggregate
from skyfed.vehicle import Vehicles, common_of
from skyfed.wire import Expected, decode

ROUND = 1  # not 0, so that schedules and streams have something to tell apart
RECIPES = {  # prunes, probability of a raw upload as a function of delta
    "afl": (False, lambda delta: 1.0),
    "afl-prune": (True, lambda delta: 1.0),
    "afl-quant": (False, lambda delta: 0.0),
    "2ceoafl": (True, lambda delta: delta),
}
MODELS = {
    "cnn": ("model.name=cnn", "model.width=4"),
    "resnet18": ("model.name=resnet18", "model.width=4"),
}


# the reference


@dataclass
class Case:
    """An experiment and the global model its round starts from."""

    config: Config
    pictures: Pictures
    module: nn.Module  # double precision, weights and buffers of the round's start
    vehicles: Vehicles  # skyfed's side

    @property
    def weights(self) -> np.ndarray:
        return flat(self.module)[self.places]

    @property
    def places(self) -> np.ndarray:
        """For every entry of skyfed's flat vector its place among the parameters laid out one after the other."""
        return self.vehicles.layout.plain_places()

    @property
    def buffers(self) -> np.ndarray:
        return flat_buffers(self.module)


def flat(module: nn.Module) -> np.ndarray:
    return np.concatenate([parameter.detach().numpy().reshape(-1) for parameter in module.parameters()])


def flat_buffers(module: nn.Module) -> np.ndarray:
    found = [
        b.numpy().reshape(-1) for name, b in module.named_buffers() if name.endswith(("running_mean", "running_var"))
    ]
    return np.concatenate([np.empty(0), *found])


def minibatches(
    found: Pictures, samples: np.ndarray, size: int, count: int, rng: np.random.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Cut an endless row of shuffled passes over the samples into batches; normalised per channel."""
    wide = found.train_images.astype(np.float64)
    mean = wide.mean(axis=(0, 2, 3), keepdims=True)
    deviation = wide.std(axis=(0, 2, 3), keepdims=True)
    size = min(size, len(samples))
    row: list[int] = []
    for _ in range(count):
        while len(row) < size:
            row += samples[rng.permutation(len(samples))].tolist()
        batch, row = row[:size], row[size:]
        yield torch.from_numpy((wide[batch] - mean) / deviation), torch.from_numpy(found.train_labels[batch]).long()


def sgd(
    module: nn.Module, batches: Iterator[tuple[Tensor, Tensor]], rate: float, masks: list[Tensor] | None = None
) -> None:
    optimiser = torch.optim.SGD(module.parameters(), lr=rate)
    module.train()
    for images, labels in batches:
        optimiser.zero_grad()
        nn.CrossEntropyLoss()(module(images), labels).backward()
        if masks is not None:
            for parameter, mask in zip(module.parameters(), masks, strict=True):
                parameter.grad *= mask
        optimiser.step()


def smallest_masks(module: nn.Module, delta: float, scope: str) -> list[Tensor]:
    """Masks without the round(delta * n) smallest magnitudes of all prunable entries together."""
    prunable = [scope == "all" or parameter.dim() > 1 for parameter in module.parameters()]
    sizes = torch.cat(
        [p.detach().abs().reshape(-1) for p, may in zip(module.parameters(), prunable, strict=True) if may]
    )
    gone = torch.argsort(sizes, stable=True)[: round(delta * len(sizes))]
    keep = torch.ones(len(sizes), dtype=torch.float64)
    keep[gone] = 0
    masks, at = [], 0
    for parameter, may in zip(module.parameters(), prunable, strict=True):
        masks.append(keep[at : at + parameter.numel()].reshape(parameter.shape) if may else torch.ones_like(parameter))
        at += parameter.numel() if may else 0
    return masks


@dataclass
class Trained:
    d: np.ndarray
    mask: np.ndarray | None
    buffers: np.ndarray
    delta: float


def reference_training(case: Case, algorithm: str, vehicle: int, t: int = ROUND) -> Trained:
    """Eqs. 8-10 and d."""
    config = case.config
    train = config.train
    rate = 0.1 * 0.9 ** (t // 1)  # eta_local_drop_every = 1 in these tests
    low, high = 0.05, 0.7
    delta = float(stream(config.seed, "delta", t, vehicle).uniform(low, high)) if RECIPES[algorithm][0] else 0.0
    samples = case.vehicles.schedule.train_set(vehicle, t)

    def batches(purpose: str, rounds: int) -> Iterator[tuple[Tensor, Tensor]]:
        rng = stream(config.seed, purpose, t, vehicle)
        return minibatches(case.pictures, samples, train.batch_size, rounds * train.batches_per_round, rng)

    masks = None
    ticket = copy.deepcopy(case.module)
    if RECIPES[algorithm][0]:
        dense = copy.deepcopy(case.module)
        sgd(dense, batches("dense batches", train.rho), rate)
        masks = smallest_masks(dense, delta, config.prune.scope)
        with torch.no_grad():
            for parameter, mask in zip(ticket.parameters(), masks, strict=True):
                parameter *= mask
    start = flat(ticket).copy()
    sgd(ticket, batches("batches", train.kappa), rate, masks)
    mask = None if masks is None else np.concatenate([m.numpy().reshape(-1) for m in masks]).astype(bool)
    d, mask = ((start - flat(ticket)) / rate)[case.places], None if mask is None else mask[case.places]
    return Trained(d, mask, flat_buffers(ticket), delta)


def reference_quantised(values: np.ndarray, s: int, bucket: int, rng: np.random.Generator) -> np.ndarray:
    """Eq. 12: norm * sign * (l or l + 1) / s in buckets of so many entries; norms have eight bits, rounded up."""
    uniform = rng.random(len(values), np.float32).astype(np.float64)
    sent = np.zeros(len(values))
    for first in range(0, len(values), bucket):
        part = values[first : first + bucket]
        digits, power = np.frexp(np.linalg.norm(part))
        norm = np.ldexp(np.ceil(digits * 256) / 256, power)
        if norm == 0:
            continue
        place = np.abs(part) / norm * s
        lower = np.floor(place)
        coins = uniform[first : first + bucket]
        upper = np.where(part > 0, coins >= 1 - (place - lower), coins < place - lower)
        sent[first : first + bucket] = norm * np.sign(part) * (lower + upper) / s
    return sent


def reference_round(case: Case, algorithm: str) -> tuple[np.ndarray, np.ndarray]:
    """Eqs. 8-13: the weights and buffers after the round."""
    config = case.config
    total, buffers = np.zeros_like(case.weights), np.zeros_like(case.buffers)
    for u in range(config.vehicles):
        trained = reference_training(case, algorithm, u)
        kept = np.ones(len(total), bool) if trained.mask is None else trained.mask.copy()
        if case.vehicles.layout.live is not None:  # entries that can have no gradient do not travel
            dead = np.ones(len(total), bool)
            for run in case.vehicles.layout.live:
                dead[run] = False
            assert not trained.d[dead].any()
            kept[dead] = False
        rng = stream(config.seed, "quantise", ROUND, u)
        raw = rng.random() < RECIPES[algorithm][1](trained.delta)
        sent = trained.d[kept]
        if not raw:
            sent = reference_quantised(sent, config.quantise.s, config.quantise.bucket, rng)
        total[kept] += sent / config.vehicles
        buffers += trained.buffers / config.vehicles
    return case.weights - 0.1 * 0.9**ROUND * total, buffers


# cases


def make_case(model: str, *overrides: str) -> Case:
    config = tiny_config(*MODELS[model], "train.eta_drop_every=1", "train.eta_local_drop_every=1", *overrides)
    known = pictures(train=40, test=4, side=16)
    vehicles = Vehicles(config, known, fleet_plan(), dtype=torch.float64)
    module = build_model(config.model, known.classes, 16, config.seed).double()
    rng = np.random.default_rng(5)
    with torch.no_grad():  # as after some rounds: no initial zeros and ones left
        for parameter in module.parameters():
            parameter += torch.from_numpy(0.05 * rng.normal(size=parameter.shape))
        for name, buffer in module.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(torch.from_numpy(rng.normal(size=buffer.shape)))
            elif name.endswith("running_var"):
                buffer.copy_(torch.from_numpy(rng.uniform(0.5, 2, buffer.shape)))
    return Case(config, known, module, vehicles)


SETTINGS = {
    "plain": (),
    "rho 2, two mini-batches": ("train.rho=2", "train.batches_per_round=2"),
    "kappa 5, all entries": ("train.kappa=5", "prune.scope=all"),
}
_cases: dict[tuple[str, str], Case] = {}


@pytest.fixture(
    params=[(model, name) for model in MODELS for name in SETTINGS], ids=lambda pair: f"{pair[0]}, {pair[1]}"
)
def case(request: pytest.FixtureRequest) -> Case:
    model, name = request.param
    if request.param not in _cases:
        _cases[request.param] = make_case(model, *SETTINGS[name])
    return _cases[request.param]


def skyfed_training(case: Case, algorithm: str, vehicle: int) -> Trained:
    """The same by skyfed's train_locally in double precision."""
    config = case.config
    train = config.train
    model = FlatModel(build_model(config.model, 4, 16, 99), torch.float64, side=16, wide=True)
    batches = Batches(case.pictures, torch.float64, wide=True)
    samples = case.vehicles.schedule.train_set(vehicle, ROUND)
    prunes = RECIPES[algorithm][0]
    delta = float(stream(config.seed, "delta", ROUND, vehicle).uniform(0.05, 0.7)) if prunes else 0.0

    def draw(purpose: str, rounds: int) -> Iterator[tuple[Tensor, Tensor]]:
        rng = stream(config.seed, purpose, ROUND, vehicle)
        return batches.draw(samples, train.batch_size, rounds * train.batches_per_round, rng)

    scope = Scopes(model.layout, config.prune.scope == "kernels").of(case.weights)
    found = train_locally(
        model, torch.from_numpy(case.weights), torch.from_numpy(case.buffers),
        draw("dense batches", train.rho) if prunes else None, draw("batches", train.kappa),
        train.eta_local_at(ROUND), delta, scope,
    )  # fmt: skip
    return Trained(found.gradient, found.mask, found.buffers, delta)


# comparisons


@pytest.mark.parametrize("algorithm", RECIPES)
def test_d_mask_and_buffers_equal_the_reference(case, algorithm):
    ours, plain = skyfed_training(case, algorithm, 1), reference_training(case, algorithm, 1)
    assert (ours.mask is None) == (plain.mask is None)
    live = case.vehicles.layout.of_live
    plain.d = live(plain.d)
    if plain.mask is not None:
        assert np.array_equal(ours.mask, live(plain.mask))
        assert 0 < (~plain.mask).sum() < len(plain.mask)
        assert not ours.d[~ours.mask].any()
    assert ours.d.dtype == np.float64
    scale = np.abs(plain.d).max()
    assert scale > 0
    assert np.abs(ours.d - plain.d).max() <= 1e-9 * scale
    assert ours.buffers == pytest.approx(plain.buffers, rel=1e-9)


@pytest.mark.parametrize("algorithm", RECIPES)
def test_weights_and_buffers_after_a_round_equal_the_reference(case, algorithm):
    vehicles, config = case.vehicles, case.config
    layout = vehicles.layout
    common = common_of(config, layout, case.weights, case.buffers)
    server = Aggregate(common, live=layout.live)
    kinds = set()
    for u in range(config.vehicles):
        upload = vehicles.train(algorithm, u, ROUND, case.weights, case.buffers)
        update = decode(upload.data, Expected(ROUND, u, common))
        server.add(update, 1.0)
        kinds.add(update.quantised)
        trained = reference_training(case, algorithm, u)
        assert upload.delta == trained.delta
        if update.mask is not None:
            assert np.array_equal(update.mask, layout.of_live(trained.mask))
        if not update.quantised:
            sent = layout.of_live(trained.d)
            sent = sent if update.mask is None else sent[update.mask]
            assert np.abs(update.body.values - sent).max() <= 1e-7 * np.abs(sent).max()
    weights, buffers = server.step(case.weights, config.train.eta_at(ROUND))
    plain_weights, plain_buffers = reference_round(case, algorithm)
    assert np.abs(weights - plain_weights).max() <= 1e-6 * max(1, np.abs(plain_weights).max())
    assert np.abs(weights - case.weights).max() > 1e-3
    assert buffers == pytest.approx(plain_buffers, rel=1e-6, abs=1e-7)
    assert kinds == {"afl": {False}, "afl-prune": {False}, "afl-quant": {True}}.get(algorithm, kinds)


def test_the_reference_round_of_2ceoafl_sends_both_kinds():
    """Else the comparison above would not say much about its coin."""
    found = make_case("cnn")
    raw = [found.vehicles.train("2ceoafl", u, t, found.weights, found.buffers) for u in range(3) for t in range(3)]
    assert {upload.quantised for upload in raw} == {True, False}
    for upload, (u, t) in zip(raw, [(u, t) for u in range(3) for t in range(3)], strict=True):
        coin = stream(found.config.seed, "quantise", t, u).random()
        assert upload.quantised == (coin >= upload.delta)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("steps", "count"), [("vehicle", 3 * 2), ("fleet", 3 * 3 * 2), ("4", 4)])
def test_the_genie_equals_the_reference(model, steps, count):
    eta = 0.001  # at 0.1 eighteen steps of batch norm over eight single values turn an ulp into a hundredth
    case = make_case(model, f"train.genie_steps={steps}", "train.batches_per_round=2", f"train.eta={eta}")
    config = case.config
    samples = np.concatenate([case.vehicles.schedule.train_set(u, ROUND) for u in range(config.vehicles)])
    module = copy.deepcopy(case.module)
    rng = stream(config.seed, "genie batches", ROUND)
    sgd(module, minibatches(case.pictures, samples, config.train.batch_size, count, rng), eta * 0.9**ROUND)
    weights, buffers, loss = case.vehicles.genie(ROUND, case.weights, case.buffers)
    assert np.abs(weights - flat(module)[case.places]).max() <= 1e-9 * np.abs(weights).max()
    assert np.abs(weights - case.weights).max() > 1e-4
    assert buffers == pytest.approx(flat_buffers(module), rel=1e-8)
    assert np.isfinite(loss)


# the lottery ticket, explicitly


@pytest.fixture
def parts() -> tuple[Case, FlatModel, Batches, np.ndarray]:
    case = make_case("cnn")
    model = FlatModel(build_model(case.config.model, 4, 16, 99), torch.float64, side=16, wide=True)
    return case, model, Batches(case.pictures, torch.float64, wide=True), case.vehicles.schedule.train_set(0, 0)


def test_training_starts_again_from_the_received_weights_and_buffers_under_the_mask(parts):
    case, model, batches, samples = parts
    weights, buffers = torch.from_numpy(case.weights), torch.from_numpy(case.buffers)
    dense = batches.draw(samples, 8, 4, stream(0, "dense"))
    found = train_locally(model, weights, buffers, dense, iter(()), 0.1, 0.4, None)
    assert torch.equal(model.weights, weights * torch.from_numpy(found.mask))
    assert torch.equal(model.buffers, buffers)
    assert np.array_equal(found.buffers, case.buffers)
    assert not found.gradient.any()


def test_the_mask_is_that_of_the_weights_after_the_dense_steps(parts):
    case, model, batches, samples = parts
    weights, buffers = torch.from_numpy(case.weights), torch.from_numpy(case.buffers)
    masks = []
    for steps in (0, 4):
        dense = batches.draw(samples, 8, steps, stream(0, "dense"))
        masks.append(train_locally(model, weights, buffers, dense, iter(()), 0.1, 0.4, None).mask)
    assert not np.array_equal(*masks)
    model.load(weights, buffers)
    descend(model, batches.draw(samples, 8, 4, stream(0, "dense")), 0.1)
    moved = np.abs(model.weights.numpy())
    assert moved[masks[1]].min() >= moved[~masks[1]].max()
    still = np.abs(case.weights)
    assert still[masks[0]].min() >= still[~masks[0]].max()


def test_masked_entries_never_move_and_d_is_the_sum_of_the_masked_gradients(parts):
    case, model, batches, samples = parts
    weights, buffers = torch.from_numpy(case.weights), torch.from_numpy(case.buffers)
    dense = batches.draw(samples, 8, 1, stream(0, "dense"))
    steps = list(batches.draw(samples, 8, 5, stream(0, "train")))
    found = train_locally(model, weights, buffers, dense, iter(steps), 0.1, 0.4, None)
    mask = torch.from_numpy(found.mask)
    assert not model.weights[~mask].any()
    total = np.zeros(len(case.weights))
    model.load(weights * mask, buffers)
    model.module.train()
    for images, labels in steps:
        model.gradient.zero_()
        nn.functional.cross_entropy(model.module(images), labels).backward()
        total += (model.gradient * mask).numpy()
        with torch.no_grad():
            model.weights.sub_(0.1 * model.gradient * mask)
    assert np.abs(found.gradient - total).max() <= 1e-12 * np.abs(total).max()


def test_what_was_received_is_left_as_it_was(parts):
    case, model, batches, samples = parts
    weights, buffers = torch.from_numpy(case.weights.copy()), torch.from_numpy(case.buffers.copy())
    dense, steps = (batches.draw(samples, 8, 2, stream(0, name)) for name in ("dense", "train"))
    train_locally(model, weights, buffers, dense, steps, 0.1, 0.4, None)
    assert np.array_equal(weights.numpy(), case.weights)
    assert np.array_equal(buffers.numpy(), case.buffers)


def test_passes_over_the_samples_leave_none_out(parts):
    _, _, batches, _ = parts
    samples = np.arange(20)
    seen = []
    batches._labels = torch.arange(160)  # a sample's label is its index
    for _, labels in batches.draw(samples, 8, 10, stream(0, "passes")):
        assert len(labels) == 8
        seen += labels.tolist()
    for k in range(4):
        assert sorted(seen[20 * k : 20 * k + 20]) == samples.tolist()
    assert seen[:20] != seen[20:40]
    (small,) = [labels for _, labels in batches.draw(samples[:3], 8, 1, stream(0, "few"))]
    assert sorted(small.tolist()) == [0, 1, 2]
