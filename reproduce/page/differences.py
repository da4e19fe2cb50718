"""What remains between the paper's accuracies and ours: a hypothesis for each, and what its test has shown."""

from itertools import pairwise
from statistics import mean, stdev

from reproduce.collect import MAIN
from reproduce.page.accuracy import beyond
from reproduce.page.chance import sampling
from reproduce.page.readings import BUDGETS, FULL, NEAR, genies
from reproduce.page.shift import STILL
from reproduce.results import FLEET, OPEN, PAPER, grid, late, seeds_of, title
from skyfed.report.seed_model import student_bound
from skyfed.runs.tables import Row

_WIDE = 3.0  # points of a 95 % interval's half beyond which it excludes little
_SEED = "the paper's run is one more seed: its own start, data and test set"


def differences(rounds: list[Row]) -> str:
    """Return every difference of more than a point with its hypotheses, their tests and outcomes."""
    off = beyond(rounds)
    rows = []
    if fleet := [name for name in off if name != "sgd"]:
        who = [", ".join(map(title, fleet)), ", ".join(f"{off[name]:+.1f}" for name in fleet)]
        rows += [[*who, *_size(rounds, [off[name] for name in fleet])]]
        rows += [[*who, *_seed(rounds, FLEET, [])], [*who, *_few(rounds)]]
    if "sgd" in off:
        who = [title("sgd"), f"{off['sgd']:+.1f}"]
        rows += [[*who, *_size(rounds, [off["sgd"]])], [*who, *_seed(rounds, ["sgd"], [])]]
        rows += [[*who, *_seed(rounds, ["sgd"], ["afl"])], [*who, *_budget(rounds)]]
    return grid("algorithm|points|hypothesis|test|outcome", rows) if rows else "None of more than a point."


def _size(rounds: list[Row], off: list[float]) -> list[str]:
    """Is it the chance of one small test set? An accuracy on n pictures has a standard error."""
    count, half = sampling(rounds)
    verdict = "enough for it" if max(map(abs, off)) <= half else "not enough for it"
    return [
        "the paper's one test set happens to be hard",
        f"the chance of an accuracy on {count:,.0f} pictures, as many as ours has in the end",
        f"± {half:.1f} points (95 %): {verdict}",
    ]


def _seed(rounds: list[Row], names: list[str], less: list[str]) -> list[str]:
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
    test = [_SEED, f"where one more seed would be: {what}, late mean on the test set so far"]
    if len(by_seed) < 2:
        return [*test, OPEN]
    half = student_bound(len(by_seed) - 1) * stdev(by_seed) * (1 + 1 / len(by_seed)) ** 0.5
    low, high = mean(by_seed) - half, mean(by_seed) + half
    verdict = "outside, so unlikely"
    if low <= printed <= high:
        verdict = "inside, which says little" if half > _WIDE else "inside, so it may be"
    return [
        *test,
        f"{low:.1f} to {high:.1f} {unit} (95 % from {len(by_seed)} seeds), the paper {printed:.1f}: {verdict}",
    ]


def _ends(rounds: list[Row], names: list[str], seed: int) -> list[float]:
    """Return the late means (%) on the test set so far of one seed."""
    found = [late(rounds, MAIN, name, "accuracy", seed) for name in names]
    return [end for end in found if end is not None]


def _few(rounds: list[Row]) -> list[str]:
    """Do the paper's vehicles sense even less? Then nothing sensed at all gives its figures, or less."""
    test = ["the paper's vehicles sense even less", f"`{STILL}`, seed 0, late means less the paper's, on average"]
    above = [
        mean(some)
        for key in ("accuracy_full", "accuracy")
        if (some := [end - PAPER[name] for name in FLEET if (end := late(rounds, STILL, name, key)) is not None])
    ]
    if not above:
        return [*test, OPEN]
    near = [abs(one) <= NEAR for one in above]
    if all(near):
        verdict = "that would explain it (one seed)"
    elif any(near):
        verdict = "that may explain it; the measures disagree (one seed)"
    elif min(above) > 0:
        verdict = "not enough: even then above"
    else:
        verdict = "too much: sensing less than here, but not nothing, would explain it (one seed)"
    return [*test, f"{above[0]:+.1f} points on all 10,000 pictures, {above[1]:+.1f} on the test set so far: {verdict}"]


def _budget(rounds: list[Row]) -> list[str]:
    """Does the paper's genie take fewer steps than the fleet together? Then a smaller budget gives its figure."""
    hypothesis = f"the paper's genie takes fewer mini-batches a round than the fleet's {BUDGETS[MAIN]}"
    test = f"other budgets, {FULL.what}"
    ends, printed = genies(rounds, FULL), PAPER["sgd"]
    if len(ends) < len(BUDGETS):
        return [hypothesis, test, OPEN]
    said = ", ".join(f"{steps} give {end:.1f} %" for steps, end in ends.items())
    near = [f"{steps}" for steps, end in ends.items() if abs(end - printed) <= NEAR]
    around = [
        f"the paper's {printed} % is between {few} and {many}, which would explain it"
        for (few, low), (many, high) in pairwise(ends.items())
        if min(low, high) <= printed <= max(low, high)
    ]
    if near:
        verdict = f"with {' or '.join(near)} within a point of the paper's {printed} %, which would explain it"
    else:
        verdict = around[0] if around else f"none gives the paper's {printed} %"
    return [hypothesis, test, f"{said}: {verdict}"]
