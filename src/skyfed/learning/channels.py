"""Structured pruning: drop whole channels, train a small dense model, put it back (prune.granularity = "channel").

A group is a set of channels that are pruned together: the outputs of one layer, what normalises them, and the inputs
of the layers that read them; along a residual stream, all layers that add to it. Every group but the narrowest keeps
the same share of its channels, those with the largest weights.
"""

import copy
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from skyfed.errors import BadInputError
from skyfed.learning.flat import FlatModel, Layout
from skyfed.learning.models import BasicBlock, ResNet
from skyfed.learning.prune import Ticket
from skyfed.learning.shapes import Conv, Shape, multiplications
from skyfed.types import Bools, Floats, Ints, Singles
from skyfed.wire import Channels

Groups = list[list[tuple[str, int]]]  # for each group its members: name of a parameter or buffer, axis of the channels
Kept = Sequence[Bools]  # for each group the channels that stay
_PLAIN = {
    nn.Linear, nn.ReLU, nn.LeakyReLU, nn.GELU, nn.SiLU, nn.ELU, nn.Tanh, nn.Identity, nn.Dropout, nn.Flatten,
    nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d,
    nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, nn.AdaptiveMaxPool2d,
}  # fmt: skip
_NARROW = 1 / 3  # power of the share that the narrowest groups keep; measured, see docs/engine.md
_STEP = 16  # groups of 64 channels or more keep a multiple of this many, which processors like


def channel_groups(module: nn.Module) -> Groups:
    """Return the groups of a model: a user's own gives them by its `channel_groups()`."""
    own = getattr(module, "channel_groups", None)
    if callable(own):
        return _checked(own(), module)
    if any(isinstance(layer, nn.GroupNorm) for layer in module.modules()):
        raise BadInputError("prune.granularity = 'channel' needs model.norm = 'batch': a group norm mixes channels")
    if isinstance(module, ResNet):
        return _resnet_groups(module)
    if type(module) is nn.Sequential and all(_is_plain(layer) for layer in module.children()):
        groups = _chain_groups(module)
        if groups:
            return _checked(groups, module)
    raise BadInputError(
        "prune.granularity = 'channel': allowed: resnet18, cnn, mlp, or a module with a method channel_groups()"
    )


def _is_plain(layer: nn.Module) -> bool:
    """Tell whether a layer of a chain treats channels one by one, and zero as zero."""
    if isinstance(layer, Conv):
        return layer.groups == 1
    if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
        return layer.affine and layer.track_running_stats
    if isinstance(layer, nn.PReLU):
        return layer.num_parameters > 1
    return type(layer) in _PLAIN


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers by name."""
    return dict([*module.named_parameters(), *module.named_buffers()])


def _made_by(module: nn.Module, *layers: str) -> list[tuple[str, int]]:
    """Return the tensors that have an entry or a row for each output of these layers."""
    return [
        (f"{layer}.{name}", 0)
        for layer in layers
        for name, tensor in _tensors(module.get_submodule(layer)).items()
        if tensor.dim()
    ]


def _checked(groups: object, module: nn.Module) -> Groups:
    """Return a user's groups if every member exists and all members of a group have as many channels."""
    tensors = _tensors(module)
    try:
        checked = [[(str(name), int(axis)) for name, axis in group] for group in groups]  # type: ignore[attr-defined]
        for group in checked:
            sizes = [tensors[name].shape[axis] for name, axis in group]
            if not sizes or any(size % sizes[0] for size in sizes) or any(axis not in (0, 1) for _, axis in group):
                raise ValueError(f"sizes {sizes}")
        if not checked:
            raise ValueError("no groups")
    except (TypeError, ValueError, KeyError, IndexError) as error:
        raise BadInputError(
            f"prune.granularity = 'channel': channel_groups() gives {type(error).__name__} {error}; "
            "allowed: lists of (name, axis), sizes equal in each"
        ) from None
    return checked


def _resnet_groups(module: nn.Module) -> Groups:
    stream = _made_by(module, "0", "1")
    groups, streams = [], [stream]
    for name, block in module.named_children():
        if isinstance(block, BasicBlock):
            groups.append([*_made_by(module, f"{name}.conv1", f"{name}.norm1"), (f"{name}.conv2.weight", 1)])
            stream.append((f"{name}.conv1.weight", 1))
            if isinstance(block.shortcut, nn.Sequential):
                stream.append((f"{name}.shortcut.0.weight", 1))
                stream = _made_by(module, f"{name}.shortcut.0", f"{name}.shortcut.1")
                streams.append(stream)
            stream += _made_by(module, f"{name}.conv2", f"{name}.norm2")
        elif isinstance(block, nn.Linear):
            stream.append((f"{name}.weight", 1))
    return [*streams, *groups]


def _chain_groups(module: nn.Module) -> Groups:
    """Group a plain chain of layers: what a convolution or linear layer makes, the next one reads."""
    groups: Groups = []
    for name, layer in module.named_children():
        if isinstance(layer, Conv | nn.Linear):
            if groups:
                groups[-1].append((f"{name}.weight", 1))
            groups.append(_made_by(module, name))
        elif groups:
            groups[-1] += _made_by(module, name)
    return groups[:-1]  # the last layer's outputs are the classes


class ChannelPruner:
    """Chooses channels, cuts the small model out of the large one and puts it back."""

    def __init__(self, model: FlatModel, budget: str) -> None:
        """Prepare for a model; the budget counts "weights" or "flops"."""
        groups = channel_groups(model.module)
        self._model, self._tensors = model, _tensors(model.module)
        self._sizes = [self._tensors[group[0][0]].shape[group[0][1]] for group in groups]
        self._axes: dict[str, dict[int, int]] = {}  # tensor -> axis -> group
        for number, group in enumerate(groups):
            for name, axis in group:
                self._axes.setdefault(name, {})[axis] = number
        self._live = {name: np.flatnonzero(~dead.reshape(-1)).tolist() for name, dead in model.dead_taps.items()}
        self._work = self._works(budget)
        self._small = copy.deepcopy(model.module)
        self._counters = [(b, b.clone()) for b in self._small.buffers() if not b.is_floating_point()]
        self.channels = self._channels(model.layout)

    def ticket(self, model: FlatModel, delta: float) -> Ticket:
        """Return the ticket of the channels with the largest weights that a model has now."""
        kept = self.choose(model.weights, delta)
        mask, total = self.mask(kept)
        return Ticket(mask, float("nan"), total, np.concatenate(kept))

    def by_group(self, channels: NDArray[Any]) -> list[NDArray[Any]]:
        """Return what is given for each channel group by group."""
        return np.split(channels, np.cumsum(self._sizes)[:-1])

    def choose(self, weights: Tensor, delta: float) -> Kept:
        """Return the channels that stay under the budget 1 - delta, by the weights after the dense steps."""
        counts = self._counts(1 - delta)
        scores = [torch.zeros(size, dtype=weights.dtype, device=weights.device) for size in self._sizes]
        for name, view in zip(self._model.layout.names, self._model.views(weights), strict=True):
            if view.dim() < 2 or name not in self._axes:
                continue
            taps = view.reshape(*view.shape[:2], -1).unbind(2)  # a matrix has one
            each = weights.new_zeros(view.shape[:2])
            for tap in self._live.get(name, range(len(taps))):  # weights that never have a gradient do not count
                each.addcmul_(taps[tap], taps[tap])
            for axis, number in self._axes[name].items():
                scores[number] += each.sum(1 - axis).view(self._sizes[number], -1).sum(1)
        kept = []
        for score, count in zip(scores, counts, strict=True):
            best = np.zeros(len(score), bool)
            best[np.argsort(-score.cpu().numpy(), kind="stable")[:count]] = True
            kept.append(best)
        return kept

    def mask(self, kept: Kept) -> tuple[Bools, int]:
        """Return (n,) which live entries stay, and how many of all p do."""
        layout, parts, total = self._model.layout, [], 0
        for name, shape, order in zip(layout.names, layout.shapes, layout.orders, strict=True):
            stays = np.ones((1,) * len(shape), bool)
            for axis, flags in self._along_axes(name, kept).items():
                stays = stays & _along(flags, axis, shape)
            total += int(np.count_nonzero(stays)) * (prod(shape) // stays.size)
            stored = np.broadcast_to(stays, shape).transpose(order)
            if name in self._live:  # such kernels are stored tap by tap
                stored = np.broadcast_to(stored[(0,) * (len(shape) - 2)], (len(self._live[name]), *shape[:2]))
            parts.append(stored.reshape(-1))
        return np.concatenate(parts), total

    def cut(self, kept: Kept, entries: Tensor) -> FlatModel:
        """Return the small model with the weights of the live entries that stay, and the large one's buffers."""
        for counter, first in self._counters:
            counter.copy_(first)
        for name, tensor in _tensors(self._small).items():
            if not tensor.dim() and (tensor.requires_grad or not tensor.is_floating_point()):
                continue  # a single weight is filled in below, a counter starts again above
            large, flags = self._tensors[name].detach(), self._along_axes(name, kept)
            if tensor.requires_grad:
                shape = [int(flags[axis].sum()) if axis in flags else size for axis, size in enumerate(large.shape)]
                tensor.data, tensor.grad = self._model.weights.new_zeros(1).expand(shape), None
                continue
            part = self.part(name, large, kept)
            if isinstance(tensor, nn.Parameter):
                tensor.data = part
            else:
                tensor.set_(part)  # type: ignore[call-overload]
        small = FlatModel(self._small, like=self._model)
        small.fill(entries)
        return small

    def part(self, name: str, tensor: Tensor, kept: Kept) -> Tensor:
        """Return a copy of a tensor of the large model without the channels that are dropped."""
        for axis, stays in self._along_axes(name, kept).items():
            tensor = tensor.index_select(axis, torch.from_numpy(np.flatnonzero(stays)).to(tensor.device))
        return tensor.clone()

    def used(self, live: Singles) -> Kept:
        """Return the channels that a model has: those with a weight that is not zero, and one at least per group."""
        used = np.zeros(self.channels.count + 1, bool)  # the last stands for entries without a channel
        for owners in (self.channels.first, self.channels.second):
            used[owners[live != 0]] = True
        kept = self.by_group(used[:-1])
        for flags in kept:
            flags[0] |= not flags.any()
        return kept

    def put_back(self, kept: Kept, small: FlatModel) -> None:
        """Write the small model's buffers into the large one's; those of channels that were dropped stay."""
        for name, tensor in small.module.named_buffers():
            if tensor.dim() or tensor.is_floating_point():
                large, flags = self._tensors[name], self._along_axes(name, kept)
                axes = [flags.get(axis, np.ones(size, bool)) for axis, size in enumerate(large.shape)]
                large[tuple(torch.from_numpy(places) for places in np.ix_(*axes))] = tensor

    def _along_axes(self, name: str, groups: Sequence[NDArray[Any]]) -> dict[int, NDArray[Any]]:
        """Return what is given for the channels of each group, for every axis of a tensor that has channels."""
        shape = self._tensors[name].shape
        return {
            axis: np.repeat(groups[number], shape[axis] // self._sizes[number])
            for axis, number in sorted(self._axes.get(name, {}).items())
        }

    def _channels(self, layout: Layout) -> Channels:
        """Return for every live entry the channels it belongs to."""
        numbers, both = np.arange(sum(self._sizes), dtype=np.int32), []
        for axis in (0, 1):
            parts = []
            for name, shape, order in zip(layout.names, layout.shapes, layout.orders, strict=True):
                owners = self._along_axes(name, self.by_group(numbers))
                owner = _along(owners[axis], axis, shape) if axis in owners else np.int32(-1)
                parts.append(np.broadcast_to(owner, shape).transpose(order).reshape(-1))
            both.append(layout.of_live(np.concatenate(parts)))
        return Channels(len(numbers), *both)

    def _counts(self, budget: float) -> list[int]:
        """Return how many channels each group keeps: a share of all within the budget, then what still fits."""
        if budget >= 1:
            return list(self._sizes)
        most = budget * self._cost(self._sizes)
        low, high = 0.0, 1.0
        for _ in range(24):
            middle = (low + high) / 2
            fits = self._cost(self._shared(middle)) <= most
            low, high = (middle, high) if fits else (low, middle)
        counts = self._shared(low)
        shares = [count / size for count, size in zip(counts, self._sizes, strict=True)]
        for number in np.argsort(shares, kind="stable").tolist():
            size, more = self._sizes[number], [*counts]
            more[number] = min(size, counts[number] + _step(size))
            if self._cost(more) <= most:
                counts = more
        return counts

    def _shared(self, share: float) -> list[int]:
        """Return the counts for a share of all channels; the narrowest groups keep more, as they save little time."""
        least, counts = min(self._sizes), []
        for size in self._sizes:
            part, step = share**_NARROW if size == least else share, _step(size)
            counts.append(max(step, round(part * size / step) * step))
        return counts

    def _cost(self, counts: list[int]) -> float:
        """Return weights or multiplications with so many channels of every group."""
        work, groups = self._work
        part = np.append(np.divide(counts, self._sizes), 1.0)[groups]
        return float(work @ (part[0] * part[1]))

    def _works(self, budget: str) -> tuple[Floats, Ints]:
        """Return what each parameter costs in full, and the (2, n) groups it is proportional to (-1: none)."""
        module, seen = self._model.module, self._model.seen
        costs: list[float] = []
        groups: list[list[int]] = []
        for name, parameter in module.named_parameters():
            work = parameter.numel()
            if budget == "flops":
                owner, _, kind = name.rpartition(".")
                layer = module.get_submodule(owner)
                if kind != "weight" or not isinstance(layer, Conv | nn.Linear):
                    continue
                if isinstance(layer, Conv):
                    if not seen.get(owner):
                        raise BadInputError(
                            f"prune.budget = 'flops': what {owner or 'the model'} does is not known; allowed: 'weights'"
                        )
                    work = sum(multiplications(layer, shape) for shape in seen[owner])
            costs.append(float(work))
            groups.append([*self._axes.get(name, {}).values(), -1, -1][:2])
        return np.array(costs), np.array(groups).T


def _along(values: NDArray[Any], axis: int, shape: Shape) -> NDArray[Any]:
    """Return values along one axis of a tensor, so that they broadcast to its shape."""
    return values.reshape([-1 if k == axis else 1 for k in range(len(shape))])


def _step(size: int) -> int:
    """Return what the number of channels kept of a group of this size is a multiple of."""
    return _STEP if size >= 4 * _STEP else 1
