"""The questions of a reader, answered in sentences made of the results; what is not measured yet says so."""

from itertools import pairwise
from statistics import mean, stdev
from typing import Any

from skyfed.algorithms import find_recipe
from skyfed.report.reproduction.collect import MAIN
from skyfed.report.reproduction.reading import PAPER, an_upload, courses_of, grid, last
from skyfed.runs.store import Row

_OPEN = "Not measured yet."
_SURE = 2.0  # standard errors of a paired difference from which on it is said to be more than spread between seeds


def answers(
    rounds: list[Row], uplink: list[Row], flights: list[Row], rates: list[Row], machines: dict[str, Any]
) -> str:
    """Return questions and answers as a list."""
    pairs = [
        ("Which accuracies come out within a point of the paper's?", _near(rounds)),
        (
            "Does the order SGD, AFL, AFL-Prune, AFL-Quant, 2CEOAFL hold beyond the spread between seeds?",
            _order(rounds),
        ),
        ("What does each approximation cost in accuracy?", _costs(rounds)),
        ("What does 2CEOAFL save?", _saved(uplink)),
        ("Is AFL-Quant the lightest to send, then 2CEOAFL, AFL-Prune, AFL?", _lightest(uplink)),
        ("Is a class visited when its psi peaks (Fig. 2)?", _peaks(flights)),
        ("How many weights never have a gradient?", _dead(machines)),
        ("Does the pruning error vanish as the learning rates go to 0?", _pruning(rates)),
    ]
    return "\n".join(f"- **{question}** {answer}" for question, answer in pairs)


def _title(name: str) -> str:
    return find_recipe(name).title


def _near(rounds: list[Row]) -> str:
    found = {name: last(rounds, MAIN, name, "accuracy") for name in PAPER}
    off = {name: mean(values) - PAPER[name] for name, values in found.items() if values}
    if not off:
        return _OPEN
    inside = [_title(name) for name, far in off.items() if abs(far) <= 1]
    beyond = [f"{_title(name)} ({far:+.1f} points)" for name, far in off.items() if abs(far) > 1]
    said = f"With preset `{MAIN}`: {', '.join(inside) or 'none'}."
    return said + (f" Not: {', '.join(beyond)}." if beyond else "")


def _paired(rounds: list[Row], one: str, other: str) -> list[float]:
    """Return one's less the other's accuracy (points) in the last round both have been tested in, seed by seed."""
    found = []
    for seed in sorted({row["seed"] for row in rounds if row["variant"] == MAIN}):
        courses = [
            {row["round"]: row["accuracy"] for row in courses_of(rounds, MAIN, name, seed)} for name in (one, other)
        ]
        both = courses[0].keys() & courses[1].keys()
        if both:
            found.append(100 * (courses[0][max(both)] - courses[1][max(both)]))
    return found


def _judged(apart: list[float]) -> str:
    if len(apart) < 2:
        return f"{mean(apart):+.1f} points (one seed)"
    error = stdev(apart) / len(apart) ** 0.5
    sure = "more than the spread" if abs(mean(apart)) > _SURE * error else "within the spread"
    return f"{mean(apart):+.1f} ± {stdev(apart):.1f} points, {sure}"


def _order(rounds: list[Row]) -> str:
    names = list(PAPER)
    parts = []
    for one, other in pairwise(names):
        apart = _paired(rounds, one, other)
        if apart:
            parts.append(f"{_title(one)} over {_title(other)} {_judged(apart)}")
    return "; ".join(parts) + " (same seeds paired)." if parts else _OPEN


def _costs(rounds: list[Row]) -> str:
    parts = [
        f"{what} {_judged(apart)}"
        for what, name in (("pruning", "afl-prune"), ("quantising", "afl-quant"), ("both", "2ceoafl"))
        if (apart := _paired(rounds, name, "afl"))
    ]
    return f"Against AFL: {'; '.join(parts)}." if parts else _OPEN


def _saved(uplink: list[Row]) -> str:
    keys = ("wire_bytes", "paper_bits", "measured_cpu_seconds", "modelled_seconds")
    own, base = ([an_upload(uplink, MAIN, name, key) for key in keys] for name in ("2ceoafl", "afl"))
    if None in own or None in base:
        return _OPEN
    sent, formula, seconds, law = (
        100 * (1 - (one or 0.0) / (other or 1.0)) for one, other in zip(own, base, strict=True)
    )
    return (
        f"Against AFL, an upload: {sent:.0f} % of the measured bytes ({formula:.0f} % by the paper's formula); a "
        f"vehicle-round: {seconds:.0f} % of the measured CPU seconds ({law:.0f} % by the paper's law)."
    )


def _lightest(uplink: list[Row]) -> str:
    found = {name: size for name in PAPER if (size := an_upload(uplink, MAIN, name, "wire_bytes")) is not None}
    if len(found) < 4:
        return _OPEN
    order = sorted(found, key=found.__getitem__)
    said = ", ".join(f"{_title(name)} {found[name] / 1e6:.2f} MB" for name in order)
    return f"{'Yes' if order == ['afl-quant', '2ceoafl', 'afl-prune', 'afl'] else 'No'}, measured an upload: {said}."


def _peaks(flights: list[Row]) -> str:
    main = [row for row in flights if row["variant"] == MAIN and row["peak"] is not None]
    if not main:
        return _OPEN
    share, rank = mean(row["peak"] for row in main), mean(row["rank"] for row in main)
    return (
        f"At a visit the class's psi is at least that of {100 * share:.0f} % of its rounds (50 % by chance), and its "
        f"mean rank among the classes of that round is {rank:.1f} of 10 (5.5 by chance); {len(main)} seed(s), all "
        "vehicles."
    )


def _dead(machines: dict[str, Any]) -> str:
    parts = []
    for variant in (MAIN, "cifar stem"):
        known = machines.get(f"{variant} seed-0", {})
        if "live_weights" in known:
            dead = known["weights"] - known["live_weights"]
            parts.append(f"`{variant}`: {dead:,} of {known['weights']:,} ({100 * dead / known['weights']:.1f} %)")
    return "; ".join(parts) + "." if parts else _OPEN


def _pruning(rates: list[Row]) -> str:
    found = {row["rate"]: row["value"] for row in rates if row["term"] == "pruning"}
    if len(found) < 2:
        return _OPEN
    high, low = max(found), min(found)
    return (
        f"With rates {high / low:.0f} times smaller the bound's pruning term goes from {found[high]:.3g} to "
        f"{found[low]:.3g}; the other terms are in the table of rates below."
    )


def claims(rounds: list[Row]) -> str:
    """Return what an independent plain run had shown before, beside what came out here."""
    rows = [
        ["about one sample a visit: AFL stands at 48.5–48.8 % from round 30 on", _standing(rounds)],
        ["plenty sensed: AFL passes 48.7 % at round 30 and rises", _rising(rounds)],
        ["QSGD with one global norm stays at chance (8–13 %)", _ended(rounds, "norm global", "afl-quant")],
        ["per tensor it follows AFL", _judged(found) if (found := _paired(rounds, "afl-quant", "afl")) else _OPEN],
        ["a genie with 5 steps a round ends at 45.9 %, below AFL", _ended(rounds, "genie kappa", "sgd")],
    ]
    return grid("known before|measured here", rows)


def _standing(rounds: list[Row]) -> str:
    def between(first: int, end: int) -> str:
        some = [100 * row["accuracy"] for row in courses_of(rounds, MAIN, "afl") if first <= row["round"] < end]
        return f"{mean(some):.1f} %" if some else "–"

    if not courses_of(rounds, MAIN, "afl"):
        return _OPEN
    return f"rounds 30–39: {between(30, 40)}, 60–69: {between(60, 70)}, 90–99: {between(90, 100)}"


def _rising(rounds: list[Row]) -> str:
    course = courses_of(rounds, "decay 50 m", "afl")
    if not course:
        return _OPEN
    passed = next((row["round"] + 1 for row in course if 100 * row["accuracy"] >= PAPER["afl"]), None)
    when = f"passes it at round {passed}" if passed else "does not pass it"
    return f"{when}; {100 * course[-1]['accuracy']:.1f} % after {course[-1]['round'] + 1} rounds"


def _ended(rounds: list[Row], variant: str, algorithm: str) -> str:
    course = courses_of(rounds, variant, algorithm)
    return f"{100 * course[-1]['accuracy']:.1f} % after {course[-1]['round'] + 1} rounds" if course else _OPEN
