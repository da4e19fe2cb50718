"""What remains between the paper's accuracies and ours: a hypothesis for each, and what its test has shown."""

from itertools import pairwise
from statistics import mean, stdev

from skyfed.report.reproduction.accuracy import beyond
from skyfed.report.reproduction.collect import MAIN
from skyfed.report.reproduction.reading import OPEN, PAPER, end_of, grid, seeds_of, title
from skyfed.report.reproduction.shift import STILL
from skyfed.runs.store import Row

FLEET = [name for name in PAPER if name != "sgd"]
_BUDGETS = {"genie kappa": 5, "genie 10 steps": 10, "genie 25 steps": 25, MAIN: 50}  # the genie's mini-batches a round


def differences(rounds: list[Row]) -> str:
    """Return every difference of more than a point with its hypotheses, their tests and outcomes."""
    off = beyond(rounds)
    rows = []
    if fleet := [name for name in off if name != "sgd"]:
        who = [", ".join(map(title, fleet)), ", ".join(f"{off[name]:+.1f}" for name in fleet)]
        rows += [[*who, *_chance(rounds, FLEET, [])], [*who, *_few(rounds)]]
    if "sgd" in off:
        who = [title("sgd"), f"{off['sgd']:+.1f}"]
        rows += [[*who, *_chance(rounds, ["sgd"], ["afl"])], [*who, *_budget(rounds)]]
    return grid("algorithm|points|hypothesis|test|outcome", rows) if rows else "None of more than a point."


def _chance(rounds: list[Row], names: list[str], less: list[str]) -> list[str]:
    """Is the paper's run just another seed? Algorithms share its test set, so that they are taken together."""
    by_seed = [
        mean(ends) - (mean(base) if base else 0.0)
        for seed in seeds_of(rounds, MAIN)
        if len(ends := _ends(rounds, names, seed)) == len(names) and len(base := _ends(rounds, less, seed)) == len(less)
    ]
    printed = mean(PAPER[name] for name in names) - (mean(PAPER[name] for name in less) if less else 0.0)
    what = " and ".join(map(title, names)) if len(names) < 3 else "the four without SGD on average"
    what += f" less {title(less[0])}" if less else ""
    unit = "points" if less else "%"
    test = [
        "the paper's run is one more seed: its own start, data and test set",
        f"where one more seed would be: {what}",
    ]
    if len(by_seed) < 2:
        return [*test, OPEN]
    from scipy.stats import t as student

    half = student.ppf(0.975, len(by_seed) - 1) * stdev(by_seed) * (1 + 1 / len(by_seed)) ** 0.5
    low, high = mean(by_seed) - half, mean(by_seed) + half
    verdict = "it may be one" if low <= printed <= high else "it is not"
    return [
        *test,
        f"{low:.1f} to {high:.1f} {unit} (95 % from {len(by_seed)} seeds), the paper {printed:.1f}: {verdict}",
    ]


def _ends(rounds: list[Row], names: list[str], seed: int) -> list[float]:
    """Return what algorithms end at (%) on the test set so far of one seed."""
    found = [end_of(rounds, MAIN, name, seed=seed) for name in names]
    return [100 * end["accuracy"] for end in found if end is not None]


def _few(rounds: list[Row]) -> list[str]:
    """Do the paper's vehicles sense even less? Then nothing sensed at all gives its figures, or less."""
    ends = {name: 100 * end["accuracy"] for name in FLEET if (end := end_of(rounds, STILL, name)) is not None}
    said = ", ".join(f"{title(name)} {end:.1f} % (paper {PAPER[name]})" for name, end in ends.items())
    return ["the paper's vehicles sense even less", f"`{STILL}`, seed 0", said or OPEN]


def _budget(rounds: list[Row]) -> list[str]:
    """Does the paper's genie take fewer steps than the fleet together? Then a smaller budget gives its figure."""
    hypothesis = f"the paper's genie takes fewer mini-batches a round than the fleet's {_BUDGETS[MAIN]}"
    ends = {
        steps: 100 * end["accuracy"]
        for name, steps in _BUDGETS.items()
        if (end := end_of(rounds, name, "sgd")) is not None
    }
    if len(ends) < len(_BUDGETS):
        return [hypothesis, "other budgets, seed 0", OPEN]
    said = ", ".join(f"{steps} give {end:.1f} %" for steps, end in ends.items())
    around = [
        f"the paper's {PAPER['sgd']} % is between {few} and {many}"
        for (few, low), (many, high) in pairwise(ends.items())
        if min(low, high) <= PAPER["sgd"] <= max(low, high)
    ]
    verdict = around[0] if around else f"none gives the paper's {PAPER['sgd']} %"
    return [hypothesis, "other budgets, seed 0", f"{said}: {verdict}"]
