"""One vehicle's training in one round: the winning ticket, the masked steps, the accumulated gradient (Eqs. 8-10)."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from skyfed.learning.channels import ChannelPruner
from skyfed.learning.flat import FlatModel
from skyfed.learning.prune import Scope, magnitude_mask
from skyfed.records import Bools, Floats, Ints, Singles
from skyfed.sensing.datasets.cache import Bytes, Pictures
from skyfed.wire import accumulated

_PIECE = 256  # entries summed in their own precision
_COUNTED = 1000  # pictures whose levels are counted at a time


class Batches:
    """Normalised mini-batches of a data set, straight from its bytes."""

    def __init__(
        self,
        pictures: Pictures,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
        wide: bool = False,
    ) -> None:
        """Take the channels' means and deviations from the training pictures."""
        self._format = torch.channels_last if wide else torch.contiguous_format
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
            yield self._pair(batch)

    def narrow(self) -> "Batches":
        """Return the same with pictures channel by channel."""
        found = copy.copy(self)
        found._format = torch.contiguous_format
        return found

    def take(self, samples: Ints) -> tuple[Tensor, Tensor]:
        """Return these samples as one mini-batch."""
        return self._pair(torch.from_numpy(samples))

    def _pair(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        images, labels = self._images.index_select(0, samples), self._labels.index_select(0, samples)
        return self.normalised(images), labels.long().to(self.mean.device)

    def normalised(self, images: Tensor) -> Tensor:
        """Return bytes as floats with zero mean and unit deviation a channel."""
        floats = images.to(self.mean.device, self.mean.dtype).sub_(self.mean).mul_(self.scale)
        return floats.contiguous(memory_format=self._format)


def channel_moments(images: Bytes) -> tuple[Tensor, Tensor]:
    """Mean and one over the standard deviation of each channel, for bytes; (1, 3, 1, 1) each."""
    counts = [_counts(images[:, c]) for c in range(3)]
    level = np.arange(256)
    mean = [count @ level / count.sum() for count in counts]
    spread = [
        max(1e-6, float(count @ level**2 / count.sum() - m * m)) ** 0.5 for count, m in zip(counts, mean, strict=True)
    ]
    shape = (1, 3, 1, 1)
    wide = torch.float64
    return torch.tensor(mean, dtype=wide).view(shape), 1 / torch.tensor(spread, dtype=wide).view(shape)


def _counts(levels: Bytes) -> Floats:
    """Return how often each of the 256 levels occurs; a few pictures at a time, since counting widens them."""
    parts = [levels[k : k + _COUNTED] for k in range(0, len(levels), _COUNTED)]
    return np.asarray(sum(np.bincount(part.reshape(-1), minlength=256) for part in parts), np.float64)


def descend(
    model: FlatModel, batches: Iterator[tuple[Tensor, Tensor]], rate: float, mask: Tensor | None = None
) -> float:
    """Take one plain SGD step a mini-batch, masked entries left alone; returns the mean loss (Eqs. 8, 10)."""
    total, count = 0.0, 0
    model.module.train()
    for images, labels in batches:
        model.clear_gradient()
        loss = functional.cross_entropy(model.module(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            model.step(rate, mask)
        total += float(loss.detach())
        count += 1
    return total / max(1, count)


@dataclass(frozen=True)
class LocalRound:
    """What a vehicle's training gives, for the k entries of the n that can have a gradient that were trained.

    values    (k,) their d             mask       (n,) which entries were trained, None when all were
    trained   (k,) weights at the end  threshold  magnitude below which entries were pruned; NaN for channels
    buffers   (b,) at the end          loss       mean training loss
    kept      of all p entries         channels   which channels were kept, where whole channels were pruned
    pruned_share  ||w - w_bar||^2 / ||w||^2 over the n entries (Eq. 17)
    """

    values: Singles
    trained: Singles
    mask: Bools | None
    threshold: float
    buffers: Singles
    loss: float
    kept: int
    channels: Bools | None = None
    pruned_share: float = 0.0

    @property
    def finite(self) -> bool:
        """Whether training stayed finite: the loss too, for steps back to finite weights are luck."""
        return bool(np.isfinite(self.loss) and np.isfinite(self.values).all() and np.isfinite(self.buffers).all())

    @property
    def gradient(self) -> Singles:
        """(n,) d, zero where nothing was trained."""
        return self.spread(self.values)

    def spread(self, values: Singles) -> Singles:
        """Return (n,) values with zeros where nothing was trained."""
        if self.mask is None:
            return values
        found = np.zeros(len(self.mask), values.dtype)
        found[self.mask] = values
        return found


def train_locally(
    model: FlatModel,
    weights: Tensor,
    buffers: Tensor,
    dense: Iterator[tuple[Tensor, Tensor]] | None,
    batches: Iterator[tuple[Tensor, Tensor]],
    rate: float,
    delta: float,
    scope: Scope | None,
    pruner: ChannelPruner | None = None,
) -> LocalRound:
    """Find the ticket if there are `dense` batches, then train it: d = (w_start - w_end) / rate (Eqs. 8-10, d).

    The mask comes from the weights after the dense steps; training starts again from the received weights under the
    mask, with the received buffers (lottery ticket).
    """
    layout = model.layout
    model.load(weights, buffers)
    start = model.start
    if dense is None:
        loss = descend(model, batches, rate)
        trained = model.live()
        values = accumulated(start, trained, rate)
        return LocalRound(values, trained, None, float("nan"), model.moved(), loss, layout.size)
    descend(model, dense, rate)
    if pruner is not None:
        kept = pruner.choose(model.weights, delta)
        mask, total = pruner.mask(kept)
        start = pruner.entries(kept, start)
        model.reset(buffers)
        small = pruner.cut(kept, torch.from_numpy(start).to(model.device))
        loss = descend(small, batches, rate)
        pruner.put_back(kept, small)
        trained = small.live()
        values = accumulated(start, trained, rate)
        lost = _share(model.start, start)
        return LocalRound(values, trained, mask, float("nan"), model.moved(), loss, total, kept.flags, lost)
    runs, dead = (None, None) if scope is None else (scope.runs, scope.dead)
    mask, threshold, inside = magnitude_mask(model.live(), delta, runs, dead)
    total = layout.size + inside - (layout.size if scope is None else scope.size)
    within = torch.from_numpy(mask).to(model.device, model.weights.dtype)
    model.load(weights, buffers)
    model.mask(within)
    loss = descend(model, batches, rate, within)
    places = np.flatnonzero(mask)  # faster than by the mask itself
    trained, start = model.live()[places], start[places]
    values = accumulated(start, trained, rate)
    return LocalRound(
        values, trained, mask, threshold, model.moved(), loss, total, pruned_share=_share(model.start, start)
    )


def _share(whole: Singles, kept: Singles) -> float:
    """Return how much of the squared norm is not kept."""
    total = _square(whole)
    return max(0.0, 1 - _square(kept) / total) if total > 0 else 0.0


def _square(values: Singles) -> float:
    """Return the squared norm, short pieces in their own precision; not by BLAS, whose sums depend on its threads."""
    rows, rest = np.split(values, [len(values) // _PIECE * _PIECE])
    rows = rows.reshape(-1, _PIECE)
    return float(np.einsum("ij,ij->i", rows, rows).sum(dtype=np.float64) + np.einsum("i,i", rest, rest))
