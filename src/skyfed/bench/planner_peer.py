"""A general solver on the speed-limited problem: OR-Tools CP-SAT, where it is installed."""

import importlib
import importlib.util
import math
import subprocess
import sys
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from skyfed.bench.row import Progress, Row
from skyfed.flight.planner import plan
from skyfed.flight.problem import Options, Problem
from skyfed.flight.travel import Network, flyable_network

_SCALE = 1e6  # of whole numbers: CP-SAT knows no others
_TANGENTS = 40
_VMAX, _ROUNDS = 150.0, 50


def against_cp_sat(seeds: int, seconds: float, missions: Callable[..., list[Problem]], progress: Progress) -> Row:
    """Compare plans with what CP-SAT finds in `seconds` on the same network of points, on one thread."""
    name = f"against OR-Tools CP-SAT, vmax = {_VMAX:g} m a round, T={_ROUNDS}, {seconds:g} s on one thread"
    bar = "geometric mean no worse (median)"
    if importlib.util.find_spec("ortools") is None:
        return Row(name, None, "%", bar, "-", None, {"install": "pip install ortools"})
    better, without, spent = [], 0, []
    for seed in range(seeds):
        progress(f"CP-SAT, seed {seed}")
        problem = missions(seed, 1, _ROUNDS, vmax=_VMAX)[0]
        flight = plan(problem, "exact", Options(seed=seed))
        value = _in_its_own_process(seed, seconds)
        spent.append(flight.seconds)
        if value is None:
            without += 1
            continue
        better.append(100 * math.expm1((flight.objective - value) / problem.classes))
    middle = median(better) if better else math.inf
    also = {
        "worst, %": min(better, default=math.inf), "instances without any plan from CP-SAT": f"{without} of {seeds}",
        "CPU s of skyfed, median": median(spent),
    }  # fmt: skip
    return Row(name, middle, "% better geometric mean (median)", bar, "-", middle >= 0, also)


def _in_its_own_process(seed: int, seconds: float) -> float | None:
    """Run `main` apart: OR-Tools and highspy each bring a HiGHS, and one process cannot load both."""
    code = f"from skyfed.bench.planner_peer import main; main({seed}, {seconds})"
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()[-1]
    return None if answer == "None" else float(answer)


def main(seed: int, seconds: float) -> None:
    """Print the objective that CP-SAT finds on one mission."""
    from skyfed.bench.planner import missions

    problem = missions(seed, 1, _ROUNDS, vmax=_VMAX)[0]
    print(cp_sat(problem, flyable_network(problem), seconds))


def cp_sat(problem: Problem, network: Network, seconds: float) -> float | None:
    """Return the objective of the best walk that CP-SAT finds, None without one.

    One Boolean per point and round; two visits exclude each other where the flight takes longer; C5 as it stands;
    the logarithm by tangents from above.
    """
    cp_model: Any = importlib.import_module("ortools.sat.python.cp_model")

    C, T = problem.psi.shape
    N = len(network.label)
    model = cp_model.CpModel()
    visit = [[model.new_bool_var("") for _ in range(T)] for _ in range(N)]
    own = [np.flatnonzero(network.label == c) for c in range(C)]
    for t in range(T):
        model.add_at_most_one(visit[i][t] for i in range(N))
        for i in range(N):
            for gap in range(1, min(int(network.rounds[i].max()), T - t)):
                far = np.flatnonzero(network.rounds[i] > gap)
                model.add_at_most_one([visit[i][t], *(visit[j][t + gap] for j in far)])
    logs = []
    for c in range(C):
        for w, (first, stop) in enumerate(problem.spans):
            model.add(sum(visit[i][t] for i in own[c] for t in range(first, stop)) <= int(problem.imax[c, w]))
        worth = np.round(problem.psi[c] * _SCALE).astype(int)
        amount = sum(int(worth[t]) * visit[i][t] for i in own[c] for t in range(T))
        log = model.new_int_var(int(math.log(problem.epsilon) * 1e4), int(10e4), "")
        for y in np.geomspace(1e-3, max(2e-3, float(problem.psi[c].sum())), _TANGENTS):
            # 1e4 log <= 1e4 (log y - 1) + 1e4 amount / (scale y), times the scale's part of y
            whole = max(1, round(_SCALE * y / 1e4))
            model.add(whole * log <= int(whole * 1e4 * (math.log(y) - 1)) + amount)
        logs.append(log)
    model.maximize(sum(logs))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 1
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    association = np.full(T, -1)
    for i in range(N):
        for t in range(T):
            if solver.boolean_value(visit[i][t]):
                association[t] = network.label[i]
    return problem.objective(association)
