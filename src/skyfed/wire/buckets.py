"""Buckets: runs of entries that share a norm; one for all, one per parameter tensor, or n entries each."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from skyfed.types import Bools, Floats, Ints, Levels, Singles
from skyfed.wire.reader import CHUNK

Coded = tuple[Levels, Singles, int]  # levels, norms, seed

TENSOR = -1  # bucket code: one norm per parameter tensor
SMALLEST = 8  # entries a bucket of n has at least
ROUNDING = (1 + 2.0**-7) ** 2  # by how much the square of a norm may grow when it is rounded up to bfloat16
_MANY = 1000  # buckets from which on they are handled together rather than one by one


def bucket_starts(size: int, bucket: int, starts: Ints, mask: Bools | None) -> Ints:
    """First kept entry of each bucket, then the number kept; `starts` are the tensors' in the full vector."""
    if bucket == TENSOR:
        if mask is None:
            return starts
        return np.cumsum([0, *(np.count_nonzero(mask[start:stop]) for start, stop in pairwise(starts))])
    if bucket == 0:
        return np.array([0, size])
    return np.append(np.arange(0, size, bucket), size)


def bucket_norms(values: Singles, starts: Ints, norm: str) -> Singles:
    """Norm of each bucket, summed in float64 and rounded up to bfloat16, so that no entry exceeds its norm."""
    filled = np.diff(starts) > 0
    norms = np.zeros(len(filled))
    if norm == "linf":
        norms[filled] = np.maximum.reduceat(np.abs(values), starts[:-1][filled])
    elif len(starts) < _MANY:
        for k, (start, stop) in enumerate(pairwise(starts)):
            wide = values[start:stop].astype(np.float64)
            norms[k] = np.sqrt(np.add.reduce(wide * wide))  # not BLAS, whose sums depend on its threads
    else:
        wide = values.astype(np.float64)
        norms[filled] = np.sqrt(np.add.reduceat(np.square(wide, out=wide), starts[:-1][filled]))
    return up_to_bfloat16(norms)


def up_to_float32(values: Floats | np.float64) -> Singles:
    """Return the least float32 numbers that are not below these; infinity beyond the largest."""
    with np.errstate(over="ignore"):
        single = np.asarray(values, np.float32)
        return np.where(single < values, np.nextafter(single, np.float32(np.inf)), single)


def up_to_bfloat16(norms: Floats) -> Singles:
    """Return the least bfloat16 numbers that are not below these norms, as float32; the largest where there is none."""
    bits = (up_to_float32(norms).view(np.uint32) + np.uint32(0xFFFF)) & np.uint32(0xFFFF0000)
    return np.asarray(np.minimum(bits, np.uint32(0x7F7F0000)).view(np.float32))


def spread(factors: Singles, starts: Ints) -> Iterator[tuple[int, int, Singles]]:
    """Yield runs of entries with the factor of each entry's bucket."""
    if len(factors) < _MANY:
        for factor, (start, stop) in zip(factors, pairwise(starts), strict=True):
            for first in range(int(start), int(stop), CHUNK):
                yield first, min(first + CHUNK, int(stop)), np.asarray(factor)
        return
    sizes = np.diff(starts)
    step = max(1, CHUNK // max(1, int(sizes.max())))
    for first in range(0, len(factors), step):
        last = min(first + step, len(factors))
        yield int(starts[first]), int(starts[last]), np.repeat(factors[first:last], sizes[first:last])
