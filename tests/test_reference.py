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

from learning_cases import exchanged, onboard_of, station_of
from run_cases import pictures, tiny_config
from skyfed.config import Config
from skyfed.jobs import Job
from skyfed.learning.batches import Batches
from skyfed.learning.flat import FlatModel
from skyfed.learning.local import Trained as Local
from skyfed.learning.local import descend, find_ticket, train
from skyfed.learning.models import build_model
from skyfed.learning.prune import scope_of
from skyfed.onboard import Onboard
from skyfed.rng import stream
from skyfed.simulate import step
from skyfed.station import Station
from skyfed.tasks import Pictures
from skyfed.tasks.task import cross_entropy
from skyfed.types import Arrays

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
    onboard: Onboard  # skyfed's side

    def station(self, algorithm: str) -> Station:
        return station_of(self.config, algorithm, onboard=self.onboard)

    def samples(self, vehicle: int, t: int) -> np.ndarray:
        return self.station("afl").world.observe(vehicle, t)

    @property
    def state(self) -> Arrays:
        """The round's start as skyfed has it: entries that can have a gradient."""
        return {"weights": self.onboard.engine.layout.of_live(self.weights), "buffers": self.buffers}

    @property
    def weights(self) -> np.ndarray:
        return flat(self.module)[self.places]

    @property
    def places(self) -> np.ndarray:
        """For every entry of skyfed's flat vector its place among the parameters laid out one after the other."""
        return self.onboard.engine.layout.plain_places()

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
    samples = case.samples(vehicle, t)

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
        if case.onboard.engine.layout.live is not None:  # entries that can have no gradient do not travel
            dead = np.ones(len(total), bool)
            for run in case.onboard.engine.layout.live:
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
    drops = ("train.eta_drop_every=1", "train.eta_local_drop_every=1")
    config = tiny_config(*MODELS[model], "field.follows=rounds", *drops, *overrides)
    known = pictures(train=40, test=4, side=16)
    onboard = onboard_of(config, known, torch.float64)
    module = build_model(config.model, known.classes, (3, 16, 16), config.seed).double()
    rng = np.random.default_rng(5)
    with torch.no_grad():  # as after some rounds: no initial zeros and ones left
        for parameter in module.parameters():
            parameter += torch.from_numpy(0.05 * rng.normal(size=parameter.shape))
        for name, buffer in module.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(torch.from_numpy(rng.normal(size=buffer.shape)))
            elif name.endswith("running_var"):
                buffer.copy_(torch.from_numpy(rng.uniform(0.5, 2, buffer.shape)))
    found = Case(config, known, module, onboard)
    onboard.engine._whole[:] = found.weights  # entries without a gradient are as they were at first: here
    return found


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
    """The same by skyfed's own functions in double precision."""
    config = case.config
    settings = config.train
    model = FlatModel(build_model(config.model, 4, (3, 16, 16), 99), torch.float64, inputs=(3, 16, 16), wide=True)
    batches = Batches(case.pictures.task(), torch.float64, wide=True)
    samples, rate = case.samples(vehicle, ROUND), settings.eta_local_at(ROUND)
    prunes = RECIPES[algorithm][0]
    delta = float(stream(config.seed, "delta", ROUND, vehicle).uniform(0.05, 0.7)) if prunes else 0.0

    def draw(purpose: str, rounds: int) -> Iterator[tuple[Tensor, Tensor]]:
        rng = stream(config.seed, purpose, ROUND, vehicle)
        return batches.draw(samples, settings.batch_size, rounds * settings.batches_per_round, rng)

    scope = scope_of(model.layout, config.prune.scope == "kernels", case.weights)
    ticket = None
    if prunes:
        dense = draw("dense batches", settings.rho)
        ticket = find_ticket(model, case.state, dense, rate, cross_entropy, delta, scope)
    found = train(model, case.state, draw("batches", settings.kappa), rate, cross_entropy, ticket)
    return Trained(found.gradient, found.mask, found.buffers, delta)


# comparisons


@pytest.mark.parametrize("algorithm", RECIPES)
def test_d_mask_and_buffers_equal_the_reference(case, algorithm):
    ours, plain = skyfed_training(case, algorithm, 1), reference_training(case, algorithm, 1)
    assert (ours.mask is None) == (plain.mask is None)
    live = case.onboard.engine.layout.of_live
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
    station, layout, state = case.station(algorithm), case.onboard.engine.layout, case.state
    messages, report = exchanged(station, ROUND, state)
    kinds = set()
    for message, upload in zip(messages, report.uploads, strict=True):
        update = message.update
        kinds.add(update.quantised)
        trained = reference_training(case, algorithm, message.vehicle)
        assert upload.facts["delta"] == trained.delta
        if update.mask is not None:
            assert np.array_equal(update.mask, layout.of_live(trained.mask))
        if not update.quantised:
            sent = layout.of_live(trained.d)
            sent = sent if update.mask is None else sent[update.mask]
            assert np.abs(update.body.values - sent).max() <= 1e-7 * np.abs(sent).max()
    after = step(station, state, iter(messages), ROUND)
    weights, buffers = case.onboard.engine.whole(after["weights"]), after["buffers"]
    plain_weights, plain_buffers = reference_round(case, algorithm)
    assert np.abs(weights - plain_weights).max() <= 1e-6 * max(1, np.abs(plain_weights).max())
    assert np.abs(weights - case.weights).max() > 1e-3
    assert buffers == pytest.approx(plain_buffers, rel=1e-6, abs=1e-7)
    assert kinds == {"afl": {False}, "afl-prune": {False}, "afl-quant": {True}}.get(algorithm, kinds)


def test_the_reference_round_of_2ceoafl_sends_both_kinds():
    """Else the comparison above would not say much about its coin."""
    found = make_case("cnn")
    station, kinds = found.station("2ceoafl"), set()
    for t in range(3):
        for upload in exchanged(station, t, found.state)[1].uploads:
            coin = stream(found.config.seed, "quantise", t, upload.vehicle).random()
            assert upload.facts["quantised"] == (coin >= upload.facts["delta"])
            kinds.add(upload.facts["quantised"])
    assert kinds == {True, False}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("steps", "count"), [("vehicle", 3 * 2), ("fleet", 3 * 3 * 2), ("4", 4)])
def test_the_genie_equals_the_reference(model, steps, count):
    eta = 0.001  # at 0.1 eighteen steps of batch norm over eight single values turn an ulp into a hundredth
    case = make_case(model, f"train.central_steps={steps}", "train.batches_per_round=2", f"train.eta={eta}")
    config = case.config
    samples = np.concatenate([case.samples(u, ROUND) for u in range(config.vehicles)])
    module = copy.deepcopy(case.module)
    rng = stream(config.seed, "genie batches", ROUND)
    sgd(module, minibatches(case.pictures, samples, config.train.batch_size, count, rng), eta * 0.9**ROUND)
    union = case.station("sgd").world.union(ROUND)
    assert np.array_equal(union, samples)
    reply = case.onboard.do(Job("central", case.state, "sgd", ROUND, None, {"samples": union}))
    weights, buffers = case.onboard.engine.whole(reply.arrays["weights"]), reply.arrays["buffers"]
    assert np.abs(weights - flat(module)[case.places]).max() <= 1e-9 * np.abs(weights).max()
    assert np.abs(weights - case.weights).max() > 1e-4
    assert buffers == pytest.approx(flat_buffers(module), rel=1e-8)
    assert np.isfinite(reply.words["loss"])


# the lottery ticket, explicitly


Parts = tuple[Case, FlatModel, Batches, np.ndarray]


@pytest.fixture
def parts() -> Parts:
    case = make_case("cnn")
    model = FlatModel(build_model(case.config.model, 4, (3, 16, 16), 99), torch.float64, inputs=(3, 16, 16), wide=True)
    assert model.layout.live is None
    return case, model, Batches(case.pictures.task(), torch.float64, wide=True), case.samples(0, 0)


def ticket_round(
    parts: Parts, dense: int, steps: Iterator[tuple[Tensor, Tensor]], state: Arrays | None = None
) -> Local:
    """Find a ticket of 60 % by so many dense steps, then train it."""
    case, model, batches, samples = parts
    received = state or case.state
    first = batches.draw(samples, 8, dense, stream(0, "dense"))
    ticket = find_ticket(model, received, first, 0.1, cross_entropy, 0.4, scope_of(model.layout, False, case.weights))
    return train(model, received, steps, 0.1, cross_entropy, ticket)


def test_training_starts_again_from_the_received_weights_and_buffers_under_the_mask(parts):
    case, model, *_ = parts
    found = ticket_round(parts, 4, iter(()))
    assert np.array_equal(model.weights.numpy(), case.weights * found.mask)
    assert np.array_equal(model.buffers.numpy(), case.buffers)
    assert np.array_equal(found.buffers, case.buffers)
    assert not found.gradient.any()


def test_the_mask_is_that_of_the_weights_after_the_dense_steps(parts):
    case, model, batches, samples = parts
    masks = [ticket_round(parts, steps, iter(())).mask for steps in (0, 4)]
    assert not np.array_equal(*masks)
    model.load(case.weights, case.buffers)
    descend(model, batches.draw(samples, 8, 4, stream(0, "dense")), 0.1, cross_entropy)
    moved = np.abs(model.weights.numpy())
    assert moved[masks[1]].min() >= moved[~masks[1]].max()
    still = np.abs(case.weights)
    assert still[masks[0]].min() >= still[~masks[0]].max()


def test_masked_entries_never_move_and_d_is_the_sum_of_the_masked_gradients(parts):
    case, model, batches, samples = parts
    steps = list(batches.draw(samples, 8, 5, stream(0, "train")))
    found = ticket_round(parts, 1, iter(steps))
    mask = torch.from_numpy(found.mask)
    assert not model.weights[~mask].any()
    total = np.zeros(len(case.weights))
    model.load(case.weights * found.mask, case.buffers)
    model.module.train()
    for images, labels in steps:
        model.gradient.zero_()
        nn.functional.cross_entropy(model.module(images), labels).backward()
        total += (model.gradient * mask).numpy()
        with torch.no_grad():
            model.weights.sub_(0.1 * model.gradient * mask)
    assert np.abs(found.gradient - total).max() <= 1e-12 * np.abs(total).max()


def test_what_was_received_is_left_as_it_was(parts):
    case, _, batches, samples = parts
    state = {name: array.copy() for name, array in case.state.items()}
    ticket_round(parts, 2, batches.draw(samples, 8, 2, stream(0, "train")), state)
    assert np.array_equal(state["weights"], case.weights)
    assert np.array_equal(state["buffers"], case.buffers)


def test_passes_over_the_samples_leave_none_out(parts):
    _, _, batches, _ = parts
    samples = np.arange(20)
    seen = []
    batches._targets = torch.arange(160)  # a sample's label is its index
    for _, labels in batches.draw(samples, 8, 10, stream(0, "passes")):
        assert len(labels) == 8
        seen += labels.tolist()
    for k in range(4):
        assert sorted(seen[20 * k : 20 * k + 20]) == samples.tolist()
    assert seen[:20] != seen[20:40]
    (small,) = [labels for _, labels in batches.draw(samples[:3], 8, 1, stream(0, "few"))]
    assert sorted(small.tolist()) == [0, 1, 2]
