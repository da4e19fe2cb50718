"""How much accuracy moves from one test to the next: with data that shift, and where none are sensed."""

from itertools import pairwise
from statistics import mean

from skyfed.report.reproduction.collect import MAIN
from skyfed.report.reproduction.reading import OPEN, PAPER, courses_of, grid, seeds_of, sensed, title
from skyfed.report.tables import spread
from skyfed.runs.store import Row

STILL = "nothing sensed"  # the variant whose data never change


def moves(rounds: list[Row], variant: str, name: str, key: str) -> list[list[float]]:
    """Return the changes (points) from one round to the next in the second half, of every seed with enough tests."""
    found = []
    for seed in seeds_of(rounds, variant):
        course = courses_of(rounds, variant, name, seed)
        late = course[len(course) // 2 :]
        steps = [100 * abs(b[key] - a[key]) for a, b in pairwise(late) if b["round"] == a["round"] + 1]
        if len(steps) > 1:
            found.append(steps)
    return found


def table(rounds: list[Row]) -> str:
    """Return how much every algorithm moves."""
    rows = []
    for name in PAPER:
        so_far = moves(rounds, MAIN, name, "accuracy")
        if so_far:
            full, still = (
                moves(rounds, *which) for which in ((MAIN, name, "accuracy_full"), (STILL, name, "accuracy"))
            )
            rows.append([title(name), _mean(so_far), f"{_most(so_far):.1f}", _mean(full), _mean(still)])
    return grid(
        f"algorithm|test set so far: mean (points)|largest|all 10,000 pictures: mean|test set so far, `{STILL}`: mean",
        rows,
    )


def answer(rounds: list[Row]) -> str:
    """Say how much accuracy moves, and how much of it there is where no data shift."""
    moved = {name: found for name in PAPER if (found := moves(rounds, MAIN, name, "accuracy"))}
    if not moved:
        return OPEN
    means = {name: mean(map(mean, found)) for name, found in moved.items()}
    largest = max(moved, key=lambda name: _most(moved[name]))
    said = (
        f"From one round to the next in the second half, on the test set so far, {min(means.values()):.1f} to "
        f"{max(means.values()):.1f} points on average and {_most(moved[largest]):.1f} at most ({title(largest)})."
    )
    grown = sensed(rounds, MAIN, "afl")
    if grown and grown[1]:
        said += f" Little shifts: all rounds together add {grown[1]:,} pictures to the first {grown[0]:,}."
    still = {name: mean(map(mean, found)) for name in moved if (found := moves(rounds, STILL, name, "accuracy"))}
    if still:
        beside = ", ".join(
            f"{title(name)} {value:.1f} (with sensing {means[name]:.1f})" for name, value in still.items()
        )
        said += f" Where nothing at all is sensed: {beside}."
    return said


def _mean(found: list[list[float]]) -> str:
    return spread([mean(steps) for steps in found])


def _most(found: list[list[float]]) -> float:
    return max(max(steps) for steps in found)
