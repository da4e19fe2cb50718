"""The questions of a reader, answered in sentences made of the results; what is not measured yet says so."""

from statistics import mean
from typing import Any

from reproduce.collect import MAIN
from reproduce.page import accuracy, planning, readings, savings, shift, vanishing
from reproduce.results import OPEN, an_upload, run_name
from skyfed.config import load_config
from skyfed.runs.tables import Row

_PEAK, _MORE = 0.9, 0.6  # share of its own rounds that a class's psi at a visit beats: at peaks, in part


def answers(found: dict[str, list[Row]], machines: dict[str, Any]) -> str:
    """Return questions and answers as a list, from the tables that were gathered."""
    rounds, uplink, flights = (found[name] for name in ("rounds", "uplink", "flights"))
    pairs = [
        ("Which reading gives the paper's accuracies within a point?", readings.near(rounds)),
        (
            "Does the order SGD, AFL, AFL-Prune, AFL-Quant, 2CEOAFL hold beyond the spread between seeds?",
            accuracy.order(rounds),
        ),
        ("What does each approximation cost in accuracy?", accuracy.costs(rounds)),
        ("What does 2CEOAFL save?", savings.saved(uplink, rounds)),
        ("Is AFL-Quant the lightest to send, then 2CEOAFL, AFL-Prune, AFL?", savings.lightest(uplink)),
        ("Does planning help learning?", planning.answer(rounds, flights)),
        ("Is a class visited when its psi peaks (Fig. 2)?", _peaks(flights)),
        ("Are fluctuations from data shift small?", shift.answer(rounds)),
        (
            "How many weights never have a gradient?",
            _dead(machines) + _dropped(uplink, machines) + accuracy.stem(rounds) + savings.without_dead(rounds),
        ),
        (
            "Does the pruning error vanish as the learning rates go to 0?",
            vanishing.answer(found["rates"], found["floor"]),
        ),
    ]
    return "\n".join(f"- **{question}** {answer}" for question, answer in pairs)


def _peaks(flights: list[Row]) -> str:
    main = [row for row in flights if row["variant"] == MAIN and row["peak"] is not None]
    if not main:
        return OPEN
    share, rank = mean(row["peak"] for row in main), mean(row["rank"] for row in main)
    classes = load_config(MAIN).field.classes
    answer = "Yes" if share >= _PEAK else "In part" if share >= _MORE else "No"
    said = (
        f"{answer}: the psi of the visited class is at least that of {100 * share:.0f} % of its rounds (50 % by "
        f"chance), and its mean rank among the {classes} classes of that round is {rank:.1f} "
        f"({(classes + 1) / 2:.1f} by chance; Algorithm 1, all vehicles, {len(main)} seed{'s' * (len(main) > 1)})."
    )
    beside = [row for row in flights if row["variant"] in (MAIN, "planner exact") and not row["seed"]]
    if len(beside) == 2:
        own, exact = sorted(beside, key=lambda row: str(row["variant"] != MAIN))
        said += (
            f" Of seed 0, exact plans have {100 * exact['peak']:.0f} % and rank {exact['rank']:.1f}, Algorithm 1 "
            f"{100 * own['peak']:.0f} % and {own['rank']:.1f}. Not every visit can be at a peak: each class counts, "
            "and windows limit how often it may be visited."
        )
    return said


def _dead(machines: dict[str, Any]) -> str:
    parts = []
    for variant in (MAIN, "cifar stem"):
        known = machines.get(run_name({"variant": variant, "seed": 0}), {})
        if "live_weights" in known:
            dead = known["weights"] - known["live_weights"]
            parts.append(f"`{variant}`: {dead:,} of {known['weights']:,} ({100 * dead / known['weights']:.1f} %)")
    return "; ".join(parts) + "." if parts else OPEN


def _dropped(uplink: list[Row], machines: dict[str, Any]) -> str:
    """Say what share of the weights that do have a gradient is pruned: fewer than of all, since dead ones are small."""
    known = machines.get(run_name({"variant": MAIN, "seed": 0}), {})
    delta, kept = (an_upload(uplink, MAIN, "2ceoafl", key) for key in ("delta", "kept_live"))
    if "live_weights" not in known or not delta or kept is None:
        return ""
    of_live = 1 - kept / known["live_weights"]
    return (
        f" 2CEOAFL prunes {100 * delta:.1f} % of all weights in `{MAIN}`, but {100 * of_live:.1f} % of those that have "
        "a gradient."
    )
