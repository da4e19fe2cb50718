"""What the convolutions of a model see: shapes, taps that meet pixels, and the multiplications these cost."""

import copy
from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

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
                shapes = seen.setdefault(name, [])
                layer.register_forward_hook(lambda _, x, __, shapes=shapes: shapes.append(tuple(x[0].shape[2:])))
        example = next(model.parameters())
        with torch.random.fork_rng(devices=[]), torch.inference_mode():  # some modules draw random numbers even here
            model(torch.zeros(2, *inputs, dtype=example.dtype, device=example.device))
    except Exception:  # whatever a module of the user's own does with zeros
        return {}
    return seen


class Reach(NamedTuple):
    """Along one axis: the places of the input that a tap meets, and those of the output that it contributes to."""

    tap: int
    ins: range
    outs: range


def reaches(layer: Conv, axis: int, length: int) -> tuple[tuple[Reach, ...], int]:
    """Return the taps of one axis that meet pixels, and how many places the output has."""
    kernel, stride, dilation = layer.kernel_size[axis], layer.stride[axis], layer.dilation[axis]
    span = dilation * (kernel - 1)
    if isinstance(layer.padding, str):
        before, padding = (span // 2, span) if layer.padding == "same" else (0, 0)
    else:
        before, padding = layer.padding[axis], 2 * layer.padding[axis]
    return _reaches(kernel, stride, dilation, before, (length + padding - span - 1) // stride + 1, length)


@lru_cache(1024)
def _reaches(
    kernel: int, stride: int, dilation: int, before: int, places: int, length: int
) -> tuple[tuple[Reach, ...], int]:
    met = []
    for tap in range(kernel):
        first = dilation * tap - before
        pixels = range(first, first + places * stride, stride)
        inside = [place for place, pixel in enumerate(pixels) if 0 <= pixel < length]
        if inside:
            part = slice(inside[0], inside[-1] + 1)
            met.append(Reach(tap, pixels[part], range(places)[part]))
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
    pairs = prod(sum(len(reach.ins) for reach in reaches(layer, axis, length)[0]) for axis, length in enumerate(shape))
    return pairs * layer.in_channels // layer.groups * layer.out_channels


def dense_multiplications(layer: Conv, shape: Shape) -> int:
    """Return the multiply-adds of one picture with padding."""
    places = prod(reaches(layer, axis, length)[1] for axis, length in enumerate(shape))
    return places * prod(layer.kernel_size) * layer.in_channels // layer.groups * layer.out_channels


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
