"""Magnitude pruning: the mask of a winning ticket."""

import numpy as np
from numpy.typing import NDArray

from skyfed.learning.settings import PruneSettings
from skyfed.records import Bools
from skyfed.rng import stream


def draw_delta(settings: PruneSettings, seed: int, round: int, vehicle: int) -> float:
    """Return the pruning ratio of a vehicle in a round; the same for every algorithm that prunes."""
    delta = settings.delta
    if not isinstance(delta, list):
        return delta
    if len(delta) == 2:
        return float(stream(seed, "delta", round, vehicle).uniform(delta[0], delta[1]))
    return delta[vehicle % len(delta)]


def magnitude_mask(weights: NDArray[np.floating], delta: float, scope: Bools | None = None) -> Bools:
    """Keep all but the round(delta * n) smallest magnitudes of the n entries in scope, by one threshold.

    Found by selection, not by sorting. Entries that tie at the threshold go by index, so that exactly that many go.
    """
    where = None if scope is None or scope.all() else np.flatnonzero(scope)
    size = np.abs(weights if where is None else weights[where])
    gone = round(delta * len(size))
    kept = np.ones(len(size), bool)
    if gone:
        threshold = np.partition(size, gone - 1)[gone - 1]
        kept = size >= threshold
        excess = gone - (len(size) - int(kept.sum()))  # of the entries at the threshold, the first few go too
        kept[np.flatnonzero(size == threshold)[:excess]] = False
    if where is None:
        return kept
    mask = np.ones(len(weights), bool)
    mask[where] = kept
    return mask
