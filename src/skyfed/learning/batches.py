"""Mini-batches of a task's samples, ready for the model."""

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from skyfed.tasks import Samples, Task
from skyfed.tasks.cache import Bytes
from skyfed.types import Floats, Ints

_COUNTED = 1000  # samples whose levels are counted at a time, since counting widens them

Batch = tuple[Tensor, Tensor]  # inputs and targets


class Batches:
    """Mini-batches straight from a task's arrays; bytes are normalised per channel."""

    def __init__(
        self, task: Task, dtype: torch.dtype = torch.float32, device: torch.device | None = None, wide: bool = False
    ) -> None:
        """Take the channels' moments, mean and one over the deviation, from the training samples; None if no bytes."""
        self._task, self._dtype, self._device = task, dtype, device
        self._wide = wide and len(task.shape) == 3
        self._inputs, self._targets = tensor_of(task.train.inputs), tensor_of(task.train.targets)
        self._sensed: tuple[Ints, Floats] | None = None
        self.moments: tuple[Tensor, Tensor] | None = None
        if task.train.inputs.dtype == np.uint8 and task.train.inputs.ndim > 1:
            mean, scale = channel_moments(task.train.inputs)
            self.moments = mean.to(device, dtype), scale.to(device, dtype)

    def draw(self, samples: Ints, size: int, count: int, rng: np.random.Generator) -> Iterator[Batch]:
        """Yield `count` mini-batches: passes over the samples in random order, a new order for each pass."""
        order: Ints = np.empty(0, np.int64)
        size = min(size, len(samples))
        for _ in range(count):
            if len(order) < size:
                order = np.concatenate([order, samples[rng.permutation(len(samples))]])
            batch, order = order[:size], order[size:]
            yield self.take(batch)

    def over(self, samples: Samples) -> "Batches":
        """Return mini-batches of other samples than the task's, prepared as those are."""
        others = copy.copy(self)
        others._inputs, others._targets = tensor_of(samples.inputs), tensor_of(samples.targets)
        return others

    def sensed(self, samples: Ints, seconds: Floats) -> "Batches":
        """Return mini-batches of these training samples, numbered from 0, as they looked at mission seconds (n,)."""
        held = copy.copy(self)
        held._sensed = samples, seconds
        return held

    def take(self, samples: Ints, training: bool = True) -> Batch:
        """Return these training samples as one mini-batch."""
        seconds = None
        if self._sensed is not None:
            samples, seconds = self._sensed[0][samples], self._sensed[1][samples]
        places = torch.from_numpy(samples)
        inputs, targets = self._inputs.index_select(0, places), self._targets.index_select(0, places)
        return self.ready(self.look(inputs, seconds), training), self.goal(targets)

    def look(self, inputs: Tensor, seconds: Floats | None) -> Tensor:
        """Return inputs as they look at mission seconds (n,); as they are where that is not known or never changes."""
        if seconds is None or self._task.appearance is None:
            return inputs
        return tensor_of(self._task.appearance(inputs.numpy(), seconds))

    def ready(self, inputs: Tensor, training: bool = False) -> Tensor:
        """Return inputs as the model takes them: bytes with zero mean and unit deviation per channel."""
        floats = inputs.to(self._device, self._dtype)
        if self.moments is not None:
            floats.sub_(self.moments[0]).mul_(self.moments[1])
        if self._task.transform is not None:
            floats = self._task.transform(floats, training)
        return floats.contiguous(memory_format=torch.channels_last if self._wide else torch.contiguous_format)

    def goal(self, targets: Tensor) -> Tensor:
        """Return targets as the loss takes them: whole numbers as labels, others in the model's precision."""
        if targets.dtype.is_floating_point:
            return targets.to(self._device, self._dtype)
        return targets.long().to(self._device)


def channel_moments(inputs: Bytes) -> tuple[Tensor, Tensor]:
    """Mean and one over the standard deviation of each channel, for bytes (N, C, ...); (1, C, 1, ...) each."""
    level, mean, spread = np.arange(256), [], []
    for channel in range(inputs.shape[1]):
        parts = (inputs[k : k + _COUNTED, channel].reshape(-1) for k in range(0, len(inputs), _COUNTED))
        count = np.asarray(sum(np.bincount(part, minlength=256) for part in parts), np.float64)
        mean.append(count @ level / count.sum())
        spread.append(max(1e-6, float(count @ level**2 / count.sum() - mean[-1] * mean[-1])) ** 0.5)
    shape = (1, inputs.shape[1], *(1,) * (inputs.ndim - 2))
    means, spreads = (torch.tensor(each, dtype=torch.float64).view(shape) for each in (mean, spread))
    return means, 1 / spreads


def tensor_of(array: NDArray[Any]) -> Tensor:
    """Return an array as a tensor; types that torch does not know are widened."""
    known = array.dtype.kind in "bf" or array.dtype in (np.uint8, np.int8, np.int16, np.int32, np.int64)
    return torch.from_numpy(np.ascontiguousarray(array if known else array.astype(np.int64)))
