"""One vehicle's training in one round: the winning ticket, the masked steps, the accumulated gradient (Eqs. 8-10)."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from skyfed.learning.flat import FlatModel
from skyfed.learning.prune import magnitude_mask
from skyfed.records import Bools, Ints, Singles
from skyfed.sensing.datasets.cache import Bytes, Pictures


class Batches:
    """Normalised mini-batches of a data set, straight from its bytes."""

    def __init__(
        self, pictures: Pictures, dtype: torch.dtype = torch.float32, device: torch.device | None = None
    ) -> None:
        """Take the channels' means and deviations from the training pictures."""
        self._images, self._labels = torch.from_numpy(pictures.train_images), torch.from_numpy(pictures.train_labels)
        self.mean, self.scale = (moment.to(device, dtype) for moment in channel_moments(pictures.train_images))

    def draw(self, samples: Ints, size: int, count: int, rng: np.random.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield `count` mini-batches: passes over the samples in random order, a new order for each pass."""
        order: Ints = np.empty(0, np.int64)
        size = min(size, len(samples))
        for _ in range(count):
            if len(order) < size:
                order = np.concatenate([order, samples[rng.permutation(len(samples))]])
            batch, order = torch.from_numpy(order[:size]), order[size:]
            yield self.normalised(self._images[batch]), self._labels[batch].long().to(self.mean.device)

    def normalised(self, images: Tensor) -> Tensor:
        """Return bytes as floats with zero mean and unit deviation a channel."""
        return (images.to(self.mean.device, self.mean.dtype) - self.mean) * self.scale


def channel_moments(images: Bytes) -> tuple[Tensor, Tensor]:
    """Mean and one over the standard deviation of each channel, for bytes; (1, 3, 1, 1) each."""
    counts = [np.bincount(images[:, c].reshape(-1), minlength=256).astype(np.float64) for c in range(3)]
    level = np.arange(256)
    mean = [count @ level / count.sum() for count in counts]
    spread = [
        max(1e-6, float(count @ level**2 / count.sum() - m * m)) ** 0.5 for count, m in zip(counts, mean, strict=True)
    ]
    shape = (1, 3, 1, 1)
    wide = torch.float64
    return torch.tensor(mean, dtype=wide).view(shape), 1 / torch.tensor(spread, dtype=wide).view(shape)


def descend(
    model: FlatModel, batches: Iterator[tuple[Tensor, Tensor]], rate: float, mask: Tensor | None = None
) -> float:
    """Take one plain SGD step a mini-batch, masked entries left alone; returns the mean loss (Eqs. 8, 10)."""
    total, count = 0.0, 0
    model.module.train()
    for images, labels in batches:
        model.gradient.zero_()
        loss = functional.cross_entropy(model.module(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            if mask is None:
                model.weights.sub_(model.gradient, alpha=rate)
            else:
                model.weights.addcmul_(model.gradient, mask, value=-rate)
        total += float(loss.detach())
        count += 1
    return total / max(1, count)


@dataclass(frozen=True)
class LocalRound:
    """What a vehicle's training gives: d (p,), its mask or None, its buffers, its mean training loss."""

    gradient: Singles
    mask: Bools | None
    buffers: Singles
    loss: float

    @property
    def finite(self) -> bool:
        """Whether training stayed finite."""
        return bool(np.isfinite(self.gradient).all() and np.isfinite(self.buffers).all())


def train_locally(
    model: FlatModel,
    weights: Tensor,
    buffers: Tensor,
    dense: Iterator[tuple[Tensor, Tensor]] | None,
    batches: Iterator[tuple[Tensor, Tensor]],
    rate: float,
    delta: float,
    scope: Bools | None,
) -> LocalRound:
    """Find the ticket if there are `dense` batches, then train it: d = (w_start - w_end) / rate (Eqs. 8-10, d).

    The mask comes from the weights after the dense steps; training starts again from the received weights under the
    mask, with the received buffers (lottery ticket).
    """
    model.load(weights, buffers)
    mask, kept = None, None
    if dense is not None:
        descend(model, dense, rate)
        mask = magnitude_mask(model.weights.cpu().numpy(), delta, scope)
        kept = torch.from_numpy(mask).to(model.device, model.weights.dtype)
        model.load(weights, buffers)
        model.weights.mul_(kept)
    start = model.weights.clone()
    loss = descend(model, batches, rate, kept)
    gradient = (start - model.weights) / rate
    return LocalRound(gradient.cpu().numpy(), mask, model.on_host()[1], loss)
