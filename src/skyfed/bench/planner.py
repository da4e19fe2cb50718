"""The planner's figures: gaps, CPU seconds, and ratios to Algorithm 1 and to SCIP, all measured in one run.

Default geometry with the region's side growing with sqrt(C); one mission per seed. CPU seconds are the planning
process's own. Medians over the instances come first, the worst beside them.
"""

import importlib.util
import math
from collections.abc import Sequence
from statistics import median

from skyfed.bench.planner_peer import against_cp_sat
from skyfed.bench.planner_small import small_flights
from skyfed.bench.planner_speed import commands, paper_size, slow_and_fast
from skyfed.bench.row import Progress, Row
from skyfed.errors import SkyfedError
from skyfed.field import FieldSettings
from skyfed.flight.planner import fell_back, load_solver, plan
from skyfed.flight.problem import FlightSettings, Options, Problem
from skyfed.flight.remote import plan_fleet
from skyfed.flight.verify import verify
from skyfed.types import Plan
from skyfed.workers import usable_cores
from skyfed.world import SensingSettings
from skyfed.world.mission import prepare_mission

_FEW = 3  # instances of each kind where a row takes long, unless all are asked for
_SMALL = 200  # small flights against brute force
_PEER_SECONDS = 15.0  # what CP-SAT gets for one instance: more than the planner takes


def missions(
    seed: int, vehicles: int, rounds: int = 100, classes: int = 10, vmax: float | None = None
) -> list[Problem]:
    """Return the flight problems of a default mission."""
    side = 1000.0 * math.sqrt(classes / 10)
    field = FieldSettings(classes=classes, region=(side, side))
    flight = FlightSettings(vmax="unlimited" if vmax is None else vmax)
    return list(prepare_mission(field, flight, SensingSettings(), vehicles, rounds, seed).problems)


def bench_planner(seeds: int, cap: float, progress: Progress, full: bool = False) -> list[Row]:
    """Measure every row over seeds 0..seeds-1; `cap` seconds for SCIP on one instance; `full` takes all instances."""
    return [
        commands(progress),
        small_flights(_SMALL, progress),
        paper_size(seeds, missions, _planned, progress),
        slow_and_fast(seeds if full else min(seeds, _FEW), missions, _planned, progress),
        against_cp_sat(seeds if full else min(seeds, _FEW), _PEER_SECONDS, missions, progress),
        *_default(seeds, progress),
        _against_sca(seeds, progress),
        _against_scip(seeds if full else min(seeds, _FEW), cap, progress),
        _many_vehicles(progress),
        _long_missions(seeds, progress),
    ]


def _planned(problems: Sequence[Problem]) -> tuple[list[Plan], bool]:
    """Return exact plans, and whether all of them are verified and none is a fallback."""
    options = [Options(vehicle=k) for k in range(len(problems))]
    plans = [flight for _, flight in sorted(plan_fleet(problems, "exact", options, usable_cores()))]  # by number
    verified = all(not verify(*pair) and not fell_back(pair[1].note) for pair in zip(problems, plans, strict=True))
    return plans, verified


def _default(seeds: int, progress: Progress) -> list[Row]:
    progress("exact plans, T=100, C=10")
    plans, verified = _planned([problem for seed in range(seeds) for problem in missions(seed, 10)])
    gaps, seconds = [flight.gap for flight in plans], [flight.seconds for flight in plans]
    count = {"vehicles": len(plans), "verified": verified}
    return [
        Row(
            "proven gap, T=100, C=10, no vmax, every vehicle", max(gaps), "nats (worst)", "<= 1e-4 nats",
            "exact optimum", max(gaps) <= 1e-4 and verified, {"median": median(gaps), **count},
        ),
        Row(
            "CPU seconds a vehicle, median", median(seconds), "s", "<= 0.6", "<= 0.2", median(seconds) <= 0.6,
            {"worst": max(seconds), **count},
        ),
    ]  # fmt: skip


def _against_sca(seeds: int, progress: Progress) -> Row:
    cpu, better, beaten = [], [], True
    for seed in range(seeds):
        progress(f"exact and Algorithm 1, seed {seed}")
        problem = missions(seed, 1)[0]
        exact = plan(problem, "exact", Options(seed=seed))
        iterated = plan(problem, "sca", Options(seed=seed))
        beaten &= iterated.objective <= exact.bound + 1e-7
        cpu.append(iterated.seconds / exact.seconds)
        better.append(100 * math.expm1((exact.objective - iterated.objective) / problem.classes))
    ratio, gain = median(cpu), median(better)
    also = {
        "worst CPU ratio": min(cpu), "geometric mean better by, % (median)": gain,
        "geometric mean better by, % (worst)": min(better), "never above the exact bound": beaten,
    }  # fmt: skip
    return Row(
        "against Algorithm 1 on open solvers, same run", ratio, "times less CPU (median)",
        ">= 8x less CPU and >= 10 % better geometric mean", "30x", ratio >= 8 and gain >= 10 and beaten, also,
    )  # fmt: skip


def _against_scip(seeds: int, cap: float, progress: Progress) -> Row:
    name, bar = "against SCIP on the direct model, 60 s cap", ">= 30x (time-out counts as 60 s)"
    if importlib.util.find_spec("pyscipopt") is None:
        return Row(name, None, "times", bar, "-", None, {"install": "pip install 'skyfed[scip]'"})
    ratios, without_plan = [], 0
    for seed in range(seeds):
        progress(f"SCIP on the direct model, seed {seed}")
        problem = missions(seed, 1)[0]
        exact = plan(problem, "exact", Options(seed=seed))
        seconds = cap
        try:
            direct = load_solver("scip")(problem, Options(seed=seed, seconds=cap))
            seconds = cap if direct.note else direct.seconds
        except SkyfedError:
            without_plan += 1
        ratios.append(seconds / exact.seconds)
    ratio = median(ratios)
    also = {"worst": min(ratios), "instances without any plan from SCIP": f"{without_plan} of {seeds}", "cap, s": cap}
    return Row(name, ratio, "times (median)", bar, "-", ratio >= 30, also)


def _many_vehicles(progress: Progress) -> Row:
    progress("100 vehicles")
    plans, verified = _planned(missions(0, 100))
    gap = max(flight.gap for flight in plans)
    also = {"verified": verified, "CPU seconds in all": sum(flight.seconds for flight in plans)}
    bar = "all verified, all gaps <= 1e-4"
    return Row("U=100 vehicles, T=100", gap, "nats (worst gap)", bar, "-", verified and gap <= 1e-4, also)


def _long_missions(seeds: int, progress: Progress) -> Row:
    also: dict[str, float | bool] = {}
    holds = True
    worst = 0.0
    for classes, most_seconds, most_loss in ((10, 10.0, 0.001), (100, 60.0, 0.005)):
        progress(f"exact plans, T=1000, C={classes}")
        plans, verified = _planned([missions(seed, 1, 1000, classes)[0] for seed in range(seeds)])
        seconds, loss = [flight.seconds for flight in plans], max(flight.loss(classes) for flight in plans)
        also |= {
            f"C={classes}: CPU s, median": median(seconds), f"C={classes}: CPU s, worst": max(seconds),
            f"C={classes}: gap, % a class, worst": 100 * loss,
            f"C={classes}: gap, nats, worst": max(flight.gap for flight in plans),
        }  # fmt: skip
        holds &= max(seconds) <= most_seconds and loss <= most_loss and verified
        worst = max(worst, *seconds)
    bar = "<= 10 s / <= 60 s CPU, gap <= 0.1 % / 0.5 %"
    return Row("T=1000, C=10 / T=1000, C=100", worst, "CPU s (worst of both)", bar, "-", holds, also)
