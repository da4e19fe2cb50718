"""How much accuracy moves from one test to the next: with data that shift a little, not at all, and a lot."""

from itertools import pairwise
from statistics import mean

from reproduce.collect import MAIN
from reproduce.page.chance import interval
from reproduce.results import OPEN, PAPER, courses_of, grid, seeds_of, sensed, title
from skyfed.runs.tables import Row

STILL = "nothing sensed"  # the variant whose data never change
PLENTY = "planner sca, placed, 50 m"  # and one whose data change a lot, tested after every round too
_SMALL = 1.0  # points a round that count as small


def moves(rounds: list[Row], variant: str, name: str, key: str, seed: int) -> list[float]:
    """Return the changes (points) from one round to the next in the second half, less their mean: a trend is none.

    Empty where too few rounds follow one another.
    """
    course = courses_of(rounds, variant, name, seed)
    late = course[len(course) // 2 :]
    steps = [100 * (b[key] - a[key]) for a, b in pairwise(late) if b["round"] == a["round"] + 1]
    return [abs(step - mean(steps)) for step in steps] if len(steps) > 1 else []


def table(rounds: list[Row]) -> str:
    """Return how much every algorithm moves."""
    rows = []
    for name in PAPER:
        so_far, full = (_by_seed(rounds, MAIN, name, key) for key in ("accuracy", "accuracy_full"))
        if so_far:
            others = [
                {} if (one, name) == (STILL, "sgd") else _by_seed(rounds, one, name, key)  # another budget there
                for one in (STILL, PLENTY)
                for key in ("accuracy", "accuracy_full")
            ]
            largest = max(max(moves(rounds, MAIN, name, "accuracy", seed)) for seed in so_far)
            means = [interval([*found.values()]) for found in (full, *others)]
            rows.append([title(name), interval([*so_far.values()]), f"{largest:.1f}", *means])
    return grid(
        f"algorithm|`{MAIN}`, test set so far: mean (points)|largest|all 10,000 pictures: mean|"
        f"`{STILL}`, test set so far|all 10,000|`{PLENTY}`, test set so far|all 10,000",
        rows,
    )


def answer(rounds: list[Row]) -> str:
    """Say how much accuracy moves, how much of it is the test set, and whether data shift adds to it."""
    found = {name: some for name in PAPER if (some := _by_seed(rounds, MAIN, name, "accuracy"))}
    if not found:
        return OPEN
    so_far = [mean(some.values()) for some in found.values()]
    full = [mean(_by_seed(rounds, MAIN, name, "accuracy_full").values()) for name in found]
    said = (
        f"{'Small' if max(so_far) <= _SMALL else 'Not small'}: from one round to the next {min(so_far):.1f} to "
        f"{max(so_far):.1f} points on the test set so far, {min(full):.1f} to {max(full):.1f} on all 10,000 pictures, "
        "so that part of it is the test set's size."
    )
    parts = [part for variant in (MAIN, PLENTY) if (part := _added(rounds, variant))]
    if not parts:
        return said
    return (
        f"{said} More than in `{STILL}` (points, all 10,000 pictures, one seed): "
        f"{'; '.join(parts)}. What is due to the shift itself, and what to having more pictures and "
        "still rising, this does not tell apart."
    )


def _added(rounds: list[Row], variant: str) -> str:
    """Return by how much more accuracy moves than where nothing is sensed; the genie has another budget there."""
    found = {}
    for name in PAPER:
        steps, still = (moves(rounds, one, name, "accuracy_full", 0) for one in (variant, STILL))
        if steps and still and name != "sgd":
            found[name] = mean(steps) - mean(still)
    if not found:
        return ""
    grown = sensed(rounds, variant, next(iter(found)))
    each = ", ".join(f"{title(name)} {more:+.2f}" for name, more in found.items())
    return f"in `{variant}`, with {grown[1] if grown else 0:,} pictures sensed, {each}"


def _by_seed(rounds: list[Row], variant: str, name: str, key: str) -> dict[int, float]:
    """Return the mean change of every seed."""
    found = {seed: moves(rounds, variant, name, key, seed) for seed in seeds_of(rounds, variant)}
    return {seed: mean(steps) for seed, steps in found.items() if steps}
