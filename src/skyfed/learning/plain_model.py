"""A trained model as plain PyTorch: the module that `model.name` builds, with its own tensor names and shapes.

Training keeps all weights in one vector, multiplies some kernels tap by tap, and holds pruned channels as zeros. Here
weights and buffers are poured back into a new module, and channels that are zero are cut out of it.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from skyfed.learning.batches import tensor_of
from skyfed.learning.channels import ChannelPruner, Kept
from skyfed.learning.engine import Engine
from skyfed.learning.settings import PruneSettings
from skyfed.learning.shapes import Conv
from skyfed.types import Model

if TYPE_CHECKING:
    from skyfed.tasks.task import Transform

_SIZES = {  # attributes that repeat the size of a weight's axis; what they say is shown and exported
    (nn.Conv1d, nn.Conv2d, nn.Conv3d): ("out_channels", "in_channels"),
    (nn.Linear,): ("out_features", "in_features"),
    (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d): ("num_features",),
    (nn.PReLU,): ("num_parameters",),
}
_TRIED = 4  # samples by which a smaller model is compared with the one it was cut out of
_CLOSE = 1e-3  # largest difference between their outputs, relative to the largest output


def plain_model(engine: Engine, model: Model, prune: PruneSettings) -> nn.Module:
    """Return a trained model as a new module of its own in eval mode, without the channels that were pruned."""
    whole = engine.copied(model)
    pruner = engine.pruner(prune)
    if pruner is None:
        return whole
    kept = pruner.used(model.weights)
    if all(flags.all() for flags in kept):
        return whole
    small = _narrowed(engine.copied(model), pruner, kept)
    return small if _agree(engine, whole, small) else whole


class RawInputs(nn.Module):
    """A model that takes samples as the task holds them: bytes are normalised and the task's transform is applied."""

    mean: Tensor
    scale: Tensor

    def __init__(self, model: nn.Module, moments: tuple[Tensor, Tensor] | None, transform: "Transform | None") -> None:
        """Put around a model what prepares its inputs: x → (x - mean) * scale, then the transform."""
        super().__init__()
        self.model, self._transform, self._normalises = model, transform, moments is not None
        if moments is not None:
            self.register_buffer("mean", moments[0].clone())
            self.register_buffer("scale", moments[1].clone())

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the outputs of samples that were not prepared."""
        floats = inputs.to(torch.float32)
        if self._normalises:
            floats = (floats - self.mean) * self.scale
        if self._transform is not None:
            floats = self._transform(floats, False)
        outputs: Tensor = self.model(floats)
        return outputs


def with_raw_inputs(engine: Engine, module: nn.Module) -> RawInputs:
    """Return a model of this engine's task that takes samples as the task holds them."""
    return RawInputs(module, engine.batches.moments, engine.task.transform).eval()


def _narrowed(module: nn.Module, pruner: ChannelPruner, kept: Kept) -> nn.Module:
    """Cut all but the kept channels out of a module."""
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        tensor.data = pruner.part(name, tensor.detach(), kept)
    for layer in module.modules():
        for kinds, sizes in _SIZES.items():
            if isinstance(layer, kinds) and isinstance(layer.weight, Tensor):
                for axis, size in enumerate(sizes):
                    groups = layer.groups if isinstance(layer, Conv) and axis == 1 else 1
                    setattr(layer, size, layer.weight.shape[axis] * groups)
    return module


def _agree(engine: Engine, whole: nn.Module, small: nn.Module) -> bool:
    """Tell whether two modules give the same outputs; a module of one's own may depend on channels that are zero."""
    inputs = engine.batches.ready(tensor_of(engine.task.test.inputs[:_TRIED]))
    with torch.inference_mode():
        expected = whole(inputs)
        try:
            given = small(inputs)
        except (RuntimeError, ValueError, IndexError):  # it has the number of channels written into its forward pass
            return False
    return bool((given - expected).abs().max() <= _CLOSE * expected.abs().max().clamp(min=1.0))
