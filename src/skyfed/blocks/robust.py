"""Aggregation that some vehicles cannot bend: clipped, trimmed, the median, or by who agrees with whom.

Uploads are rows, entries columns. An entry that a vehicle pruned is no zero of its opinion: it is left out of medians
and trimming, and the outcome is weighted by the share of vehicles that kept it, as in the mean (Eq. 13).

In one round honest uploads are nearly uncorrelated, but over rounds it shows who points the same way: cosines of each
two vehicles' signs are summed up, every sum divided by what it would be by chance, and the leading eigenvector of that
matrix has one sign for those who pull together and the other for those who pull against them. Signs, because a few
large entries would rule the cosines of the values.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from skyfed.blocks.buffers import Buffers
from skyfed.types import Bools, Floats, Singles

How = Literal["mean", "clip", "trimmed", "median", "consensus"]
_BLOCK = 1 << 16  # entries handled at a time
LONGEST = {"clip": 1.0, "consensus": 4.0}  # lengths, in median ones, beyond which an upload is cut to the median
_MEMORY = 0.97  # what a round leaves of the agreement before it
_CLEAR = 3.0  # eigenvalue, in roots of the number of vehicles, above which signs are believed; chance gives about 2
_AGAINST = -0.5  # part in the eigenvector, in units of an equal part, below which a vehicle pulls against the others


@dataclass(frozen=True)
class Opinion:
    """One vehicle's upload: the entries it kept, where they are (None: everywhere), its buffers and its weight.

    notes  figures for the table of uploads
    """

    vehicle: int
    values: Singles
    places: Bools | None
    buffers: Singles
    weight: float
    notes: dict[str, Any] = field(default_factory=dict)

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


def factors(how: How, opinions: list[Opinion], opposed: list[int]) -> list[float]:
    """Return what each upload is multiplied by before the mean; those of `opposed` vehicles change their sign."""
    norms = [each.norm() for each in opinions]
    limit = float(np.median(norms))
    longest = LONGEST[how] * limit
    cut = [1.0 if norm <= longest else limit / norm for norm in norms]
    return [-each if opinion.vehicle in opposed else each for opinion, each in zip(opinions, cut, strict=True)]


def combine(how: How, opinions: list[Opinion], size: int, trim: float) -> Floats:
    """Return the gradient entry by entry: the mean without the ends (trimmed), or the median."""
    cut = int(trim * len(opinions)) if how == "trimmed" else None
    weights, down = np.array([each.weight for each in opinions]), np.empty(size)
    rows = [each.spread(size) for each in opinions]
    kept = [np.broadcast_to(True if each.places is None else each.places, size) for each in opinions]
    for start in range(0, size, _BLOCK):
        part = slice(start, start + _BLOCK)
        values = np.stack([row[part] for row in rows]).astype(np.float64)
        down[part] = _middle(values, np.stack([flags[part] for flags in kept]), weights, cut)
    return down


def middle_buffers(how: How, uploads: list[Buffers], trim: float) -> Singles:
    """Return buffers entry by entry in the same way."""
    rows = np.stack([each.values for each in uploads]).astype(np.float64)
    cut = int(trim * len(uploads)) if how == "trimmed" else None
    weights = np.array([each.weight for each in uploads])
    return _middle(rows, np.ones(rows.shape, bool), weights, cut).astype(np.float32)


def no_agreement(vehicles: int) -> Floats:
    """Return (2, U, U) sums of cosines of signs and of their squares, before anything was seen.

    The diagonal of the first says who has been found to pull against the others: 1, else 0.
    """
    return np.zeros((2, vehicles, vehicles))


def noted(agreement: Floats, opinions: list[Opinion], size: int) -> Floats:
    """Return the agreement with this round's uploads in it."""
    products = np.zeros((len(opinions), len(opinions)))
    whole = [each.spread(size) for each in opinions]
    for start in range(0, size, _BLOCK):
        signs = np.sign(np.stack([row[start : start + _BLOCK] for row in whole]))
        products += signs @ signs.T  # whole numbers that float32 holds, in whatever order they are added
    lengths = np.sqrt(np.maximum(products.diagonal(), 1))
    cosines = products / np.outer(lengths, lengths)
    np.fill_diagonal(cosines, 0)
    renewed = _MEMORY * agreement
    who = np.ix_([each.vehicle for each in opinions], [each.vehicle for each in opinions])
    renewed[0][who] += cosines
    renewed[1][who] += cosines**2
    np.fill_diagonal(renewed[0], _judged(renewed, agreement[0].diagonal()))
    return renewed


def against(agreement: Floats) -> list[int]:
    """Return the vehicles that have pulled against the others for some time."""
    return np.flatnonzero(agreement[0].diagonal()).tolist()


def _judged(agreement: Floats, before: Floats) -> Floats:
    """Return who pulls against the others: as it was found before, unless it shows clearly now."""
    sums, squares = agreement[0].copy(), agreement[1]
    np.fill_diagonal(sums, 0)
    count = max(1, int(np.count_nonzero(squares.any(axis=0))))
    values, vectors = np.linalg.eigh(sums / np.sqrt(np.maximum(squares, 1e-300)))
    if values[-1] < _CLEAR * count**0.5:
        return before
    parts = vectors[:, -1] * count**0.5
    return np.asarray(parts * (1 if parts.sum() >= 0 else -1) < _AGAINST, np.float64)


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
