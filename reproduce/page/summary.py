"""The whole page in a few lines."""

from itertools import pairwise
from statistics import mean

from reproduce.collect import MAIN
from reproduce.page import savings
from reproduce.page.chance import leads, sampling, whole_order
from reproduce.page.readings import FULL, ends_of, genies, known
from reproduce.results import FLEET, OPEN, PAPER, last, late, title, whole_seeds
from skyfed.runs.tables import Row

_PLANNED = {"positions as they come": "", "placed for sensing": ", placed", "placed, sensing reaches 50 m": ", 50 m"}


def short(rounds: list[Row], uplink: list[Row]) -> str:
    """Return what was found, a line each."""
    lines = [
        _accuracies(rounds), _genie(rounds), _order(rounds), _saved(rounds, uplink), _quantised(rounds, uplink),
        _planning(rounds), _hours(rounds),
    ]  # fmt: skip
    return "\n".join(f"- {line}" for line in lines if line) or OPEN


def _accuracies(rounds: list[Row]) -> str:
    far = [mean(found) - PAPER[name] for name in PAPER if (found := last(rounds, MAIN, name, "accuracy"))]
    if not far:
        return ""
    count, half = sampling(rounds)
    said = (
        f"Accuracies end {min(far):+.1f} to {max(far):+.1f} points from the paper's, on test sets of {count:,.0f} "
        f"pictures that are off by ± {half:.1f} by chance alone (95 %)."
    )
    full = [end - PAPER[name] for name, end in ends_of(rounds, MAIN, FULL).items()]
    if len(full) < len(FLEET):
        return said
    return f"{said} On all 10,000 pictures those with vehicles are {min(full):+.1f} to {max(full):+.1f} from it."


def _genie(rounds: list[Row]) -> str:
    ends = genies(rounds, FULL)
    if len(ends) < 2:
        return ""
    figures = ", ".join(f"{end:.1f} % with {steps}" for steps, end in ends.items())
    said = f"SGD depends on its mini-batches a round, which the paper does not print: {figures} (paper {PAPER['sgd']})."
    all_five = [str(one) for one in known(rounds, FULL) if len(one.near) == len(PAPER)]
    if all_five:
        said += f" Within a point of all five, by {FULL.what}: {'; '.join(all_five)}. That was chosen after looking."
    return said


def _order(rounds: list[Row]) -> str:
    neighbours = list(pairwise(PAPER))
    steps = [one for one in leads(rounds) if (one.one, one.other) in neighbours]
    held, seeds = whole_order(rounds)
    if not steps or not seeds:
        return ""
    sure = ", ".join(f"{title(one.one)} over {title(one.other)}" for one in steps if one.holds)
    return f"Of the paper's order {seeds} seeds show: {sure or 'nothing'}. As a whole it holds in {held}."


def _saved(rounds: list[Row], uplink: list[Row]) -> str:
    if not whole_seeds(uplink, MAIN, ("2ceoafl", "afl")):
        return ""
    bytes_, cpu = (savings.change(uplink, MAIN, key) for key in ("wire_bytes", "measured_cpu_seconds"))
    said = f"2CEOAFL sends {bytes_} than AFL and takes {cpu} CPU time a round"
    reaching, _ = savings.until(uplink, rounds, savings.LEVELS[-1])
    if reaching:
        said += f"; up to the same accuracy ({savings.LEVELS[-1]} %) it sends {savings.side(reaching)}"
    if whole_seeds(uplink, savings.CUT, ("2ceoafl", "afl")):
        cut = savings.change(uplink, savings.CUT, "measured_cpu_seconds")
        said += f"; with channels cut out it takes {cut} CPU time (one seed)"
    return f"{said}. ± is the 95 % interval over seeds."


def _quantised(rounds: list[Row], uplink: list[Row]) -> str:
    step = [one for one in leads(rounds) if (one.one, one.other) == ("afl-quant", "2ceoafl")]
    if not step or mean(step[0].full) < 0 or not whole_seeds(uplink, MAIN, ("2ceoafl", "afl-quant")):
        return ""
    times, formula = (savings.times_quant(uplink, key) for key in ("wire_bytes", "paper_bits"))
    return (
        f"Quantising alone does no worse here: AFL-Quant is {step[0].points} points ahead of 2CEOAFL (95 % "
        f"interval), which sends {times} times as much ({formula} times by the paper's formula)."
    )


def _planning(rounds: list[Row]) -> str:
    parts = []
    for what, end in _PLANNED.items():
        own, *others = (
            late(rounds, f"planner {name}{end}", "afl", "accuracy_full") for name in ("exact", "hover", "random")
        )
        beside = [
            f"{base:.1f} % {name}"
            for base, name in zip(others, ("hovering", "at random"), strict=True)
            if base is not None
        ]
        if own is not None and beside:
            parts.append(f"{own:.1f} against {' and '.join(beside)} ({what})")
    return f"AFL with exact flight plans: {', '.join(parts)}; one seed." if parts else ""


def _hours(rounds: list[Row]) -> str:
    hours = sum(row["seconds"] for row in rounds) / 3600
    return f"`make reproduce` repeats all of it: {hours:.0f} hours on two cores here, in part beside other work."
