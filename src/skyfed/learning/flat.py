"""A model's weights, gradients and buffers as flat vectors that its tensors are views of."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from skyfed.errors import BadInputError
from skyfed.records import Bools, Ints, Singles


@dataclass(frozen=True)
class Layout:
    """Where each parameter tensor lies in the flat vector; known to vehicles and server alike.

    names, shapes  of the parameter tensors in order      starts  (n+1,) first entry of each, then p
    kernels        (p,) entries of convolution and linear weights: what `prune.scope = "kernels"` may prune
    buffers        number of float buffer entries (running means and variances)
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    starts: Ints
    kernels: Bools
    buffers: int

    @property
    def size(self) -> int:
        """p."""
        return int(self.starts[-1])


_CPU = torch.device("cpu")


class FlatModel:
    """A module whose parameters and float buffers are views of one vector each; float32 unless told otherwise."""

    def __init__(self, module: nn.Module, dtype: torch.dtype = torch.float32, device: torch.device = _CPU) -> None:
        self.module, self.device = module.to(device, dtype), device
        parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        if not parameters:
            raise BadInputError("model.name: the module has no weights to train")
        buffers = [buffer for buffer in module.buffers() if buffer.is_floating_point()]
        self.weights = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
        self.gradient = torch.zeros_like(self.weights)
        self.buffers = torch.cat(
            [torch.empty(0, dtype=dtype, device=device), *(buffer.reshape(-1) for buffer in buffers)]
        )
        for parameter, part, slope in zip(
            parameters, _views(self.weights, parameters), _views(self.gradient, parameters), strict=True
        ):
            parameter.data = part
            parameter.grad = slope
        for buffer, part in zip(buffers, _views(self.buffers, buffers), strict=True):
            buffer.set_(part)  # type: ignore[call-overload]
        self.layout = _layout(module, len(self.buffers))
        # counters and the like do not travel: every round starts from what they were at first
        self._counters = [(buffer, buffer.clone()) for buffer in module.buffers() if not buffer.is_floating_point()]

    def load(self, weights: Tensor, buffers: Tensor) -> None:
        """Copy weights and buffers in."""
        self.weights.copy_(weights)
        self.buffers.copy_(buffers)
        for counter, first in self._counters:
            counter.copy_(first)

    def on_host(self) -> tuple[Singles, Singles]:
        """Return copies of weights and buffers as arrays."""
        return self.weights.cpu().numpy().copy(), self.buffers.cpu().numpy().copy()


def usable_device(name: str) -> torch.device:
    """Return a device that this machine has; raises BadInputError where it has not."""
    device = torch.device(name)
    found = device.type == "cpu"
    if not found:
        kind = getattr(torch, device.type, None)
        found = kind is not None and kind.is_available() and (device.index or 0) < kind.device_count()
    if not found:
        raise BadInputError(f"device = {name!r}: not on this machine; allowed here: cpu")
    return device


def _views(flat: Tensor, like: list[nn.Parameter] | list[Tensor]) -> Iterator[Tensor]:
    start = 0
    for tensor in like:
        yield flat[start : start + tensor.numel()].view(tensor.shape)
        start += tensor.numel()


def _layout(module: nn.Module, buffers: int) -> Layout:
    owners = {
        id(layer.weight)
        for layer in module.modules()
        if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.Linear)
    }
    names, shapes, sizes, kernels = [], [], [], []
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            names.append(name)
            shapes.append(tuple(parameter.shape))
            sizes.append(parameter.numel())
            kernels.append(np.full(parameter.numel(), id(parameter) in owners))
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Layout(tuple(names), tuple(shapes), starts, np.concatenate(kernels), buffers)
