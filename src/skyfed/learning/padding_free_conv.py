"""Convolutions on small maps as matrix products over the taps that meet pixels.

A 3x3 kernel on a 1x1 map multiplies eight taps with padding; libraries do so all the same. Here only live taps are
multiplied, straight from and into the flat weights and gradients, which hold such kernels tap by tap.
"""

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from skyfed.learning.shapes import Reach, Shape, dense_multiplications, multiplications, reaches

_WORTH = 0.6  # share of useful multiplications up to which taps are faster than the library
_CHANNELS = 64  # from which on a product is large enough


class Product(NamedTuple):
    """One product: a tap (its number) and runs of pixels of the input and of the output.

    opens, begins, starts  whether it is the first to touch its output, its input, its tap
    """

    tap: int
    ins: range
    outs: range
    opens: bool
    begins: bool
    starts: bool

    def rows(self, batch: int) -> tuple[slice, slice]:
        """Return its rows of the input and of the output, where every pixel has one row per picture."""
        ins, outs = self.ins, self.outs
        return slice(ins.start * batch, ins.stop * batch), slice(outs.start * batch, outs.stop * batch)


@dataclass(frozen=True)
class TapPlan:
    """The products of a convolution for inputs of one shape."""

    shape: Shape
    out: Shape
    products: tuple[Product, ...]
    fills: bool  # whether every output pixel is opened by a product
    drains: bool  # whether every input pixel is begun by a product


class TapConv2d(nn.Conv2d):
    """A convolution that multiplies live taps only, for inputs of the planned shape.

    The first backward pass after the gradient was cleared overwrites its kernel's gradient; later ones add to it.
    """

    plan: TapPlan
    written: bool
    spread: bool
    plain = True  # what it computes is what a convolution computes

    def forward(self, x: Tensor) -> Tensor:
        """Convolve."""
        if tuple(x.shape[2:]) != self.plan.shape or self.weight.grad is None:
            self.settle()
            self.written = self.spread = True  # the library adds, and to dead taps too
            return super().forward(x)
        y: Tensor = _Taps.apply(x, self.weight, self)  # type: ignore[no-untyped-call]
        if x.is_contiguous():  # hand on the memory format that came in
            y = y.contiguous()
        return y if self.bias is None else y + self.bias.view(1, -1, 1, 1)

    def settle(self) -> None:
        """Make the kernel's gradient zero where nothing has been written."""
        if not self.written and self.weight.grad is not None:
            self.weight.grad.zero_()


class _Taps(torch.autograd.Function):
    """The products, pixel by pixel; the gradient of the kernel goes straight where it belongs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, layer: TapConv2d) -> Tensor:
        plan = layer.plan
        pixels = x.permute(2, 3, 0, 1).reshape(-1, x.shape[1])  # (pixel, picture), channel
        ctx.save_for_backward(pixels)
        ctx.layer, ctx.shape = layer, x.shape
        batch, taps = len(x), _by_tap(weight)
        size = plan.out[0] * plan.out[1] * batch
        y = x.new_empty(size, len(weight)) if plan.fills else x.new_zeros(size, len(weight))
        for each in plan.products:
            ins, outs = each.rows(batch)
            outside = y[outs]
            torch.addmm(outside, pixels[ins], taps[each.tap].t(), beta=0 if each.opens else 1, out=outside)
        return y.view(*plan.out, batch, -1).permute(2, 3, 0, 1).contiguous(memory_format=torch.channels_last)

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor | None, ...]:
        (pixels,) = ctx.saved_tensors
        layer: TapConv2d = ctx.layer
        plan, batch = layer.plan, ctx.shape[0]
        assert layer.weight.grad is not None
        slopes = above[0].permute(2, 3, 0, 1).reshape(-1, len(layer.weight))
        taps, slope = _by_tap(layer.weight), _by_tap(layer.weight.grad)
        if layer.spread and not layer.written:
            layer.weight.grad.zero_()
            layer.spread = False
        fresh, layer.written = not layer.written, True
        down = None
        if ctx.needs_input_grad[0]:
            down = torch.empty_like(pixels) if plan.drains else torch.zeros_like(pixels)
        for each in plan.products:
            ins, outs = each.rows(batch)
            into = slope[each.tap]
            torch.addmm(into, slopes[outs].t(), pixels[ins], beta=0 if each.starts and fresh else 1, out=into)
            if down is not None:
                torch.addmm(down[ins], slopes[outs], taps[each.tap], beta=0 if each.begins else 1, out=down[ins])
        if down is None:
            return None, None, None
        back = down.view(*plan.shape, batch, -1).permute(2, 3, 0, 1).contiguous(memory_format=torch.channels_last)
        return back, None, None


def _by_tap(kernel: Tensor) -> tuple[Tensor, ...]:
    """Return an (out, in) matrix for every tap."""
    return kernel.detach().permute(2, 3, 0, 1).flatten(0, 1).unbind(0)


def plan_taps(layer: nn.Conv2d, shape: Shape) -> TapPlan:
    """Return the products of a layer for inputs of this shape; those that reach most pixels at once go first."""
    (rows, height), (columns, width) = (reaches(layer, axis, length) for axis, length in enumerate(shape))
    return _plan(rows, columns, (height, width), shape, layer.kernel_size[1])


@lru_cache(256)
def _plan(rows: tuple[Reach, ...], columns: tuple[Reach, ...], out: Shape, shape: Shape, across: int) -> TapPlan:
    runs: list[tuple[int, range, range]] = []  # tap, pixels of the input and of the output
    for row, column in product(rows, columns):
        ins = np.add.outer(np.array(row.ins) * shape[1], column.ins).reshape(-1)
        outs = np.add.outer(np.array(row.outs) * out[1], column.outs).reshape(-1)
        gaps = np.flatnonzero((np.diff(ins) != 1) | (np.diff(outs) != 1)) + 1
        for start, stop in pairwise([0, *gaps.tolist(), len(ins)]):
            into, out_of = (range(first, first + stop - start) for first in (int(ins[start]), int(outs[start])))
            runs.append((row.tap * across + column.tap, into, out_of))
    runs.sort(key=lambda run: -len(run[1]))
    products, opened, begun, started = [], set[int](), set[int](), set[int]()
    for tap, into, out_of in runs:
        opens, begins = opened.isdisjoint(out_of), begun.isdisjoint(into)
        products.append(Product(tap, into, out_of, opens, begins, tap not in started))
        opened.update(out_of)
        begun.update(into)
        started.add(tap)
    written = sum(len(each.outs) for each in products if each.opens)  # no two of them share a pixel
    passed = sum(len(each.ins) for each in products if each.begins)
    return TapPlan(shape, out, tuple(products), written == prod(out), passed == prod(shape))


def use_taps(module: nn.Module, seen: dict[str, list[Shape]]) -> None:
    """Let the convolutions for which it is worth it multiply live taps only."""
    layers = dict(module.named_modules())
    for layer in layers.values():  # of a module that was cut out of another
        if type(layer) is TapConv2d:
            layer.__class__ = nn.Conv2d  # type: ignore[assignment]
    owners = Counter(id(p) for layer in layers.values() for p in layer.parameters(recurse=False))
    for name, shapes in seen.items():
        layer = layers[name]
        if type(layer) is not nn.Conv2d or len(shapes) != 1 or not layer.weight.requires_grad:
            continue
        plain = layer.groups == 1 and layer.padding_mode == "zeros" and owners[id(layer.weight)] == 1
        large = min(layer.weight.shape[:2]) >= _CHANNELS
        useful = multiplications(layer, shapes[0]) / dense_multiplications(layer, shapes[0])
        if plain and large and useful <= _WORTH:
            layer.__class__ = TapConv2d
            layer.plan = plan_taps(layer, shapes[0])  # type: ignore[assignment]
            layer.written, layer.spread = True, False  # type: ignore[assignment]
