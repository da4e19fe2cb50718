"""Measures a vehicle's loss around two models: values, gradients, their spread, curvature (A1, A2, Eq. 18).

A vehicle's loss is the mean over mini-batches of its data, each normalised by itself as in training. The samples of a
mini-batch follow from their numbers alone, so that new samples change only the mini-batches they fall into.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from skyfed.jobs import Job, Reply
from skyfed.learning.batches import Batch, Batches
from skyfed.learning.engine import Engine
from skyfed.learning.flat import FlatModel
from skyfed.learning.settings import TrainSettings
from skyfed.rng import stream
from skyfed.theory.settings import TheorySettings
from skyfed.types import Floats, Ints

if TYPE_CHECKING:
    from skyfed.tasks.task import Loss


class Partition:
    """Mini-batches of the data sets of rounds t-1, t and t+1 that differ only where a sample is new."""

    def __init__(self, before: Ints, now: Ints, after: Ints, size: int, most: int, seed: int, total: int) -> None:
        """Cut data sets into mini-batches of about `size` samples; use at most `most` of them, all if 0."""
        self._place = stream(seed, "theory partition").permutation(total)
        self._count = 1 if len(now) <= size else max(2, len(now) // size)
        self._used = min(most, self._count) if most else self._count
        self.before, self.now, self.after = (self._cut(samples) for samples in (before, now, after))

    def _cut(self, samples: Ints) -> list[Ints]:
        number = self._place[samples] % self._count
        order = np.lexsort((samples, number))
        parts = np.split(samples[order], np.searchsorted(number[order], np.arange(1, self._count)))[: self._used]
        return [part for part in parts if len(part) > 1] or [samples]  # a batch norm needs two samples


def among(parts: list[Ints], others: list[Ints], inside: bool) -> list[Ints]:
    """Return the mini-batches that are among others, or those that are not."""
    known = {part.tobytes() for part in others}
    return [part for part in parts if (part.tobytes() in known) is inside]


@dataclass
class Sums:
    """Sums over mini-batches: of samples, losses, gradients and their squared norms, each times its samples."""

    count: int
    loss: float
    gradient: Floats
    square: float
    parts: int

    @property
    def mean(self) -> Floats:
        """The gradient of the mean loss."""
        return self.gradient / self.count

    def plus(self, other: "Sums") -> "Sums":
        """Add other mini-batches."""
        return Sums(**{name: value + getattr(other, name) for name, value in vars(self).items()})


def sums(model: FlatModel, batches: Batches, parts: Sequence[Ints], loss: "Loss") -> Sums:
    """Go once over some mini-batches with the model's present weights; its buffers change."""
    total = Sums(0, 0.0, np.zeros(model.layout.live_size), 0.0, 0)
    model.module.train()
    for part in parts:
        inputs, targets = batches.take(part)
        model.clear_gradient()
        error = loss(model.module(inputs), targets)
        error.backward()  # type: ignore[no-untyped-call]
        slope = model.live_gradient().astype(np.float64)
        total.count += len(part)
        total.loss += len(part) * float(error.detach())
        total.square += len(part) * float(slope @ slope)
        slope *= len(part)
        total.gradient += slope
        total.parts += 1
    return total


def losses(model: FlatModel, batches: Batches, parts: Sequence[Ints], loss: "Loss") -> float:
    """Return the mean loss over mini-batches, normalised as in training."""
    total, count = 0.0, 0
    model.module.train()
    with torch.no_grad():
        for part in parts:
            inputs, targets = batches.take(part)
            total += len(part) * float(loss(model.module(inputs), targets))
            count += len(part)
    return total / count


def spread(total: Sums, size: int) -> float:
    """Return the variance of the gradient of a mini-batch of `size` samples around the mean over all of them."""
    if total.parts < 2:
        return 0.0  # where all samples are in every mini-batch
    mean, larger = total.mean, total.count / total.parts / size
    variance = max(0.0, total.square / total.count - float(mean @ mean)) * total.parts / (total.parts - 1)
    return variance * max(1.0, larger)


def curvature(module: nn.Module, pairs: Sequence[Batch], steps: int, rng: np.random.Generator, loss: "Loss") -> float:
    """Estimate the largest |eigenvalue| of the Hessian of the mean loss by `steps` steps of power iteration."""
    module.train()
    weights = [parameter for parameter in module.parameters() if parameter.requires_grad]
    start = torch.from_numpy(rng.standard_normal(sum(weight.numel() for weight in weights))).to(weights[0])
    direction, length = start / start.norm(), 0.0
    for _ in range(steps):
        product = torch.zeros_like(direction)
        for inputs, targets in pairs:
            slope = _flat_gradient(loss(module(inputs), targets), weights, create_graph=True)
            product += _flat_gradient(slope @ direction, weights).detach()
        product /= len(pairs)
        length = float(product.norm())
        if length == 0 or not np.isfinite(length):
            return length
        direction = product / length
    return length


def _flat_gradient(value: Tensor, weights: Sequence[Tensor], create_graph: bool = False) -> Tensor:
    slopes = torch.autograd.grad(value, weights, create_graph=create_graph, materialize_grads=True)
    return torch.cat([slope.reshape(-1) for slope in slopes])


def probe_vehicle(engine: Engine, train: TrainSettings, theory: TheorySettings, seed: int, job: Job) -> Reply:
    """Measure a vehicle's loss around the two models that it is sent, on its samples of three rounds."""
    model, batches, loss = engine.training(), engine.batches, engine.task.loss
    weights, moved = job.sent["weights"], job.sent["weights after"]
    before, now, after = (job.data[name] for name in ("before", "samples", "later"))
    parts = Partition(before, now, after, train.batch_size, theory.batches, seed, len(engine.task.train))
    model.load(weights, job.sent["buffers"])
    old = sums(model, batches, among(parts.now, parts.before, True), loss)
    here = old.plus(sums(model, batches, among(parts.now, parts.before, False), loss))
    shift = here.mean - old.plus(sums(model, batches, among(parts.before, parts.now, False), loss)).mean
    model.load(moved, job.sent["buffers after"])
    there = sums(model, batches, parts.now, loss)
    later = losses(model, batches, parts.after, loss)
    wide = (batches.take(part) for part in parts.now[: theory.beta_batches])
    pairs = [(inputs.contiguous(), targets) for inputs, targets in wide]  # channel by channel
    rng = stream(seed, "theory curvature", job.round, job.vehicle or 0)
    bent = curvature(engine.plain(weights), pairs, theory.beta_steps, rng, loss)
    far = float(np.linalg.norm(moved.astype(np.float64) - weights))
    measured = {
        "vehicle": job.vehicle,
        "sigma2": spread(here, train.batch_size),
        "phi": float(shift @ shift),
        "now": here.loss / here.count,
        "kept": there.loss / there.count,
        "after": later,
        "curvature": bent,
        "secant": float(np.linalg.norm(there.mean - here.mean)) / far if far else 0.0,
    }
    return Reply(measured, arrays={"gradient": here.mean.astype(np.float32)})
