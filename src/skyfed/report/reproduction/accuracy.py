"""What the results say of the paper's accuracies, in sentences: how far from them, in which order, at what cost."""

from collections.abc import Callable
from itertools import pairwise
from statistics import mean

from skyfed.report.reproduction.chance import Comparison, clear, comparisons, interval, verdict
from skyfed.report.reproduction.collect import MAIN
from skyfed.report.reproduction.reading import OPEN, PAPER, courses_of, last, late, seeds_of, title
from skyfed.runs.store import Row

NEAR = 1.0  # points within which an accuracy counts as the paper's
_MEASURE = "all 10,000 pictures, 95 % intervals over seeds"
# what the paper's text may mean, other than the main variant
READINGS = (
    "nothing sensed", "decay 50 m", "25 mini-batches, all rounds", "cifar stem", "genie kappa", "genie 10 steps",
    "genie 25 steps", "norm global", "norm buckets of 512", "prune kernels", "planner sca, placed",
    "planner sca, true discs",
)  # fmt: skip
BUDGETS = {"genie kappa": 5, "genie 10 steps": 10, "genie 25 steps": 25, MAIN: 50}  # the genie's mini-batches a round
_ELSEWHERE = (
    ("decay 50 m", "Where far more is sensed"),
    ("25 mini-batches, all rounds", "With 25 mini-batches a round"),
)


def near(rounds: list[Row]) -> str:
    """Say which reading gives the paper's accuracies within a point: all five, some of them, or one."""
    if not last(rounds, MAIN, "afl", "accuracy"):
        return OPEN
    whole = {name: hits for name in (MAIN, *READINGS) if len(hits := _hits(rounds, name)) == len(PAPER)}
    all_five = [f"`{name}`" for name, hits in whole.items() if all(hits.values())]
    said = [f"All five: {', '.join(all_five) or 'none'}."]
    parts = [f"`{name}` gives {_named(hits)}" for name, hits in whole.items()]
    if parts:
        said.append(f"Where all five were trained to the end, {'; '.join(parts)}{_best_seed(rounds)}.")
    off = [name for name, hit in _hits(rounds, MAIN).items() if not hit]
    readings = {name: found for name in off if (found := _readings(rounds, name))}
    if readings:
        said.append(
            "One at a time, other readings by one seed each: "
            + "; ".join(f"{title(name)} with {found}" for name, found in readings.items())
            + "."
        )
    without = [title(name) for name in off if name not in readings]
    if without:
        said.append(f"No other reading that was tried gives {', '.join(without)}.")
    return " ".join([*said, *_on_all(rounds)])


def _on_all(rounds: list[Row]) -> list[str]:
    """Say the same of all 10,000 pictures, of readings in which all five were trained to the end."""
    parts = []
    for variant in (MAIN, *READINGS):
        if len(_hits(rounds, variant)) == len(PAPER):
            ends = late_means(rounds, variant)
            figures = ", ".join(f"{end:.1f}" for end in ends.values())
            parts.append(f"`{variant}` gives {near_ones(ends)} ({figures} %)")
    measure = "On all 10,000 pictures, which chance blurs less than a small test set (mean of the last quarter's tests)"
    return [f"{measure}, {'; '.join(parts)}."] if parts else []


def late_means(rounds: list[Row], variant: str) -> dict[str, float]:
    """Return the late means (%) on all pictures over seeds, by algorithm."""
    found = {
        name: [late(rounds, variant, name, "accuracy_full", seed) for seed in seeds_of(rounds, variant)]
        for name in PAPER
    }
    known = {name: [end for end in ends if end is not None] for name, ends in found.items()}
    return {name: mean(ends) for name, ends in known.items() if ends}


def near_ones(ends: dict[str, float]) -> str:
    """Return the algorithms that are within a point of the paper's accuracy."""
    return _named({name: abs(end - PAPER[name]) <= NEAR for name, end in ends.items()})


def _named(hits: dict[str, bool]) -> str:
    return ", ".join(title(one) for one, hit in hits.items() if hit) or "none"


def _best_seed(rounds: list[Row]) -> str:
    """Return what the seed of the main variant that is closest to the paper gives, if that is more than their mean."""
    seeds = seeds_of(rounds, MAIN)
    if len(seeds) < 2:
        return ""
    by_seed = {seed: _hits([row for row in rounds if row["seed"] == seed], MAIN) for seed in seeds}
    best = max(by_seed, key=lambda seed: sum(by_seed[seed].values()))
    if sum(by_seed[best].values()) <= sum(_hits(rounds, MAIN).values()):
        return " (mean over seeds)"
    return f" (mean over seeds of `{MAIN}`; its seed {best} alone gives {_named(by_seed[best])})"


def beyond(rounds: list[Row]) -> dict[str, float]:
    """Return by how many points an algorithm ends away from the paper's accuracy, of those more than a point away."""
    off = {name: mean(found) - PAPER[name] for name in PAPER if (found := last(rounds, MAIN, name, "accuracy"))}
    return {name: far for name, far in off.items() if abs(far) > NEAR}


def _hits(rounds: list[Row], variant: str) -> dict[str, bool]:
    """Tell of every algorithm trained as long as the main variant whether its mean is within a point of the paper's."""
    found = {}
    for name in PAPER:
        ends = last(rounds, variant, name, "accuracy")
        course = courses_of(rounds, variant, name)
        if ends and course[-1]["round"] >= _horizon(rounds, name):
            found[name] = abs(mean(ends) - PAPER[name]) <= NEAR
    return found


def _horizon(rounds: list[Row], name: str) -> int:
    """Return the last round of the main variant."""
    return max((row["round"] for row in courses_of(rounds, MAIN, name)), default=0)


def _readings(rounds: list[Row], name: str) -> str:
    """Return the readings in which an algorithm ends within a point of the paper's accuracy."""
    found = [
        f"`{variant}` {mean(last(rounds, variant, name, 'accuracy')):.1f} %"
        for variant in READINGS
        if _hits(rounds, variant).get(name)
    ]
    return ", ".join(found)


def order(rounds: list[Row]) -> str:
    """Say which steps of the paper's order hold beyond chance between seeds."""
    neighbours = list(pairwise(PAPER))
    steps = [one for one in comparisons(rounds) if (one.one, one.other) in neighbours]
    if not steps:
        return OPEN
    kinds: list[tuple[str, Callable[[Comparison], bool]]] = [
        ("Beyond chance", lambda one: one.holds and mean(one.full) > 0),
        ("The other way round, beyond chance", lambda one: one.holds and mean(one.full) < 0),
        ("May be chance", lambda one: not one.holds),
    ]
    parts = [
        f"{what}: {'; '.join(some)}" for what, kind in kinds if (some := [_step(one) for one in steps if kind(one)])
    ]
    right, wrong = (sum(kinds[k][1](one) for one in steps) for k in (0, 1))
    answer = "Yes" if right == len(neighbours) else "No" if wrong else "In part" if right else "Not shown"
    signs = sum(mean(one.full) > 0 for one in steps)
    said = f"{answer}: {signs} of {len(steps)} steps have the paper's sign. {'. '.join(parts)} ({_MEASURE})."
    return f"{said}{_budgets(rounds)}"


def _budgets(rounds: list[Row]) -> str:
    """Say how the genie's lead depends on its budget, which the paper does not print."""
    base = late(rounds, MAIN, "afl", "accuracy_full")
    ends = {
        steps: end for name, steps in BUDGETS.items() if (end := late(rounds, name, "sgd", "accuracy_full")) is not None
    }
    if base is None or len(ends) < 2:
        return ""
    parts = ", ".join(f"{end - base:+.1f} with {steps}" for steps, end in ends.items())
    return (
        f" SGD's lead hangs on its mini-batches a round, which are not printed: {parts} (seed 0, mean of the last "
        "quarter's tests)."
    )


def _step(one: Comparison) -> str:
    return f"{title(one.one)} over {title(one.other)} {interval(one.full)} points (paper {one.printed:+.1f})"


def costs(rounds: list[Row]) -> str:
    """Say what pruning, quantising and both cost against AFL."""
    known = {one.other: one for one in comparisons(rounds) if one.one == "afl"}
    parts = [
        f"{what} {interval(one.full, '')} (paper {one.printed:.1f}; {one.verdict})"
        for what, name in (("pruning", "afl-prune"), ("quantising", "afl-quant"), ("both", "2ceoafl"))
        if (one := known.get(name))
    ]
    if not parts:
        return OPEN
    more = "".join(_costs_in(rounds, *where) for where in _ELSEWHERE)
    return f"Points below AFL: {', '.join(parts)}; {_MEASURE}.{more}"


def _costs_in(rounds: list[Row], variant: str, what: str) -> str:
    """Return what approximations cost in a variant, on the late mean."""
    base = late(rounds, variant, "afl", "accuracy_full")
    ends = {name: late(rounds, variant, name, "accuracy_full") for name in ("afl-prune", "afl-quant", "2ceoafl")}
    parts = [
        f"{part} {base - end:.1f}"
        for part, end in zip(("pruning", "quantising", "both"), ends.values(), strict=True)
        if base is not None and end is not None
    ]
    if not parts:
        return ""
    return f" {what} (`{variant}`, one seed, mean of the last quarter's tests): {', '.join(parts)}."


def stem(rounds: list[Row]) -> str:
    """Say what AFL does on the stem without dead weights."""
    end, base = (late(rounds, variant, "afl", "accuracy_full") for variant in ("cifar stem", MAIN))
    if end is None or base is None:
        return ""
    return (
        f" On the cifar stem AFL stands at {end:.1f} %, in `{MAIN}` at {base:.1f} % ({end - base:+.1f} points, "
        f"{verdict(end - base, clear(rounds))}; all 10,000 pictures, seed 0, mean of the last quarter's tests)."
    )
