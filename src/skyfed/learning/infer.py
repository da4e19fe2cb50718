"""Testing a ResNet faster: norms folded into kernels, additions and ReLU done with them, small maps as one matrix.

Other models are tested as they are. Results differ from the model's own by rounding only.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from skyfed.learning.flat import FlatModel
from skyfed.learning.models import BasicBlock, ResNet
from skyfed.learning.taps import plan_taps

_SMALL = 2  # side of a map up to which a convolution is one matrix product

Forward = Callable[[Tensor], Tensor]


def forward_of(model: FlatModel) -> Forward:
    """Return a function from normalised pictures to outputs, for the weights the model has now."""
    model.module.eval()
    plain = model.device.type == "cpu" and model.weights.dtype == torch.float32 and hasattr(torch.ops, "mkldnn")
    if plain and model.wide and isinstance(model.module, ResNet) and isinstance(model.module[1], nn.BatchNorm2d):
        return _Folded(model.module, model.seen)
    return model.module


class _Folded:
    """A ResNet as a list of fused steps."""

    def __init__(self, net: ResNet, seen: dict[str, list[tuple[int, ...]]]) -> None:
        self._stem = _Kernel(net[0], net[1])
        self._pool = [layer for layer in net if isinstance(layer, nn.MaxPool2d)]
        self._blocks = []
        for name, block in net.named_children():
            if isinstance(block, BasicBlock):
                into, inside = seen[f"{name}.conv1"][0], seen[f"{name}.conv2"][0]
                shortcut = None
                if isinstance(block.shortcut, nn.Sequential):
                    shortcut = _step(block.shortcut[0], block.shortcut[1], into)
                steps = _step(block.conv1, block.norm1, into), _step(block.conv2, block.norm2, inside)
                self._blocks.append((*steps, shortcut))
        self._classify = net[-1]
        self._last = inside

    def __call__(self, x: Tensor) -> Tensor:
        x = self._stem(x, relu=True)
        for pool in self._pool:
            x = pool(x)
        for first, second, shortcut in self._blocks:
            beside = x if shortcut is None else shortcut(x, relu=False)
            x = second(first(x, relu=True), relu=True, add=beside)
        pixels = x if x.dim() == 2 else _rows(x)
        found: Tensor = self._classify(pixels.view(len(x), self._last[0] * self._last[1], -1).mean(dim=1))
        return found


def _step(conv: nn.Module, norm: nn.Module, shape: tuple[int, ...]) -> "_Kernel | _Matrix":
    return _Matrix(conv, norm, shape) if max(shape) <= _SMALL else _Kernel(conv, norm)


def _folded(conv: nn.Module, norm: nn.Module) -> tuple[Tensor, Tensor]:
    """Return kernel and bias of a convolution with its batch norm in them."""
    assert isinstance(conv, nn.Conv2d)
    assert isinstance(norm, nn.BatchNorm2d)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight.detach() / torch.sqrt(norm.running_var + norm.eps)
    return conv.weight.detach() * scale.view(-1, 1, 1, 1), norm.bias.detach() - norm.running_mean * scale


class _Kernel:
    """A convolution with bias, addition and ReLU in one call of the library."""

    def __init__(self, conv: nn.Module, norm: nn.Module) -> None:
        assert isinstance(conv, nn.Conv2d)
        weight, self._bias = _folded(conv, norm)
        self._weight = weight.contiguous(memory_format=torch.channels_last)
        self._how = (conv.padding, conv.stride, conv.dilation, conv.groups)

    def __call__(self, x: Tensor, relu: bool, add: Tensor | None = None) -> Tensor:
        ops = torch.ops.mkldnn
        last = "relu" if relu else "none"
        found: Tensor
        if add is None:
            found = ops._convolution_pointwise(x, self._weight, self._bias, *self._how, last, [], "")
        else:
            found = ops._convolution_pointwise.binary(
                x, add, self._weight, self._bias, *self._how, "add", 1.0, last, [], ""
            )
        return found


class _Matrix:
    """A convolution on a map of few pixels as one product; pictures are rows of pixels, channels last in each."""

    def __init__(self, conv: nn.Module, norm: nn.Module, shape: tuple[int, ...]) -> None:
        assert isinstance(conv, nn.Conv2d)
        weight, bias = _folded(conv, norm)
        plan = plan_taps(conv, shape)
        taps = weight.permute(2, 3, 1, 0).flatten(0, 1)  # tap, in, out
        ins, outs = shape[0] * shape[1], plan.out[0] * plan.out[1]
        matrix = weight.new_zeros(ins, taps.shape[1], outs, taps.shape[2])
        for one in plan.products:
            for k in range(one.count):
                matrix[one.into + k, :, one.out_of + k] = taps[one.tap]
        self._matrix = matrix.view(ins * taps.shape[1], -1)
        self._bias = bias.repeat(outs)

    def __call__(self, x: Tensor, relu: bool, add: Tensor | None = None) -> Tensor:
        rows = x if x.dim() == 2 else _rows(x)
        y = torch.addmm(self._bias, rows, self._matrix)
        if add is not None:
            y += add if add.dim() == 2 else _rows(add)
        return y.relu_() if relu else y


def _rows(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1).reshape(len(x), -1)
