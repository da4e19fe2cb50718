"""What a vehicle's loss looks like around a model: values, gradients, their spread over mini-batches, curvature.

A vehicle's loss is the mean over mini-batches of its data, each normalised by itself as in training. Which samples
share a mini-batch follows from their numbers alone, so that new samples change only the mini-batches they fall into.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from skyfed.learning.batches import Batch, Batches
from skyfed.learning.flat import FlatModel
from skyfed.rng import stream
from skyfed.types import Floats, Ints

if TYPE_CHECKING:
    from skyfed.tasks.task import Loss


class Partition:
    """Mini-batches of the data sets of rounds t-1, t and t+1 that differ only where a sample is new."""

    def __init__(self, before: Ints, now: Ints, after: Ints, size: int, most: int, seed: int, total: int) -> None:
        """Cut data sets into mini-batches of about `size`; at most `most` of them are used, all if 0."""
        self._place = stream(seed, "theory partition").permutation(total)
        self._count = 1 if len(now) <= size else max(2, len(now) // size)
        self._used = min(most, self._count) if most else self._count
        self.before, self.now, self.after = (self._cut(samples) for samples in (before, now, after))

    def _cut(self, samples: Ints) -> list[Ints]:
        number = self._place[samples] % self._count
        order = np.lexsort((samples, number))
        parts = np.split(samples[order], np.searchsorted(number[order], np.arange(1, self._count)))[: self._used]
        good = [part for part in parts if len(part) > 1]  # a batch norm needs two
        return good or [samples]

    def same(self) -> list[Ints]:
        """Return the mini-batches of round t that were the same in round t-1."""
        return _among(self.now, self.before, True)

    def new(self) -> list[Ints]:
        """Return the mini-batches of round t that were not."""
        return _among(self.now, self.before, False)

    def changed(self) -> list[Ints]:
        """Return the mini-batches of round t-1 that are not the same in round t."""
        return _among(self.before, self.now, False)


def _among(parts: list[Ints], others: list[Ints], inside: bool) -> list[Ints]:
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
        return Sums(
            self.count + other.count,
            self.loss + other.loss,
            self.gradient + other.gradient,
            self.square + other.square,
            self.parts + other.parts,
        )


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


def spread(found: Sums, size: int) -> float:
    """Return the variance of the gradient of a mini-batch of so many samples around the mean over all of them."""
    if found.parts < 2:
        return 0.0  # where all samples are in every mini-batch
    mean, larger = found.mean, found.count / found.parts / size
    variance = max(0.0, found.square / found.count - float(mean @ mean)) * found.parts / (found.parts - 1)
    return variance * max(1.0, larger)


def curvature(module: nn.Module, pairs: Sequence[Batch], steps: int, rng: np.random.Generator, loss: "Loss") -> float:
    """Return the largest |eigenvalue| of the Hessian of the mean loss that so many steps of power iteration find."""
    module.train()
    weights = [parameter for parameter in module.parameters() if parameter.requires_grad]
    start = torch.from_numpy(rng.standard_normal(sum(weight.numel() for weight in weights))).to(weights[0])
    direction, found = start / start.norm(), 0.0
    for _ in range(steps):
        product = torch.zeros_like(direction)
        for inputs, targets in pairs:
            error = loss(module(inputs), targets)
            slopes = torch.autograd.grad(error, weights, create_graph=True, allow_unused=True)
            flat = torch.cat(
                [(torch.zeros_like(w) if g is None else g).reshape(-1) for g, w in zip(slopes, weights, strict=True)]
            )
            seconds = torch.autograd.grad(flat @ direction, weights, allow_unused=True)
            product += torch.cat(
                [(torch.zeros_like(w) if s is None else s).reshape(-1) for s, w in zip(seconds, weights, strict=True)]
            ).detach()
        product /= len(pairs)
        found = float(product.norm())
        if found == 0 or not np.isfinite(found):
            return found
        direction = product / found
    return found
