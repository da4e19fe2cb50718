"""Batch-norm buffers of a round's uploads in one: running means and variances, which no single vehicle may bend.

How far a vehicle's buffers are from the others' is measured from the median over all uploads and the last buffers:
means in standard deviations there, variances as the logarithm of their ratio. Honest vehicles stay within 0.6 and 2.5
in every entry, and within 0.05 and 0.3 as root mean squares over all entries (docs/fleet.md).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from skyfed.types import Bools, Floats, Ints, Singles
from skyfed.wire import Reference

IGNORED = "buffers_ignored"
_FARTHEST = {"mean": 10.0, "variance": 4.6}  # in one entry
_WIDEST = {"mean": 0.5, "variance": 1.1}  # root mean square over all entries that is never too much
_TIMES = 10.0  # root mean squares of the middle vehicle that another one's may have
_FLOOR = 1e-2  # of the median variance is added to each: a channel may be dead on most vehicles and live on another
_VOTES = 3  # fewest buffers whose median tells who is wrong


@dataclass(frozen=True)
class Buffers:
    """One vehicle's buffers, its weight, and the notes of its upload."""

    values: Singles
    weight: float
    notes: dict[str, Any]


def plausible(uploads: list[Buffers], reference: Reference) -> tuple[list[Buffers], Floats]:
    """Return the uploads whose buffers are not too far from the others', and how far each of these is.

    The others are noted.
    """
    rows = np.stack([upload.values for upload in uploads]).astype(np.float64)
    wrong, far = np.zeros(len(rows), bool), np.zeros(len(rows))
    for name, part in _deviations(rows, reference).items():
        lengths = np.sqrt(np.mean(part**2, axis=1))
        wrong |= (part.max(axis=1) > _FARTHEST[name]) | (lengths > max(_WIDEST[name], _TIMES * _middle(lengths)))
        far = np.hypot(far, lengths)
    for upload, ignored in zip(uploads, wrong, strict=True):
        upload.notes[IGNORED] = bool(ignored)
    return [upload for upload, ignored in zip(uploads, wrong, strict=True) if not ignored], far[~wrong]


def mean_buffers(uploads: list[Buffers], reference: Reference, longest: float = np.inf) -> Singles:
    """Return the mean of the plausible buffers; the last ones where there are none.

    longest: in lengths of the middle vehicle; who is farther off than that is brought to that length.
    """
    known, far = plausible(uploads, reference)
    middle = _middle(far) if known else 0.0
    summed, total = np.zeros(len(reference.buffers)), 0.0
    for upload, length in zip(known, far, strict=True):
        row = upload.values.astype(np.float64)
        if length > longest * middle:
            centre = np.median(np.vstack([reference.buffers, *(each.values for each in known)]), axis=0)
            row = centre + middle / length * (row - centre)
        summed += upload.weight * row
        total += upload.weight
    return (summed / total).astype(np.float32) if total else reference.buffers


def _deviations(rows: Floats, reference: Reference) -> dict[str, Floats]:
    """Return how far means and variances are from their medians; nothing where that cannot be told."""
    variance_of: Ints = reference.variance_of
    own: Bools = variance_of == np.arange(len(variance_of))
    means = (variance_of >= 0) & ~own
    if len(rows) + 1 < _VOTES or not own.any():
        return {}
    centre = np.median(np.vstack([rows, reference.buffers]), axis=0)
    floor = _FLOOR * float(np.median(centre[own])) + 1e-12
    parts = {"variance": np.abs(np.log((rows[:, own] + floor) / (centre[own] + floor)))}
    if means.any():
        parts["mean"] = np.abs(rows - centre)[:, means] / np.sqrt(centre[variance_of[means]] + floor)
    return parts


def _middle(lengths: Floats) -> float:
    """Return the median, of an even number the smaller one: half of the vehicles must not set it."""
    return float(np.sort(lengths)[(len(lengths) - 1) // 2])
