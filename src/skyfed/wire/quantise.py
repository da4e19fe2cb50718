"""QSGD: unbiased low-precision quantisation (Eq. 12), one norm for all entries, for each tensor, or for each bucket."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from skyfed.records import Bools, Floats, Ints, Singles

TENSOR = -1  # bucket code: one norm a parameter tensor
_MANY = 1000  # buckets from which on they are handled together rather than one by one
_CHUNK = 1 << 20  # entries handled at a time, to stay in cache


class QuantiseSettings(BaseModel):
    """How uploads are quantised."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    scheme: Literal["qsgd"] = Field("qsgd", description="the quantiser")
    s: int = Field(3, ge=1, le=127, description="levels above zero")
    bucket: Literal["tensor"] | Annotated[int, Field(ge=0, le=2**31 - 1)] = Field(
        512, description='entries a norm: 0 all (as printed), "tensor", or n'
    )
    norm: Literal["l2", "linf"] = Field("l2", description="the norm of a bucket")
    raw_probability: Literal["delta"] | Annotated[float, Field(ge=0, le=1)] = Field(
        "delta", description="q of 2ceoafl: probability of a raw upload"
    )

    @property
    def bucket_code(self) -> int:
        """Bucket as a number: 0 all, -1 one a tensor, n."""
        return TENSOR if self.bucket == "tensor" else int(self.bucket)


def bucket_starts(size: int, bucket: int, starts: Ints, mask: Bools | None) -> Ints:
    """First kept entry of each bucket, then the number kept; `starts` are the tensors' in the full vector."""
    if bucket == TENSOR:
        return starts if mask is None else np.concatenate([[0], np.cumsum(mask)])[starts]
    if bucket == 0:
        return np.array([0, size])
    return np.append(np.arange(0, size, bucket), size)


def quantise(
    values: Singles, starts: Ints, s: int, norm: str, rng: np.random.Generator
) -> tuple[NDArray[np.int8], Singles]:
    """Draw the levels of each entry and return them with the buckets' norms (Eq. 12).

    Entry d in a bucket of norm n gets level l or l+1 of s with l/s <= |d|/n < (l+1)/s, so that its mean is d.
    A bucket of zeros has norm 0 and levels 0.
    """
    norms = _norms(values, starts, norm)
    levels = np.empty(len(values), np.int8)
    wide = np.divide(s, norms, out=np.zeros(len(norms)), where=norms > 0, dtype=np.float64)
    scale = np.minimum(wide, np.finfo(np.float32).max).astype(np.float32)
    for start, stop, factor in _spread(scale, starts):
        part = values[start:stop]
        drawn = rng.random(len(part), np.float32)
        drawn += np.abs(part) * factor
        np.minimum(np.floor(drawn, out=drawn), s, out=drawn)
        levels[start:stop] = np.copysign(drawn, part)
    return levels, norms


def dequantise(levels: NDArray[np.int8], norms: Singles, starts: Ints, s: int) -> Singles:
    """Return norm * level / s for each entry."""
    values = np.empty(len(levels), np.float32)
    for start, stop, factor in _spread(norms / np.float32(s), starts):
        np.multiply(levels[start:stop], factor, out=values[start:stop], casting="unsafe")
    return values


def variance_bound(starts: Ints, s: int, norm: str) -> float:
    """Bound q of the relative variance, E||Q(d) - d||^2 <= q ||d||^2 (Eq. 16).

    l2 over n entries: min(n/s^2, sqrt(n)/s); linf: n/(4 s^2), since an entry's variance is at most (norm/s)^2 / 4.
    """
    n = int(np.diff(starts).max(initial=0))
    return n / (4 * s * s) if norm == "linf" else min(n / s**2, n**0.5 / s)


def _norms(values: Singles, starts: Ints, norm: str) -> Singles:
    """Norm of each bucket, summed in float64 and rounded up to float32, so that no entry exceeds its norm."""
    if len(starts) < _MANY:
        found = np.array([_norm(values[start:stop].astype(np.float64), norm) for start, stop in pairwise(starts)])
    else:
        wide = values.astype(np.float64)
        some = np.diff(starts) > 0
        found = np.zeros(len(starts) - 1)
        if norm == "linf":
            found[some] = np.maximum.reduceat(np.abs(wide), starts[:-1][some])
        else:
            found[some] = np.sqrt(np.add.reduceat(wide * wide, starts[:-1][some]))
    single = found.astype(np.float32)
    return np.where(single < found, np.nextafter(single, np.float32(np.inf)), single)


def _norm(values: Floats, norm: str) -> float:
    return float(
        np.abs(values).max(initial=0.0) if norm == "linf" else np.sqrt(np.add.reduce(values * values))
    )  # not BLAS: it sums by threads


def _spread(factors: Singles, starts: Ints) -> Iterator[tuple[int, int, Singles]]:
    """Yield runs of entries with the factor of each entry's bucket."""
    sizes = np.diff(starts)
    if len(factors) < _MANY:
        for factor, start, stop in zip(factors, starts[:-1], starts[1:], strict=True):
            for first in range(int(start), int(stop), _CHUNK):
                last = min(first + _CHUNK, int(stop))
                yield first, last, np.asarray(factor)
        return
    step = max(1, _CHUNK // max(1, int(sizes.max())))
    for first in range(0, len(factors), step):
        last = min(first + step, len(factors))
        yield int(starts[first]), int(starts[last]), np.repeat(factors[first:last], sizes[first:last])
