"""The tables of docs/reproduction.md, from the results that were gathered."""

from pathlib import Path
from statistics import mean
from typing import Any

from skyfed.algorithms import RECIPES, find_recipe
from skyfed.report.reproduction.accuracy import LATE, factors, steadiness
from skyfed.report.reproduction.answers import answers
from skyfed.report.reproduction.claims import claims
from skyfed.report.reproduction.collect import MAIN
from skyfed.report.reproduction.differences import differences
from skyfed.report.reproduction.reading import (
    OPEN,
    PAPER,
    an_upload,
    courses_of,
    grid,
    last,
    read_machines,
    read_results,
    run_name,
    seeds_of,
    terms_of,
    whole_seeds,
)
from skyfed.report.tables import spread
from skyfed.runs.store import Row


def tables(results: Path) -> dict[str, str]:
    """Return the tables of the page by name."""
    rounds, uplink, flights, rates = read_results(results).values()
    machines = read_machines(results)
    return {
        "answers": answers(rounds, uplink, flights, rates, machines),
        "claims": claims(rounds),
        "differences": differences(rounds),
        "accuracies": _accuracies(rounds),
        "factors": _factors(rounds),
        "planners": _planners(rounds, flights),
        "uploads": _uploaded(uplink),
        "steadiness": _steadiness(rounds),
        "rates": _rates(rates),
        "machines": _machines(machines, rounds),
    }


def _accuracies(rounds: list[Row]) -> str:
    rows = []
    for name, printed in PAPER.items():
        found = last(rounds, MAIN, name, "accuracy")
        if found:
            far = mean(found) - printed
            end = max(row["round"] for row in courses_of(rounds, MAIN, name)) + 1
            full = spread(last(rounds, MAIN, name, "accuracy_full"))
            late = spread(_late(rounds, name))
            near = "yes" if abs(far) <= 1 else "no"
            figures = [f"{printed}", spread(found), late, full, f"{far:+.1f}", near, str(len(found)), str(end)]
            rows.append([find_recipe(name).title, *figures])
    return grid(
        "algorithm|paper (%)|skyfed (%)|mean of the last ten tests (%)|on all 10,000 pictures (%)|difference|"
        "within a point|seeds|rounds",
        rows,
    )


def _late(rounds: list[Row], name: str) -> list[float]:
    """Return the mean accuracy (%) of every seed in its last ten tests."""
    seeds = seeds_of(rounds, MAIN)
    courses = [courses_of(rounds, MAIN, name, seed)[-LATE:] for seed in seeds]
    return [100 * mean(row["accuracy"] for row in course) for course in courses if course]


def _factors(rounds: list[Row]) -> str:
    rows = []
    for variant in factors(rounds):
        for name in RECIPES:
            course = courses_of(rounds, variant, name)
            if not course:
                continue
            found, end = last(rounds, variant, name, "accuracy"), course[-1]["round"]
            base = last([row for row in rounds if row["seed"] == 0], MAIN, name, "accuracy", end)
            away = f"{found[0] - base[0]:+.1f}" if base else "–"
            rows.append([variant, find_recipe(name).title, str(end + 1), spread(found), spread(base), away])
    return grid(f"variant|algorithm|rounds|accuracy (%)|`{MAIN}` then, seed 0 (%)|difference", rows)


def _planners(rounds: list[Row], flights: list[Row]) -> str:
    names = {MAIN: "sca (as `paper`)", "decay 50 m": "sca, 50 m"}
    rows = []
    for one in flights:
        name = names.get(one["variant"], one["variant"].removeprefix("planner "))
        course = courses_of(rounds, one["variant"], "afl", one["seed"])
        if not course or one["seed"] or name == one["variant"]:
            continue
        end = course[-1]
        peak = "–" if one["peak"] is None else f"{100 * one['peak']:.0f}"
        rank = "–" if one["rank"] is None else f"{one['rank']:.1f}"
        tested = [f"{100 * end[key]:.1f}" for key in ("accuracy", "accuracy_full")]
        rows.append(
            [name, f"{one['visits']:.0f}", peak, rank, f"{end['train_size']:,}", *tested, str(end["round"] + 1)]
        )
    return grid(
        "planner|visits a vehicle|psi at a visit: rounds of its class with no more (%)|rank among classes then|"
        "pictures in the end|AFL (%)|on all 10,000 pictures (%)|rounds",
        rows,
    )


def _uploaded(uplink: list[Row]) -> str:
    names = [name for name in RECIPES if an_upload(uplink, MAIN, name, "wire_bytes") is not None]
    seeds = whole_seeds(uplink, MAIN, names)
    rows = []
    for name in names:
        keys = ("paper_bits", "wire_bytes", "modelled_seconds", "measured_cpu_seconds")
        bits, sent, law, cpu = (an_upload(uplink, MAIN, name, key, seeds) or 0.0 for key in keys)
        ratio = 8 * sent / bits if bits else float("nan")
        figures = [f"{bits / 8e6:.1f}", f"{sent / 1e6:.2f}", f"{ratio:.2f}", f"{law:.2f}", f"{cpu:.2f}"]
        rows.append([find_recipe(name).title, *figures])
    return grid(
        "algorithm|paper's formula (MB an upload)|measured (MB)|ratio|paper's law (local rounds)|measured (CPU s)",
        rows,
    )


def _steadiness(rounds: list[Row]) -> str:
    rows = [
        [find_recipe(name).title, spread(moved), spread(steadiness(rounds, name, "accuracy_full"))]
        for name in RECIPES
        if (moved := steadiness(rounds, name, "accuracy"))
    ]
    return grid("algorithm|on the test set so far (points)|on all 10,000 pictures (points)", rows)


def _rates(rates: list[Row]) -> str:
    terms = terms_of(rates)
    rows = []
    for rate in dict.fromkeys(row["rate"] for row in rates):
        values = {row["term"]: row["value"] for row in rates if row["rate"] == rate}
        rows.append([f"{rate:.2g}", *(f"{values[term]:.3g}" for term in terms)])
    return grid("|".join(["both learning rates", *terms]), rows) if rows else OPEN


def _machines(machines: dict[str, Any], rounds: list[Row]) -> str:
    groups: dict[str, list[str]] = {}
    for run, known in machines.items():
        names = [f"skyfed {known.get('skyfed')}", f"Python {known.get('python')}"]
        names += [f"{name} {version}" for name, version in known.get("packages", {}).items()]
        what = f"{known.get('cpu')}, {known.get('cores')} cores | {', '.join(names)}"
        groups.setdefault(what, []).append(run)
    spent: dict[str, float] = {}
    for row in rounds:
        spent[run_name(row)] = spent.get(run_name(row), 0.0) + row["seconds"] / 3600
    return grid(
        "machine|versions|runs|hours of rounds",
        [
            [*what.split(" | "), ", ".join(runs), f"{sum(spent.get(run, 0.0) for run in runs):.1f}"]
            for what, runs in groups.items()
        ],
    )
