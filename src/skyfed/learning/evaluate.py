"""Accuracy and loss on test pictures, one by one, so that any subset's figures follow."""

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from skyfed.learning.infer import Forward
from skyfed.learning.local import Batches
from skyfed.records import Bools, Floats, Singles
from skyfed.sensing.datasets.cache import Bytes

BATCH = 250  # pictures at a time; fixed, so that the bits do not depend on who evaluates how much


@dataclass(frozen=True)
class Scores:
    """Each test picture's outcome: whether it was recognised, and its loss."""

    correct: Bools
    loss: Singles


def evaluate(forward: Forward, batches: Batches, images: Bytes, labels: Bytes) -> Scores:
    """Score pictures by a model's forward function."""
    correct, losses = [], []
    with torch.inference_mode():
        for start in range(0, len(labels), BATCH):
            truth = torch.from_numpy(labels[start : start + BATCH]).long()
            output = forward(batches.normalised(torch.from_numpy(images[start : start + BATCH]))).cpu()
            correct.append((output.argmax(dim=1) == truth).numpy())
            losses.append(functional.cross_entropy(output, truth, reduction="none").numpy())
    return Scores(np.concatenate(correct), np.concatenate(losses).astype(np.float32))


def class_accuracy(correct: Bools, labels: Bytes, classes: int) -> Floats:
    """Accuracy of each class; NaN for a class without pictures."""
    total = np.bincount(labels, minlength=classes)
    right = np.bincount(labels, correct, classes)
    return np.asarray(np.divide(right, total, out=np.full(classes, np.nan), where=total > 0))
