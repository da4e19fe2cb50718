"""Score and loss of test samples, one by one, so that any subset's figures follow."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from skyfed.errors import BadInputError
from skyfed.learning.batches import Batches, tensor_of
from skyfed.learning.infer import Forward
from skyfed.tasks import Task
from skyfed.types import Floats, Ints, Singles

BATCH = 250  # samples at a time; fixed, so that the bits do not depend on who evaluates how much


@dataclass(frozen=True)
class Scores:
    """Each test sample's outcome.

    score    0..1; of a classifier 1 where the sample was recognised
    loss     its loss
    metrics  further figures of the task, by name
    """

    score: Floats
    loss: Singles
    metrics: dict[str, Floats] = field(default_factory=dict)


def evaluate(forward: Forward, batches: Batches, task: Task, start: int, stop: int) -> Scores:
    """Score test samples start..stop by a model's forward function."""
    inputs, targets = tensor_of(task.test.inputs[start:stop]), tensor_of(task.test.targets[start:stop])
    scores, losses = [], []
    further: dict[str, list[Floats]] = {name: [] for name in task.metrics}
    with torch.inference_mode():
        for first in range(0, len(targets), BATCH):
            goal = batches.goal(targets[first : first + BATCH]).cpu()
            output = forward(batches.ready(inputs[first : first + BATCH])).cpu()
            scores.append(task.score(output, goal).double().numpy())
            loss = task.loss(output, goal, reduction="none")
            losses.append(loss.flatten(1).mean(1).numpy() if loss.dim() > 1 else loss.numpy())
            for name, metric in task.metrics.items():
                further[name].append(metric(output, goal).double().numpy())
    return Scores(
        np.concatenate(scores),
        np.concatenate(losses).astype(np.float32),
        {name: np.concatenate(parts) for name, parts in further.items()},
    )


def chunks(total: int, size: int = 1000) -> list[tuple[int, int]]:
    """Cut the test set into parts of a fixed size, so that scores do not depend on who computes them."""
    return [(start, min(start + size, total)) for start in range(0, total, size)]


def joined(parts: list[Scores]) -> Scores:
    """Put the scores of all chunks together."""
    names = parts[0].metrics if parts else {}
    return Scores(
        np.concatenate([part.score for part in parts]),
        np.concatenate([part.loss for part in parts]),
        {name: np.concatenate([part.metrics[name] for part in parts]) for name in names},
    )


def place_accuracy(score: Floats, places: Ints, count: int) -> Floats:
    """Mean score of the samples of each place; NaN for a place without samples."""
    total = np.bincount(places, minlength=count)
    right = np.bincount(places, score, count)
    return np.asarray(np.divide(right, total, out=np.full(count, np.nan), where=total > 0))


def try_task(task: Task) -> None:
    """Try a task's loss, score and metrics on two samples: better now than after the flights are planned."""
    targets = tensor_of(np.array(task.train.targets[:2]))
    goal = targets.float() if targets.dtype.is_floating_point else targets.long()
    outputs = torch.linspace(-1, 1, len(goal) * task.outputs).view(len(goal), task.outputs)
    several = " (several labels must be float32)" if goal.dim() > 1 else ""
    with _refusing("loss", several):
        _one_each(task.loss(outputs, goal, reduction="none"), len(goal))
    for what, function in (("score", task.score), *task.metrics.items()):
        with _refusing(what):
            _one_each(function(outputs, goal), len(goal))


@contextmanager
def _refusing(what: str, hint: str = "") -> Iterator[None]:
    try:
        yield
    except (Exception, SystemExit) as error:  # whatever code of the user's own does
        reason = " ".join(str(error).split())
        raise BadInputError(f"data.name: {what} of the task: {type(error).__name__}: {reason}{hint}") from error


def _one_each(found: Tensor, count: int) -> None:
    if len(found) != count:
        raise ValueError(f"gave shape {tuple(found.shape)} for {count} samples")
