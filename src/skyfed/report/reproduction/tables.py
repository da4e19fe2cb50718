"""The tables of docs/reproduction.md, from the results that were gathered."""

import json
from pathlib import Path
from statistics import mean
from typing import Any

from skyfed.report.reproduction import chance, planning, savings, shift, vanishing
from skyfed.report.reproduction.accuracy import NEAR
from skyfed.report.reproduction.answers import answers
from skyfed.report.reproduction.chance import LATE, interval, surely
from skyfed.report.reproduction.claims import claims
from skyfed.report.reproduction.collect import MAIN
from skyfed.report.reproduction.differences import differences
from skyfed.report.reproduction.reading import (
    OPEN,
    PAPER,
    an_upload,
    courses_of,
    end_of,
    grid,
    last,
    read_machines,
    read_results,
    run_name,
    seeds_of,
    title,
    whole_seeds,
)
from skyfed.report.reproduction.summary import short
from skyfed.report.tables import spread
from skyfed.runs.store import Row


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
            far = [one - printed for one in found]
            end = max(row["round"] for row in courses_of(rounds, MAIN, name)) + 1
            late, full = (spread(_late(rounds, name, key)) for key in ("accuracy", "accuracy_full"))
            near = "yes" if abs(mean(far)) <= NEAR else "no" if surely(far, NEAR) else "not on average"
            figures = [f"{printed}", spread(found), late, full, interval(far), near, str(len(found)), str(end)]
            rows.append([title(name), *figures])
    return grid(
        "algorithm|paper (%)|skyfed, last test (%)|last ten tests (%)|last ten tests, all 10,000 pictures (%)|"
        "difference (95 % interval)|within a point|seeds|rounds",
        rows,
    )


def _late(rounds: list[Row], name: str, key: str) -> list[float]:
    """Return the mean accuracy (%) of every seed in its last ten tests."""
    seeds = seeds_of(rounds, MAIN)
    courses = [courses_of(rounds, MAIN, name, seed)[-LATE:] for seed in seeds]
    return [100 * mean(row[key] for row in course) for course in courses if course]


def _factors(rounds: list[Row], machines: dict[str, Any]) -> str:
    """Return the variants other than planners beside the main one after as many rounds, seed 0."""
    rows = []
    names = dict.fromkeys(row["variant"] for row in rounds)
    for variant in [name for name in names if name not in (MAIN, savings.LIVE) and not name.startswith("planner")]:
        changes = machines.get(run_name({"variant": variant, "seed": 0}), {}).get("changes", {})
        what = ", ".join(f"`{key} = {json.dumps(value)}`" for key, value in changes.items())
        for name in PAPER:
            end = end_of(rounds, variant, name)
            base = end_of(rounds, MAIN, name, end["round"]) if end else None
            if end is None:
                continue
            both = [_beside(end, base, key) for key in ("accuracy", "accuracy_full")]
            rows.append([variant, what, title(name), str(end["round"] + 1), *both])
    return grid(
        f"variant|what it changes|algorithm|rounds|accuracy (%), and ahead of `{MAIN}` then|on all 10,000 pictures",
        rows,
    )


def _beside(one: Row, base: Row | None, key: str) -> str:
    """Return an accuracy (%), and by how many points it is ahead of the main variant's."""
    ahead = f" ({100 * (one[key] - base[key]):+.1f})" if base else ""
    return f"{100 * one[key]:.1f}{ahead}"


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
