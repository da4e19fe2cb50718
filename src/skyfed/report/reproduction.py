"""The reproduction: gathers a sweep's runs into small tables, and turns these into the tables of docs/reproduction.md.

python -m skyfed.report.reproduction collect runs/reproduce results/reproduction
python -m skyfed.report.reproduction page results/reproduction docs/reproduction.md
"""

import json
import re
import sys
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from skyfed.algorithms import RECIPES, find_recipe
from skyfed.errors import BadInputError
from skyfed.flight.fleet import FleetPlan, load_fleet_plan
from skyfed.records import IDLE
from skyfed.report.tables import spread
from skyfed.runs.folder import RunFolder
from skyfed.runs.seeds import seed_folders
from skyfed.runs.store import Row, Table, read_parquet, write_parquet

PAPER = {"sgd": 51.5, "afl": 48.7, "afl-prune": 48.4, "afl-quant": 48.2, "2ceoafl": 47.5}  # %, after 100 rounds
MAIN = "paper"  # the variant that is closest to print
_ROUND = ("round", "accuracy", "accuracy_full", "loss", "train_size", "test_size", "wire_bytes", "seconds")
_UPLOAD = (
    "wire_bytes", "paper_bits", "measured_seconds", "measured_cpu_seconds", "modelled_seconds", "delta", "kept_live",
)  # fmt: skip


def collect(place: Path, results: Path) -> None:
    """Write what the page needs of all runs below a sweep's folder; unfinished ones as far as they are."""
    rounds: list[Row] = []
    uplink: list[Row] = []
    flights: list[Row] = []
    machines: dict[str, Any] = {}
    for folder in sorted(place.iterdir()):
        for run in seed_folders(folder) if folder.is_dir() else []:
            key = {"variant": folder.name, "seed": int(run.name[5:])}
            config = RunFolder(run).read_config()
            machines[f"{folder.name} seed-{key['seed']}"] = _machine(run)
            if (run / "plan.npz").exists():
                flights.append({**key, **_flights(load_fleet_plan(run / "plan.npz"))})
            for name in config.algorithms:
                if not (run / name).is_dir():
                    continue
                rows = Table(run / name, "rounds").rows()
                rounds += [{**key, "algorithm": name, **{k: row[k] for k in _ROUND}} for row in rows]
                sent = Table(run / name, "uplink").rows()
                uplink += [{**key, "algorithm": name, **part} for part in _uploads(sent)]
    if not rounds:
        raise BadInputError(f"{place}: no runs of a sweep")
    results.mkdir(parents=True, exist_ok=True)
    write_parquet(results / "rounds.parquet", rounds)
    write_parquet(results / "uplink.parquet", uplink)
    write_parquet(results / "flights.parquet", flights)
    (results / "machines.json").write_text(json.dumps(machines, indent=1), encoding="utf-8")


def _machine(run: Path) -> dict[str, Any]:
    try:
        known: dict[str, Any] = json.loads((run / "manifest.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return {key: value for key, value in known.items() if key in ("skyfed", "versions", "cpu", "python", "seed")}


def _flights(plan: FleetPlan) -> Row:
    """How well visits hit the peaks of psi: share of a class's own rounds with less, and its rank among classes."""
    shares, ranks = [], []
    for u in range(plan.vehicles):
        for t in np.flatnonzero(plan.association[u] != IDLE).tolist():
            now = plan.psi[u, plan.association[u, t]]
            shares.append(float((now <= now[t]).mean()))
            ranks.append(1 + int((plan.psi[u, :, t] > now[t]).sum()))
    return {
        "visits": len(shares) / plan.vehicles,
        "peak": mean(shares) if shares else None,
        "rank": mean(ranks) if ranks else None,
        "objective": float(plan.objective.mean()),
    }


def _uploads(rows: list[Row]) -> list[Row]:
    """Return the means over raw and over quantised uploads."""
    found = []
    for quantised in (False, True):
        some = [row for row in rows if row["quantised"] is quantised and row["wire_bytes"]]
        if some:
            means = {name: mean(row[name] for row in some) for name in _UPLOAD}
            found.append({"quantised": quantised, "uploads": len(some), **means})
    return found


def tables(results: Path) -> dict[str, str]:
    """Return the tables of the page by name."""
    rounds, uplink, flights = (read_parquet(results / f"{name}.parquet") for name in ("rounds", "uplink", "flights"))
    return {
        "accuracies": _accuracies(rounds),
        "factors": _factors(rounds),
        "planners": _planners(rounds, flights),
        "uploads": _uploaded(uplink),
        "steadiness": _steadiness(rounds),
    }


def _tested(rounds: list[Row], variant: str, algorithm: str, seed: int | None = None) -> list[Row]:
    return [
        row
        for row in rounds
        if (row["variant"], row["algorithm"]) == (variant, algorithm)
        and row["accuracy"] is not None
        and seed in (None, row["seed"])
    ]


def _last(rounds: list[Row], variant: str, algorithm: str, key: str, at: int | None = None) -> list[float]:
    """Return every seed's value (%) in its last tested round, or in the last one up to a round."""
    found = []
    for seed in sorted({row["seed"] for row in rounds if row["variant"] == variant}):
        rows = [row for row in _tested(rounds, variant, algorithm, seed) if at is None or row["round"] <= at]
        if rows:
            found.append(100 * rows[-1][key])
    return found


def _grid(head: str, rows: list[list[str]]) -> str:
    names = head.split("|")
    return "\n".join(f"| {' | '.join(row)} |" for row in [names, ["---"] * len(names), *rows])


def _accuracies(rounds: list[Row]) -> str:
    rows = []
    for name, printed in PAPER.items():
        found = _last(rounds, MAIN, name, "accuracy")
        if found:
            far = mean(found) - printed
            last = max(row["round"] for row in _tested(rounds, MAIN, name)) + 1
            full = spread(_last(rounds, MAIN, name, "accuracy_full"))
            near = "yes" if abs(far) <= 1 else "no"
            figures = [f"{printed}", spread(found), full, f"{far:+.1f}", near, str(len(found)), str(last)]
            rows.append([find_recipe(name).title, *figures])
    return _grid(
        "algorithm|paper (%)|skyfed (%)|on all 10,000 pictures (%)|difference|within a point|seeds|rounds", rows
    )


def _factors(rounds: list[Row]) -> str:
    rows = []
    for variant in dict.fromkeys(row["variant"] for row in rounds):
        if variant == MAIN or variant.startswith("planner"):
            continue
        for name in RECIPES:
            tested = _tested(rounds, variant, name)
            if not tested:
                continue
            found, last = _last(rounds, variant, name, "accuracy"), tested[-1]["round"]
            base = _last([row for row in rounds if row["seed"] == 0], MAIN, name, "accuracy", last)
            away = f"{found[0] - base[0]:+.1f}" if base else "–"
            rows.append([variant, find_recipe(name).title, str(last + 1), spread(found), spread(base), away])
    return _grid(f"variant|algorithm|rounds|accuracy (%)|`{MAIN}` then, seed 0 (%)|difference", rows)


def _planners(rounds: list[Row], flights: list[Row]) -> str:
    rows = []
    for one in flights:
        if one["variant"] not in (MAIN,) and not one["variant"].startswith("planner"):
            continue
        tested = _tested(rounds, one["variant"], "afl", one["seed"])
        if tested and (one["variant"] != MAIN or one["seed"] == 0):
            name = "sca (as `paper`)" if one["variant"] == MAIN else one["variant"].removeprefix("planner ")
            last = tested[-1]
            peak = "–" if one["peak"] is None else f"{100 * one['peak']:.0f}"
            rank = "–" if one["rank"] is None else f"{one['rank']:.1f}"
            figures = [f"{one['visits']:.0f}", peak, rank, f"{last['train_size']:,}", f"{100 * last['accuracy']:.1f}"]
            rows.append([name, *figures, str(last["round"] + 1)])
    return _grid(
        "planner|visits a vehicle|psi at a visit: rounds of its class with no more (%)|rank among classes then|"
        "pictures in the end|AFL (%)|rounds",
        rows,
    )


def _uploaded(uplink: list[Row]) -> str:
    rows = []
    for name in RECIPES:
        some = [row for row in uplink if (row["variant"], row["algorithm"]) == (MAIN, name)]
        if not some:
            continue
        count = sum(row["uploads"] for row in some)

        def over(key: str, some: list[Row] = some, count: int = count) -> float:
            return float(sum(row["uploads"] * row[key] for row in some) / count)

        formula, sent = over("paper_bits") / 8e6, over("wire_bytes") / 1e6
        law, cpu = over("modelled_seconds"), over("measured_cpu_seconds")
        figures = [f"{formula:.1f}", f"{sent:.2f}", f"{sent / formula:.2f}", f"{law:.2f}", f"{cpu:.2f}"]
        rows.append([find_recipe(name).title, *figures])
    return _grid(
        "algorithm|paper's formula (MB an upload)|measured (MB)|ratio|paper's law (local rounds)|measured (CPU s)",
        rows,
    )


def _steadiness(rounds: list[Row]) -> str:
    rows = []
    for name in RECIPES:
        jumps, ends = [], []
        for seed in sorted({row["seed"] for row in rounds if row["variant"] == MAIN}):
            course = [100 * row["accuracy"] for row in _tested(rounds, MAIN, name, seed)]
            late = course[len(course) // 2 :]
            if len(late) > 2:
                jumps.append(float(np.abs(np.diff(late)).mean()))
                ends.append(float(np.std(late)))
        if jumps:
            rows.append([find_recipe(name).title, spread(jumps), spread(ends)])
    return _grid("algorithm|mean change between tests, second half (points)|standard deviation there (points)", rows)


def fill(page: str, found: dict[str, str]) -> str:
    """Return a page with the tables between its markers replaced."""
    for name, table in found.items():
        pattern = re.compile(rf"(<!-- table {name} -->\n).*?(<!-- end of table -->)", re.DOTALL)
        page = pattern.sub(lambda match, table=table: f"{match[1]}{table}\n{match[2]}", page)  # type: ignore[misc]
    return page


if __name__ == "__main__":
    verb, source, target = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    if verb == "collect":
        collect(source, target)
    else:
        target.write_text(fill(target.read_text(encoding="utf-8"), tables(source)), encoding="utf-8")
