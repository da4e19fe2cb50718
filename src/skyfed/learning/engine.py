"""A process's model and data, which all rows and vehicles use in turn; results depend on neither."""

import ctypes
from collections.abc import Iterable
from contextlib import suppress

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from skyfed.learning.batches import Batches
from skyfed.learning.channels import ChannelPruner
from skyfed.learning.evaluate import Scores, evaluate
from skyfed.learning.flat import FlatModel, Layout, usable_device
from skyfed.learning.infer import Forward, forward_of
from skyfed.learning.models import build_model, is_known
from skyfed.learning.prune import Scope, scope_of
from skyfed.learning.settings import ModelSettings, PruneSettings
from skyfed.learning.shapes import all_multiplications
from skyfed.tasks import Task
from skyfed.types import Model, Singles
from skyfed.wire import Channels, Reference

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's M_TRIM_THRESHOLD and M_MMAP_THRESHOLD
_KEPT_BYTES, _LARGE_BYTES = 1 << 28, 1 << 25


class Engine:
    """One model to train and test with."""

    def __init__(
        self, task: Task, settings: ModelSettings, seed: int, device: str, dtype: torch.dtype = torch.float32
    ) -> None:
        """Build the model with weights of `dtype`; bad settings show here."""
        torch.set_num_threads(1)
        threadpool_limits(1, "blas")  # sums must not depend on how many threads a machine has
        _keep_memory()
        self.task, self._settings, self._seed = task, settings, seed
        known = is_known(settings)
        module = build_model(settings, task.outputs, task.shape, seed)
        self.model = FlatModel(module, dtype, usable_device(device), task.shape, known, probe=not known)
        self.layout = self.model.layout
        self.multiplications = all_multiplications(self.model.module, self.model.seen)
        self.batches = Batches(task, dtype, self.model.device, self.model.wide)
        self._initial = self.model.live(), self.model.moved()
        self._whole = self.model.weights.cpu().numpy().copy()
        self._scopes: dict[bool, Scope] = {}
        self._pruners: dict[str, ChannelPruner] = {}
        self._commons: dict[tuple[str, str, str], tuple[Model, Reference]] = {}
        self._forward: tuple[Model, Forward] | None = None
        self._twin: nn.Module | None = None

    def initial(self) -> Model:
        """Return w^0 and its buffers."""
        return Model(self._initial[0].copy(), self._initial[1].copy())

    def training(self) -> FlatModel:
        """Return the model to train; what was prepared for testing is forgotten."""
        self._forward = None
        return self.model

    def pruner(self, prune: PruneSettings) -> ChannelPruner | None:
        """Return what prunes whole channels, where settings ask for that."""
        if prune.granularity != "channel":
            return None
        if prune.budget not in self._pruners:
            self._pruners[prune.budget] = ChannelPruner(self.model, prune.budget)
        return self._pruners[prune.budget]

    def scope(self, prune: PruneSettings) -> Scope:
        """Return what may be pruned."""
        kernels = prune.scope == "kernels"
        if kernels not in self._scopes:
            self._scopes[kernels] = scope_of(self.layout, kernels, self._whole)
        return self._scopes[kernels]

    def reference(self, model: Model, prune: PruneSettings) -> Reference:
        """Return what both sides know of a round's model; the last one is kept, with its digest."""
        key = (prune.granularity, prune.budget, prune.scope)
        last = self._commons.get(key)
        if last is None or last[0].weights is not model.weights or last[0].buffers is not model.buffers:
            channels = pruner.channels if (pruner := self.pruner(prune)) else None
            self._commons[key] = (model, reference_of(self.layout, model, prune.scope == "kernels", channels))
        return self._commons[key][1]

    def slim(self, model: Model, prune: PruneSettings, delta: float) -> Model:
        """Return a model without the channels that a pruning ratio drops from it."""
        pruner = self.pruner(prune)
        if pruner is None or not delta:
            return model
        self.training().load(model.weights, model.buffers)
        mask, _ = pruner.mask(pruner.choose(self.model.weights, delta))
        return Model(model.weights * mask, model.buffers)

    def score(self, model: Model, start: int, stop: int, now: float | None = None) -> Scores:
        """Score test samples start..stop, as they look at mission second `now` where that changes."""
        last = self._forward[0] if self._forward is not None else None
        if last is None or last.weights is not model.weights or last.buffers is not model.buffers:
            self.model.load(model.weights, model.buffers)
            with torch.inference_mode():
                self._forward = (model, forward_of(self.model))
        assert self._forward is not None
        return evaluate(self._forward[1], self.batches, self.task, start, stop, now)

    def plain(self, weights: Singles) -> nn.Module:
        """Return the model as torch builds it, which can be differentiated twice, with these weights."""
        if self._twin is None:
            self._twin = self._built()
        self.training().fill(torch.from_numpy(weights))
        _copy(self._twin.parameters(), self.model.module.parameters())
        return self._twin

    def copied(self, model: Model) -> nn.Module:
        """Return a new module as torch builds it, in eval mode, with a model's weights and buffers."""
        module = self._built()
        self.training().load(model.weights, model.buffers)
        _copy(module.parameters(), self.model.module.parameters())
        _copy(module.buffers(), self.model.module.buffers())
        return module.eval()

    def _built(self) -> nn.Module:
        built = build_model(self._settings, self.task.outputs, self.task.shape, self._seed)
        return built.to(self.model.device, self.model.weights.dtype)

    def whole(self, weights: Singles) -> Singles:
        """Return all (p,) weights of a model; those without a gradient have their initial values."""
        whole = self._whole.copy()
        for run, part in self.layout.parts():
            whole[run] = weights[part]
        return whole


def reference_of(layout: Layout, model: Model, only_kernels: bool, channels: Channels | None = None) -> Reference:
    """Return what vehicle and station both know in a round: the model, its layout, what may be pruned."""
    scope = layout.live_kernels if only_kernels else None
    weights, buffers = (part.astype(np.float32, copy=False) for part in (model.weights, model.buffers))
    return Reference(weights, buffers, layout.live_starts, scope, channels, layout.variances)


def _copy(to: Iterable[Tensor], source: Iterable[Tensor]) -> None:
    with torch.no_grad():
        for target, value in zip(to, source, strict=True):
            target.copy_(value)


def _keep_memory() -> None:
    """Let this process keep the memory it frees; nothing changes where the C library is not glibc.

    The library returns large blocks to the system and requests them again at every step, page by page. With a small
    model that takes long compared with the training.
    """
    with suppress(AttributeError, OSError, TypeError):
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        library.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
