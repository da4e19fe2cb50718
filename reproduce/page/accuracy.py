"""What the results say of the paper's accuracies, in sentences: in which order, at what cost."""

from collections.abc import Callable
from itertools import pairwise
from statistics import mean

from reproduce.collect import MAIN
from reproduce.page.chance import Lead, leads, leads_of, whole_order
from reproduce.page.readings import NEAR, genie_leads
from reproduce.results import OPEN, PAPER, last, late, title
from skyfed.runs.tables import Row

_MEASURE = "late means on all 10,000 pictures; additive model of algorithms and seeds, simultaneous 95 % intervals"
_ELSEWHERE = (
    ("decay 50 m", "Where far more is sensed"),
    ("25 mini-batches, all rounds", "With 25 mini-batches a round"),
)


def beyond(rounds: list[Row]) -> dict[str, float]:
    """Return by how many points an algorithm ends away from the paper's accuracy, of those more than a point away."""
    off = {name: mean(found) - PAPER[name] for name in PAPER if (found := last(rounds, MAIN, name, "accuracy"))}
    return {name: far for name, far in off.items() if abs(far) > NEAR}


def order(rounds: list[Row]) -> str:
    """Say which steps of the paper's order the model shows."""
    neighbours = list(pairwise(PAPER))
    steps = [one for one in leads(rounds) if (one.one, one.other) in neighbours]
    if not steps:
        return OPEN
    kinds: list[tuple[str, Callable[[Lead], bool]]] = [
        ("Shown", lambda one: one.holds and mean(one.full) > 0),
        ("Shown the other way round", lambda one: one.holds and mean(one.full) < 0),
        ("No difference shown", lambda one: not one.holds),
    ]
    parts = [
        f"{what}: {'; '.join(some)}" for what, kind in kinds if (some := [_step(one) for one in steps if kind(one)])
    ]
    right, wrong = (sum(kinds[k][1](one) for one in steps) for k in (0, 1))
    answer = "Yes" if right == len(neighbours) else "No" if wrong else "In part" if right else "Not shown"
    signs = sum(mean(one.full) > 0 for one in steps)
    held, seeds = whole_order(rounds)
    whole = f", and the order as a whole holds in {held} of {seeds} seeds" if seeds else ""
    means = f"On average {signs} of {len(steps)} steps have the paper's sign{whole}."
    hangs = ", ".join(f"{lead:+.1f} with {steps}" for steps, lead in genie_leads(rounds).items())
    budgets = f" SGD's lead hangs on its mini-batches a round, which are not printed: {hangs}." if ", " in hangs else ""
    return f"{answer}. {'. '.join(parts)}. {means}{budgets} ({_MEASURE[0].upper()}{_MEASURE[1:]}.)"


def _step(one: Lead) -> str:
    return f"{title(one.one)} over {title(one.other)} {one.points} points (paper {one.printed:+.1f}; {one.p})"


def costs(rounds: list[Row]) -> str:
    """Say what pruning, quantising and both cost against AFL."""
    known = leads_of(rounds, "afl")
    parts = [
        f"{what} {one.points} (paper {one.printed:+.1f}; {_cost(one)})"
        for what, name in (("pruning", "afl-prune"), ("quantising", "afl-quant"), ("both", "2ceoafl"))
        if (one := known.get(name))
    ]
    if not parts:
        return OPEN
    more = "".join(_costs_in(rounds, *where) for where in _ELSEWHERE)
    most = max(mean(one.full) for name, one in known.items() if name != "sgd")
    return f"On average {max(0.0, most):.1f} points at most. Below AFL: {', '.join(parts)}; {_MEASURE}.{more}"


def _cost(one: Lead) -> str:
    """Say what AFL's lead shows of the other."""
    return one.verdict if one.test is None else f"{one.test.reversed.verdict()}, {one.p}"


def _costs_in(rounds: list[Row], variant: str, what: str) -> str:
    """Return what approximations cost in a variant, by its one seed."""
    base = late(rounds, variant, "afl", "accuracy_full")
    ends = {name: late(rounds, variant, name, "accuracy_full") for name in ("afl-prune", "afl-quant", "2ceoafl")}
    parts = [
        f"{part} {base - end:.1f}"
        for part, end in zip(("pruning", "quantising", "both"), ends.values(), strict=True)
        if base is not None and end is not None
    ]
    return f" {what} (`{variant}`, one seed): {', '.join(parts)}." if parts else ""


def stem(rounds: list[Row]) -> str:
    """Say what AFL does on the stem without dead weights."""
    end, base = (late(rounds, variant, "afl", "accuracy_full") for variant in ("cifar stem", MAIN))
    if end is None or base is None:
        return ""
    return (
        f" On the cifar stem AFL stands at {end:.1f} %, in `{MAIN}` at {base:.1f} % ({end - base:+.1f} points; "
        "all 10,000 pictures, one seed)."
    )
