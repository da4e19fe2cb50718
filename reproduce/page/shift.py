"""How much accuracy moves from one round to the next: with data that shift a little, not at all, and a lot."""

from itertools import pairwise
from statistics import mean

from reproduce.collect import MAIN
from reproduce.results import FLEET, PAPER, grid, interval, learning_curve, seeds_of, title
from skyfed.runs.tables import Row

STILL = "nothing sensed"  # the variant whose data never change
PLENTY = "planner sca, placed, 50 m"  # and one whose data change a lot, tested after every round too
_KEYS = ("accuracy", "accuracy_full")


def moves(rounds: list[Row], variant: str, name: str, key: str, seed: int) -> list[float]:
    """Return the changes (points) from one round to the next in the second half, less their mean: a trend is none.

    Empty where too few rounds follow one another.
    """
    tests = learning_curve(rounds, variant, name, seed)
    second = tests[len(tests) // 2 :]
    steps = [100 * (b[key] - a[key]) for a, b in pairwise(second) if b["round"] == a["round"] + 1]
    return [abs(step - mean(steps)) for step in steps] if len(steps) > 1 else []


def mean_moves(rounds: list[Row], variant: str, name: str, key: str) -> list[float]:
    """Return the mean change of every seed."""
    by_seed = [moves(rounds, variant, name, key, seed) for seed in seeds_of(rounds, variant)]
    return [mean(steps) for steps in by_seed if steps]


def steadiness(rounds: list[Row]) -> str:
    """Return how much every algorithm moves in the main variant."""
    rows = []
    for name in PAPER:
        so_far, full = (mean_moves(rounds, MAIN, name, key) for key in _KEYS)
        if so_far:
            largest = max(
                max(moves(rounds, MAIN, name, "accuracy", seed), default=0) for seed in seeds_of(rounds, MAIN)
            )
            rows.append([title(name), interval(so_far), f"{largest:.1f}", interval(full)])
    return grid("algorithm|test set so far: mean (points)|largest|all pictures: mean (points)", rows)


def elsewhere(rounds: list[Row]) -> str:
    """Return the same, on all pictures, where nothing and where plenty is sensed; SGD has another budget there."""
    variants = (STILL, MAIN, PLENTY)
    rows = [
        [title(name), *("–" if not steps else f"{mean(steps):.2f}" for steps in seed_0)]
        for name in FLEET
        if any(seed_0 := [moves(rounds, variant, name, "accuracy_full", 0) for variant in variants])
    ]
    return grid("|".join(["algorithm", *(f"`{variant}`" for variant in variants)]), rows)
