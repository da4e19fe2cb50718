"""Accuracies of the main variant: by measure, by seed, and compared by the declared model of rows and seeds."""

from itertools import pairwise

from reproduce.collect import MAIN
from reproduce.results import PAPER, grid, interval, last, late, lates, seeds_of, title
from skyfed.report.numbers import probability, with_interval
from skyfed.report.seed_model import Comparison, SeedModel, fit
from skyfed.runs.tables import Row

PAIRS = [*pairwise(PAPER), ("afl", "afl-quant"), ("afl", "2ceoafl")]  # the paper's order, then what is not in it


def late_model(rounds: list[Row]) -> SeedModel:
    """Fit the model to the late means (%) on all pictures."""
    seeds = seeds_of(rounds, MAIN)
    known = {name: {seed: late(rounds, MAIN, name, "accuracy_full", seed) for seed in seeds} for name in PAPER}
    return fit({name: {seed: y for seed, y in by_seed.items() if y is not None} for name, by_seed in known.items()})


def measures(rounds: list[Row]) -> str:
    """Return the accuracies by the last test and by the late mean, on both test sets."""
    rows = [
        [title(name), f"{printed}"]
        + [interval(of(rounds, MAIN, name, key)) for key in ("accuracy", "accuracy_full") for of in (last, lates)]
        for name, printed in PAPER.items()
        if last(rounds, MAIN, name, "accuracy")
    ]
    return grid(
        "algorithm|paper|last test, test set so far|late mean, test set so far|last test, all pictures|"
        "late mean, all pictures",
        rows,
    )


def by_seed(rounds: list[Row]) -> str:
    """Return the late means on all pictures of every seed."""
    seeds = seeds_of(rounds, MAIN)
    rows = []
    for name in PAPER:
        ends = [late(rounds, MAIN, name, "accuracy_full", seed) for seed in seeds]
        if any(end is not None for end in ends):
            rows.append([title(name), *("–" if end is None else f"{end:.1f}" for end in ends)])
    return grid("|".join(["algorithm", *(f"seed {seed}" for seed in seeds)]), rows)


def pairs(rounds: list[Row]) -> str:
    """Return all pairs of interest, judged together by Tukey's test."""
    model = late_model(rounds)
    rows = [
        [f"{title(one)} over {title(other)}", *_cells(model.pair(one, other), PAPER[one] - PAPER[other])]
        for one, other in PAIRS
        if not model.trouble and {one, other} <= set(model.rows)
    ]
    return grid("ahead by (points)|paper|skyfed|p|verdict", rows)


def against(rounds: list[Row], reference: str) -> str:
    """Return every algorithm beside one, judged together by Dunnett's test."""
    model = late_model(rounds)
    tests = {} if model.trouble or reference not in model.rows else model.against(reference)
    rows = [[title(name), *_cells(test, PAPER[name] - PAPER[reference])] for name, test in tests.items()]
    return grid(f"above {title(reference)} by (points)|paper|skyfed|p|verdict", rows)


def _cells(test: Comparison, printed: float) -> list[str]:
    points = with_interval(test.difference, (test.high - test.low) / 2, "+")
    return [f"{printed:+.1f}", points, probability(test.p).removeprefix("p ").removeprefix("= "), test.verdict()]
