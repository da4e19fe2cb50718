"""Rotation in blocks, then the best few levels for a normal distribution, then a scale that keeps the mean (EDEN)."""

from collections.abc import Iterator

import numpy as np

from skyfed.types import Floats, Ints, Levels, Singles
from skyfed.wire.buckets import Coded
from skyfed.wire.reader import CHUNK

# Lloyd-Max levels of the normal distribution and the bounds between them, by number of levels above zero
_MEANS = {1: np.array([0.79788456]), 2: np.array([0.45278, 1.51042]), 4: np.array([0.24509, 0.75601, 1.34391, 2.15195])}
_CENTRES = {s: means.astype(np.float32) for s, means in _MEANS.items()}
_BOUNDS = {s: ((means[1:] + means[:-1]) / 2).astype(np.float32) for s, means in _MEANS.items()}
_LEAST = 8  # entries of a block that get a level, on average, where only some do
_NEAR = np.float32(0.8)  # of the largest entry: from which on others go with it where few reach the cut
_VARIANCE = {1: np.pi / 2 - 1, 2: 0.13312, 4: 0.03578}  # 1/(1 - distortion) - 1


class Eden:
    """Rotates every bucket by random signs and Hadamard matrices, twice, drawn from a seed both sides know.

    Unbiased over uniformly random rotations; two Hadamard rotations come close to one (tests/test_quantise.py measures
    how close). Levels are -s..s without 0; a bucket is a power of two, the last one is filled up with zeros.

    With a relative variance to aim at, only the largest rotated entries of a bucket get a level and the others 0;
    buckets with a large norm get more of them, so that all of it costs the fewest bits.
    """

    def __init__(self, variance: float | None = None) -> None:
        self._variance = variance

    @staticmethod
    def fits(bucket: int, s: int) -> bool:
        """Tell whether blocks of this size and this number of levels can be rotated and sent."""
        return s in _CENTRES and 64 <= bucket <= 65536 and bucket & (bucket - 1) == 0

    def count(self, starts: Ints) -> int:
        """Return the number of levels: whole blocks."""
        return (len(starts) - 1) * _block(starts)

    def quantise(self, values: Singles, starts: Ints, s: int, norm: str, rng: np.random.Generator) -> Coded:
        """Return the levels of the rotated entries, the scales (rounded to bfloat16 by a toss), and the seed."""
        seed = int(rng.integers(2**63))
        block = _block(starts)
        levels = np.empty((len(starts) - 1, block), np.int8)
        scales = np.empty(len(levels), np.float32)
        cuts = np.zeros(len(levels), np.float32)
        if self._variance is not None and len(levels):
            squares = np.add.reduceat(np.square(values, dtype=np.float64), starts[:-1])
            cuts = _cuts(squares, self._variance, block)
        for first, signs in _blocks(len(levels), block, seed):
            rows = np.zeros((len(signs[0]), block), np.float32)
            part = values[first * block : (first + len(rows)) * block]
            rows.reshape(-1)[: len(part)] = part
            peak = np.abs(rows).max(axis=1)  # so that squares of tiny and huge entries stay in range
            rows /= np.where(peak > 0, peak, 1)[:, None]
            length = np.add.reduce(np.square(rows, dtype=np.float64), axis=1)
            for sign in signs:
                rows = _hadamard(rows * sign)
            size = np.abs(rows)
            size *= np.sqrt(block / np.where(length > 0, length, 1)).astype(np.float32)[:, None]
            level = 1 + np.searchsorted(_BOUNDS[s], size).astype(np.int8)
            if self._variance is not None:
                cut = cuts[first : first + len(rows)]
                few = np.count_nonzero(size >= cut[:, None], axis=1) < _LEAST // 2
                limit = np.where(few, np.minimum(cut, _NEAR * size.max(axis=1)), cut)
                level[(size < limit[:, None]) | (length == 0)[:, None]] = 0
            centre = np.append(np.float32(0), _CENTRES[s])[level]
            along = np.add.reduce(np.abs(rows) * centre, axis=1, dtype=np.float64)
            levels[first : first + len(rows)] = np.where(rows < 0, -level, level)
            scale = np.divide(length, along, out=np.zeros(len(rows)), where=along > 0) * peak
            scales[first : first + len(rows)] = _toss_to_bfloat16(scale, rng)
        return levels.reshape(-1), scales, seed

    def dequantise(self, levels: Levels, norms: Singles, starts: Ints, s: int, seed: int) -> Singles:
        """Return scale * (rotation back of the levels' centres)."""
        block = _block(starts)
        table = levels.reshape(-1, block)
        values = np.empty(table.shape, np.float32)
        centres = np.concatenate([-_CENTRES[s][::-1], [np.float32(0)], _CENTRES[s]])
        for first, signs in _blocks(len(table), block, seed):
            rows = centres[table[first : first + len(signs[0])].astype(np.int64) + s]
            for sign in reversed(signs):
                rows = _hadamard(rows) * sign
            values[first : first + len(rows)] = rows * norms[first : first + len(rows), None]
        return values.reshape(-1)[: int(starts[-1])]

    def variance_bound(self, starts: Ints, s: int, norm: str) -> float:
        """Relative variance for rotated entries that are normal, with what blocks of n add to it."""
        return float((self._variance or _VARIANCE[s]) * (1 + 8 / max(1, _block(starts)) ** 0.5))

    @staticmethod
    def most_variance(bucket: int) -> float:
        """Return the largest variance that can be aimed at with blocks of this size."""
        return float(_kept_and_error(np.array([_widest(bucket)]))[1][0])

    def context(self, starts: Ints, seed: int) -> None:
        """Nothing is known beforehand."""


def _cuts(squares: Floats, variance: float, block: int) -> Singles:
    """Return for every bucket, by its squared norm, below how many deviations its entries go as 0.

    A bucket that keeps the share f explains e(f) of its energy at h(f) + f bits per entry and has the relative variance
    1/e - 1. Shares are chosen so that squares * (1/e - 1) + price * bits is least, and the price so that the variances
    of all buckets together are `variance` times the squares. Buckets of about the same norm are treated alike.
    """
    from scipy.special import xlogy  # heavy, and every command reads the settings above

    cut = np.linspace(0, _widest(block), 81)
    share, error = _kept_and_error(cut)
    bits = share - xlogy(share, share) / np.log(2) - xlogy(1 - share, 1 - share) / np.log(2)
    weight = squares / max(float(np.add.reduce(squares)), 1e-300)
    kind = np.clip(np.round(8 * np.log2(np.maximum(weight, 1e-300))), -512, 0).astype(np.int64) + 512
    counts, typical = np.bincount(kind, minlength=513), 2.0 ** ((np.arange(513) - 512) / 8)
    low, high = -100.0, 20.0
    best = np.zeros(513, np.int64)
    for _ in range(40):
        price = (low + high) / 2
        best = np.argmin(typical[:, None] * error + 2**price * bits, axis=1)
        reached = np.add.reduce(counts * typical * error[best]) / np.add.reduce(counts * typical)
        low, high = (price, high) if reached < variance else (low, price)
    return cut[best[kind]].astype(np.float32)


def _kept_and_error(cut: Floats) -> tuple[Floats, Floats]:
    """Return the share of normal entries beyond a cut, and the relative variance if only those are sent."""
    from scipy.stats import norm as normal  # takes a second to import, and every command reads the settings above

    tail = normal.sf(cut)
    return 2 * tail, tail / (2 * normal.pdf(cut) ** 2) - 1


def _widest(block: int) -> float:
    """Return the cut beyond which a block has so few entries left that normal tails say little about them."""
    from scipy.stats import norm as normal

    return float(normal.isf(_LEAST / block / 2))


def _block(starts: Ints) -> int:
    return int(starts[1] - starts[0]) if len(starts) > 2 else 1 << max(6, int(starts[-1] - 1).bit_length())


def _blocks(count: int, block: int, seed: int) -> Iterator[tuple[int, list[Singles]]]:
    """Yield runs of blocks with the two arrays of random signs of each."""
    coins = np.random.Generator(np.random.PCG64(seed))
    step = max(1, CHUNK // block)
    for first in range(0, count, step):
        rows = min(step, count - first)
        bits = np.unpackbits(np.frombuffer(coins.bytes(2 * rows * block // 8), np.uint8))
        yield first, list((2 * bits.astype(np.float32) - 1).reshape(2, rows, block))


def _hadamard(rows: Singles) -> Singles:
    """Multiply every row by the orthogonal Hadamard matrix."""
    count, block = rows.shape
    half = 1
    while half < block:
        pairs = rows.reshape(count, -1, 2, half)
        rows = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], axis=2)
        half *= 2
    return np.asarray(rows.reshape(count, block) * np.float32(block**-0.5), np.float32)


def _toss_to_bfloat16(scales: np.ndarray, rng: np.random.Generator) -> Singles:
    """Round to one of the two nearest bfloat16 numbers by a toss that keeps the mean."""
    bits = np.minimum(scales, 3.3e38).astype(np.float32).view(np.uint32)
    bits = (bits + rng.integers(0, 1 << 16, len(bits), np.uint32)) & np.uint32(0xFFFF0000)
    return np.asarray(bits.view(np.float32))
