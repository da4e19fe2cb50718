"""Aggregation that some vehicles cannot bend: clipped, trimmed, or the median.

Uploads are rows, entries columns. An entry that a vehicle pruned is no zero of its opinion: it is left out of medians
and trimming, and the outcome is weighted by the share of vehicles that kept it, as in the mean (Eq. 13).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from skyfed.records import Bools, Floats, Singles

How = Literal["mean", "clip", "trimmed", "median"]
_BLOCK = 1 << 16  # entries handled at a time


@dataclass(frozen=True)
class Opinion:
    """One vehicle's upload: the entries it kept, where they are (None: everywhere), its buffers and its weight."""

    values: Singles
    places: Bools | None
    buffers: Singles
    weight: float

    def norm(self) -> float:
        """Return its l2 norm."""
        return float(np.sqrt(np.add.reduce(self.values.astype(np.float64) ** 2)))

    def spread(self, size: int) -> Singles:
        """Return all entries, zero where nothing was kept."""
        if self.places is None:
            return self.values
        whole = np.zeros(size, np.float32)
        whole[self.places] = self.values
        return whole


def combine(how: How, opinions: list[Opinion], size: int, trim: float) -> tuple[Floats, Floats]:
    """Return the aggregated gradient and buffers."""
    if how == "clip":
        norms = [each.norm() for each in opinions]
        limit = float(np.median(norms))
        return _mean(opinions, [min(1.0, limit / max(norm, 1e-300)) for norm in norms], size)
    cut = int(trim * len(opinions)) if how == "trimmed" else None
    down = np.empty(size)
    rows = [each.spread(size) for each in opinions]
    for start in range(0, size, _BLOCK):
        part = slice(start, min(start + _BLOCK, size))
        values = np.stack([row[part] for row in rows]).astype(np.float64)
        kept = np.stack([_kept(each, part) for each in opinions])
        down[part] = _middle(values, kept, _weights(opinions), cut)
    buffers = np.stack([each.buffers for each in opinions]).astype(np.float64)
    return down, _middle(buffers, np.ones(buffers.shape, bool), _weights(opinions), cut)


def _mean(opinions: list[Opinion], factors: list[float], size: int) -> tuple[Floats, Floats]:
    total = sum(each.weight for each in opinions)
    down, buffers = np.zeros(size), np.zeros(len(opinions[0].buffers))
    for each, factor in zip(opinions, factors, strict=True):
        wide = each.values.astype(np.float64) * (factor * each.weight / total)
        if each.places is None:
            down += wide
        else:
            down[each.places] += wide
        buffers += each.weight / total * each.buffers.astype(np.float64)
    return down, buffers


def _middle(values: Floats, kept: Bools, weights: Floats, cut: int | None) -> Floats:
    """Return of every column the mean without its `cut` largest and smallest, or its median, of what was kept."""
    share = weights @ kept / weights.sum()
    count = kept.sum(axis=0)
    order = np.argsort(np.where(kept, values, np.inf), axis=0, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(len(values))[:, None], axis=0)
    most = np.maximum((count - 1) // 2, 0)
    low = most if cut is None else np.minimum(cut, most)
    used = kept & (ranks >= low) & (ranks < count - low)
    each = used * (weights[:, None] if cut is not None else 1.0)
    sums = np.maximum(each.sum(axis=0), 1e-300)
    return np.asarray(share * (each * np.where(kept, values, 0.0)).sum(axis=0) / sums)


def _kept(opinion: Opinion, part: slice) -> Bools:
    if opinion.places is None:
        return np.ones(part.stop - part.start, bool)
    return opinion.places[part]


def _weights(opinions: list[Opinion]) -> Floats:
    return np.array([each.weight for each in opinions])
