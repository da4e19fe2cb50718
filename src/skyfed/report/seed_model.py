"""The statistical model behind every verdict: a result is a level, plus its row, plus its seed, plus chance.

    y[a, s] = mu + alpha[a] + beta[s] + e[a, s]        e normal, one variance for all

Rows are algorithms or variants. Seeds are blocks: runs of one seed share start, field and data, so what a seed adds to
all rows is no chance (a randomised block design). Least squares, so cells may be missing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from statistics import fmean, stdev

import numpy as np

from skyfed.report.max_t import critical_value, upper_tail
from skyfed.types import Floats

LEVEL = 0.05  # error probability of all comparisons of a column together
ONE_SEED, UNCONNECTED, NO_DIFFERENCE = "one seed", "too few shared seeds", "no difference shown"
_ROUNDING = 1e-10  # share of the values' size below which residuals are rounding, not chance


def half_interval(values: Sequence[float]) -> float | None:
    """Return the half of a mean's 95 % interval, by itself: t s / sqrt(n) with n - 1 degrees; None for one value."""
    if len(values) < 2:
        return None
    return float(student_bound(len(values) - 1) * stdev(values) / sqrt(len(values)))


def mean_and_half(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return a mean and the half of its 95 % interval, as far as there are values for them."""
    return (fmean(values), half_interval(values)) if values else (None, None)


@lru_cache(maxsize=256)
def student_bound(df: int) -> float:
    """Return the two-sided 95 % point of Student's t."""
    from scipy.stats import t as student

    return float(student.isf(LEVEL / 2, df))


@dataclass(frozen=True)
class Comparison:
    """How far a row is above another: simultaneous 95 % interval, adjusted p, and the one-sided bounds.

    low, high        two-sided interval of the difference     p  adjusted for all comparisons of the family
    at_least, at_most  one-sided simultaneous bounds: the difference is at least, at most this
    """

    difference: float
    low: float
    high: float
    p: float
    at_least: float
    at_most: float

    @property
    def shown(self) -> bool:
        """Whether the difference is more than chance."""
        return self.p < LEVEL

    @property
    def reversed(self) -> "Comparison":
        """The same comparison from the other row's side."""
        return Comparison(-self.difference, -self.high, -self.low, self.p, -self.at_most, -self.at_least)

    def verdict(self, higher_is_better: bool = True, margin: float | None = None, factor: float = 1.0) -> str:
        """Say what may be said of the row against the other.

        margin  asks for non-inferiority too; in the unit that is shown, which is `factor` times that of the values
        """
        lead, worst = (self.difference, self.at_least) if higher_is_better else (-self.difference, -self.at_most)
        words = ("better" if lead > 0 else "worse") if self.shown else NO_DIFFERENCE
        if margin is None or words == "better" or factor * worst <= -margin:
            return words
        enough = f"not inferior (margin {margin:g})"
        return f"worse, {enough}" if words == "worse" else enough


@dataclass(frozen=True)
class SeedModel:
    """The fitted model: adjusted means of the rows, their covariance over the variance, the variance and its degrees.

    rounding  differences up to this are rounding
    trouble   why no comparison can be made; empty where it can
    """

    rows: tuple[str, ...]
    means: Floats
    covariance: Floats
    variance: float
    df: int
    rounding: float = 0.0
    trouble: str = ""

    def best(self, higher_is_better: bool, beside: Collection[str] = ()) -> str:
        """Return the row with the best adjusted mean; rows `beside` are no rivals."""
        means = {row: float(mean) for row, mean in zip(self.rows, self.means, strict=True) if row not in beside}
        return (max if higher_is_better else min)(means, key=means.__getitem__)

    def pair(self, row: str, other: str) -> Comparison:
        """Compare two rows so that all pairs hold together: Tukey's studentised range (Tukey-Kramer if unbalanced)."""
        from scipy.stats import studentized_range

        difference, error = self._difference(row, other)
        bound = _tukey_bound(len(self.rows), self.df) / sqrt(2)  # the range is that of means, not of differences
        # Bounds of all ordered pairs are bounds of the range, so one-sided ones are no narrower.
        if not error:
            return _exact(difference)
        p = float(studentized_range.sf(abs(difference) / error * sqrt(2), len(self.rows), self.df))
        return _comparison(difference, error, p, bound, bound)

    def against(self, reference: str) -> dict[str, Comparison]:
        """Compare every other row with the reference so that all comparisons hold together: Dunnett's test."""
        correlation = self._correlation(reference)
        two_sided, one_sided = (critical_value(LEVEL, correlation, self.df, both) for both in (True, False))
        comparisons = {}
        for row in self.rows:
            if row != reference:
                difference, error = self._difference(row, reference)
                p = upper_tail(abs(difference) / error, correlation, self.df, two_sided=True) if error else 0.0
                comparisons[row] = (
                    _comparison(difference, error, p, two_sided, one_sided) if error else _exact(difference)
                )
        return comparisons

    def _difference(self, row: str, other: str) -> tuple[float, float]:
        """Return the adjusted difference of two rows and its standard error."""
        a, b = self.rows.index(row), self.rows.index(other)
        difference = float(self.means[a] - self.means[b])
        spread = float(self.covariance[a, a] + self.covariance[b, b] - 2 * self.covariance[a, b])
        return difference if abs(difference) > self.rounding else 0.0, sqrt(max(0.0, spread) * self.variance)

    def _correlation(self, reference: str) -> Floats:
        """Return how the differences from the reference are correlated."""
        at = self.rows.index(reference)
        contrasts = np.delete(np.eye(len(self.rows)), at, axis=0)
        contrasts[:, at] = -1.0
        spread = contrasts @ self.covariance @ contrasts.T
        scale = np.sqrt(np.diag(spread))
        return np.asarray(spread / np.outer(scale, scale))


def _comparison(difference: float, error: float, p: float, two_sided: float, one_sided: float) -> Comparison:
    wide, narrow = two_sided * error, one_sided * error
    return Comparison(
        difference,
        difference - wide,
        difference + wide,
        min(1.0, max(0.0, p)),
        difference - narrow,
        difference + narrow,
    )


def _exact(difference: float) -> Comparison:
    """Return a comparison where nothing varies but rows and seeds: any difference is real."""
    return Comparison(difference, difference, difference, float(not difference), difference, difference)


def fit(cells: Mapping[str, Mapping[int, float]]) -> SeedModel:
    """Fit the model to values by row and seed; rows with one seed take no part, and some cells may be missing."""
    rows = tuple(row for row, by_seed in cells.items() if len(by_seed) > 1)
    seeds = sorted({seed for row in rows for seed in cells[row]})
    values = np.array([value for row in rows for value in cells[row].values()], np.float64)
    if len(rows) < 2:
        return _unfit(rows, ONE_SEED)
    design = np.zeros((len(values), len(rows) + len(seeds)))
    for line, (a, seed) in enumerate((a, seed) for a, row in enumerate(rows) for seed in cells[row]):
        design[line, [a, len(rows) + seeds.index(seed)]] = 1.0
    parameters = len(rows) + len(seeds) - 1
    df = len(values) - parameters
    if np.linalg.matrix_rank(design) < parameters or df < 1:
        return _unfit(rows, UNCONNECTED)
    # A row's adjusted mean is its effect at the mean over all seeds. It is estimable, so any solution gives it.
    adjusted = np.hstack([np.eye(len(rows)), np.full((len(rows), len(seeds)), 1 / len(seeds))])
    inverse = np.linalg.pinv(design.T @ design)
    solution = inverse @ design.T @ values
    residuals = values - design @ solution
    rounding = _ROUNDING * float(np.abs(values).max())
    variance = float(residuals @ residuals) / df
    return SeedModel(
        rows,
        adjusted @ solution,
        adjusted @ inverse @ adjusted.T,
        variance if variance > rounding**2 else 0.0,
        df,
        rounding,
    )


def leaders(cells: Mapping[str, Mapping[int, float]], higher_is_better: bool, beside: Collection[str] = ()) -> set[str]:
    """Return the row with the best mean and all that Tukey's test does not tell apart from it.

    None where that would be all rows, or where the model allows no comparison; rows `beside` are no rivals.
    """
    model = fit(cells)
    rivals = [row for row in model.rows if row not in beside]
    if model.trouble or len(rivals) < 2:
        return set()
    best = model.best(higher_is_better, beside)
    alike = {row for row in rivals if row == best or not model.pair(row, best).shown}
    return alike if len(alike) < len(rivals) else set()


def _unfit(rows: tuple[str, ...], trouble: str) -> SeedModel:
    return SeedModel(rows, np.zeros(len(rows)), np.zeros((len(rows), len(rows))), 0.0, 0, trouble=trouble)


@lru_cache(maxsize=256)
def _tukey_bound(rows: int, df: int) -> float:
    """Return the 95 % point of the studentised range."""
    from scipy.stats import studentized_range

    return float(studentized_range.isf(LEVEL, rows, df))
