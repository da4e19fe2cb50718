"""What the convolutions of a model see: shapes, taps that meet pixels, and the multiplications these cost."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np
import torch
from torch import Tensor, nn

from skyfed.types import Bools

Conv = nn.Conv1d | nn.Conv2d | nn.Conv3d
Shape = tuple[int, ...]
_KNOWN = {nn.Conv1d.forward, nn.Conv2d.forward, nn.Conv3d.forward}  # what a layer of one's own does is not known


def conv_inputs(module: nn.Module, inputs: Shape) -> dict[str, list[Shape]]:
    """Return the spatial shapes that each convolution layer sees in one forward pass over inputs of this shape.

    By name of the layer, one shape per call. Nothing is said about a module that fails on inputs of zeros.
    """
    state = torch.get_rng_state()  # some toss coins even when they are tested
    try:
        model = copy.deepcopy(module).eval()
        seen: dict[str, list[Shape]] = {}
        for name, layer in model.named_modules():
            if isinstance(layer, Conv) and (type(layer).forward in _KNOWN or getattr(layer, "plain", False)):
                layer.register_forward_hook(_noting(seen.setdefault(name, [])))
        example = next(model.parameters())
        with torch.inference_mode():
            model(torch.zeros(2, *inputs, dtype=example.dtype, device=example.device))
    except Exception:  # whatever a module of the user's own does with zeros
        return {}
    finally:
        torch.set_rng_state(state)
    return seen


def _noting(shapes: list[Shape]) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
    def note(_: nn.Module, inputs: tuple[Tensor, ...], __: Tensor) -> None:
        shapes.append(tuple(inputs[0].shape[2:]))

    return note


@dataclass(frozen=True)
class Reach:
    """Along one axis: the places of the output that a tap reaches, and those of the input, `step` apart, it reads."""

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
    found = []
    for tap in range(kernel):
        first = np.arange(places) * stride - before + dilation * tap
        meets = np.flatnonzero((first >= 0) & (first < length))
        if len(meets):
            found.append(Reach(tap, int(meets[0]), int(first[meets[0]]), len(meets), stride))
    return tuple(found), places


def live_taps(layer: Conv, shapes: Sequence[Shape]) -> Bools:
    """Return which taps of a kernel meet a pixel for some input shape and some place of the output."""
    kernel = tuple(layer.kernel_size)
    if layer.padding_mode != "zeros" or not shapes:  # copies of pixels are no padding; what is not called is not known
        return np.ones(kernel, bool)
    live = np.zeros(kernel, bool)
    for shape in shapes:
        axes = [[reach.tap for reach in reaches(layer, axis, length)[0]] for axis, length in enumerate(shape)]
        for tap in product(*axes):
            live[tap] = True
    return live


def multiplications(layer: Conv, shape: Shape) -> int:
    """Return the multiply-adds of one picture with real pixels, padding left out."""
    pairs = 1
    for axis, length in enumerate(shape):
        pairs *= sum(reach.count for reach in reaches(layer, axis, length)[0])
    return pairs * layer.in_channels // layer.groups * layer.out_channels


def dense_multiplications(layer: Conv, shape: Shape) -> int:
    """Return the multiply-adds of one picture with padding."""
    pairs = 1
    for axis, length in enumerate(shape):
        pairs *= reaches(layer, axis, length)[1] * layer.kernel_size[axis]
    return pairs * layer.in_channels // layer.groups * layer.out_channels


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
