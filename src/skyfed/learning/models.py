"""The models: ResNet18 in two stems, a small CNN, an MLP, or your own nn.Module by import path."""

import copy
from itertools import pairwise
from math import prod

import torch
from torch import Tensor, nn
from torch.nn import functional

from skyfed.errors import BadInputError, own_code
from skyfed.imports import import_path
from skyfed.learning.settings import ModelSettings
from skyfed.learning.shapes import Shape
from skyfed.rng import stream


def build_model(settings: ModelSettings, outputs: int, inputs: Shape, seed: int) -> nn.Module:
    """Build the model for inputs of this shape, with weights that follow from the seed alone."""
    with torch.random.fork_rng(devices=[]):  # modules draw their initial weights from torch's generator
        torch.default_generator.manual_seed(int(stream(seed, "initial weights").integers(2**63)))
        if is_known(settings):
            return _BUILDERS[settings.name](settings, outputs, inputs)
        return _own(settings.name, outputs, inputs)


def is_known(settings: ModelSettings) -> bool:
    """Tell whether a model is built in; built-in models take pictures channels last and need no trial."""
    return settings.name in _BUILDERS


def _own(name: str, outputs: int, inputs: Shape) -> nn.Module:
    """Build a user's own model, of (outputs, side) for square pictures of three channels, else (outputs, shape).

    It is tried on two samples: better now than after the flights are planned.
    """
    make = import_path(name, "model.name")
    is_picture = len(inputs) == 3 and inputs[0] == 3 and inputs[1] == inputs[2]
    with own_code(f"model.name = {name!r}", BadInputError):
        built = make(outputs, inputs[-1] if is_picture else inputs)
    if not isinstance(built, nn.Module):
        raise BadInputError(f"model.name = {name!r}: gave {type(built).__name__}; allowed: a torch.nn.Module")
    kind, size = "pictures" if is_picture else "samples", ", ".join(map(str, (2, *inputs)))
    with own_code(f"model.name = {name!r}: fails on {kind} ({size})", BadInputError), torch.no_grad():
        scores = copy.deepcopy(built).eval()(torch.randn(2, *inputs))  # around 0 as inputs are, but not all 0
    shape = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
    if shape != (2, outputs):
        raise BadInputError(
            f"model.name = {name!r}: gave {shape} for two {kind}; allowed: (2, {outputs}), one number per output"
        )
    return built


def _norm(kind: str, channels: int, axes: int = 2) -> nn.Module:
    if kind == "batch":
        return nn.BatchNorm1d(channels) if axes == 1 else nn.BatchNorm2d(channels)
    groups = max(g for g in range(1, min(32, channels) + 1) if channels % g == 0 and channels // g >= min(4, channels))
    return nn.GroupNorm(groups, channels)


class ResNet(nn.Sequential):
    """Stem, blocks, pooling, classifier."""


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut."""

    def __init__(self, inside: int, outside: int, stride: int, norm: str) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.norm1 = _norm(norm, outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm2 = _norm(norm, outside)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), _norm(norm, outside))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        y = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


def _resnet18(settings: ModelSettings, outputs: int, inputs: Shape) -> nn.Module:
    width, norm = settings.width, settings.norm
    if len(inputs) != 3:
        raise BadInputError(f"model.name = 'resnet18' needs pictures, not samples of shape {inputs}")
    large = settings.stem == "imagenet"
    conv = nn.Conv2d(inputs[0], width, *((7, 2, 3) if large else (3, 1, 1)), bias=False)
    stem = [conv, _norm(norm, width), nn.ReLU(), *([nn.MaxPool2d(3, 2, 1)] if large else [])]
    widths = [width * 2**stage for stage in (0, 0, 0, 1, 1, 2, 2, 3, 3)]  # of the stem and the eight blocks
    blocks = [BasicBlock(inside, outside, 1 if inside == outside else 2, norm) for inside, outside in pairwise(widths)]
    model = ResNet(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], outputs))
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


def _cnn(settings: ModelSettings, outputs: int, inputs: Shape) -> nn.Module:
    width, axes = settings.width, len(inputs) - 1
    if axes not in (1, 2) or min(inputs[1:]) < 4:
        raise BadInputError(
            "model.name = 'cnn' needs pictures of at least 4 pixels per side, or signals (channels, length) of at "
            f"least 4 steps, not samples of shape {inputs}"
        )
    conv, pool = (nn.Conv1d, nn.AdaptiveAvgPool1d) if axes == 1 else (nn.Conv2d, nn.AdaptiveAvgPool2d)
    return nn.Sequential(
        conv(inputs[0], width, 3, 2, 1), _norm(settings.norm, width, axes), nn.ReLU(),
        conv(width, 2 * width, 3, 2, 1), _norm(settings.norm, 2 * width, axes), nn.ReLU(),
        pool(4), nn.Flatten(), nn.Linear(4**axes * 2 * width, outputs),
    )  # fmt: skip


def _mlp(settings: ModelSettings, outputs: int, inputs: Shape) -> nn.Module:
    width = settings.width
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(inputs), width), nn.ReLU(), nn.Linear(width, outputs))


_BUILDERS = {"resnet18": _resnet18, "cnn": _cnn, "mlp": _mlp}
