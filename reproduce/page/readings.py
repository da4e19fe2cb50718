"""What the paper's text may mean, reading by reading: which accuracies come out, and which are within a point of it."""

from statistics import mean

from reproduce.collect import MAIN
from reproduce.results import FLEET, PAPER, grid, interval, last, late, lates, learning_curve, seeds_of, title
from skyfed.runs.tables import Row

NEAR = 1.0  # points within which an accuracy counts as the paper's
_QUANTISE, _PRUNE = ("afl-quant", "2ceoafl"), ("afl-prune", "2ceoafl")
# readings of the fleet's settings, and the algorithms that each can change; the others come out as in the main variant
READINGS: dict[str, tuple[str, ...]] = {
    MAIN: tuple(PAPER),
    "nothing sensed": tuple(PAPER),
    "decay 50 m": tuple(PAPER),
    "planner sca, placed": tuple(PAPER),
    "planner sca, true discs": tuple(PAPER),
    "25 mini-batches, all rounds": tuple(PAPER),
    "cifar stem": tuple(PAPER),
    "norm buckets of 512": _QUANTISE,
    "norm global": _QUANTISE,
    "prune kernels": _PRUNE,
}
# SGD's mini-batches per round, which touch nobody else, where the data are those of the main variant
BUDGETS = {"genie kappa": 5, "genie 10 steps": 10, "genie 25 steps": 25, MAIN: 50}


def fleet_table(rounds: list[Row]) -> str:
    """Return the late means on all pictures of every reading, for the algorithms with vehicles."""
    rows = [["the paper", *(f"{PAPER[name]}" for name in FLEET), ""]]
    for variant, touched in READINGS.items():
        ends = {name: whole_lates(rounds, variant, name) for name in FLEET if name in touched}
        if any(ends.values()):
            cells = [_cell(ends[name], PAPER[name]) if name in touched else "same" for name in FLEET]
            rows.append([f"`{variant}`", *cells, str(len(seeds_of(rounds, variant)))])
    return grid("|".join(["reading", *map(title, FLEET), "seeds"]), rows)


def _cell(ends: list[float], printed: float) -> str:
    if not ends:
        return "–"
    return f"**{mean(ends):.1f}**" if abs(mean(ends) - printed) <= NEAR else f"{mean(ends):.1f}"


def whole_lates(rounds: list[Row], variant: str, name: str) -> list[float]:
    """Return the late means (%) on all pictures of every seed, if trained as long as the main variant."""
    own, whole = (max((row["round"] for row in learning_curve(rounds, of, name)), default=0) for of in (variant, MAIN))
    return lates(rounds, variant, name, "accuracy_full") if own >= whole else []


def budget_table(rounds: list[Row]) -> str:
    """Return what SGD comes to with every budget, and its lead over AFL of the same seeds."""
    rows = []
    for variant, steps in BUDGETS.items():
        ends = whole_lates(rounds, variant, "sgd")
        if ends:
            lead, so_far = sgd_lead(rounds, variant), last(rounds, variant, "sgd", "accuracy")
            ahead = "–" if lead is None else f"{lead:+.1f}"
            rows.append([f"{steps}", interval(ends), ahead, interval(so_far), str(len(ends))])
    printed = f"{PAPER['sgd']}"
    paper = ["the paper", printed, f"{PAPER['sgd'] - PAPER['afl']:+.1f}", printed, ""]
    heads = "mini-batches per round|late mean, all pictures|ahead of AFL (points)|last test, test set so far|seeds"
    return grid(heads, [paper, *rows])


def sgd_lead(rounds: list[Row], variant: str) -> float | None:
    """Return by how many points SGD is ahead of AFL of the same seeds on all pictures."""
    own = whole_lates(rounds, variant, "sgd")
    base = [late(rounds, MAIN, "afl", "accuracy_full", seed) for seed in seeds_of(rounds, variant)]
    known = [end for end in base if end is not None]
    return mean(own) - mean(known) if own and len(known) == len(own) else None
