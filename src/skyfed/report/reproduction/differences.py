"""What remains between the paper's accuracies and ours: a hypothesis for each, and what its test has shown."""

from itertools import pairwise
from statistics import mean, stdev

from skyfed.report.reproduction.accuracy import BUDGETS, NEAR, beyond
from skyfed.report.reproduction.chance import LATE
from skyfed.report.reproduction.collect import MAIN
from skyfed.report.reproduction.reading import FLEET, OPEN, PAPER, courses_of, end_of, grid, late, seeds_of, title
from skyfed.report.reproduction.shift import STILL
from skyfed.runs.store import Row

_WIDE = 3.0  # points of a 95 % interval's half beyond which it excludes little


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
        rows += [[*who, *_size(rounds, [off["sgd"]])]]
        rows += [[*who, *_seed(rounds, ["sgd"], ["afl"])], [*who, *_budget(rounds)]]
    return grid("algorithm|points|hypothesis|test|outcome", rows) if rows else "None of more than a point."


def _size(rounds: list[Row], off: list[float]) -> list[str]:
    """Is it the chance of one small test set? An accuracy on n pictures has a standard error."""
    ends = [end for name in PAPER if (end := end_of(rounds, MAIN, name)) is not None]
    count, share = mean(end["test_size"] for end in ends), mean(end["accuracy"] for end in ends)
    half = 196 * (share * (1 - share) / count) ** 0.5
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
    test = [
        "the paper's run is one more seed: its own start, data and test set",
        f"where one more seed would be: {what}, last {LATE} tests",
    ]
    if len(by_seed) < 2:
        return [*test, OPEN]
    from scipy.stats import t as student

    half = student.ppf(0.975, len(by_seed) - 1) * stdev(by_seed) * (1 + 1 / len(by_seed)) ** 0.5
    low, high = mean(by_seed) - half, mean(by_seed) + half
    verdict = "outside, so unlikely"
    if low <= printed <= high:
        verdict = "inside, which says little" if half > _WIDE else "inside, so it may be"
    return [
        *test,
        f"{low:.1f} to {high:.1f} {unit} (95 % from {len(by_seed)} seeds), the paper {printed:.1f}: {verdict}",
    ]


def _ends(rounds: list[Row], names: list[str], seed: int) -> list[float]:
    """Return the means (%) of algorithms' last tests on the test set so far of one seed."""
    courses = [courses_of(rounds, MAIN, name, seed)[-LATE:] for name in names]
    return [100 * mean(row["accuracy"] for row in course) for course in courses if course]


def _few(rounds: list[Row]) -> list[str]:
    """Do the paper's vehicles sense even less? Then nothing sensed at all gives its figures, or less."""
    ends = {name: end for name in FLEET if (end := late(rounds, STILL, name, "accuracy_full")) is not None}
    test = [
        "the paper's vehicles sense even less",
        f"`{STILL}`, seed 0, all 10,000 pictures, mean of the last quarter's tests",
    ]
    if not ends:
        return [*test, OPEN]
    above = mean(end - PAPER[name] for name, end in ends.items())
    if abs(above) <= NEAR:
        verdict = "that would explain it (one seed)"
    elif above > 0:
        verdict = "not enough: even then above"
    else:
        verdict = "too much: sensing less than here, but not nothing, would explain it (one seed)"
    said = ", ".join(f"{title(name)} {end:.1f} % (paper {PAPER[name]})" for name, end in ends.items())
    return [*test, f"{said}: {verdict}"]


def _budget(rounds: list[Row]) -> list[str]:
    """Does the paper's genie take fewer steps than the fleet together? Then a smaller budget gives its figure."""
    hypothesis = f"the paper's genie takes fewer mini-batches a round than the fleet's {BUDGETS[MAIN]}"
    ends = {
        steps: 100 * end["accuracy"]
        for name, steps in BUDGETS.items()
        if (end := end_of(rounds, name, "sgd")) is not None
    }
    if len(ends) < len(BUDGETS):
        return [hypothesis, "other budgets, seed 0", OPEN]
    said = ", ".join(f"{steps} give {end:.1f} %" for steps, end in ends.items())
    around = [
        f"the paper's {PAPER['sgd']} % is between {few} and {many}, which would explain it"
        for (few, low), (many, high) in pairwise(ends.items())
        if min(low, high) <= PAPER["sgd"] <= max(low, high)
    ]
    verdict = around[0] if around else f"none gives the paper's {PAPER['sgd']} %"
    return [hypothesis, "other budgets, seed 0", f"{said}: {verdict}"]
