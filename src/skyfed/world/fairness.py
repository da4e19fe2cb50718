"""Accuracy per vehicle on data like its own, and how unequal vehicles are: the usual figures of fairness.

A vehicle's own test data are all test samples, weighted so that each class counts as often as among the training
samples that the vehicle has sensed. Classes are the task's places; for pictures the two are the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import mean, median
from typing import Any

import numpy as np

from skyfed.types import Floats, Ints

_WORST = 0.1  # share of the vehicles that the mean of the worst is over


@dataclass(frozen=True)
class Fairness:
    """Accuracy 0..1 over all vehicles: the mean, the mean of the worst tenth (one at least), and single vehicles'."""

    mean: float
    worst_tenth: float
    worst: float
    median: float
    best: float


def fairness_of(accuracies: Sequence[float | None] | None) -> Fairness | None:
    """Return how accuracy is spread over vehicles; None where it is not known of any."""
    known = sorted(value for value in accuracies or () if value is not None)
    if not known:
        return None
    worst = known[: ceil(_WORST * len(known))]
    return Fairness(mean(known), mean(worst), known[0], median(known), known[-1])


def recorded_accuracies(rows: Iterable[Mapping[str, Any]]) -> list[float | None] | None:
    """Return the accuracy per vehicle of the last test, from the rows of a table of rounds; None if not recorded."""
    tested = [row["accuracy_vehicle"] for row in rows if row.get("accuracy_vehicle")]
    return tested[-1] if tested else None


def vehicle_accuracy(by_class: Floats, sensed: Ints) -> Floats:
    """Return each vehicle's accuracy on its own test data: sum_c n_uc a_uc / sum_c n_uc.

    by_class  (U, C) accuracy per class of the model that each vehicle uses; NaN for a class without test samples
    sensed    (U, C) how many training samples of each class every vehicle has sensed

    NaN for a vehicle that has sensed nothing, and for all where there is one class: then no vehicle's data are its own.
    """
    counts = np.where(np.isnan(by_class), 0, sensed)
    total, right = counts.sum(axis=1), (counts * np.nan_to_num(by_class)).sum(axis=1)
    defined = (total > 0) & (sensed.shape[1] > 1)
    return np.asarray(np.divide(right, total, out=np.full(len(sensed), np.nan), where=defined))
