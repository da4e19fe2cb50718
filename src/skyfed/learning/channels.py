"""Structured pruning: drop whole channels, train a small dense model, put it back (prune.granularity = "channel").

A group is a set of channels that must go together: the outputs of one layer, what normalises them, and the inputs of
those who read them; along a residual stream all layers that add to it. Every group but the narrowest keeps the same
share of its channels, those with the largest weights.
"""

import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from skyfed.errors import BadInputError
from skyfed.learning.flat import FlatModel, Layout
from skyfed.learning.models import BasicBlock, ResNet
from skyfed.learning.shapes import Conv, multiplications
from skyfed.types import Bools, Floats, Ints, Singles
from skyfed.wire import Channels

Groups = list[list[tuple[str, int]]]  # for each group its members: name of a parameter or buffer, axis of the channels
_PLAIN = {
    nn.Linear, nn.ReLU, nn.LeakyReLU, nn.GELU, nn.SiLU, nn.ELU, nn.Tanh, nn.Identity, nn.Dropout, nn.Flatten,
    nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d,
    nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, nn.AdaptiveMaxPool2d,
}  # fmt: skip
_NARROW = 1 / 3  # power of the share that the narrowest groups keep; measured, see docs/engine.md
_STEP = 16  # groups of 64 channels or more keep a multiple of this many, which processors like


def channel_groups(module: nn.Module) -> Groups:
    """Return the groups of a model: known for those of skyfed, asked for by `channel_groups()` of a user's own."""
    own = getattr(module, "channel_groups", None)
    if callable(own):
        return _checked(own(), module)
    if any(isinstance(layer, nn.GroupNorm) for layer in module.modules()):
        raise BadInputError("prune.granularity = 'channel' needs model.norm = 'batch': a group norm mixes channels")
    if isinstance(module, ResNet):
        return _resnet_groups(module)
    layers = list(module.children())
    if type(module) is nn.Sequential and all(_is_plain(layer) for layer in layers):
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


def _made_by(layer: str, module: nn.Module) -> list[tuple[str, int]]:
    """Return what belongs to the outputs of a layer."""
    own = module.get_submodule(layer)
    tensors = [*own.named_parameters(), *own.named_buffers()]
    return [(f"{layer}.{name}", 0) for name, tensor in tensors if tensor.dim()]


def _checked(groups: object, module: nn.Module) -> Groups:
    """Return a user's groups if every member is there and all of a group have as many channels."""
    tensors = dict([*module.named_parameters(), *module.named_buffers()])
    try:
        found = [[(str(name), int(axis)) for name, axis in group] for group in groups]  # type: ignore[attr-defined]
        for group in found:
            sizes = [tensors[name].shape[axis] for name, axis in group]
            if not sizes or any(size % sizes[0] for size in sizes) or any(axis not in (0, 1) for _, axis in group):
                raise ValueError(f"sizes {sizes}")
        if not found:
            raise ValueError("no groups")
    except (TypeError, ValueError, KeyError, IndexError) as error:
        raise BadInputError(
            f"prune.granularity = 'channel': channel_groups() gives {type(error).__name__} {error}; "
            "allowed: lists of (name, axis), sizes equal in each"
        ) from None
    return found


def _resnet_groups(module: nn.Module) -> Groups:
    stream = [*_made_by("0", module), *_made_by("1", module)]
    groups, streams = [], [stream]
    for name, block in module.named_children():
        if not isinstance(block, BasicBlock):
            continue
        inner = [*_made_by(f"{name}.conv1", module), *_made_by(f"{name}.norm1", module), (f"{name}.conv2.weight", 1)]
        groups.append(inner)
        stream.append((f"{name}.conv1.weight", 1))
        out = [*_made_by(f"{name}.conv2", module), *_made_by(f"{name}.norm2", module)]
        if isinstance(block.shortcut, nn.Sequential):
            stream.append((f"{name}.shortcut.0.weight", 1))
            stream = [*_made_by(f"{name}.shortcut.0", module), *_made_by(f"{name}.shortcut.1", module)]
            streams.append(stream)
        stream += out
    last = [name for name, layer in module.named_children() if isinstance(layer, nn.Linear)][-1]
    stream.append((f"{last}.weight", 1))
    return [*streams, *groups]


def _chain_groups(module: nn.Module) -> Groups:
    """Group a plain chain of layers: what a convolution or linear layer makes, the next one reads."""
    groups: Groups = []
    for name, layer in module.named_children():
        if isinstance(layer, Conv | nn.Linear):
            if groups:
                groups[-1].append((f"{name}.weight", 1))
            groups.append(_made_by(name, module))
        elif groups and any(True for _ in layer.parameters()):
            groups[-1] += _made_by(name, module)
    return groups[:-1]  # the last layer's outputs are the classes


@dataclass(frozen=True)
class Kept:
    """The channels that stay, for each group."""

    groups: tuple[Bools, ...]

    @property
    def flags(self) -> Bools:
        """All groups one after the other."""
        return np.concatenate(self.groups)

    @cached_property
    def places(self) -> list[Ints]:
        """Where the channels that stay are."""
        return [np.flatnonzero(group) for group in self.groups]


class ChannelPruner:
    """Chooses channels, cuts the small model out of the large one and puts it back."""

    def __init__(self, model: FlatModel, budget: str) -> None:
        """Prepare for a model; the budget counts "weights" or "flops"."""
        self._model, self._seen, self._budget = model, model.seen, budget
        self._groups = channel_groups(model.module)
        self._tensors = dict([*model.module.named_parameters(), *model.module.named_buffers()])
        self._sizes = [self._tensors[group[0][0]].shape[group[0][1]] for group in self._groups]
        self._axes: dict[str, dict[int, int]] = {}  # tensor -> axis -> group
        for number, group in enumerate(self._groups):
            for name, axis in group:
                self._axes.setdefault(name, {})[axis] = number
        self._live = {name: np.flatnonzero(~dead.reshape(-1)).tolist() for name, dead in model.dead_taps.items()}
        self._work = self._works()
        self._small = copy.deepcopy(model.module)
        self._counters = [(b, b.clone()) for b in self._small.buffers() if not b.is_floating_point()]
        self.channels = self._channels(model.layout)

    def choose(self, weights: Tensor, delta: float) -> Kept:
        """Return the channels that stay under the budget 1 - delta, by the weights after the dense steps."""
        counts = self._counts(1 - delta)
        scores = [torch.zeros(size, dtype=weights.dtype, device=weights.device) for size in self._sizes]
        for name, view in zip(self._model.layout.names, self._model.views(weights), strict=True):
            if view.dim() < 2 or name not in self._axes:
                continue
            by_tap = _taps_first(view)
            each = weights.new_zeros(view.shape[:2])
            for tap in self._live.get(name, range(len(by_tap))):  # weights that never have a gradient have no say
                each.addcmul_(by_tap[tap], by_tap[tap])
            for axis, number in self._axes[name].items():
                scores[number] += each.sum(1 - axis).view(self._sizes[number], -1).sum(1)
        kept = []
        for score, count in zip(scores, counts, strict=True):
            best = np.zeros(len(score), bool)
            best[np.argsort(-score.cpu().numpy(), kind="stable")[:count]] = True
            kept.append(best)
        return Kept(tuple(kept))

    def mask(self, kept: Kept) -> tuple[Bools, int]:
        """Return (n,) which live entries stay, and how many of all p do."""
        layout, parts, total = self._model.layout, [], 0
        for name, shape, order in zip(layout.names, layout.shapes, layout.orders, strict=True):
            stays = np.ones((1,) * len(shape), bool)
            for axis, flags in self._flags(name, kept).items():
                stays = stays & flags.reshape([-1 if k == axis else 1 for k in range(len(shape))])
            total += int(np.count_nonzero(stays)) * (int(np.prod(shape)) // stays.size)
            taps = self._live.get(name)
            stored = np.broadcast_to(stays, shape).transpose(order)
            if taps is not None:  # such kernels lie tap by tap
                stored = np.broadcast_to(stored[(0,) * (len(shape) - 2)], (len(taps), *shape[:2]))
            parts.append(stored.reshape(-1))
        return np.concatenate(parts), total

    def entries(self, kept: Kept, live: Singles) -> Singles:
        """Return of (n,) live entries those that stay: what the mask gives, taken rows and columns at a time."""
        layout, found, done = self._model.layout, np.empty_like(live), 0
        for name, shape, order, (start, stop) in zip(
            layout.names, layout.shapes, layout.orders, pairwise(layout.live_starts.tolist()), strict=True
        ):
            stored = [shape[axis] for axis in order]
            if name in self._live:  # such kernels lie tap by tap
                stored, order = [len(self._live[name]), *shape[:2]], (2, 0, 1)
            part = live[start:stop].reshape(stored)
            for axis, flags in self._flags(name, kept).items():
                part = part.compress(flags, order.index(axis))
            found[done : done + part.size] = part.reshape(-1)
            done += part.size
        return found[:done]

    def cut(self, kept: Kept, entries: Tensor) -> FlatModel:
        """Return the small model with the weights of the live entries that stay, and the large one's buffers."""
        for counter, first in self._counters:
            counter.copy_(first)
        for name, tensor in [*self._small.named_parameters(), *self._small.named_buffers()]:
            if not tensor.dim():
                continue
            places = self._places(name, kept)
            if isinstance(tensor, nn.Parameter) and tensor.requires_grad:
                shape = [len(places.get(axis, range(size))) for axis, size in enumerate(self._tensors[name].shape)]
                tensor.data, tensor.grad = self._model.weights.new_zeros(1).expand(shape), None
            elif isinstance(tensor, nn.Parameter):
                tensor.data = _chosen(self._tensors[name].detach(), places)
            else:
                tensor.set_(_chosen(self._tensors[name], places).clone())  # type: ignore[call-overload]
        small = FlatModel(self._small, like=self._model)
        small.fill(entries)
        return small

    def put_back(self, kept: Kept, small: FlatModel) -> None:
        """Write the small model's buffers into the large one's; those of channels that were dropped stay."""
        for name, tensor in small.module.named_buffers():
            if tensor.dim():
                self._tensors[name][self._index(name, kept)] = tensor

    def _index(self, name: str, kept: Kept) -> tuple[Tensor | slice, ...]:
        """Return the index of a tensor's kept part."""
        places = self._places(name, kept)
        index: list[Tensor | slice] = [places.get(axis, slice(None)) for axis in range(2)]
        if len(places) == 2:
            index[0] = places[0].unsqueeze(1)
        return tuple(index[: max(1, len(self._tensors[name].shape[:2]))])

    def _flags(self, name: str, kept: Kept) -> dict[int, Bools]:
        """Return for every axis of a tensor that has channels which of them stay."""
        shape = self._tensors[name].shape
        return {
            axis: np.repeat(kept.groups[number], shape[axis] // self._sizes[number])
            for axis, number in sorted(self._axes.get(name, {}).items())
        }

    def _places(self, name: str, kept: Kept) -> dict[int, Tensor]:
        """Return for every axis of a tensor that has channels where those that stay are."""
        shape, device = self._tensors[name].shape, self._model.device
        found = {}
        for axis, number in sorted(self._axes.get(name, {}).items()):
            times = shape[axis] // self._sizes[number]
            some = kept.places[number] if times == 1 else np.flatnonzero(np.repeat(kept.groups[number], times))
            found[axis] = torch.from_numpy(some).to(device)
        return found

    def _channels(self, layout: Layout) -> Channels:
        """Return for every live entry the channels it belongs to."""
        offsets = np.concatenate([[0], np.cumsum(self._sizes)])
        both = []
        for axis in (0, 1):
            parts = []
            for name, shape, order in zip(layout.names, layout.shapes, layout.orders, strict=True):
                number = self._axes.get(name, {}).get(axis)
                owner = np.full(shape, -1, np.int32)
                if number is not None:
                    each = np.repeat(np.arange(self._sizes[number]), shape[axis] // self._sizes[number])
                    owner[:] = (offsets[number] + each).reshape([-1 if k == axis else 1 for k in range(len(shape))])
                parts.append(owner.transpose(order).reshape(-1))
            both.append(layout.of_live(np.concatenate(parts)))
        return Channels(int(offsets[-1]), both[0], both[1])

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
            more[number] = min(size, counts[number] + (_STEP if size >= 4 * _STEP else 1))
            if self._cost(more) <= most:
                counts = more
        return counts

    def _shared(self, share: float) -> list[int]:
        """Return the counts for a share of all channels; the narrowest groups, with little time to gain, keep more."""
        least = min(self._sizes)
        return [_count(share**_NARROW if size == least else share, size) for size in self._sizes]

    def _cost(self, counts: list[int]) -> float:
        """Return weights or multiplications with so many channels of every group."""
        work, groups = self._work
        part = np.append(np.divide(counts, self._sizes), 1.0)[groups]
        return float(work @ (part[0] * part[1]))

    def _works(self) -> tuple[Floats, Ints]:
        """Return what each parameter costs in full, and the (2, n) groups it is proportional to (-1: none)."""
        layers = dict(self._model.module.named_modules())
        costs: list[float] = []
        groups: list[list[int]] = []
        for name, parameter in self._model.module.named_parameters():
            work = float(parameter.numel())
            if self._budget == "flops":
                owner, _, kind = name.rpartition(".")
                layer = layers[owner]
                if kind != "weight" or not isinstance(layer, Conv | nn.Linear):
                    continue
                if isinstance(layer, Conv):
                    if not self._seen.get(owner):
                        raise BadInputError(
                            f"prune.budget = 'flops': what {owner or 'the model'} does is not known; allowed: 'weights'"
                        )
                    work = float(sum(multiplications(layer, shape) for shape in self._seen[owner]))
            costs.append(work)
            groups.append([*self._axes.get(name, {}).values(), -1, -1][:2])
        return np.array(costs), np.array(groups).T


def _taps_first(kernel: Tensor) -> Tensor:
    """Return a kernel as (tap, out, in); a matrix has one tap."""
    if kernel.dim() == 2:
        return kernel.unsqueeze(0)
    return kernel.permute(*range(2, kernel.dim()), 0, 1).flatten(0, kernel.dim() - 3)


def _chosen(tensor: Tensor, places: dict[int, Tensor]) -> Tensor:
    for axis, where in places.items():
        tensor = tensor.index_select(axis, where)
    return tensor


def _count(share: float, size: int) -> int:
    """Return how many channels of a group stay for a share of all."""
    step = _STEP if size >= 4 * _STEP else 1
    return max(step, round(share * size / step) * step)
