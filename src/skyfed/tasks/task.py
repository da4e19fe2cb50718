"""A learning task: its samples, where they occur, and how outputs are judged. Pictures are one task."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from skyfed.errors import BadInputError
from skyfed.types import Floats

if TYPE_CHECKING:
    from torch import Tensor

    Loss = Callable[..., Tensor]  # (outputs, targets, reduction="mean" | "none"), as torch's own losses
    Score = Callable[[Tensor, Tensor], Tensor]  # (outputs, targets) -> one number per sample
    Transform = Callable[[Tensor, bool], Tensor]  # (inputs, training) -> inputs of a mini-batch

Appearance = Callable[[NDArray[Any], Floats], NDArray[Any]]  # (inputs, mission seconds (N,)) -> inputs as they look then

_MOST_PLACES = 10_000


def cross_entropy(outputs: "Tensor", targets: "Tensor", reduction: str = "mean") -> "Tensor":
    """Return the loss of a classifier with one label per sample."""
    functional = import_module("torch.nn.functional")  # by name: only who trains needs PyTorch (.importlinter)
    loss: Tensor = functional.cross_entropy(outputs, targets, reduction=reduction)
    return loss


def top_one(outputs: "Tensor", targets: "Tensor") -> "Tensor":
    """Return 1 for every sample whose largest output is its label, else 0."""
    return outputs.argmax(dim=1) == targets


@dataclass(frozen=True)
class Samples:
    """A set of samples.

    inputs   (N, ...) any shape and type; bytes are normalised per channel, other numbers are taken as they are
    targets  (N,) labels, (N, L) several labels, or real numbers
    places   (N,) index of the spatial cluster in which each sample occurs
    """

    inputs: NDArray[Any]
    targets: NDArray[Any]
    places: NDArray[Any]

    def __len__(self) -> int:
        return len(self.targets)

    def some(self, indices: NDArray[Any]) -> "Samples":
        """Return the samples at these places of the set."""
        return Samples(self.inputs[indices], self.targets[indices], self.places[indices])


@dataclass(frozen=True)
class Task:
    """What is learnt.

    train, test  samples to sense, and samples to test on
    places       names of the spatial clusters; for pictures they are the classes
    outputs      size of the model's last layer
    loss         as torch's own: (outputs, targets, reduction="mean" | "none")
    score        (outputs, targets) -> 0..1 per sample; its mean is the accuracy
    transform    (inputs, training) -> inputs, for each mini-batch; in training it may use torch's random numbers
    appearance   (inputs, mission seconds) -> inputs as they look then, where that changes; one time per sample
    metrics      further figures by name, each (outputs, targets) -> one number per sample
    digest       gives a hash of the content, where one is known already
    """

    train: Samples
    test: Samples
    places: tuple[str, ...]
    outputs: int
    loss: "Loss" = cross_entropy
    score: "Score" = top_one
    transform: "Transform | None" = None
    metrics: "Mapping[str, Score]" = field(default_factory=dict)
    digest: Callable[[], str] | None = None
    appearance: Appearance | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.train.inputs.shape[1:])

    def content_hash(self) -> str:
        """SHA-256 of all samples, so that a run can tell whether its data has changed."""
        if self.digest is not None:
            return self.digest()
        digest = hashlib.sha256("\n".join(self.places).encode("utf-8", "surrogateescape"))
        for part in (self.train, self.test):
            for array in (part.inputs, part.targets, part.places):
                whole = np.ascontiguousarray(array)
                digest.update(f"{whole.dtype}{whole.shape}".encode())
                digest.update(whole.data)
        return digest.hexdigest()


def check_task(task: Task, name: str) -> Task:
    """Return a user's task if it is usable; raises BadInputError with what is wrong."""
    if not isinstance(task, Task):
        raise BadInputError(f"data.name = {name!r}: gave a {type(task).__name__}; allowed: a skyfed.tasks.Task")

    def refuse(why: str) -> BadInputError:
        return BadInputError(f"data.name = {name!r}: {why}")

    if not 1 <= len(task.places) <= _MOST_PLACES:
        raise refuse(f"{len(task.places)} places; allowed: 1 to {_MOST_PLACES}")
    for part, samples in (("train", task.train), ("test", task.test)):
        sizes = {len(samples.inputs), len(samples.targets), len(samples.places)}
        if len(sizes) != 1 or sizes == {0}:
            raise refuse(f"{part}: inputs, targets and places must have one length, above 0")
        if not np.issubdtype(samples.places.dtype, np.integer):
            raise refuse(f"{part}: places must be whole numbers")
        if samples.places.min() < 0 or samples.places.max() >= len(task.places):
            raise refuse(f"{part}: places must be 0 to {len(task.places) - 1}")
        if samples.inputs.shape[1:] != task.shape or samples.targets.shape[1:] != task.train.targets.shape[1:]:
            raise refuse("training and test samples differ in shape")
        for what, array in (("inputs", samples.inputs), ("targets", samples.targets)):
            if array.dtype.kind not in "uifb" or (array.dtype.kind == "f" and not np.isfinite(array).all()):
                raise refuse(f"{part} {what} must be finite numbers")
    if task.outputs < 1:
        raise refuse("outputs must be 1 or more")
    shown = {} if task.appearance is None else {"appearance": task.appearance}
    for what, function in {"loss": task.loss, "score": task.score, **task.metrics, **shown}.items():
        if not callable(function):
            raise refuse(f"{what} is a {type(function).__name__}; allowed: a function")
    labels = np.concatenate([task.train.targets, task.test.targets])
    if task.loss is cross_entropy and labels.ndim == 1 and labels.dtype.kind in "ui":
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= task.outputs:
            raise refuse(f"targets are {low} to {high}; allowed with outputs = {task.outputs}: 0 to {task.outputs - 1}")
    return task
