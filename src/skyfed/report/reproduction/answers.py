"""The questions of a reader, answered in sentences made of the results; what is not measured yet says so."""

from statistics import mean
from typing import Any

from skyfed.config import load_config
from skyfed.report.reproduction import accuracy, planning, shift, vanishing
from skyfed.report.reproduction.collect import MAIN
from skyfed.report.reproduction.reading import OPEN, PAPER, an_upload, run_name, title, whole_seeds
from skyfed.report.tables import spread
from skyfed.runs.store import Row

_PEAK = 0.9  # share of its own rounds that a class's psi at a visit beats, if visits are at peaks
LIVE = "cifar stem, compressed"  # the variant without dead weights that prunes and quantises
CUT = "channels cut out"  # the variant of 2CEOAFL that prunes channels


def answers(found: dict[str, list[Row]], machines: dict[str, Any]) -> str:
    """Return questions and answers as a list, from the tables that were gathered."""
    rounds, uplink, flights = (found[name] for name in ("rounds", "uplink", "flights"))
    pairs = [
        ("Which reading gives the paper's accuracies within a point?", accuracy.near(rounds)),
        (
            "Does the order SGD, AFL, AFL-Prune, AFL-Quant, 2CEOAFL hold beyond the spread between seeds?",
            accuracy.order(rounds),
        ),
        ("What does each approximation cost in accuracy?", accuracy.costs(rounds)),
        ("What does 2CEOAFL save?", _saved(uplink)),
        ("Is AFL-Quant the lightest to send, then 2CEOAFL, AFL-Prune, AFL?", _lightest(uplink)),
        ("Does planning help learning?", planning.answer(rounds)),
        ("Is a class visited when its psi peaks (Fig. 2)?", _peaks(flights)),
        ("Are fluctuations from data shift small?", shift.answer(rounds)),
        (
            "How many weights never have a gradient?",
            _dead(machines) + _dropped(uplink, machines) + accuracy.stem(rounds) + _without_dead(uplink),
        ),
        (
            "Does the pruning error vanish as the learning rates go to 0?",
            vanishing.answer(found["rates"], found["floor"]),
        ),
    ]
    return "\n".join(f"- **{question}** {answer}" for question, answer in pairs)


def _saved(uplink: list[Row]) -> str:
    if not whole_seeds(uplink, MAIN, ("2ceoafl", "afl")):
        return OPEN
    said = (
        f"Against AFL, the measured bytes of an upload are {_change(uplink, MAIN, 'wire_bytes')} "
        f"({_change(uplink, MAIN, 'paper_bits')} by the paper's formula), the measured CPU seconds of a vehicle-round "
        f"{_change(uplink, MAIN, 'measured_cpu_seconds')} ({_change(uplink, MAIN, 'modelled_seconds')} by the paper's "
        "law). Finding the mask takes a dense local round more, and kernels under a mask save nothing in the others."
    )
    if whole_seeds(uplink, CUT, ("2ceoafl", "afl")):
        said += (
            f" With channels cut out of the model (`{CUT}`) bytes are {_change(uplink, CUT, 'wire_bytes')}, CPU "
            f"seconds {_change(uplink, CUT, 'measured_cpu_seconds')} "
            f"({_change(uplink, CUT, 'modelled_seconds')} by the law)."
        )
    return said


def _change(uplink: list[Row], variant: str, key: str) -> str:
    """Return by how many per cent 2CEOAFL is below or above AFL of the same variant, seed by seed."""
    apart = []
    for seed in whole_seeds(uplink, variant, ("2ceoafl", "afl")):
        own, base = (an_upload(uplink, variant, name, key, [seed]) for name in ("2ceoafl", "afl"))
        if own is not None and base:
            apart.append(100 * (own / base - 1))
    side = -1 if mean(apart) < 0 else 1
    return f"{spread(apart, side)} % {'below' if side < 0 else 'above'}"


def _lightest(uplink: list[Row]) -> str:
    found = {name: size for name in PAPER if (size := an_upload(uplink, MAIN, name, "wire_bytes")) is not None}
    if len(found) < 4:
        return OPEN
    order = sorted(found, key=found.__getitem__)
    said = ", ".join(f"{title(name)} {found[name] / 1e6:.2f} MB" for name in order)
    return f"{'Yes' if order == ['afl-quant', '2ceoafl', 'afl-prune', 'afl'] else 'No'}, measured an upload: {said}."


def _peaks(flights: list[Row]) -> str:
    main = [row for row in flights if row["variant"] == MAIN and row["peak"] is not None]
    if not main:
        return OPEN
    share, rank = mean(row["peak"] for row in main), mean(row["rank"] for row in main)
    classes = load_config(MAIN).field.classes
    answer = "Yes" if share >= _PEAK else "More often than by chance" if share > 0.5 else "No"
    exact = [row["peak"] for row in flights if row["variant"] == "planner exact" and row["peak"] is not None]
    beside = f", {100 * mean(exact):.0f} % in exact plans" if exact else ""
    return (
        f"{answer}: the psi of the visited class is at least that of {100 * share:.0f} % of its rounds (50 % by "
        f"chance{beside}), and its mean rank among the {classes} classes of that round is {rank:.1f} "
        f"({(classes + 1) / 2:.1f} by chance); Algorithm 1, all vehicles, seeds: {len(main)}."
    )


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
    return f" 2CEOAFL drops {100 * delta:.1f} % of all in `{MAIN}`, and {100 * of_live:.1f} % of those with one."


def _without_dead(uplink: list[Row]) -> str:
    """Say what 2CEOAFL saves where every weight has a gradient: dead ones cost nothing to send."""
    if not whole_seeds(uplink, LIVE, ("2ceoafl", "afl")):
        return ""
    sizes = [(an_upload(uplink, variant, "afl", "wire_bytes") or 0.0) / 1e6 for variant in (LIVE, MAIN)]
    return (
        f" An upload of AFL has {sizes[0]:.1f} MB there (`{LIVE}`) and {sizes[1]:.1f} MB in `{MAIN}`; 2CEOAFL's is "
        f"{_change(uplink, LIVE, 'wire_bytes')} there and {_change(uplink, MAIN, 'wire_bytes')} in `{MAIN}`."
    )
