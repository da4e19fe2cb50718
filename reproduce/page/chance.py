"""Differences between algorithms of the main variant, seed by seed, and whether they are more than chance."""

from dataclasses import dataclass
from itertools import pairwise
from statistics import mean, stdev, variance

from reproduce.collect import MAIN
from reproduce.results import PAPER, courses_of, end_of, grid, late, lates, seeds_of, title
from skyfed.runs.tables import Row

_LEVEL = 0.05  # error probability of a verdict
PAIRS = [*pairwise(PAPER), ("afl", "afl-quant"), ("afl", "2ceoafl")]  # the paper's order, then what is not in it


@dataclass(frozen=True)
class Comparison:
    """By how many points one algorithm is ahead of another, seed by seed.

    so_far    late means on the test set so far      chance  how likely a mean as far from 0 is by chance (p), by the
    full      and on all pictures, which judge it            late means and by the means of the last ten tests
    holds     whether it is beyond chance among all comparisons (Holm's correction) by both
    """

    one: str
    other: str
    so_far: list[float]
    full: list[float]
    chance: tuple[float, float]
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
        if self.holds:
            return "beyond chance"
        return "may be chance among so many" if min(self.chance) < _LEVEL else "may be chance"


def comparisons(rounds: list[Row]) -> list[Comparison]:
    """Compare all pairs that were trained with the same seeds."""
    known = [
        (one, other, paired(rounds, one, other, "accuracy"), full)
        for one, other in PAIRS
        if (full := paired(rounds, one, other, "accuracy_full"))
    ]
    levels = [
        (_probability(full), _probability(paired(rounds, one, other, "accuracy_full", ten=True)))
        for one, other, _, full in known
    ]
    among = [_holm([level[k] for level in levels]) for k in (0, 1)]
    return [
        Comparison(*pair, level, both[0] and both[1])
        for pair, level, both in zip(known, levels, zip(*among, strict=True), strict=True)
    ]


def paired(rounds: list[Row], one: str, other: str, key: str, ten: bool = False) -> list[float]:
    """Return one's less the other's late mean (points), by seed; or that of the last ten tests."""
    found = []
    for seed in seeds_of(rounds, MAIN):
        own, base = (
            _ended(rounds, name, key, seed) if ten else late(rounds, MAIN, name, key, seed) for name in (one, other)
        )
        if own is not None and base is not None:
            found.append(own - base)
    return found


def _ended(rounds: list[Row], name: str, key: str, seed: int) -> float | None:
    """Return the mean (%) of the last ten tests."""
    course = courses_of(rounds, MAIN, name, seed)[-10:]
    return 100 * mean(row[key] for row in course) if course else None


def whole_order(rounds: list[Row]) -> tuple[int, int]:
    """Return in how many seeds the paper's whole order holds on all pictures, and of how many with all five."""
    held = []
    for seed in seeds_of(rounds, MAIN):
        ends = [late(rounds, MAIN, name, "accuracy_full", seed) for name in PAPER]
        known = [end for end in ends if end is not None]
        if len(known) == len(PAPER):
            held.append(all(before > after for before, after in pairwise(known)))
    return sum(held), len(held)


def sampling(rounds: list[Row]) -> tuple[float, float]:
    """Return how many pictures the test set has in the end, and the half of an accuracy's 95 % interval (points)."""
    ends = [end for name in PAPER if (end := end_of(rounds, MAIN, name)) is not None]
    count, share = mean(end["test_size"] for end in ends), mean(end["accuracy"] for end in ends)
    return count, 196 * (share * (1 - share) / count) ** 0.5


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
    return apart([lates(rounds, MAIN, name, "accuracy_full") for name in PAPER])


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
            *(f"{chance:.2g}" if len(one.full) > 1 else "–" for chance in one.chance),
            one.verdict,
        ]
        for one in comparisons(rounds)
    ]
    return grid("ahead by (points)|paper|test set so far|all 10,000 pictures|p|p of the last ten tests|verdict", rows)


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
