"""How much accuracy moves from one test to the next: with data that shift a little, not at all, and a lot."""

from itertools import pairwise
from statistics import mean

from skyfed.report.reproduction.collect import MAIN
from skyfed.report.reproduction.reading import OPEN, PAPER, courses_of, grid, seeds_of, sensed, title
from skyfed.report.tables import spread
from skyfed.runs.store import Row

STILL = "nothing sensed"  # the variant whose data never change
PLENTY = "planner sca, placed, 50 m"  # and one whose data change a lot, tested after every round too


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
            others = [moves(rounds, one, name, key) for one in (STILL, PLENTY) for key in ("accuracy", "accuracy_full")]
            full = moves(rounds, MAIN, name, "accuracy_full")
            rows.append([title(name), _mean(so_far), f"{_most(so_far):.1f}", _mean(full), *map(_mean, others)])
    return grid(
        f"algorithm|`{MAIN}`, test set so far: mean (points)|largest|all 10,000 pictures: mean|"
        f"`{STILL}`, test set so far|all 10,000|`{PLENTY}`, test set so far|all 10,000",
        rows,
    )


def answer(rounds: list[Row]) -> str:
    """Say how much accuracy moves, and how much of it there is where no data shift and where many do."""
    moved = {name: found for name in PAPER if (found := moves(rounds, MAIN, name, "accuracy"))}
    if not moved:
        return OPEN
    means = {name: _overall(found) for name, found in moved.items()}
    largest = max(moved, key=lambda name: _most(moved[name]))
    said = (
        f"From one round to the next in the second half, on the test set so far, {min(means.values()):.1f} to "
        f"{max(means.values()):.1f} points on average and {_most(moved[largest]):.1f} at most ({title(largest)})."
    )
    parts = [part for name in moved if (part := _beside(rounds, name))]
    if parts:
        said += f" On all 10,000 pictures, which do not shift: {'; '.join(parts)}."
    return said


def _beside(rounds: list[Row], name: str) -> str:
    """Return how much an algorithm moves on all pictures, by how many were sensed; empty without other variants."""
    found = []
    for variant in (STILL, MAIN, PLENTY):
        steps, grown = moves(rounds, variant, name, "accuracy_full"), sensed(rounds, variant, name)
        if steps and grown:
            found.append(f"{_overall(steps):.2f} with {f'{grown[1]:,}' if grown[1] else 'no'} pictures sensed")
    return f"{title(name)} {', '.join(found)}" if len(found) > 1 else ""


def _overall(found: list[list[float]]) -> float:
    return mean(map(mean, found))


def _mean(found: list[list[float]]) -> str:
    return spread([mean(steps) for steps in found])


def _most(found: list[list[float]]) -> float:
    return max(max(steps) for steps in found)
