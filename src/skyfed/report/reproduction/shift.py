"""How much accuracy moves from one test to the next: with data that shift a little, not at all, and a lot."""

from itertools import pairwise
from statistics import mean

from skyfed.report.reproduction.chance import apart
from skyfed.report.reproduction.collect import MAIN
from skyfed.report.reproduction.reading import OPEN, PAPER, courses_of, grid, seeds_of, sensed, title
from skyfed.report.tables import spread
from skyfed.runs.store import Row

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
                _by_seed(rounds, one, name, key) for one in (STILL, PLENTY) for key in ("accuracy", "accuracy_full")
            ]
            largest = max(max(moves(rounds, MAIN, name, "accuracy", seed)) for seed in so_far)
            means = [spread([*found.values()]) for found in (full, *others)]
            rows.append([title(name), spread([*so_far.values()]), f"{largest:.1f}", *means])
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
    beside = {name: some for name in found if len(some := _by_sensing(rounds, name)) > 1}
    if not beside:
        return said
    parts = [
        f"{title(name)} {', '.join(f'{moved:.2f} with {count:,} pictures sensed' for count, moved in some.items())}"
        for name, some in beside.items()
    ]
    chance = apart([[*_by_seed(rounds, MAIN, name, "accuracy_full").values()] for name in PAPER])
    range_ = max(max(some.values()) - min(some.values()) for some in beside.values())
    verdict = "Part is data shift" if range_ > chance else "That more is sensed makes no difference beyond chance"
    return (
        f"{said} {verdict} (all 10,000 pictures, seed 0; seeds are up to {chance:.2f} apart, 95 %): {'; '.join(parts)}."
    )


def _by_seed(rounds: list[Row], variant: str, name: str, key: str) -> dict[int, float]:
    """Return the mean change of every seed."""
    found = {seed: moves(rounds, variant, name, key, seed) for seed in seeds_of(rounds, variant)}
    return {seed: mean(steps) for seed, steps in found.items() if steps}


def _by_sensing(rounds: list[Row], name: str) -> dict[int, float]:
    """Return the mean change of seed 0 on all pictures by how many pictures were sensed."""
    found = {}
    for variant in (STILL, MAIN, PLENTY):
        steps, grown = moves(rounds, variant, name, "accuracy_full", 0), sensed(rounds, variant, name)
        if steps and grown:
            found[grown[1]] = mean(steps)
    return found
