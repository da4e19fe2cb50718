"""The distribution of the largest of several t statistics that share one error estimate: what Dunnett's test needs.

Each statistic compares one mean with the same reference, so any two are correlated; 1/2 where no cell is missing.
"""

from functools import lru_cache
from math import exp, log, sqrt

import numpy as np

from skyfed.types import Floats

_NODES = 96  # of the Gauss-Hermite rule; the integrand is smooth, and 64 already give ten digits
_EQUAL = 1e-9  # correlations that differ by less are equal


def upper_tail(bound: float, correlation: Floats, df: int, two_sided: bool) -> float:
    """Return how likely the largest t, or the largest |t|, exceeds a bound: P(max T > c), T multivariate t."""
    count = len(correlation)
    apart = correlation[~np.eye(count, dtype=bool)]
    if count == 1 or np.ptp(apart) < _EQUAL:
        return _equicorrelated_tail(bound, count, float(apart[0]) if count > 1 else 0.0, df, two_sided)
    from scipy.stats import multivariate_t

    # Missing cells: no common factor, so the integral has as many dimensions as comparisons. A keyed lattice rule.
    lower = np.full(count, -bound) if two_sided else None
    inside = multivariate_t(shape=correlation, df=df).cdf(
        np.full(count, bound), lower_limit=lower, maxpts=100_000, random_state=np.random.default_rng(0)
    )
    return float(np.clip(1 - inside, 0.0, 1.0))


def critical_value(level: float, correlation: Floats, df: int, two_sided: bool) -> float:
    """Return the bound that the largest t, or |t|, exceeds with probability `level`."""
    from scipy.optimize import brentq
    from scipy.stats import t as student

    tail = level / 2 if two_sided else level
    low, high = (float(student.isf(share, df)) for share in (tail, tail / len(correlation)))  # one test; Bonferroni's
    if high - low < _EQUAL:
        return low
    slack = 0.01 * high  # the lattice rule is exact to some 1e-4
    return float(
        brentq(lambda c: upper_tail(c, correlation, df, two_sided) - level, low - slack, high + slack, xtol=1e-6)
    )


@lru_cache(maxsize=256)
def _equicorrelated_tail(bound: float, count: int, rho: float, df: int, two_sided: bool) -> float:
    """Integrate over the common factor z and the error estimate s: T_i = (sqrt(rho) z + sqrt(1-rho) e_i) / s."""
    from scipy.integrate import quad
    from scipy.special import chdtri, gammaln, log_ndtr, ndtr

    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    weights = weights / weights.sum()
    common, own = sqrt(rho) * nodes, sqrt(1 - rho)

    def given(s: float) -> float:
        """Return P(max > bound) for a known error estimate; small ones keep their digits."""
        above = (bound * s - common) / own
        inside = log_ndtr(above)
        if two_sided:
            inside = np.log(np.clip(ndtr(above) - ndtr((-bound * s - common) / own), 1e-300, None))
        return float(weights @ -np.expm1(count * inside))

    constant = log(2) + df / 2 * log(df / 2) - float(gammaln(df / 2))

    def integrand(s: float) -> float:
        """Weigh with the density of s, which is chi over the root of its degrees."""
        return given(s) * exp(constant + (df - 1) * log(s) - df * s * s / 2)

    low, high = (sqrt(float(chdtri(df, tail)) / df) for tail in (1 - 1e-13, 1e-13))
    value, _ = quad(integrand, low, high, limit=200, epsabs=1e-10)
    return float(np.clip(value, 0.0, 1.0))
