"""Differences between algorithms of the main variant, seed by seed, and whether they are more than chance."""

from dataclasses import dataclass
from itertools import pairwise
from statistics import mean, stdev, variance

from skyfed.report.reproduction.collect import MAIN
from skyfed.report.reproduction.reading import PAPER, courses_of, grid, late, seeds_of, title
from skyfed.runs.store import Row

_LEVEL = 0.05  # error probability of a verdict
LATE = 10  # tests in the end whose mean stands for a run: single ones vary by a point
PAIRS = [*pairwise(PAPER), ("afl", "afl-quant"), ("afl", "2ceoafl")]  # the paper's order, then what is not in it


@dataclass(frozen=True)
class Comparison:
    """By how many points one algorithm is ahead of another, seed by seed.

    so_far    on the test set so far                 alone   more than chance if it were the only comparison
    full      on all pictures, which judge it        holds   and among all of them (Holm's correction)
    """

    one: str
    other: str
    so_far: list[float]
    full: list[float]
    alone: bool
    holds: bool

    @property
    def printed(self) -> float:
        """The paper's own difference."""
        return PAPER[self.one] - PAPER[self.other]

    @property
    def verdict(self) -> str:
        """What may be said of it."""
        if len(self.full) < 2:
            return "one seed"
        return "beyond chance" if self.holds else "beyond chance if alone" if self.alone else "may be chance"


def comparisons(rounds: list[Row]) -> list[Comparison]:
    """Compare all pairs that were trained with the same seeds."""
    known = [
        (one, other, paired(rounds, one, other, "accuracy"), full)
        for one, other in PAIRS
        if (full := paired(rounds, one, other, "accuracy_full"))
    ]
    levels = [_probability(full) for *_, full in known]
    among = _holm(levels)
    return [Comparison(*pair, level < _LEVEL, holds) for pair, level, holds in zip(known, levels, among, strict=True)]


def paired(rounds: list[Row], one: str, other: str, key: str) -> list[float]:
    """Return one's less the other's mean accuracy (points) in the last ten rounds both were tested in, by seed."""
    found = []
    for seed in seeds_of(rounds, MAIN):
        courses = [{row["round"]: row[key] for row in courses_of(rounds, MAIN, name, seed)} for name in (one, other)]
        both = sorted(courses[0].keys() & courses[1].keys())[-LATE:]
        if both:
            found.append(100 * mean(courses[0][t] - courses[1][t] for t in both))
    return found


def interval(values: list[float], sign: str = "+") -> str:
    """Return a mean with its 95 % interval (Student's t over seeds)."""
    if len(values) < 2:
        return f"{mean(values):{sign}.1f}"
    return f"{mean(values):{sign}.1f} ± {_half(values):.1f}"


def _half(values: list[float]) -> float:
    """Return the half of a 95 % interval."""
    from scipy.stats import t as student

    return float(student.ppf(1 - _LEVEL / 2, len(values) - 1) * stdev(values) / len(values) ** 0.5)


def surely(values: list[float], least: float) -> bool:
    """Tell whether a mean is further than that from 0 by its whole 95 % interval."""
    return len(values) > 1 and abs(mean(values)) - _half(values) > least


def clear(rounds: list[Row]) -> float:
    """Return what the late means of two runs of one seed must be apart (points) to be more than chance (95 %).

    By how seeds of the main variant differ on all pictures, over all algorithms; 0 where there is one seed only.
    """
    ends = [
        [end for seed in seeds_of(rounds, MAIN) if (end := late(rounds, MAIN, name, "accuracy_full", seed)) is not None]
        for name in PAPER
    ]
    return apart(ends)


def apart(groups: list[list[float]]) -> float:
    """Return how far two values are apart by chance (95 %, Student's t), from groups that differ by chance only."""
    some = [values for values in groups if len(values) > 1]
    if not some:
        return 0.0
    from scipy.stats import t as student

    known = sum(len(values) - 1 for values in some)
    pooled = sum((len(values) - 1) * variance(values) for values in some) / known
    return float(student.ppf(1 - _LEVEL / 2, known) * (2 * pooled) ** 0.5)


def verdict(ahead: float, least: float) -> str:
    """Say whether one run's lead over another, both of one seed, is more than chance."""
    return "one seed" if not least else "beyond chance" if abs(ahead) > least else "within chance"


def table(rounds: list[Row]) -> str:
    """Return all comparisons as a table."""
    rows = [
        [
            f"{title(one.one)} over {title(one.other)}",
            f"{one.printed:+.1f}",
            interval(one.so_far),
            interval(one.full),
            one.verdict,
        ]
        for one in comparisons(rounds)
    ]
    return grid("ahead by (points)|paper|test set so far|all 10,000 pictures|verdict", rows)


def _probability(values: list[float]) -> float:
    """Return how likely a mean this far from 0 is by chance (two-sided t test); 1 for one value."""
    if len(values) < 2:
        return 1.0
    from scipy.stats import t as student

    error = stdev(values) / len(values) ** 0.5
    if not error:
        return float(not mean(values))
    return float(2 * student.sf(abs(mean(values)) / error, len(values) - 1))


def _holm(levels: list[float]) -> list[bool]:
    """Tell which of several tests hold together: the k-th best must pass at the level over what is left (Holm)."""
    holds = [False] * len(levels)
    for passed, k in enumerate(sorted(range(len(levels)), key=levels.__getitem__)):
        if levels[k] * (len(levels) - passed) >= _LEVEL:
            break
        holds[k] = True
    return holds
