"""The whole page in a few lines."""

from statistics import mean

from skyfed.report.reproduction import savings
from skyfed.report.reproduction.accuracy import NEAR, late_means, near_ones
from skyfed.report.reproduction.chance import comparisons, surely
from skyfed.report.reproduction.collect import MAIN
from skyfed.report.reproduction.reading import OPEN, PAPER, last, late, title, whole_seeds
from skyfed.runs.store import Row

_PLANNED = {
    "positions as they come": ("planner exact", "planner hover"),
    "placed for sensing": ("planner exact, placed", "planner hover, placed"),
    "placed, sensing reaches 50 m": ("planner exact, 50 m", "planner hover, 50 m"),
}


def short(rounds: list[Row], uplink: list[Row]) -> str:
    """Return what was found, a line each."""
    lines = [_accuracies(rounds), _order(rounds), _saved(rounds, uplink), _planning(rounds), _hours(rounds)]
    return "\n".join(f"- {line}" for line in lines if line) or OPEN


def _accuracies(rounds: list[Row]) -> str:
    far = {name: [end - PAPER[name] for end in last(rounds, MAIN, name, "accuracy")] for name in PAPER}
    means = {name: mean(found) for name, found in far.items() if found}
    if not means:
        return ""
    sure = ", ".join(title(name) for name in means if surely(far[name], NEAR))
    return (
        f"Accuracies end {min(means.values()):+.1f} to {max(means.values()):+.1f} points from the paper's; "
        f"beyond chance more than a point away: {sure or 'none'}. On all 10,000 pictures within a point: "
        f"{near_ones(late_means(rounds, MAIN))}."
    )


def _order(rounds: list[Row]) -> str:
    names = list(PAPER)
    steps = [one for one in comparisons(rounds) if names.index(one.other) == names.index(one.one) + 1]
    if not steps:
        return ""
    right = sum(mean(one.full) > 0 for one in steps)
    sure = ", ".join(f"{title(one.one)} over {title(one.other)}" for one in steps if one.holds)
    return (
        f"{right} of {len(steps)} steps of the paper's order have its sign; beyond chance by the seeds that were run: "
        f"{sure or 'none'}."
    )


def _saved(rounds: list[Row], uplink: list[Row]) -> str:
    if not whole_seeds(uplink, MAIN, ("2ceoafl", "afl")):
        return ""
    bytes_, cpu = (savings.change(uplink, MAIN, key) for key in ("wire_bytes", "measured_cpu_seconds"))
    said = f"2CEOAFL's uploads have bytes {bytes_} AFL's, its vehicles' CPU seconds are {cpu}"
    reaching, _ = savings.until(uplink, rounds, savings.LEVELS[-1])
    if reaching:
        said += f"; up to the same accuracy ({savings.LEVELS[-1]} %) bytes are {savings.side(reaching)}"
    if whole_seeds(uplink, savings.CUT, ("2ceoafl", "afl")):
        said += f"; with channels cut out CPU seconds are {savings.change(uplink, savings.CUT, 'measured_cpu_seconds')}"
    return f"{said}. It sends {savings.times_quant(uplink)} times what AFL-Quant does."


def _planning(rounds: list[Row]) -> str:
    parts = []
    for what, pair in _PLANNED.items():
        own, base = (late(rounds, variant, "afl", "accuracy_full") for variant in pair)
        if own is not None and base is not None:
            parts.append(f"{own:.1f} against {base:.1f} % ({what})")
    return f"AFL with exact flight plans against hovering: {', '.join(parts)}; one seed." if parts else ""


def _hours(rounds: list[Row]) -> str:
    hours = sum(row["seconds"] for row in rounds) / 3600
    return f"`make reproduce` repeats all of it: {hours:.0f} hours on two cores here, in part beside other work."
