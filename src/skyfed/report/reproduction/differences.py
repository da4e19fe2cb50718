"""What remains between the paper's accuracies and ours: a hypothesis for each, and what its test has shown."""

from itertools import pairwise
from statistics import mean

from skyfed.report.reproduction.accuracy import beyond, title
from skyfed.report.reproduction.collect import MAIN
from skyfed.report.reproduction.reading import OPEN, PAPER, courses_of, grid, last
from skyfed.runs.store import Row

_CHANCE = 2.0  # standard errors up to which a difference may be chance
_BUDGETS = {"genie kappa": 5, "genie 10 steps": 10, "genie 25 steps": 25, MAIN: 50}  # mini-batches of the genie a round


def differences(rounds: list[Row]) -> str:
    """Return every difference of more than a point with its hypotheses, their tests and outcomes."""
    off = beyond(rounds)
    rows = [[title(name), f"{far:+.1f}", *_chance(rounds, name)] for name, far in off.items()]
    if "sgd" in off:
        rows.append([title("sgd"), f"{off['sgd']:+.1f}", *_budget(rounds)])
    return grid("algorithm|points|hypothesis|test|outcome", rows) if rows else "None of more than a point."


def _chance(rounds: list[Row], name: str) -> list[str]:
    """Is it the paper's own test set, which is small? Then models tested on all pictures are near its figure."""
    size = max(row["test_size"] for row in courses_of(rounds, MAIN, name))
    error = (PAPER[name] * (100 - PAPER[name]) / size) ** 0.5  # standard error in points of one test on so many
    far = mean(last(rounds, MAIN, name, "accuracy_full")) - PAPER[name]
    verdict = "may be chance" if abs(far) <= _CHANCE * error else "more than chance"
    return [
        "a gathered test set is small",
        f"all 10,000 pictures instead; one test on {size:,} is off by {error:.1f} points (standard error)",
        f"{far:+.1f} points, {abs(far) / error:.1f} standard errors: {verdict}",
    ]


def _budget(rounds: list[Row]) -> list[str]:
    """Does the paper's genie take fewer steps than the fleet together? Then a smaller budget gives its figure."""
    ends = {
        steps: 100 * course[-1]["accuracy"]
        for name, steps in _BUDGETS.items()
        if (course := courses_of(rounds, name, "sgd", 0))
    }
    said = ", ".join(f"{steps} give {end:.1f} %" for steps, end in ends.items())
    around = [
        f"the paper's {PAPER['sgd']} % is between {few} and {many}"
        for (few, low), (many, high) in pairwise(ends.items())
        if low <= PAPER["sgd"] <= high
    ]
    verdict = around[0] if around else f"none gives the paper's {PAPER['sgd']} %"
    return [
        f"the paper's genie takes fewer mini-batches a round than the fleet's {_BUDGETS[MAIN]}",
        "other budgets, seed 0",
        f"{said}: {verdict}" if len(ends) == len(_BUDGETS) else OPEN,
    ]
