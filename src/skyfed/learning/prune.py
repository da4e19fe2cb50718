"""Magnitude pruning: the mask of a winning ticket."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from skyfed.learning.settings import PruneSettings
from skyfed.records import Bools
from skyfed.rng import stream

_PIECE = 1 << 16  # entries handled at a time, to stay in cache


def draw_delta(settings: PruneSettings, seed: int, round: int, vehicle: int) -> float:
    """Return the pruning ratio of a vehicle in a round; the same for every algorithm that prunes."""
    delta = settings.delta
    if not isinstance(delta, list):
        return delta
    if len(delta) == 2:
        return float(stream(seed, "delta", round, vehicle).uniform(delta[0], delta[1]))
    return delta[vehicle % len(delta)]


def magnitude_mask(
    weights: NDArray[np.floating], delta: float, scope: Sequence[slice] | None = None
) -> tuple[Bools, float]:
    """Keep all but the round(delta * n) smallest magnitudes of the n entries in scope; returns mask and threshold.

    Found by selection, not by sorting. Entries that tie at the threshold go by index, so that exactly that many go.
    """
    parts = [part for run in ((slice(0, len(weights)),) if scope is None else scope) for part in _pieces(run)]
    total = sum(part.stop - part.start for part in parts)
    gone = round(delta * total)
    mask = np.ones(len(weights), bool)
    if not gone:
        return mask, 0.0
    threshold, below = _smallest(weights, parts, total, gone)
    left = gone - below  # of the entries at the threshold, the first few go too
    for part in parts:
        size = np.abs(weights[part])
        np.greater_equal(size, threshold, out=mask[part])
        if left:
            ties = np.flatnonzero(size == threshold)[:left]
            mask[part][ties] = False
            left -= len(ties)
    return mask, float(threshold)


def _pieces(run: slice) -> list[slice]:
    """Cut a run into pieces that stay in cache."""
    return [slice(start, min(start + _PIECE, run.stop)) for start in range(run.start, run.stop, _PIECE)]


def _smallest(weights: NDArray[np.floating], parts: Sequence[slice], total: int, k: int) -> tuple[np.floating, int]:
    """Return the k-th smallest magnitude, k from 1, and how many are smaller.

    A sample says between which two magnitudes it lies but for rare misfortune; only what lies there is partitioned.
    """
    low, high = weights.dtype.type(-np.inf), weights.dtype.type(np.inf)
    step = total >> 15
    if step >= 8:
        sample = np.sort(np.concatenate([np.abs(weights[part][::step]) for part in parts]))
        middle, slack = k / total * len(sample), 6 * len(sample) ** 0.5
        low = sample[int(middle - slack)] if middle > slack else low
        high = sample[int(middle + slack)] if middle + slack < len(sample) else high
    below, between = 0, []
    for part in parts:
        size = np.abs(weights[part])
        under = size < low
        below += int(np.count_nonzero(under))
        between.append(size[(size <= high) ^ under])
    rest = np.concatenate(between)
    if not below < k <= below + len(rest):  # misfortune
        below, rest = 0, np.concatenate([np.abs(weights[part]) for part in parts])
    threshold = np.partition(rest, k - below - 1)[k - below - 1]
    return threshold, below + int(np.count_nonzero(rest < threshold))
