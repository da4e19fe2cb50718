"""What the convolutions of a model see: shapes, taps that meet pixels, and the multiplications these cost."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from math import prod

import numpy as np
import torch
from torch import Tensor, nn

from skyfed.types import Bools

Conv = nn.Conv1d | nn.Conv2d | nn.Conv3d
Shape = tuple[int, ...]
_KNOWN = {nn.Conv1d.forward, nn.Conv2d.forward, nn.Conv3d.forward}  # what a layer of one's own does is not known


def conv_inputs(module: nn.Module, inputs: Shape) -> dict[str, list[Shape]]:
    """Return the spatial shapes that each convolution layer sees in one forward pass over inputs of this shape.

    By name of the layer, one shape per call. Empty for a module that fails on inputs of zeros.
    """
    seen: dict[str, list[Shape]] = {}
    try:
        model = copy.deepcopy(module).eval()
        for name, layer in model.named_modules():
            if isinstance(layer, Conv) and (type(layer).forward in _KNOWN or getattr(layer, "plain", False)):
                layer.register_forward_hook(partial(_note, seen.setdefault(name, [])))
        example = next(model.parameters())
        with torch.random.fork_rng(devices=[]), torch.inference_mode():  # some modules draw random numbers even here
            model(torch.zeros(2, *inputs, dtype=example.dtype, device=example.device))
    except Exception:  # whatever a module of the user's own does with zeros
        return {}
    return seen


def _note(shapes: list[Shape], _: nn.Module, inputs: tuple[Tensor, ...], __: Tensor) -> None:
    shapes.append(tuple(inputs[0].shape[2:]))


@dataclass(frozen=True)
class Reach:
    """Along one axis: the places of the output that a tap contributes to, and those of the input, `step` apart."""

    tap: int
    first_out: int
    first_in: int
    count: int
    step: int


def reaches(layer: Conv, axis: int, length: int) -> tuple[tuple[Reach, ...], int]:
    """Return the taps of one axis that meet pixels, and how many places the output has."""
    kernel, stride, dilation = layer.kernel_size[axis], layer.stride[axis], layer.dilation[axis]
    return _reaches(kernel, stride, dilation, *_padding(layer, axis, dilation * (kernel - 1)), length)


@lru_cache(1024)
def _reaches(
    kernel: int, stride: int, dilation: int, before: int, both: int, length: int
) -> tuple[tuple[Reach, ...], int]:
    places = (length + both - dilation * (kernel - 1) - 1) // stride + 1
    met = []
    for tap in range(kernel):
        pixel = np.arange(places) * stride - before + dilation * tap
        inside = np.flatnonzero((pixel >= 0) & (pixel < length))
        if len(inside):
            met.append(Reach(tap, int(inside[0]), int(pixel[inside[0]]), len(inside), stride))
    return tuple(met), places


def live_taps(layer: Conv, shapes: Sequence[Shape]) -> Bools:
    """Return which taps of a kernel meet a pixel for some input shape and some place of the output."""
    kernel = tuple(layer.kernel_size)
    if layer.padding_mode != "zeros" or not shapes:  # copies of pixels are no padding; what is not called is not known
        return np.ones(kernel, bool)
    live = np.zeros(kernel, bool)
    for shape in shapes:
        axes = [[reach.tap for reach in reaches(layer, axis, length)[0]] for axis, length in enumerate(shape)]
        live[np.ix_(*axes)] = True
    return live


def multiplications(layer: Conv, shape: Shape) -> int:
    """Return the multiply-adds of one picture with real pixels, padding left out."""
    pairs = prod(sum(reach.count for reach in reaches(layer, axis, length)[0]) for axis, length in enumerate(shape))
    return pairs * layer.in_channels // layer.groups * layer.out_channels


def dense_multiplications(layer: Conv, shape: Shape) -> int:
    """Return the multiply-adds of one picture with padding."""
    places = prod(reaches(layer, axis, length)[1] for axis, length in enumerate(shape))
    return places * prod(layer.kernel_size) * layer.in_channels // layer.groups * layer.out_channels


def _padding(layer: Conv, axis: int, reach: int) -> tuple[int, int]:
    """Return the padding before the first pixel, and in all."""
    if layer.padding == "same":
        return reach // 2, reach
    if layer.padding == "valid":
        return 0, 0
    size = int(layer.padding[axis])
    return size, 2 * size


def all_multiplications(module: nn.Module, seen: dict[str, list[Shape]]) -> float:
    """Return the multiply-adds of one picture in convolutions and linear layers; what was not seen counts as one call.

    A convolution whose input is not known (a module of one's own that was not understood) counts one place.
    """
    total = 0.0
    for name, layer in module.named_modules():
        if isinstance(layer, Conv) and seen.get(name):
            total += sum(multiplications(layer, shape) for shape in seen[name])
        elif isinstance(layer, Conv | nn.Linear):
            total += layer.weight.numel()
    return total
