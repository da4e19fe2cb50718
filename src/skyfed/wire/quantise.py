"""The quantisers, behind one interface: QSGD as in the paper, subtractive dither, rotation (EDEN).

Each turns the entries of d into small whole numbers (levels) and one norm per bucket, and back without bias.
"""

from typing import Annotated, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from skyfed.settings import StrictSettings
from skyfed.types import Ints, Levels, Quantised, Singles
from skyfed.wire.buckets import ROUNDING, SMALLEST, TENSOR, Coded, bucket_norms, spread
from skyfed.wire.eden import Eden

Scheme = Literal["qsgd", "dither", "eden"]


class QuantiseSettings(StrictSettings):
    """How uploads are quantised."""

    scheme: Scheme = Field(
        "qsgd", description="the quantiser: qsgd (the paper's), dither (subtractive), eden (rotation)"
    )
    s: int = Field(3, ge=1, le=127, description="levels above zero; eden: 1, 2 or 4, which are 1, 2 or 3 bits an entry")
    bucket: Literal["tensor"] | Annotated[int, Field(ge=0, le=2**31 - 1)] = Field(
        512, description='entries a norm: 0 all (as printed), "tensor", or n; eden: a power of two from 64 to 65536'
    )
    norm: Literal["l2", "linf"] = Field("l2", description="the norm of a bucket (qsgd, dither)")
    variance: float | None = Field(
        None, ge=0.6, le=1e4, description="eden with s = 1: relative variance to aim at; small rotated entries go as 0"
    )
    raw_probability: Literal["delta"] | Annotated[float, Field(ge=0, le=1)] = Field(
        "delta", description="q of 2ceoafl: probability of a raw upload"
    )
    buffers: Literal[0, 1, 2, 4] = Field(
        0, description="batch-norm buffers beside levels: 0 exact; 1, 2 or 4 levels above zero, 1 to 3 bits each"
    )
    coder: Literal["range", "zstd", "plain"] = Field(
        "range", description="how levels are packed: range coder, zstd, or bit planes as they are"
    )

    @property
    def bucket_code(self) -> int:
        """Bucket as a number: 0 all, -1 one per tensor, n."""
        return TENSOR if self.bucket == "tensor" else int(self.bucket)

    @field_validator("bucket")
    @classmethod
    def _not_tiny(cls, bucket: str | int) -> str | int:
        if isinstance(bucket, int) and 0 < bucket < SMALLEST:
            raise ValueError(f'allowed: 0, "tensor", or {SMALLEST} and more')
        return bucket

    @model_validator(mode="after")
    def _rotatable(self) -> "QuantiseSettings":
        if self.scheme == "eden" and not Eden.fits(self.bucket_code, self.s):
            raise ValueError("scheme = 'eden': allowed: bucket a power of two from 64 to 65536, s 1, 2 or 4")
        if self.variance is None:
            return self
        if (self.scheme, self.s) != ("eden", 1):
            raise ValueError("variance: allowed: with scheme = 'eden' and s = 1")
        most = Eden.most_variance(self.bucket_code)
        if self.variance > most:
            raise ValueError(
                f"variance: allowed: at most {most:.3g} with buckets of {self.bucket}; larger ones go further"
            )
        return self


class Quantiser(Protocol):
    """One way of quantising.

    values (n,) entries   starts (b+1,) of the buckets   s levels above zero   seed what both sides draw from
    """

    def count(self, starts: Ints) -> int:
        """Return the number of levels for these buckets: by default one per entry."""
        return int(starts[-1])

    def quantise(self, values: Singles, starts: Ints, s: int, norm: str, rng: np.random.Generator) -> Coded:
        """Return levels, norms and seed; the mean of `dequantise` over rng is `values`."""

    def dequantise(self, levels: Levels, norms: Singles, starts: Ints, s: int, seed: int) -> Singles:
        """Return the entries the levels stand for."""

    def variance_bound(self, starts: Ints, s: int, norm: str) -> float:
        """Return q with E||Q(d) - d||^2 <= q ||d||^2 (Eq. 16)."""

    def context(self, starts: Ints, seed: int) -> NDArray[np.uint8] | None:
        """Return what both sides know about each level before it is sent, if that helps to code it."""
        return None


class Qsgd(Quantiser):
    """Rounds to one of the two nearest levels of norm/s by a toss that keeps the mean (Eq. 12).

    For d between levels l and l+1, signs included, floor(d s/norm + u) with u uniform on [0, 1) is just that toss.
    """

    def quantise(self, values: Singles, starts: Ints, s: int, norm: str, rng: np.random.Generator) -> Coded:
        """Draw level l or l+1 with l/s <= |d|/norm < (l+1)/s; a bucket of zeros has norm 0 and levels 0."""
        norms = bucket_norms(values, starts, norm)
        return _rounded(values, norms, starts, s, rng), norms, 0

    def dequantise(self, levels: Levels, norms: Singles, starts: Ints, s: int, seed: int) -> Singles:
        """Return norm * level / s for each entry."""
        values = np.empty(len(levels), np.float32)
        for start, stop, factor in spread(norms / np.float32(s), starts):
            np.multiply(levels[start:stop], factor, out=values[start:stop], casting="unsafe")
        return values

    def variance_bound(self, starts: Ints, s: int, norm: str) -> float:
        """With a step of norm/s an entry's variance is at most step^2/4, and at most step |d|.

        Over n entries: n/(4 s^2) and sqrt(n)/s, for both norms; they grow by the rounding of the norm.
        """
        n = int(np.diff(starts).max(initial=0))
        return float(ROUNDING * min(n / (4 * s * s), n**0.5 / s))


class Dither(Quantiser):
    """Rounds after adding noise that the other side knows and takes away again: the error is uniform, whatever d is."""

    def quantise(self, values: Singles, starts: Ints, s: int, norm: str, rng: np.random.Generator) -> Coded:
        """Return floor(d s/norm + v) with v uniform on [0, 1) from the seed."""
        seed = int(rng.integers(2**63))
        norms = bucket_norms(values, starts, norm)
        return _rounded(values, norms, starts, s, _noise(seed)), norms, seed

    def dequantise(self, levels: Levels, norms: Singles, starts: Ints, s: int, seed: int) -> Singles:
        """Return (level + 1/2 - v) norm / s."""
        noise = _noise(seed)
        values = np.empty(len(levels), np.float32)
        for start, stop, factor in spread(norms / np.float32(s), starts):
            drawn = np.float32(0.5) - noise.random(stop - start, np.float32)
            drawn += levels[start:stop]
            np.multiply(drawn, factor, out=values[start:stop])
        return values

    def variance_bound(self, starts: Ints, s: int, norm: str) -> float:
        """The error is uniform over a step of norm/s: n/(12 s^2), exact for l2 but for the rounding of the norm."""
        return ROUNDING * int(np.diff(starts).max(initial=0)) / (12 * s * s)

    def context(self, starts: Ints, seed: int) -> NDArray[np.uint8]:
        """Where v lies: small entries become -1 only for v near 0, and 1 only for v near 1."""
        noise = _noise(seed).random(int(starts[-1]), np.float32)
        return _CONTEXTS[(noise * 256).astype(np.uint8)]


QUANTISERS: dict[str, Quantiser] = {"qsgd": Qsgd(), "dither": Dither(), "eden": Eden()}

_EDGES = np.array([1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96])  # of 256: finer where a level is likely
_CONTEXTS = np.concatenate(
    [np.searchsorted(_EDGES, np.arange(128), "right"), 25 - np.searchsorted(_EDGES, np.arange(127, -1, -1), "right")]
).astype(np.uint8)


def quantiser(settings: QuantiseSettings) -> Quantiser:
    """Return the quantiser of a sender."""
    return Eden(settings.variance) if settings.scheme == "eden" else QUANTISERS[settings.scheme]


def quantised(values: Singles, starts: Ints, settings: QuantiseSettings, rng: np.random.Generator) -> Quantised:
    """Return entries as levels, as the settings say."""
    levels, norms, seed = quantiser(settings).quantise(values, starts, settings.s, settings.norm, rng)
    return Quantised(settings.scheme, levels, norms, settings.s, settings.bucket_code, seed)


def _noise(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def _rounded(values: Singles, norms: Singles, starts: Ints, s: int, rng: np.random.Generator) -> Levels:
    """Return floor(d s/norm + u) with u uniform on [0, 1)."""
    wide = np.divide(s, norms, out=np.zeros(len(norms)), where=norms > 0, dtype=np.float64)
    inverse = np.minimum(wide, np.finfo(np.float32).max).astype(np.float32)
    levels = np.empty(len(values), np.int8)
    # the numbers that `rng.random` gives, in half its time
    bits = rng.bit_generator.random_raw(-(-len(values) // 2)).astype("<u8", copy=False).view("<u4")
    for start, stop, factor in spread(inverse, starts):
        drawn = (bits[start:stop] >> 8).astype(np.float32)
        drawn *= np.float32(2.0**-24)
        drawn += values[start:stop] * factor
        # floor before anything else is added: a larger sum would round an entry of exactly 0 up to level 1
        np.clip(np.floor(drawn, out=drawn), -s, s, out=levels[start:stop], casting="unsafe")
    return levels
