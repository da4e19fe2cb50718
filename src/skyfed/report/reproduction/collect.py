"""Gathers a sweep's runs into small tables and figures that can be kept with the code."""

import json
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from skyfed.errors import BadInputError
from skyfed.files import write_whole
from skyfed.flight.fleet import FleetPlan, load_fleet_plan
from skyfed.records import IDLE
from skyfed.report.reproduction.reading import TABLES, read_machines, read_results, run_name
from skyfed.runs.folder import RunFolder
from skyfed.runs.seeds import seed_folders
from skyfed.runs.store import Row, Table, is_done, write_parquet
from skyfed.theory.diagnose import Diagnosis, diagnose

MAIN = "paper"  # the variant that is closest to print
SHRINKING = (0.5, 0.05, 0.005)  # of the largest rate that the corrected bound allows
_ROUND = (
    "round", "accuracy", "accuracy_full", "loss", "train_size", "test_size", "wire_bytes", "seconds", "dropped",
)  # fmt: skip
_UPLOAD = (
    "wire_bytes", "paper_bits", "measured_seconds", "measured_cpu_seconds", "modelled_seconds", "delta", "kept_live",
)  # fmt: skip
_KNOWN = ("skyfed", "python", "packages", "system", "cpu", "cores", "started", "weights", "live_weights")


def collect(place: Path, results: Path) -> None:
    """Write what the page needs of all algorithms that were trained to the end below a sweep's folder.

    A run replaces what was gathered of it before; of runs that are not there, what was gathered stays.
    """
    found: dict[str, list[Row]] = {name: [] for name in TABLES}
    machines: dict[str, Any] = {}
    for folder in sorted(place.iterdir()):
        for run in seed_folders(folder) if folder.is_dir() else []:
            key = {"variant": folder.name, "seed": int(run.name[5:])}
            config = RunFolder(run).read_config()
            done = [name for name in config.algorithms if is_done(run / name)]
            if not done:
                continue
            machines[run_name(key)] = _machine(run)
            if (run / "plan.npz").exists():
                found["flights"].append({**key, **_flights(load_fleet_plan(run / "plan.npz"))})
            for name in done:
                rows = Table(run / name, "rounds").rows()
                found["rounds"] += [{**key, "algorithm": name, **{k: row[k] for k in _ROUND}} for row in rows]
                sent = Table(run / name, "uplink").rows()
                found["uplink"] += [{**key, "algorithm": name, **part} for part in _uploads(sent)]
                measured = Table(run / name, "theory").rows() if config.theory.every else []
                if measured:
                    found["rates"] += [{**key, **row} for row in _rates(diagnose(name, measured, sent))]
    if not machines:
        raise BadInputError(f"{place}: no runs of a sweep")
    results.mkdir(parents=True, exist_ok=True)
    before = read_results(results)
    for name, rows in found.items():
        rows += [row for row in before[name] if run_name(row) not in machines]
        if rows:
            write_parquet(results / f"{name}.parquet", sorted(rows, key=lambda row: (row["variant"], row["seed"])))
    known = dict(sorted({**read_machines(results), **machines}.items()))
    write_whole(results / "machines.json", (json.dumps(known, indent=1) + "\n").encode())
    _draw(place / MAIN, results)


def _draw(variant: Path, results: Path) -> None:
    """Draw the paper's four figures from the runs that are closest to it."""
    from skyfed.report.courses import read_curves
    from skyfed.report.curves import draw_accuracy, draw_payloads
    from skyfed.report.figures import draw_association, draw_psi, save

    runs = seed_folders(variant) if variant.is_dir() else []
    planned = [run for run in runs if (run / "plan.npz").exists()]
    if planned:
        plan = load_fleet_plan(planned[0] / "plan.npz")
        save(draw_psi(plan, 0), results / "fig1-psi")
        save(draw_association(plan, 0), results / "fig2-association")
    names = RunFolder(runs[0]).read_config().algorithms if runs else []
    there = [name for name in names if is_done(runs[0] / name)]
    whole = [run for run in runs if all(is_done(run / name) for name in there)]
    curves = read_curves(whole, there) if there else []
    if curves:
        save(draw_accuracy(curves), results / "fig3-accuracy")
    if any(curve.paper_bits.size for curve in curves):
        save(draw_payloads(curves), results / "fig4-payload")


def _rates(found: Diagnosis) -> list[Row]:
    """Return what is left of the corrected bound's errors as both learning rates shrink."""
    most = found.largest_rate("corrected")
    return [
        {"algorithm": found.algorithm, "rate": share * most, "term": term, "value": value}
        for share in SHRINKING
        for term, value in found.errors_at(share * most).items()
    ]


def _machine(run: Path) -> dict[str, Any]:
    try:
        known: dict[str, Any] = json.loads((run / "manifest.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return {key: known[key] for key in _KNOWN if key in known}


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
