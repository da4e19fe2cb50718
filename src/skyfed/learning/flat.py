"""A model's weights, gradients and buffers as flat vectors that its tensors are views of."""

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from skyfed.errors import BadInputError
from skyfed.learning.padding_free_conv import TapConv2d, use_taps
from skyfed.learning.shapes import Conv, Shape, conv_inputs, live_taps
from skyfed.types import Bools, Ints, Singles

_Array = TypeVar("_Array", bound=NDArray[np.generic])
Order = tuple[int, ...]
Adjust = Callable[[Tensor, Tensor], Tensor]  # live weights, their gradient -> the gradient that is used


@dataclass(frozen=True)
class Layout:
    """Where each parameter tensor lies in the flat vector; known to vehicles and server alike.

    names, shapes  of the parameter tensors in order      starts  (n+1,) first entry of each, then p
    orders         order of the axes of each in memory; kernels with dead taps are stored tap by tap
    matrices       which tensors are weights of convolutions and linear layers
    buffers        number of float buffer entries (running means and variances)
    live           runs of entries that can have a gradient; None where all p can
    variances      (b,) of each buffer the place of its running variance, its own for a variance; -1: none
    """

    names: tuple[str, ...]
    shapes: tuple[Shape, ...]
    starts: Ints
    orders: tuple[Order, ...]
    matrices: tuple[bool, ...]
    buffers: int
    live: tuple[slice, ...] | None = None
    variances: Ints | None = None

    @property
    def size(self) -> int:
        """p."""
        return int(self.starts[-1])

    @property
    def runs(self) -> tuple[slice, ...]:
        """Runs of entries that can have a gradient."""
        return (slice(0, self.size),) if self.live is None else self.live

    def parts(self) -> Iterator[tuple[slice, slice]]:
        """Yield every run of live entries with the places it has among them."""
        done = 0
        for run in self.runs:
            yield run, slice(done, done + run.stop - run.start)
            done += run.stop - run.start

    @property
    def live_size(self) -> int:
        """Number of entries that can have a gradient; only these are sent."""
        return int(self.live_starts[-1])

    @cached_property
    def live_starts(self) -> Ints:
        """First live entry of each parameter tensor, then their number."""
        before = [np.clip(self.starts - run.start, 0, run.stop - run.start) for run in self.runs]
        return np.asarray(np.sum(before, axis=0))

    @cached_property
    def kernels(self) -> Bools:
        """(p,) entries of convolution and linear weights: what `prune.scope = "kernels"` may prune."""
        return np.repeat(self.matrices, np.diff(self.starts))

    @cached_property
    def live_kernels(self) -> Bools:
        """Live entries of convolution and linear weights."""
        return self.of_live(self.kernels)

    def of_live(self, whole: _Array) -> _Array:
        """Return of a (p,) array what belongs to live entries."""
        return whole if self.live is None else np.concatenate([whole[:0], *(whole[run] for run in self.live)])  # type: ignore[return-value]

    def plain_places(self) -> Ints:
        """Return (p,) for every entry its place in the tensors laid out one after the other in their own order."""
        parts = [
            start + np.arange(int(np.prod(shape))).reshape(shape).transpose(order).reshape(-1)
            for start, shape, order in zip(self.starts[:-1], self.shapes, self.orders, strict=True)
        ]
        return np.concatenate(parts)


class FlatModel:
    """A module whose parameters and float buffers are views of one vector each.

    Given the shape of its inputs, convolutions on small maps skip taps that only meet padding, and `layout.live` says
    which entries can have a gradient. Only these are loaded and read; the others keep their initial values. With
    `wide`, pictures and kernels are stored channels last, which is faster.
    """

    device: torch.device
    weights: Tensor
    wide: bool
    seen: dict[str, list[Shape]]
    layout: Layout
    dead_taps: dict[str, Bools]

    def __init__(
        self,
        module: nn.Module,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
        inputs: Shape | None = None,
        wide: bool = False,
        probe: bool = False,
        like: "FlatModel | None" = None,
    ) -> None:
        """Take over a module.

        With `probe`, a module that is not built in is tried before the shapes of its maps are used. A module cut out of
        another is `like` that one: same type, same layout, and its weights are zero until they are filled in.
        """
        if like is not None:
            dtype, device, wide = like.weights.dtype, like.device, like.wide
        self.device = device or torch.device("cpu")
        self.module = module if like is not None else module.to(self.device, dtype)
        trained = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
        if not trained:
            raise BadInputError("model.name: the module has no weights to train")
        parameters = list(trained.values())
        if like is None:
            seen = {} if inputs is None else conv_inputs(module, inputs)
            dead = _dead_taps(module, seen)
            if probe and seen and not _harmless(module, dead, inputs or ()):
                seen, dead = {}, {}
        else:
            seen, dead = like.seen, like.dead_taps
        if self.device.type == "cpu":
            use_taps(module, seen)
        self.seen, self.dead_taps, self.wide = seen, dead, wide and self.device.type == "cpu"
        self._taps = [layer for layer in module.modules() if isinstance(layer, TapConv2d)]
        tapped = {id(layer.weight) for layer in self._taps}
        matrices = {id(layer.weight) for layer in module.modules() if isinstance(layer, Conv | nn.Linear)}
        buffers = [buffer for buffer in module.buffers() if buffer.is_floating_point()]
        starts = np.cumsum([0, *(parameter.numel() for parameter in parameters)])
        orders = [_order(p, name in dead or id(p) in tapped, self.wide) for name, p in trained.items()]
        self.layout = Layout(
            tuple(trained),
            tuple(tuple(parameter.shape) for parameter in parameters),
            starts,
            tuple(orders) if like is None else like.layout.orders,
            tuple(id(parameter) in matrices for parameter in parameters),
            sum(buffer.numel() for buffer in buffers),
            merged_runs(_live_parts(trained, starts, dead)) if dead else None,
            variances=_variances(module),
        )
        if self.layout.live == ():
            raise BadInputError("model.name: no weight of the module can have a gradient: all meet only padding")
        pieces = zip(parameters, pairwise(starts.tolist()), strict=True)
        # the runs of the gradient that backward passes add to: all but the kernels of `TapConv2d`
        self._added = merged_runs(piece for parameter, piece in pieces if id(parameter) not in tapped)
        self.weights, self.gradient = (_zeros(self.layout.size, dtype, self.device) for _ in range(2))
        slopes = self.views(self.gradient)
        for parameter, part, slope in zip(parameters, self.views(self.weights), slopes, strict=True):
            if like is None:
                part.copy_(parameter.detach())
            parameter.data = part
            parameter.grad = slope
        empty = torch.empty(0, dtype=dtype, device=self.device)
        self.buffers = torch.cat([empty, *(buffer.reshape(-1) for buffer in buffers)])
        for buffer, part in zip(buffers, torch.split(self.buffers, [b.numel() for b in buffers]), strict=True):
            buffer.set_(part.view(buffer.shape))  # type: ignore[call-overload]
        # counters and other integers are not sent: every round starts from their initial values
        self._counters = [(buffer, buffer.clone()) for buffer in module.buffers() if not buffer.is_floating_point()]

    def load(self, live: Singles, buffers: Singles) -> None:
        """Copy (n,) live entries and buffers in; counters start again."""
        self.fill(torch.from_numpy(live))
        self.buffers.copy_(torch.from_numpy(buffers))
        for counter, first in self._counters:
            counter.copy_(first)

    def fill(self, live: Tensor) -> None:
        """Copy (n,) live entries in; all else stays."""
        for run, part in self.layout.parts():
            self.weights[run].copy_(live[part])

    def mask(self, kept: Tensor) -> None:
        """Set live entries to zero where this (n,) mask is zero."""
        for run, part in self.layout.parts():
            self.weights[run].mul_(kept[part])

    def views(self, flat: Tensor) -> Iterator[Tensor]:
        """Yield a flat vector's parts in the shapes of the parameters."""
        layout = self.layout
        for (start, stop), shape, order in zip(
            pairwise(layout.starts.tolist()), layout.shapes, layout.orders, strict=True
        ):
            back = sorted(range(len(order)), key=order.__getitem__)
            yield flat[start:stop].view([shape[axis] for axis in order]).permute(back)

    def clear_gradient(self) -> None:
        """Set the gradient to zero where backward passes add to it; elsewhere they will write."""
        for run in self._added:
            self.gradient[run].zero_()
        for layer in self._taps:
            layer.written = False

    def live_gradient(self) -> Singles:
        """Return a copy of the (n,) gradient of live entries, after a backward pass."""
        for layer in self._taps:
            layer.settle()
        return self._copied(self.gradient)

    def step(self, rate: float, mask: Tensor | None = None, adjust: Adjust | None = None) -> None:
        """Take one step down the gradient, adjusted if asked for; live entries whose (n,) mask is zero stay."""
        for layer in self._taps:
            layer.settle()
        slope = None if adjust is None else adjust(self._live(self.weights), self._live(self.gradient))
        for run, part in self.layout.parts():
            down = self.gradient[run] if slope is None else slope[part]
            if mask is None:
                self.weights[run].sub_(down, alpha=rate)
            else:
                self.weights[run].addcmul_(down, mask[part], value=-rate)

    def _live(self, whole: Tensor) -> Tensor:
        """Return the (n,) live entries of a flat vector; a copy where some are not live."""
        return whole if self.layout.live is None else torch.cat([whole[run] for run in self.layout.runs])

    def live(self) -> Singles:
        """Return a copy of the (n,) live entries as an array."""
        return self._copied(self.weights)

    def _copied(self, flat: Tensor) -> Singles:
        whole = flat.cpu().numpy()
        return whole.copy() if self.layout.live is None else self.layout.of_live(whole)

    def moved(self) -> Singles:
        """Return a copy of the buffers as an array."""
        return self.buffers.cpu().numpy().copy()


def _zeros(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return zeros; on the CPU, pages that are never written take no memory and no time."""
    if device.type != "cpu":
        return torch.zeros(size, dtype=dtype, device=device)
    return torch.from_numpy(np.zeros(size * torch.empty((), dtype=dtype).element_size(), np.uint8)).view(dtype)


def usable_device(name: str) -> torch.device:
    """Return a device of this machine; raises BadInputError if it has none of this name."""
    device = torch.device(name)
    if device.type != "cpu":
        backend = getattr(torch, device.type, None)
        if backend is None or not backend.is_available() or (device.index or 0) >= backend.device_count():
            raise BadInputError(f"device = {name!r}: not on this machine; allowed here: cpu")
    return device


def _harmless(module: nn.Module, dead: dict[str, Bools], inputs: Shape) -> bool:
    """Try a module in training: no gradient at dead taps, and the same gradients with taps as without."""
    example = next(module.parameters())
    plain, fast = copy.deepcopy(module), copy.deepcopy(module)
    try:
        with torch.random.fork_rng(devices=[]):
            FlatModel(fast, example.dtype, example.device, inputs)
            images = torch.randn(4, *inputs, dtype=example.dtype, device=example.device)
            for model in (plain, fast):
                torch.default_generator.manual_seed(0)  # some modules draw random numbers
                model.train()(images).square().sum().backward()
        apart = whole = 0.0
        for (name, right), quick in zip(plain.named_parameters(), fast.parameters(), strict=True):
            if right.grad is None or quick.grad is None:
                continue
            if name in dead and right.grad[..., torch.from_numpy(dead[name])].any():
                return False
            apart += float((right.grad - quick.grad).double().square().sum())
            whole += float(right.grad.double().square().sum())
        return apart <= 1e-6 * whole
    except Exception:  # whatever a module of the user's own does with noise
        return False


def _dead_taps(module: nn.Module, seen: dict[str, list[Shape]]) -> dict[str, Bools]:
    """Return the dead taps of kernels by the name of the parameter, where there are any."""
    live: dict[int, Bools] = {}
    for name, layer in module.named_modules():
        # a parametrised layer computes its weight at every look: that is no parameter, and its id is soon another's
        if isinstance(layer, Conv) and isinstance(weight := layer.weight, nn.Parameter):
            live[id(weight)] = live_taps(layer, seen.get(name, [])) | live.get(id(weight), False)
    parameters = ((name, live.get(id(parameter))) for name, parameter in module.named_parameters())
    return {name: ~taps for name, taps in parameters if taps is not None and not taps.all()}


def _order(parameter: Tensor, by_tap: bool, wide: bool) -> Order:
    axes = tuple(range(parameter.dim()))
    if by_tap:
        return (*axes[2:], 0, 1)
    return (0, 2, 3, 1) if wide and len(axes) == 4 else axes


def _live_parts(trained: dict[str, nn.Parameter], starts: Ints, dead: dict[str, Bools]) -> Iterator[tuple[int, int]]:
    """Yield start and stop of every live tap, and of every parameter without dead taps."""
    for start, (name, parameter) in zip(starts[:-1].tolist(), trained.items(), strict=True):
        taps = dead.get(name, np.zeros(1, bool)).reshape(-1)
        size = parameter.numel() // len(taps)
        for tap in np.flatnonzero(~taps).tolist():
            yield start + tap * size, start + (tap + 1) * size


def _variances(module: nn.Module) -> Ints:
    """Return for each float buffer entry the place of the running variance that goes with it; -1 for none."""
    sizes = {name: buffer.numel() for name, buffer in module.named_buffers() if buffer.is_floating_point()}
    starts = dict(zip(sizes, np.cumsum([0, *sizes.values()]).tolist(), strict=False))
    places = [np.empty(0, np.int64)]
    for name, size in sizes.items():
        path, _, kind = name.rpartition("running_")
        variance = f"{path}running_var"
        paired = kind in ("mean", "var") and sizes.get(variance) == size
        places.append(starts[variance] + np.arange(size) if paired else np.full(size, -1))
    return np.concatenate(places)


def merged_runs(parts: Iterable[tuple[int, int]]) -> tuple[slice, ...]:
    """Return ascending parts (start, stop) as runs; neighbours become one."""
    runs: list[slice] = []
    for start, stop in parts:
        if runs and runs[-1].stop == start:
            runs[-1] = slice(runs[-1].start, stop)
        else:
            runs.append(slice(start, stop))
    return tuple(runs)
