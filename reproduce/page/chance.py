"""Differences between algorithms of the main variant, by the declared model of rows and seeds, and what they show."""

from dataclasses import dataclass
from itertools import pairwise
from statistics import mean

from reproduce.collect import MAIN
from reproduce.results import PAPER, end_of, grid, late, seeds_of, title
from skyfed.report.numbers import probability, with_interval
from skyfed.report.seed_model import ONE_SEED, Comparison, SeedModel, fit, half_interval
from skyfed.runs.tables import Row

_ROUNDING = 9  # decimals of points and per cents beyond which there is rounding only
PAIRS = [*pairwise(PAPER), ("afl", "afl-quant"), ("afl", "2ceoafl")]  # the paper's order, then what is not in it


@dataclass(frozen=True)
class Lead:
    """By how many points one algorithm is ahead of another.

    so_far   late means on the test set so far, seed by seed     test  what the model says of the late means on all
    full     and on all pictures, which judge it                       pictures; None where there is one seed
    """

    one: str
    other: str
    so_far: list[float]
    full: list[float]
    test: Comparison | None

    @property
    def printed(self) -> float:
        """The paper's own difference."""
        return PAPER[self.one] - PAPER[self.other]

    @property
    def holds(self) -> bool:
        """Whether it is more than chance."""
        return self.test is not None and self.test.shown

    @property
    def points(self) -> str:
        """The lead with its simultaneous 95 % interval."""
        if self.test is None:
            return interval(self.full, "+")
        return with_interval(self.test.difference, (self.test.high - self.test.low) / 2, "+")

    @property
    def verdict(self) -> str:
        """What may be said of it."""
        return ONE_SEED if self.test is None else self.test.verdict()

    @property
    def p(self) -> str:
        """The adjusted probability of such a lead by chance."""
        return ONE_SEED if self.test is None else probability(self.test.p)


def leads(rounds: list[Row]) -> list[Lead]:
    """Compare all pairs that were trained with the same seeds (Tukey's test)."""
    model = _model(rounds)
    return [_lead(rounds, one, other, _pair(model, one, other)) for one, other in PAIRS if _both(rounds, one, other)]


def leads_of(rounds: list[Row], reference: str) -> dict[str, Lead]:
    """Return by how much a reference is ahead of each of the others (Dunnett's test)."""
    model, others = _model(rounds), [name for name in PAPER if name != reference]
    tests = {} if model.trouble or reference not in model.rows else model.against(reference)
    return {
        other: _lead(rounds, reference, other, tests[other].reversed if other in tests else None)
        for other in others
        if _both(rounds, reference, other)
    }


def _model(rounds: list[Row]) -> SeedModel:
    """Fit the model to the late means (%) on all pictures."""
    seeds = seeds_of(rounds, MAIN)
    known = {name: {seed: late(rounds, MAIN, name, "accuracy_full", seed) for seed in seeds} for name in PAPER}
    return fit({name: {seed: y for seed, y in by_seed.items() if y is not None} for name, by_seed in known.items()})


def _pair(model: SeedModel, one: str, other: str) -> Comparison | None:
    return model.pair(one, other) if not model.trouble and {one, other} <= set(model.rows) else None


def _both(rounds: list[Row], one: str, other: str) -> bool:
    return bool(paired(rounds, one, other, "accuracy_full"))


def _lead(rounds: list[Row], one: str, other: str, test: Comparison | None) -> Lead:
    so_far, full = (paired(rounds, one, other, key) for key in ("accuracy", "accuracy_full"))
    return Lead(one, other, so_far, full, test)


def paired(rounds: list[Row], one: str, other: str, key: str) -> list[float]:
    """Return one's less the other's late mean (points), by seed."""
    found = []
    for seed in seeds_of(rounds, MAIN):
        own, base = (late(rounds, MAIN, name, key, seed) for name in (one, other))
        if own is not None and base is not None:
            found.append(own - base)
    return found


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


def interval(values: list[float], sign: str = "", factor: float = 1.0) -> str:
    """Return a mean with its 95 % interval (Student's t over seeds)."""
    if not values:
        return "–"
    known = [round(factor * value, _ROUNDING) for value in values]
    return with_interval(mean(known), half_interval(known), sign)


def surely(values: list[float], least: float) -> bool:
    """Tell whether a mean is further than that from 0 by its whole 95 % interval."""
    half = half_interval(values)
    return half is not None and abs(mean(values)) - half > least


def table(rounds: list[Row]) -> str:
    """Return all comparisons as a table."""
    rows = [
        [
            f"{title(one.one)} over {title(one.other)}",
            f"{one.printed:+.1f}",
            interval(one.so_far, "+"),
            one.points,
            one.p.removeprefix("p = ") if one.test else "–",
            one.verdict,
        ]
        for one in leads(rounds)
    ]
    return grid("ahead by (points)|paper|test set so far|all 10,000 pictures|p|verdict", rows)
