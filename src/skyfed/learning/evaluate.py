"""Score and loss of test samples, one by one, so that any subset's figures follow."""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from skyfed.errors import BadInputError, own_code
from skyfed.learning.batches import Batches, tensor_of
from skyfed.learning.infer import Forward
from skyfed.tasks import Task
from skyfed.tasks.task import cross_entropy
from skyfed.types import Floats, Ints, Singles

BATCH = 250  # samples at a time; fixed, so that the bits do not depend on who evaluates how much


@dataclass(frozen=True)
class Scores:
    """Each test sample's outcome.

    score    0..1; 1 where a classifier recognised the sample
    loss     its loss
    metrics  further figures of the task, by name
    """

    score: Floats
    loss: Singles
    metrics: dict[str, Floats] = field(default_factory=dict)


def evaluate(
    forward: Forward, batches: Batches, task: Task, start: int, stop: int, now: float | None = None
) -> Scores:
    """Score test samples start..stop by a model's forward function, as they look at mission second `now`."""
    inputs, targets = tensor_of(task.test.inputs[start:stop]), tensor_of(task.test.targets[start:stop])
    seconds = None if now is None else np.full(len(targets), now)
    inputs, parts = batches.look(inputs, seconds), []
    with torch.inference_mode():
        for first in range(0, len(targets), BATCH):
            goal = batches.goal(targets[first : first + BATCH]).cpu()
            output = forward(batches.ready(inputs[first : first + BATCH])).cpu()
            score, loss = task.score(output, goal), task.loss(output, goal, reduction="none")
            each = loss.flatten(1).mean(1) if loss.dim() > 1 else loss
            metrics = {name: metric(output, goal).double().numpy() for name, metric in task.metrics.items()}
            parts.append(Scores(score.double().numpy(), each.float().numpy(), metrics))
    return joined(parts)


def chunks(total: int, size: int = 1000) -> list[tuple[int, int]]:
    """Cut the test set into parts of a fixed size, so that scores do not depend on the number of workers."""
    return [(start, min(start + size, total)) for start in range(0, total, size)]


def joined(parts: list[Scores]) -> Scores:
    """Put the scores of all chunks together."""
    return Scores(
        np.concatenate([part.score for part in parts]),
        np.concatenate([part.loss for part in parts]),
        {name: np.concatenate([part.metrics[name] for part in parts]) for name in parts[0].metrics},
    )


def place_accuracy(score: Floats, places: Ints, count: int) -> Floats:
    """Mean score of the samples of each place; NaN for a place without samples."""
    total = np.bincount(places, minlength=count)
    right = np.bincount(places, score, count)
    return np.asarray(np.divide(right, total, out=np.full(count, np.nan), where=total > 0))


def try_task(task: Task) -> None:
    """Try a task's loss, score and metrics on a few samples: better now than after the flights are planned."""
    given = task.train.targets
    few = np.unique([0, len(given) - 1, *((given.argmin(), given.argmax()) if given.ndim == 1 else ())])
    targets = tensor_of(given[few])
    goal = targets.float() if targets.dtype.is_floating_point else targets.long()
    outputs = torch.linspace(-1, 1, len(goal) * task.outputs).view(len(goal), task.outputs)
    loss_hint = ' (allowed: as torch\'s own, with reduction="none" for one number per sample)'
    if goal.dim() > 1 and not goal.is_floating_point():
        loss_hint = " (several labels must be float32)"
    elif targets.dtype == torch.bool:
        loss_hint = " (true and false reach it as whole numbers; a loss of real numbers needs float32 targets)"
    elif goal.is_floating_point() and task.loss is cross_entropy:
        loss_hint = " (real targets need a loss of real numbers, as torch.nn.functional.mse_loss)"
    each_hint = " (allowed: one number per sample)"
    if task.appearance is not None:
        with own_code("data.name: appearance of the task", BadInputError, " (allowed: inputs of the same shape and type)"):
            before = task.train.inputs[few]
            shown = task.appearance(before, np.linspace(0.0, 1e4, len(few)))
            if shown.shape != before.shape or shown.dtype != before.dtype:
                raise ValueError(f"gave {shown.dtype} of shape {shown.shape} for {before.dtype} of {before.shape}")

    def losses(outputs: Tensor, goal: Tensor) -> Tensor:
        return task.loss(outputs, goal, reduction="none")

    metrics = [(name, metric, each_hint) for name, metric in task.metrics.items()]
    score_hint = " (allowed: one number per sample, 0 to 1)"
    for what, function, hint in [("loss", losses, loss_hint), ("score", task.score, score_hint), *metrics]:
        with own_code(f"data.name: {what} of the task", BadInputError, hint):
            values = function(outputs, goal)
            shape = tuple(values.shape)
            if shape[:1] != (len(goal),) or (len(shape) > 1 and what != "loss"):
                raise ValueError(f"gave shape {shape} for {len(goal)} samples")
            if what == "score" and ((values < 0) | (values > 1)).any():
                raise ValueError(f"gave {values.double().min():g} to {values.double().max():g}")
