"""The models: ResNet18 in two stems, a small CNN, an MLP, or a user's own nn.Module by import path."""

import copy
import importlib

import torch
from torch import Tensor, nn
from torch.nn import functional

from skyfed.errors import BadInputError
from skyfed.learning.settings import ModelSettings
from skyfed.rng import stream


def build_model(settings: ModelSettings, classes: int, side: int, seed: int) -> nn.Module:
    """Build the model with weights that follow from the seed alone."""
    builders = {"resnet18": _resnet18, "cnn": _cnn, "mlp": _mlp}
    state = torch.get_rng_state()
    try:
        # modules draw their initial weights from torch's generator; it is put back as it was
        torch.default_generator.manual_seed(int(stream(seed, "initial weights").integers(2**63)))
        if settings.name in builders:
            return builders[settings.name](settings, classes, side)
        return _own(settings.name, classes, side)
    finally:
        torch.set_rng_state(state)


def is_known(settings: ModelSettings) -> bool:
    """Tell whether a model is one of these: it takes pictures channels last and holds no surprises."""
    return settings.name in ("resnet18", "cnn", "mlp")


def _own(name: str, classes: int, side: int) -> nn.Module:
    module, _, function = name.partition(":")
    try:
        built = getattr(importlib.import_module(module), function)(classes, side)
    except Exception as error:  # whatever code of the user's own does
        reason = " ".join(str(error).splitlines())
        raise BadInputError(f"model.name = {name!r}: {type(error).__name__}: {reason}") from None
    if not isinstance(built, nn.Module):
        raise BadInputError(f"model.name = {name!r}: gave {type(built).__name__}; allowed: a torch.nn.Module")
    _try(name, built, classes, side)
    return built


def _try(name: str, model: nn.Module, classes: int, side: int) -> None:
    """Show a model of the user's own two pictures: better now than after the flights are planned."""
    try:
        with torch.no_grad():
            scores = copy.deepcopy(model).eval()(torch.randn(2, 3, side, side))  # as pictures are: around 0, not all 0
    except Exception as error:  # whatever code of the user's own does
        reason = " ".join(str(error).splitlines())
        what = f"fails on pictures (2, 3, {side}, {side})"
        raise BadInputError(f"model.name = {name!r}: {what}: {type(error).__name__}: {reason}") from None
    shape = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
    if shape != (2, classes):
        raise BadInputError(
            f"model.name = {name!r}: gave {shape} for two pictures; allowed: (2, {classes}), a score a class"
        )


def _norm(kind: str, channels: int) -> nn.Module:
    if kind == "batch":
        return nn.BatchNorm2d(channels)
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


def _resnet18(settings: ModelSettings, classes: int, side: int) -> nn.Module:
    width, norm = settings.width, settings.norm
    if settings.stem == "imagenet":
        stem: list[nn.Module] = [
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            _norm(norm, width),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
        ]
    else:
        stem = [nn.Conv2d(3, width, 3, 1, 1, bias=False), _norm(norm, width), nn.ReLU()]
    blocks, inside = [], width
    for stage in range(4):
        outside = width * 2**stage
        for position in range(2):
            blocks.append(BasicBlock(inside, outside, 2 if stage and not position else 1, norm))
            inside = outside
    model = ResNet(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, classes))
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


def _cnn(settings: ModelSettings, classes: int, side: int) -> nn.Module:
    width = settings.width
    if side < 4:
        raise BadInputError(f"model.name = 'cnn' needs pictures of at least 4 pixels a side, not {side}")
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 2, 1), _norm(settings.norm, width), nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, 2, 1), _norm(settings.norm, 2 * width), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(32 * width, classes),
    )  # fmt: skip


def _mlp(settings: ModelSettings, classes: int, side: int) -> nn.Module:
    width = settings.width
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * side * side, width), nn.ReLU(), nn.Linear(width, classes))
