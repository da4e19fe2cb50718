"""The models: ResNet18 in two stems, a small CNN, an MLP, or your own nn.Module by import path."""

import copy
from math import prod

import torch
from torch import Tensor, nn
from torch.nn import functional

from skyfed.errors import BadInputError
from skyfed.imports import import_path
from skyfed.learning.settings import ModelSettings
from skyfed.learning.shapes import Shape
from skyfed.rng import stream


def build_model(settings: ModelSettings, outputs: int, inputs: Shape, seed: int) -> nn.Module:
    """Build the model for inputs of this shape, with weights that follow from the seed alone."""
    builders = {"resnet18": _resnet18, "cnn": _cnn, "mlp": _mlp}
    state = torch.get_rng_state()
    try:
        # modules draw their initial weights from torch's generator; it is put back as it was
        torch.default_generator.manual_seed(int(stream(seed, "initial weights").integers(2**63)))
        if settings.name in builders:
            return builders[settings.name](settings, outputs, inputs)
        return _own(settings.name, outputs, inputs)
    finally:
        torch.set_rng_state(state)


def is_known(settings: ModelSettings) -> bool:
    """Tell whether a model is one of these: it takes pictures channels last and holds no surprises."""
    return settings.name in ("resnet18", "cnn", "mlp")


def _own(name: str, outputs: int, inputs: Shape) -> nn.Module:
    """Build a user's own model: of (outputs, side) for square pictures of three channels, else (outputs, shape)."""
    make = import_path(name, "model.name")
    try:
        built = make(outputs, inputs[-1] if _is_picture(inputs) else inputs)
    except (Exception, SystemExit) as error:  # whatever code of the user's own does
        reason = " ".join(str(error).splitlines())
        raise BadInputError(f"model.name = {name!r}: {type(error).__name__}: {reason}") from None
    if not isinstance(built, nn.Module):
        raise BadInputError(f"model.name = {name!r}: gave {type(built).__name__}; allowed: a torch.nn.Module")
    _try(name, built, outputs, inputs)
    return built


def _try(name: str, model: nn.Module, outputs: int, inputs: Shape) -> None:
    """Show a model of the user's own two samples: better now than after the flights are planned."""
    what = "pictures" if _is_picture(inputs) else "samples"
    try:
        with torch.no_grad():
            scores = copy.deepcopy(model).eval()(torch.randn(2, *inputs))  # around 0 as inputs are, but not all 0
    except (Exception, SystemExit) as error:  # whatever code of the user's own does
        reason = " ".join(str(error).splitlines())
        size = ", ".join(map(str, (2, *inputs)))
        raise BadInputError(
            f"model.name = {name!r}: fails on {what} ({size}): {type(error).__name__}: {reason}"
        ) from None
    shape = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
    if shape != (2, outputs):
        raise BadInputError(
            f"model.name = {name!r}: gave {shape} for two {what}; allowed: (2, {outputs}), one number per output"
        )


def _is_picture(inputs: Shape) -> bool:
    return len(inputs) == 3 and inputs[0] == 3 and inputs[1] == inputs[2]


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
    channels = inputs[0]
    if settings.stem == "imagenet":
        stem: list[nn.Module] = [
            nn.Conv2d(channels, width, 7, 2, 3, bias=False),
            _norm(norm, width),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
        ]
    else:
        stem = [nn.Conv2d(channels, width, 3, 1, 1, bias=False), _norm(norm, width), nn.ReLU()]
    blocks, inside = [], width
    for stage in range(4):
        outside = width * 2**stage
        for position in range(2):
            blocks.append(BasicBlock(inside, outside, 2 if stage and not position else 1, norm))
            inside = outside
    model = ResNet(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, outputs))
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
