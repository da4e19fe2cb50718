"""What the results say of the paper's accuracies, in sentences: how far from them, in which order, at what cost."""

from collections.abc import Callable
from itertools import pairwise
from statistics import mean

from skyfed.report.reproduction.chance import Comparison, comparisons, interval, scatter
from skyfed.report.reproduction.collect import MAIN
from skyfed.report.reproduction.reading import OPEN, PAPER, courses_of, end_of, last, title
from skyfed.runs.store import Row

NEAR = 1.0  # points within which an accuracy counts as the paper's
_MEASURE = "all 10,000 pictures, 95 % intervals over seeds"


def near(rounds: list[Row]) -> str:
    """Say which reading gives the paper's accuracies within a point: all five, or one."""
    if not last(rounds, MAIN, "afl", "accuracy"):
        return OPEN
    variants = list(dict.fromkeys([MAIN, *(row["variant"] for row in rounds)]))
    whole = {name: hits for name in variants if len(hits := _hits(rounds, name)) == len(PAPER)}
    all_five = [f"`{name}`" for name, hits in whole.items() if all(hits.values())]
    parts = [
        f"`{name}` gives {', '.join(title(one) for one, hit in hits.items() if hit) or 'none'}"
        for name, hits in whole.items()
    ]
    said = f"All five: {', '.join(all_five) or 'none'}. Where all five were trained to the end, {'; '.join(parts)}."
    off = [name for name, hit in _hits(rounds, MAIN).items() if not hit]
    others = [found for name in off if (found := _readings(rounds, variants, name))]
    if others:
        said += (
            f" One at a time, by one seed each (seeds differ by {scatter(rounds, 'accuracy'):.1f} points, standard "
            f"deviation): {'; '.join(others)}."
        )
    return said


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


def _readings(rounds: list[Row], variants: list[str], name: str) -> str:
    """Return the variants in which an algorithm ends within a point of the paper's accuracy."""
    found = [
        f"`{variant}` {mean(last(rounds, variant, name, 'accuracy')):.1f} %"
        for variant in variants
        if variant != MAIN and _hits(rounds, variant).get(name)
    ]
    return f"{title(name)} with {', '.join(found)}" if found else ""


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
    right = sum(kinds[0][1](one) for one in steps)
    answer = "Yes" if right == len(neighbours) else "In part" if right else "Not shown"
    return f"{answer}. {'. '.join(parts)} ({_MEASURE})."


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
    return f"Points below AFL: {', '.join(parts)}; {_MEASURE}." if parts else OPEN


def stem(rounds: list[Row]) -> str:
    """Say what AFL does on the stem without dead weights."""
    end = end_of(rounds, "cifar stem", "afl")
    if end is None:
        return ""
    base = end_of(rounds, MAIN, "afl", end["round"])
    beside = f", `{MAIN}` at {100 * base['accuracy_full']:.1f} % then" if base else ""
    return (
        f" On the cifar stem AFL stands at {100 * end['accuracy_full']:.1f} % after {end['round'] + 1} rounds{beside} "
        "(all 10,000 pictures, seed 0)."
    )
