"""What the results say of accuracy, in sentences: how far from the paper, in which order, and what moves it."""

from itertools import pairwise
from statistics import mean, stdev, variance

from skyfed.algorithms import find_recipe
from skyfed.report.reproduction.collect import MAIN
from skyfed.report.reproduction.reading import OPEN, PAPER, courses_of, last, seeds_of
from skyfed.runs.store import Row

_SURE = 0.975  # quantile beyond which a difference is said to be more than spread, on either side
_HOW = "mean of the last ten tests, same seeds paired, Student's t at 95 %"
_FAR = "where sensing reaches 50 m"
LATE = 10  # tests in the end whose mean stands for a run: single ones vary by a point


def title(name: str) -> str:
    """Return what an algorithm is called in tables."""
    return find_recipe(name).title


def near(rounds: list[Row]) -> str:
    """Say which accuracies come out within a point of the paper's, and in which reading."""
    known = [name for name in PAPER if last(rounds, MAIN, name, "accuracy")]
    if not known:
        return OPEN
    off = beyond(rounds)
    said = f"With preset `{MAIN}`: {', '.join(title(name) for name in known if name not in off) or 'none'}."
    if off:
        said += f" Not: {', '.join(f'{title(name)} ({far:+.1f} points)' for name, far in off.items())}, see below."
    others = [other for name in off if (other := _readings(rounds, name))]
    return said + (f" Within a point in another reading: {'; '.join(others)}." if others else "")


def beyond(rounds: list[Row]) -> dict[str, float]:
    """Return by how many points an algorithm ends away from the paper's accuracy, of those more than a point away."""
    off = {name: mean(found) - PAPER[name] for name in PAPER if (found := last(rounds, MAIN, name, "accuracy"))}
    return {name: far for name, far in off.items() if abs(far) > 1}


def _readings(rounds: list[Row], name: str) -> str:
    """Return the variants in which an algorithm ends within a point of the paper's accuracy after as many rounds."""
    end = max(row["round"] for row in courses_of(rounds, MAIN, name))
    found = []
    for variant in factors(rounds):
        course = courses_of(rounds, variant, name)
        if course and course[-1]["round"] >= end and abs(100 * course[-1]["accuracy"] - PAPER[name]) <= 1:
            found.append(f"`{variant}` {100 * course[-1]['accuracy']:.1f} %")
    return f"{title(name)} with {', '.join(found)}" if found else ""


def factors(rounds: list[Row]) -> list[str]:
    """Return the variants that change one factor of the main one, other than the planner."""
    names = dict.fromkeys(row["variant"] for row in rounds)
    return [name for name in names if name != MAIN and not name.startswith("planner")]


def paired(rounds: list[Row], one: str, other: str) -> list[float]:
    """Return one's less the other's mean accuracy (points) in the last ten rounds both were tested in, by seed."""
    found = []
    for seed in seeds_of(rounds, MAIN):
        courses = [
            {row["round"]: row["accuracy"] for row in courses_of(rounds, MAIN, name, seed)} for name in (one, other)
        ]
        both = sorted(courses[0].keys() & courses[1].keys())[-LATE:]
        if both:
            found.append(100 * mean(courses[0][t] - courses[1][t] for t in both))
    return found


def judged(apart: list[float]) -> str:
    """Return a mean difference, and whether it is more than chance between seeds (Student's t, 95 %)."""
    if len(apart) < 2:
        return f"{mean(apart):+.1f} points (one seed)"
    from scipy.stats import t as student

    error = stdev(apart) / len(apart) ** 0.5
    sure = abs(mean(apart)) > student.ppf(_SURE, len(apart) - 1) * error
    return f"{mean(apart):+.1f} ± {stdev(apart):.1f} points, {'more than' if sure else 'within'} the spread"


def _printed(one: str, other: str) -> str:
    return f"(paper {PAPER[one] - PAPER[other]:+.1f})"


def order(rounds: list[Row]) -> str:
    """Say by how much every algorithm is ahead of the next one of the paper's order."""
    parts = [
        f"{title(one)} over {title(other)} {judged(apart)} {_printed(one, other)}"
        for one, other in pairwise(PAPER)
        if (apart := paired(rounds, one, other))
    ]
    return "; ".join(parts) + f" ({_HOW})." if parts else OPEN


def costs(rounds: list[Row]) -> str:
    """Say what pruning, quantising and both cost against AFL."""
    parts = [
        f"{what} {judged(apart)} {_printed(name, 'afl')}"
        for what, name in (("pruning", "afl-prune"), ("quantising", "afl-quant"), ("both", "2ceoafl"))
        if (apart := paired(rounds, name, "afl"))
    ]
    return f"Against AFL: {'; '.join(parts)} ({_HOW})." if parts else OPEN


def planning(rounds: list[Row]) -> str:
    """Say what planning, and placing for sensing, bring to AFL, measured on all pictures."""
    asked = [
        ("exact plans over hovering", "planner exact", "planner hover"),
        ("exact plans over random flights", "planner exact", "planner random"),
        ("exact plans over Algorithm 1", "planner exact", MAIN),
        ("exact plans placed for sensing over positions as they come", "planner exact, placed", "planner exact"),
        ("both placed, exact plans over hovering", "planner exact, placed", "planner hover, placed"),
        ("both placed, exact plans over random flights", "planner exact, placed", "planner random, placed"),
        ("both placed, exact plans over greedy ones", "planner exact, placed", "planner greedy, placed"),
        ("both placed, exact plans over Algorithm 1", "planner exact, placed", "planner sca, placed"),
        (f"{_FAR}, exact plans over hovering", "planner exact, 50 m", "planner hover, 50 m"),
        (f"{_FAR}, exact plans over Algorithm 1 as it is", "planner exact, 50 m", "decay 50 m"),
        (f"{_FAR}, exact plans over Algorithm 1 placed too", "planner exact, 50 m", "planner sca, placed, 50 m"),
    ]
    known = [
        (what, ends[0] - ends[1])
        for what, *pair in asked
        if len(ends := [_ended(rounds, variant, "afl") for variant in pair if courses_of(rounds, variant, "afl")]) == 2
    ]
    if not known:
        return OPEN
    chance = _between_seeds(rounds)
    if not chance:
        return f"AFL on all 10,000 pictures, one seed: {_listed(known)}."
    sure = [one for one in known if abs(one[1]) > 2 * chance]
    unsure = [one for one in known if one not in sure]
    return (
        "AFL on all 10,000 pictures, one seed, where two runs that differ in their seed alone are "
        f"{chance:.1f} points apart. More than twice that: {_listed(sure)}. Not: {_listed(unsure)}."
    )


def _listed(known: list[tuple[str, float]]) -> str:
    return "; ".join(f"{what} {far:+.1f} points" for what, far in known) or "none"


def _between_seeds(rounds: list[Row]) -> float:
    """Return how far (points, root mean square) two seeds of one algorithm end apart, over all algorithms."""
    ends = [last(rounds, MAIN, name, "accuracy_full") for name in PAPER]
    spreads = [variance(some) for some in ends if len(some) > 1]
    return float((2 * mean(spreads)) ** 0.5) if spreads else 0.0


def _ended(rounds: list[Row], variant: str, algorithm: str) -> float:
    """Return the accuracy (%) on all pictures of the first seed in the end."""
    return 100 * float(courses_of(rounds, variant, algorithm, 0)[-1]["accuracy_full"])


def steadiness(rounds: list[Row], name: str, key: str) -> list[float]:
    """Return the mean change (points) from one test to the next in the second half, of every seed with enough tests."""
    found = []
    for seed in seeds_of(rounds, MAIN):
        course = [100 * row[key] for row in courses_of(rounds, MAIN, name, seed)]
        late = course[len(course) // 2 :]
        if len(late) > 2:
            found.append(mean(abs(after - before) for before, after in pairwise(late)))
    return found


def fluctuations(rounds: list[Row]) -> str:
    """Say how much accuracy moves between tests, on data that shift and on data that do not."""
    moved = {
        name: (mean(moving), mean(steadiness(rounds, name, "accuracy_full")))
        for name in PAPER
        if (moving := steadiness(rounds, name, "accuracy"))
    }
    if not moved:
        return OPEN
    most = max(moving for moving, _ in moved.values())
    parts = ", ".join(f"{title(name)} {moving:.1f} and {still:.1f}" for name, (moving, still) in moved.items())
    return (
        f"At most {most:.1f} points from one round to the next (mean of the second half) on the test set so far, which "
        f"shifts; on all 10,000 pictures, which do not, accuracy moves too: {parts}."
    )


def stem(rounds: list[Row]) -> str:
    """Say what AFL does on the stem without dead weights."""
    course = courses_of(rounds, "cifar stem", "afl")
    if not course:
        return ""
    end = course[-1]["round"]
    base = last([row for row in rounds if row["seed"] == 0], MAIN, "afl", "accuracy", end)
    beside = f", `{MAIN}` {base[0]:.1f} % then" if base else ""
    return f" On the cifar stem AFL stands at {100 * course[-1]['accuracy']:.1f} % after {end + 1} rounds{beside}."
