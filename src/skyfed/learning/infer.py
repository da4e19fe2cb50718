"""Testing a ResNet faster: norms folded into kernels, additions and ReLU done with them, and fewer multiplications.

Convolutions on the smallest maps are one matrix, on small ones Winograd's. Other models are tested as they are. Results
differ from the model's own by rounding only.

Two private operators of torch do additions and ReLU with a convolution or a product. They may change in any release, so
they are tried out once per process; where they are missing or give something else, models are tested as they are.

Between steps pictures are (picture, channel, y, x) with channels last in memory, (pixel, picture, channel), or rows
(picture, pixel x channel), told apart by their dimensions.
"""

from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from skyfed.learning.flat import FlatModel
from skyfed.learning.models import BasicBlock, ResNet
from skyfed.learning.padding_free_conv import TapPlan, plan_taps
from skyfed.learning.winograd import LEAST, Scratch, WinogradConv, fits, pixels_of

_TOGETHER = 50  # pictures whose large first maps stay in cache
_GATHERED = 4  # side of a map up to which a strided convolution is one product an output pixel
_SMALL = 2  # side of a map up to which a convolution is one matrix product

Forward = Callable[[Tensor], Tensor]


def forward_of(model: FlatModel) -> Forward:
    """Return a function from normalised pictures to outputs, for the weights the model has now."""
    model.module.eval()
    plain = model.wide and model.device.type == "cpu" and model.weights.dtype == torch.float32
    if plain and isinstance(model.module, ResNet) and isinstance(model.module[1], nn.BatchNorm2d) and operators_work():
        return _Folded(model.module, model.seen)
    return model.module


@cache
def operators_work() -> bool:
    """Tell whether torch's private operators are there and give what its public functions give."""
    x = torch.linspace(-1, 1, 2 * 4 * 3 * 3).view(2, 4, 3, 3).contiguous(memory_format=torch.channels_last)
    kernel, bias = torch.linspace(-1, 2, 4 * 4).view(4, 4, 1, 1), torch.linspace(-1, 1, 4)
    how, rows = ([0, 0], [1, 1], [1, 1], 1), x[:, :, 0, 0].contiguous()
    try:
        given = [
            _convolve(x, kernel, bias, how, True, None),
            _convolve(x, kernel, bias, how, False, None),
            _convolve(x, kernel, bias, how, True, x),
            _multiply(rows, kernel[:, :, 0, 0], bias, True),
        ]
    except (AttributeError, TypeError, RuntimeError):
        return False
    y, product = functional.conv2d(x, kernel, bias), functional.linear(rows, kernel[:, :, 0, 0], bias)
    expected = [y.relu(), y, (y + x).relu(), product.relu()]
    return all(a.shape == b.shape and torch.allclose(a, b, atol=1e-5) for a, b in zip(given, expected, strict=True))


def _convolve(x: Tensor, weight: Tensor, bias: Tensor, how: tuple[Any, ...], relu: bool, add: Tensor | None) -> Tensor:
    """Convolve, then add, then cut off below 0, in one call; `how` is padding, stride, dilation and groups."""
    operator, last = torch.ops.mkldnn._convolution_pointwise, "relu" if relu else "none"
    y: Tensor
    if add is None:
        y = operator(x, weight, bias, *how, last, [], "")
    else:
        y = operator.binary(x, add, weight, bias, *how, "add", 1.0, last, [], "")
    return y


def _multiply(rows: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
    """Multiply rows with a matrix, then cut off below 0, in one call."""
    y: Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "relu" if relu else "none", [], "")
    return y


class _Folded:
    """A ResNet as a list of fused steps."""

    def __init__(self, net: ResNet, seen: dict[str, list[tuple[int, ...]]]) -> None:
        scratch: Scratch = {}
        stem = net[0]
        assert isinstance(stem, nn.Conv2d)
        self._stem = _Kernel(*_folded(stem, net[1]), stem)
        self._pool = [layer for layer in net if isinstance(layer, nn.MaxPool2d)]
        self._blocks: list[tuple[Step, Step, Step | None]] = []
        for name, block in net.named_children():
            if isinstance(block, BasicBlock):
                into, inside = seen[f"{name}.conv1"][0], seen[f"{name}.conv2"][0]
                shortcut = None
                if isinstance(block.shortcut, nn.Sequential):
                    shortcut = _step(block.shortcut[0], block.shortcut[1], into, scratch)
                first = _step(block.conv1, block.norm1, into, scratch)
                self._blocks.append((first, _step(block.conv2, block.norm2, inside, scratch), shortcut))
        first = self._blocks[0][0]
        self._pixels = first.count if isinstance(first, WinogradConv) else 0  # of the first maps
        self._classify = net[-1]
        self._last = prod(inside)

    def __call__(self, x: Tensor) -> Tensor:
        count = len(x)
        parts = [self._begin(part) for part in x.split(_TOGETHER)]  # type: ignore[no-untyped-call]
        x = torch.cat(parts, dim=1 if self._pixels else 0)
        for first, second, shortcut in self._blocks:
            beside = x if shortcut is None else shortcut(x, relu=False)
            x = second(first(x, relu=True), relu=True, add=beside)
        outputs: Tensor = self._classify(_rows(x).view(count, self._last, -1).mean(dim=1))
        return outputs

    def _begin(self, x: Tensor) -> Tensor:
        x = self._stem(x, relu=True)
        for pool in self._pool:
            x = pool(x)
        return pixels_of(x, self._pixels) if self._pixels else x


def _step(conv: nn.Module, norm: nn.Module, shape: tuple[int, ...], scratch: Scratch) -> "Step":
    assert isinstance(conv, nn.Conv2d)
    weight, bias = _folded(conv, norm)
    usual = conv.groups == 1 and conv.dilation == (1, 1) and conv.stride[0] == conv.stride[1] and shape[0] == shape[1]
    if usual and conv.kernel_size == (1, 1) and conv.padding == (0, 0):
        return _Pixels(weight, bias, shape, conv.stride[0])
    three = usual and conv.kernel_size == (3, 3) and conv.padding == (1, 1)
    if three and conv.stride == (1, 1) and fits(conv.weight, shape[0]):
        return WinogradConv(weight, bias, shape[0], scratch)
    if three and conv.stride == (2, 2) and shape[0] <= _GATHERED and min(conv.weight.shape[:2]) >= LEAST:
        return _Gathered(weight, bias, plan_taps(conv, shape))
    return _Matrix(weight, bias, plan_taps(conv, shape)) if max(shape) <= _SMALL else _Kernel(weight, bias, conv)


def _folded(conv: nn.Conv2d, norm: nn.Module) -> tuple[Tensor, Tensor]:
    """Return kernel and bias of a convolution with its batch norm in them."""
    assert isinstance(norm, nn.BatchNorm2d)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight.detach() / torch.sqrt(norm.running_var + norm.eps)
    return conv.weight.detach() * scale.view(-1, 1, 1, 1), norm.bias.detach() - norm.running_mean * scale


class _Kernel:
    """A convolution with bias, addition and ReLU in one call of the library."""

    def __init__(self, weight: Tensor, bias: Tensor, conv: nn.Conv2d) -> None:
        self._weight, self._bias = weight.contiguous(memory_format=torch.channels_last), bias
        self._how = (conv.padding, conv.stride, conv.dilation, conv.groups)

    def __call__(self, x: Tensor, relu: bool, add: Tensor | None = None) -> Tensor:
        add = None if add is None else _pictures(add)
        return _convolve(_pictures(x), self._weight, self._bias, self._how, relu, add)


class _Matrix:
    """A convolution on a map of few pixels as one product; pictures are rows of pixels, channels last in each."""

    def __init__(self, weight: Tensor, bias: Tensor, plan: TapPlan) -> None:
        taps = weight.permute(2, 3, 1, 0).flatten(0, 1)  # tap, in, out
        ins = max(product.ins.stop for product in plan.products)  # strides may never reach the last pixels
        outs = prod(plan.out)
        matrix = weight.new_zeros(ins, taps.shape[1], outs, taps.shape[2])
        for product in plan.products:
            for pixel, out in zip(product.ins, product.outs, strict=True):
                matrix[pixel, :, out] = taps[product.tap]
        self._matrix = matrix.view(ins * taps.shape[1], -1)
        self._bias = bias.repeat(outs)

    def __call__(self, x: Tensor, relu: bool, add: Tensor | None = None) -> Tensor:
        y = torch.addmm(self._bias, _rows(x)[:, : len(self._matrix)], self._matrix)
        if add is not None:
            y += _rows(add)
        return y.relu_() if relu else y


class _Gathered:
    """A strided convolution on a small map: the pixels that an output pixel sees, beside each other, times a matrix."""

    def __init__(self, weight: Tensor, bias: Tensor, plan: TapPlan) -> None:
        taps = weight.permute(2, 3, 0, 1).flatten(0, 1)  # tap, out, in
        sees: list[list[tuple[int, int]]] = [[] for _ in range(prod(plan.out))]
        for product in plan.products:
            for pixel, out in zip(product.ins, product.outs, strict=True):
                sees[out].append((pixel, product.tap))
        self._bias, self._count = bias, prod(plan.shape)
        self._sees = [[pixel for pixel, _ in pairs] for pairs in sees]
        self._weights = [torch.cat([taps[tap] for _, tap in pairs], dim=1) for pairs in sees]

    def __call__(self, x: Tensor, relu: bool, add: Tensor | None = None) -> Tensor:
        x, last = pixels_of(x, self._count), relu and add is None
        outputs = [
            _multiply(torch.cat([x[pixel] for pixel in pixels], dim=1), weight, self._bias, last)
            for pixels, weight in zip(self._sees, self._weights, strict=True)
        ]
        return _ended(torch.stack(outputs), relu and add is not None, add)


class _Pixels:
    """A 1x1 convolution: every pixel, or every other one, by itself."""

    def __init__(self, weight: Tensor, bias: Tensor, shape: tuple[int, ...], stride: int) -> None:
        self._weight, self._bias = weight[:, :, 0, 0].t().contiguous(), bias
        self._shape, self._stride = shape, stride

    def __call__(self, x: Tensor, relu: bool, add: Tensor | None = None) -> Tensor:
        x = pixels_of(x, prod(self._shape))
        some = x.view(*self._shape, *x.shape[1:])[:: self._stride, :: self._stride]
        y = torch.addmm(self._bias, some.reshape(-1, x.shape[2]), self._weight)
        return _ended(y.view(-1, x.shape[1], y.shape[1]), relu, add)


Step = _Kernel | _Matrix | WinogradConv | _Gathered | _Pixels


def _ended(y: Tensor, relu: bool, add: Tensor | None) -> Tensor:
    """Add and cut off below 0, pixel by pixel."""
    if add is not None:
        y += pixels_of(add, len(y))
    return y.relu_() if relu else y


def _pictures(x: Tensor) -> Tensor:
    if x.dim() == 4:
        return x
    side = round(len(x) ** 0.5)
    return x.view(side, side, *x.shape[1:]).permute(2, 3, 0, 1).contiguous(memory_format=torch.channels_last)


def _rows(x: Tensor) -> Tensor:
    if x.dim() == 2:
        return x
    return x.permute(1, 0, 2).flatten(1) if x.dim() == 3 else x.permute(0, 2, 3, 1).flatten(1)
