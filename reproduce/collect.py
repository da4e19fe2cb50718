"""Gathers a sweep's runs into small tables and figures that can be kept with the code."""

import json
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from reproduce.results import PAPER, TABLES, read_machines, read_results, run_name, seeds_of
from skyfed.algorithms import Row as Trained
from skyfed.config import Config, changed, load_config
from skyfed.errors import BadInputError
from skyfed.files import write_whole
from skyfed.flight.fleet_plan import FleetPlan, load_fleet_plan
from skyfed.runs.folder import RunFolder
from skyfed.runs.seeds import seed_folders
from skyfed.runs.tables import Row, Table, is_done, write_parquet
from skyfed.theory.diagnose import Diagnosis, diagnose
from skyfed.types import IDLE
from skyfed.world.arrivals import RIM

MAIN = "paper"  # the variant that is closest to print
_VEHICLE = 4  # whose psi and visits are drawn: the paper's example
SHRINKING = (0.5, 0.05, 0.005)  # of the largest rate that the corrected bound allows
_ROUND = (
    "round", "accuracy", "accuracy_full", "loss", "train_size", "test_size", "wire_bytes", "downlink_bytes",
    "seconds", "dropped",
)  # fmt: skip
_UPLOAD = (
    "wire_bytes", "paper_bits", "measured_seconds", "measured_cpu_seconds", "modelled_seconds", "delta", "kept_live",
)  # fmt: skip
_ASIDE = ("seed", "workers", "device", "eval_every", "algorithms")  # settings that change no result of an algorithm
_KNOWN = ("skyfed", "python", "packages", "system", "cpu", "cores", "started", "weights", "live_weights")


def collect(place: Path, results: Path) -> None:
    """Write what the page needs of all algorithms that were trained to the end below a sweep's folder.

    A run replaces what was gathered of it before; of runs that are not there, what was gathered stays.
    """
    found: dict[str, list[Row]] = {name: [] for name in TABLES}
    machines: dict[str, Any] = {}
    for folder in sorted(place.iterdir()) if place.is_dir() else []:
        for run in seed_folders(folder) if folder.is_dir() else []:
            key = {"variant": folder.name, "seed": int(run.name[5:])}
            config = RunFolder(run).read_config()
            done = [name for name in config.labels if is_done(run / name)]
            if not done:
                continue
            machines[run_name(key)] = {**_machine(run), "changes": changes(config)}
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
    draw_results(found["rounds"], results)
    _draw(place / MAIN, results, seeds_of(found["rounds"], MAIN))


def draw_results(rounds: list[Row], results: Path) -> None:
    """Draw accuracy over rounds from what was gathered of the main variant, beside what the paper prints (Fig. 3)."""
    from skyfed.report.curves import draw_accuracy
    from skyfed.report.figures import save
    from skyfed.report.learning_curves import RowCurves, seed_curve

    nothing = np.empty(0)
    curves = []
    for name in PAPER:
        some = [row for row in rounds if (row["variant"], row["algorithm"]) == (MAIN, name)]
        by_seed = [[row for row in some if row["seed"] == seed] for seed in seeds_of(some, MAIN)]
        if some:
            runs = tuple(seed_curve(rows) for rows in by_seed)
            curves.append(RowCurves(Trained(use=name), runs, nothing, nothing))
    if curves:
        save(draw_accuracy(curves, PAPER), results / "fig3-accuracy")


def changes(config: Config) -> dict[str, Any]:
    """Return the settings in which a run differs from the main variant, what does not matter to a result aside."""
    found = changed([load_config(MAIN), config])
    return {key: values[1] for key, values in found.items() if key not in _ASIDE}


def _draw(variant: Path, results: Path, seeds: list[int]) -> None:
    """Draw the paper's other figures from the runs closest to it, if all the seeds that tables speak of are here."""
    from skyfed.report.curves import draw_payloads
    from skyfed.report.figures import draw_association, draw_psi, save
    from skyfed.report.learning_curves import read_curves

    runs = seed_folders(variant) if variant.is_dir() else []
    if not {int(run.name[5:]) for run in runs} >= set(seeds):
        return
    planned = [run for run in runs if (run / "plan.npz").exists()]
    if planned:
        plan = load_fleet_plan(planned[0] / "plan.npz")
        vehicle = min(_VEHICLE, plan.vehicles - 1)
        save(draw_psi(plan, vehicle), results / "fig1-psi")
        save(draw_association(plan, vehicle), results / "fig2-association")
    rows = RunFolder(runs[0]).read_config().rows if runs else []
    there = [row for row in rows if is_done(runs[0] / row.name)]
    whole = [run for run in runs if all(is_done(run / row.name) for row in there)]
    curves = read_curves(whole, there) if there else []
    if any(curve.paper_bits.size for curve in curves):
        save(draw_payloads(curves), results / "fig4-payload")


def _rates(found: Diagnosis) -> list[Row]:
    """Return what is left of the corrected bound's errors as both learning rates shrink."""
    most = found.largest_rate("corrected")
    realised = mean(found.realised)  # squared gradient, at the rates that were trained with
    return [
        {"algorithm": found.algorithm, "rate": share * most, "term": term, "value": value, "realised": realised}
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
    """Return what visits hit, on average over vehicles.

    peak   share of its own rounds in which the class's psi is not larger    rank  of its psi among the classes then
    rim    distance from the planned disc's centre, in its radii             over  share that is over the true disc
    """
    found = []
    for u in range(plan.vehicles):
        for t in np.flatnonzero(plan.association[u] != IDLE).tolist():
            c = plan.association[u, t]
            psi, now = plan.psi[u], plan.psi[u, c, t]
            far, true = (np.hypot(*(plan.positions[u, t] - at[u, c])) for at in (plan.centres, plan.true_centres))
            found.append(
                {
                    "peak": float((psi[c] <= now).mean()),
                    "rank": 1 + int((psi[:, t] > now).sum()),
                    "rim": float(far / plan.radii[u, c]),
                    "over": float(true <= plan.true_radii[u, c] + RIM),
                }
            )
    means = {name: mean(row[name] for row in found) if found else None for name in ("peak", "rank", "rim", "over")}
    return {"visits": len(found) / plan.vehicles, **means, "objective": float(plan.objective.mean())}


def _uploads(rows: list[Row]) -> list[Row]:
    """Return the means over raw and over quantised uploads."""
    found = []
    for quantised in (False, True):
        some = [row for row in rows if row["quantised"] is quantised and row["wire_bytes"]]
        if some:
            means = {name: mean(row[name] for row in some) for name in _UPLOAD}
            found.append({"quantised": quantised, "uploads": len(some), **means})
    return found
