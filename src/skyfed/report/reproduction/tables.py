"""The tables of docs/reproduction.md, from the results that were gathered."""

import json
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from skyfed.algorithms import RECIPES, find_recipe
from skyfed.report.reproduction.answers import answers, claims
from skyfed.report.reproduction.collect import MAIN
from skyfed.report.reproduction.reading import PAPER, an_upload, courses_of, grid, last
from skyfed.report.tables import spread
from skyfed.runs.store import Row, read_parquet


def tables(results: Path) -> dict[str, str]:
    """Return the tables of the page by name."""
    rounds, uplink, flights, rates = (
        read_parquet(path) if (path := results / f"{name}.parquet").exists() else []
        for name in ("rounds", "uplink", "flights", "rates")
    )
    machines = json.loads((results / "machines.json").read_text(encoding="utf-8"))
    return {
        "answers": answers(rounds, uplink, flights, rates, machines),
        "claims": claims(rounds),
        "accuracies": _accuracies(rounds),
        "factors": _factors(rounds),
        "planners": _planners(rounds, flights),
        "uploads": _uploaded(uplink),
        "steadiness": _steadiness(rounds),
        "rates": _rates(rates),
        "machines": _machines(machines),
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
    """Return the mean accuracy (%) of every seed in its last ten tests: single tests vary by a point."""
    seeds = sorted({row["seed"] for row in rounds if row["variant"] == MAIN})
    courses = [courses_of(rounds, MAIN, name, seed)[-10:] for seed in seeds]
    return [100 * mean(row["accuracy"] for row in course) for course in courses if course]


def _factors(rounds: list[Row]) -> str:
    rows = []
    for variant in dict.fromkeys(row["variant"] for row in rounds):
        if variant == MAIN or variant.startswith("planner"):
            continue
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
    rows = []
    for one in flights:
        if one["variant"] not in (MAIN,) and not one["variant"].startswith("planner"):
            continue
        course = courses_of(rounds, one["variant"], "afl", one["seed"])
        if course and (one["variant"] != MAIN or one["seed"] == 0):
            name = "sca (as `paper`)" if one["variant"] == MAIN else one["variant"].removeprefix("planner ")
            end = course[-1]
            peak = "–" if one["peak"] is None else f"{100 * one['peak']:.0f}"
            rank = "–" if one["rank"] is None else f"{one['rank']:.1f}"
            figures = [f"{one['visits']:.0f}", peak, rank, f"{end['train_size']:,}", f"{100 * end['accuracy']:.1f}"]
            rows.append([name, *figures, str(end["round"] + 1)])
    return grid(
        "planner|visits a vehicle|psi at a visit: rounds of its class with no more (%)|rank among classes then|"
        "pictures in the end|AFL (%)|rounds",
        rows,
    )


def _uploaded(uplink: list[Row]) -> str:
    rows = []
    for name in RECIPES:
        keys = ("paper_bits", "wire_bytes", "modelled_seconds", "measured_cpu_seconds")
        means = [an_upload(uplink, MAIN, name, key) for key in keys]
        if None not in means:
            bits, sent, law, cpu = (value or 0.0 for value in means)
            ratio = 8 * sent / bits if bits else float("nan")
            figures = [f"{bits / 8e6:.1f}", f"{sent / 1e6:.2f}", f"{ratio:.2f}", f"{law:.2f}", f"{cpu:.2f}"]
            rows.append([find_recipe(name).title, *figures])
    return grid(
        "algorithm|paper's formula (MB an upload)|measured (MB)|ratio|paper's law (local rounds)|measured (CPU s)",
        rows,
    )


def _steadiness(rounds: list[Row]) -> str:
    rows = []
    for name in RECIPES:
        jumps, ends = [], []
        for seed in sorted({row["seed"] for row in rounds if row["variant"] == MAIN}):
            course = [100 * row["accuracy"] for row in courses_of(rounds, MAIN, name, seed)]
            late = course[len(course) // 2 :]
            if len(late) > 2:
                jumps.append(float(np.abs(np.diff(late)).mean()))
                ends.append(float(np.std(late)))
        if jumps:
            rows.append([find_recipe(name).title, spread(jumps), spread(ends)])
    return grid("algorithm|mean change between tests, second half (points)|standard deviation there (points)", rows)


def _rates(rates: list[Row]) -> str:
    terms = list(dict.fromkeys(row["term"] for row in rates))
    rows = []
    for rate in dict.fromkeys(row["rate"] for row in rates):
        values = {row["term"]: row["value"] for row in rates if row["rate"] == rate}
        rows.append([f"{rate:.2g}", *(f"{values[term]:.3g}" for term in terms)])
    return grid("|".join(["both learning rates", *terms]), rows) if rows else "Not measured yet."


def _machines(machines: dict[str, Any]) -> str:
    groups: dict[str, list[str]] = {}
    for run, known in machines.items():
        names = [f"skyfed {known.get('skyfed')}", f"Python {known.get('python')}"]
        names += [f"{name} {version}" for name, version in known.get("packages", {}).items()]
        what = f"{known.get('cpu')}, {known.get('cores')} cores | {', '.join(names)}"
        groups.setdefault(what, []).append(run)
    return grid("machine|versions|runs", [[*what.split(" | "), ", ".join(runs)] for what, runs in groups.items()])
