"""The tables of docs/reproduction.md, from the results that were gathered."""

import json
from pathlib import Path
from statistics import mean
from typing import Any

from reproduce.collect import MAIN
from reproduce.page import chance, planning, readings, savings, shift, vanishing
from reproduce.page.answers import answers
from reproduce.page.chance import interval, sampling, surely
from reproduce.page.claims import claims
from reproduce.page.differences import differences
from reproduce.page.readings import NEAR
from reproduce.page.summary import short
from reproduce.results import (
    OPEN,
    PAPER,
    an_upload,
    courses_of,
    end_of,
    grid,
    last,
    late,
    lates,
    read_machines,
    read_results,
    run_name,
    title,
    whole_seeds,
)
from skyfed.runs.tables import Row


def tables(results: Path) -> dict[str, str]:
    """Return the tables of the page by name."""
    found = read_results(results)
    rounds, uplink = found["rounds"], found["uplink"]
    machines = read_machines(results)
    return {
        "short": short(rounds, uplink),
        "answers": answers(found, machines),
        "claims": claims(rounds),
        "differences": differences(rounds),
        "accuracies": _accuracies(rounds),
        "size": _size(rounds),
        "readings": readings.fleet_table(rounds),
        "genies": readings.genie_table(rounds),
        "comparisons": chance.table(rounds),
        "factors": _factors(rounds, machines),
        "planners": planning.table(rounds, found["flights"]),
        "uploads": _uploaded(uplink),
        "levels": savings.levels(rounds),
        "steadiness": shift.table(rounds),
        "rates": vanishing.bounded(found["rates"]),
        "floor": vanishing.observed(found["floor"]),
        "machines": _machines(machines, rounds),
        "repeated": _repeated(rounds),
    }


def _accuracies(rounds: list[Row]) -> str:
    rows = []
    for name, printed in PAPER.items():
        found = last(rounds, MAIN, name, "accuracy")
        if found:
            full = lates(rounds, MAIN, name, "accuracy_full")
            far, far_full = ([one - printed for one in some] for some in (found, full))
            end = max(row["round"] for row in courses_of(rounds, MAIN, name)) + 1
            so_far = interval(lates(rounds, MAIN, name, "accuracy"))
            tested = [
                interval(found),
                interval(far, "+"),
                _near(far),
                so_far,
                interval(full),
                interval(far_full, "+"),
                _near(far_full),
            ]
            rows.append([title(name), f"{printed}", *tested, str(len(found)), str(end)])
    return grid(
        "algorithm|paper (%)|skyfed, last test (%)|difference (95 % interval)|within a point|late mean (%)|"
        "late mean, all 10,000 pictures (%)|difference (95 % interval)|within a point|seeds|rounds",
        rows,
    )


def _near(far: list[float]) -> str:
    """Tell whether a mean is within a point of the paper; unclear if it is not, but part of its interval is."""
    return "yes" if abs(mean(far)) <= NEAR else "no" if surely(far, NEAR) else "unclear"


def _size(rounds: list[Row]) -> str:
    """Say what the chance of a small test set does."""
    if not last(rounds, MAIN, "afl", "accuracy"):
        return OPEN
    count, half = sampling(rounds)
    return (
        f"The test set so far has {count:,.0f} pictures in the end: chance alone moves an accuracy on so many by "
        f"± {half:.1f} points (95 %). Where an interval in the table is smaller, seeds happen to agree."
    )


def _factors(rounds: list[Row], machines: dict[str, Any]) -> str:
    """Return the variants other than planners beside the main one after as many rounds, seed 0."""
    rows = []
    names = dict.fromkeys(row["variant"] for row in rounds)
    for variant in [name for name in names if name not in (MAIN, savings.LIVE) and not name.startswith("planner")]:
        changes = machines.get(run_name({"variant": variant, "seed": 0}), {}).get("changes", {})
        what = ", ".join(f"`{key} = {json.dumps(value)}`" for key, value in changes.items())
        for name in PAPER:
            end, own = end_of(rounds, variant, name), late(rounds, variant, name, "accuracy_full")
            if end is None or own is None:
                continue
            base = late(rounds, MAIN, name, "accuracy_full", at=end["round"])
            ahead = "–" if base is None else f"{own - base:+.1f}"
            figures = [f"{100 * end['accuracy']:.1f}", f"{own:.1f}", ahead]
            rows.append([variant, what, title(name), str(end["round"] + 1), *figures])
    return grid(
        f"variant|what it changes|algorithm|rounds|last test (%)|late mean, all 10,000 pictures (%)|"
        f"ahead of `{MAIN}` (points)",
        rows,
    )


def _uploaded(uplink: list[Row]) -> str:
    names = [name for name in PAPER if an_upload(uplink, MAIN, name, "wire_bytes") is not None]
    seeds = whole_seeds(uplink, MAIN, names)
    rows = []
    for name in names:
        keys = ("paper_bits", "wire_bytes", "modelled_seconds", "measured_cpu_seconds")
        bits, sent, law, cpu = (an_upload(uplink, MAIN, name, key, seeds) or 0.0 for key in keys)
        ratio = 8 * sent / bits if bits else float("nan")
        figures = [f"{bits / 8e6:.1f}", f"{sent / 1e6:.2f}", f"{ratio:.2f}", f"{law:.2f}", f"{cpu:.2f}"]
        rows.append([title(name), *figures])
    return grid(
        "algorithm|paper's formula (MB an upload)|measured (MB)|measured / formula|paper's law (local rounds)|"
        "measured (CPU s)",
        rows,
    )


def _machines(machines: dict[str, Any], rounds: list[Row]) -> str:
    groups: dict[str, list[str]] = {}
    for run, known in machines.items():
        names = [f"skyfed {known.get('skyfed')}", f"Python {known.get('python')}"]
        packages = {"torch": "not recorded", **known.get("packages", {})}
        names += [f"{name} {version}" for name, version in packages.items()]
        what = f"{known.get('cpu')}, {known.get('cores')} cores | {', '.join(names)}"
        groups.setdefault(what, []).append(run)
    spent: dict[str, float] = {}
    for row in rounds:
        spent[run_name(row)] = spent.get(run_name(row), 0.0) + row["seconds"] / 3600
    return grid(
        "machine|versions|runs|hours of rounds",
        [
            [*what.split(" | "), _names(runs), f"{sum(spent.get(run, 0.0) for run in runs):.1f}"]
            for what, runs in groups.items()
        ],
    )


def _names(runs: list[str]) -> str:
    """Return the names of few runs, or how many there are."""
    return "; ".join(runs) if len(runs) < 4 else f"{len(runs)}, named in machines.json"


def _repeated(rounds: list[Row]) -> str:
    """Say how equal two runs of the same settings came out: a variant that prunes otherwise leaves AFL as it is."""
    main, again = (
        {row["round"]: row for row in courses_of(rounds, variant, "afl", 0)} for variant in (MAIN, savings.CUT)
    )
    both = sorted(main.keys() & again.keys())
    if not both:
        return OPEN
    equal = sum(main[t]["accuracy"] == again[t]["accuracy"] for t in both)
    apart = max(abs(main[t]["accuracy_full"] - again[t]["accuracy_full"]) for t in both)
    return (
        f"AFL of seed 0 was trained twice, in `{MAIN}` and in `{savings.CUT}`, which prunes otherwise and so leaves "
        f"AFL alone: {equal} of {len(both)} tests on the test set so far came out equal, on all 10,000 pictures they "
        f"are at most {100 * apart:.2f} points apart."
    )
