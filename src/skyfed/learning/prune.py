"""Magnitude pruning: the mask of a winning ticket."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from skyfed.learning.flat import FlatModel, Layout, merged_runs
from skyfed.types import Bools

_PIECE = 1 << 16  # entries handled at a time, to stay in cache


@dataclass(frozen=True)
class Ticket:
    """What a vehicle trains: the whole model, some of its weights, or a smaller model cut out of it.

    mask       (n,) entries that stay, None where all do  kept      how many of all p entries stay
    threshold  magnitude below which entries were pruned; NaN where none were, and for channels
    channels   the channels that stay, where whole channels are pruned
    """

    mask: Bools | None
    threshold: float
    kept: int
    channels: Bools | None


@dataclass(frozen=True)
class Scope:
    """The entries that may be pruned: runs of live ones, and the ascending magnitudes of those that never change."""

    runs: tuple[slice, ...]
    dead: NDArray[np.floating]

    @property
    def size(self) -> int:
        """Number of entries."""
        return int(sum(run.stop - run.start for run in self.runs)) + len(self.dead)

    def ticket(self, model: FlatModel, delta: float) -> Ticket:
        """Return the ticket of the largest weights that a model has now."""
        mask, threshold, inside = magnitude_mask(model.live(), delta, self.runs, self.dead)
        return Ticket(mask, threshold, model.layout.size - self.size + inside, None)


def scope_of(layout: Layout, only_kernels: bool, whole: NDArray[np.floating]) -> Scope:
    """Return what may be pruned of a model with these (p,) weights; those without a gradient never change."""
    pieces = zip(pairwise(layout.live_starts.tolist()), layout.matrices, strict=True)
    runs = merged_runs(piece for piece, is_kernel in pieces if is_kernel or not only_kernels)
    dead = layout.kernels.copy() if only_kernels else np.ones(layout.size, bool)
    for run in layout.runs:
        dead[run] = False
    return Scope(runs, np.sort(np.abs(whole[dead])))


def magnitude_mask(
    weights: NDArray[np.floating],
    delta: float,
    scope: Sequence[slice] | None = None,
    others: NDArray[np.floating] | None = None,
) -> tuple[Bools, float, int]:
    """Keep all but the round(delta * n) smallest magnitudes of the n entries in scope, by one threshold.

    Returns the mask of `weights`, the threshold, and how many of all n stay. `others` are ascending magnitudes that
    count as entries in scope but need no mask. Of equal magnitudes at the threshold, `others` are pruned first, then
    entries in ascending order of their index.
    """
    runs = (slice(0, len(weights)),) if scope is None else scope
    parts = [slice(k, min(k + _PIECE, run.stop)) for run in runs for k in range(run.start, run.stop, _PIECE)]
    others = weights[:0] if others is None else others
    total = sum(part.stop - part.start for part in parts) + len(others)
    gone = round(delta * total)
    mask = np.ones(len(weights), bool)
    if not gone:
        return mask, 0.0, total
    threshold, below = _smallest(weights, parts, others, total, gone)
    first, last = np.searchsorted(others, threshold, "left"), np.searchsorted(others, threshold, "right")
    left = max(0, gone - below - int(last - first))
    for part in parts:
        size = np.abs(weights[part])
        np.greater_equal(size, threshold, out=mask[part])
        if left:
            ties = np.flatnonzero(size == threshold)[:left]
            mask[part][ties] = False
            left -= len(ties)
    return mask, float(threshold), total - gone


def _smallest(
    weights: NDArray[np.floating], parts: Sequence[slice], others: NDArray[np.floating], total: int, k: int
) -> tuple[np.floating, int]:
    """Return the k-th smallest magnitude, k from 1, and how many are smaller.

    A sample gives two magnitudes that it lies between with high probability. Only what lies there is partitioned.
    """
    low, high = weights.dtype.type(-np.inf), weights.dtype.type(np.inf)
    step = total >> 15
    if step >= 8:
        sample = np.sort(np.concatenate([others[::step], *(np.abs(weights[part][::step]) for part in parts)]))
        middle, slack = k / total * len(sample), 6 * len(sample) ** 0.5
        low = sample[int(middle - slack)] if middle > slack else low
        high = sample[int(middle + slack)] if middle + slack < len(sample) else high
    first, last = int(np.searchsorted(others, low, "left")), int(np.searchsorted(others, high, "right"))
    below, between = first, [others[first:last]]
    for part in parts:
        size = np.abs(weights[part])
        under = size < low
        below += int(np.count_nonzero(under))
        between.append(size[(size <= high) ^ under])
    rest = np.concatenate(between)
    if not below < k <= below + len(rest):  # the sample was misleading
        below, rest = 0, np.concatenate([others, *(np.abs(weights[part]) for part in parts)])
    threshold = np.partition(rest, k - below - 1)[k - below - 1]
    return threshold, below + int(np.count_nonzero(rest < threshold))
