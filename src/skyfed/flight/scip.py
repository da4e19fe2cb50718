"""The problem as it stands, nonconvex and mixed-integer, handed to SCIP; a peer to compare the planners with."""

import time
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from skyfed.errors import BadInputError, InfeasibleError
from skyfed.flight.discs import flight_box
from skyfed.flight.problem import Options, Problem, labels_of
from skyfed.flight.verify import verify
from skyfed.types import Plan

CLEARANCE = 2e-3  # m kept from every rim: TOLERANCE on an indicator, times its big-M, may move a rim by that much
TOLERANCE = 1e-7  # SCIP's feasibility tolerance, integrality included
SPAN = 5.0  # units of length across the region: in metres the squares are so large that SCIP "proves" bounds too low
GAP = 1e-4  # nats: an optimum is proven this closely
NO_BOUND = 1e20  # SCIP's infinity


def solve(problem: Problem, options: Options) -> Plan:
    """Solve C1-C6 directly by SCIP's spatial branch and bound; the bound is SCIP's own (Eq. 4).

    The bound holds for discs, dmin and vmax with CLEARANCE to spare. options.seconds limits the solve, wall seconds.
    """
    try:
        import pyscipopt
    except ImportError:
        raise BadInputError("flight.method = 'scip': needs the extra, pip install 'skyfed[scip]'") from None
    began = time.process_time()
    model = pyscipopt.Model("flight")
    model.hideOutput()
    limits = {"limits/time": options.seconds, "limits/absgap": GAP, "numerics/feastol": TOLERANCE}
    model.setParams({**limits, "lp/threads": 1, "randomization/randomseedshift": options.seed % 2**31})
    unit = max(problem.region) / SPAN
    positions, visits = _state(_rescale(problem, unit), CLEARANCE / unit, model, pyscipopt.quicksum, pyscipopt.log)
    model.optimize()
    if model.getNSols() == 0:
        if model.getStatus() == "infeasible":
            raise InfeasibleError("scip proves that no plan meets the constraints")
        raise InfeasibleError(f"scip found no plan in {options.seconds:g} s")
    best = model.getBestSol()
    association = labels_of(np.array([[best[visit] for visit in row] for row in visits]))
    flown = unit * np.array([[best[x], best[y]] for x, y in positions])
    objective = problem.objective(association)
    dual = float(model.getDualbound())
    bound = max(dual, objective) if dual < NO_BOUND else np.inf
    note = f"time limit of {options.seconds:g} s reached" if model.getStatus() == "timelimit" else ""
    plan = Plan(flown, association, objective, bound, time.process_time() - began, "scip", note)
    broken = verify(problem, plan)
    if broken:
        raise InfeasibleError(f"scip's plan does not verify: {broken[0]}")
    return plan


def _rescale(problem: Problem, unit: float) -> Problem:
    """Return the same problem with lengths in `unit` metres."""
    lengths: dict[str, Any] = {name: getattr(problem, name) / unit for name in ("centres", "radii", "dmin", "vmax")}
    width, height = problem.region
    return replace(problem, **lengths, region=(width / unit, height / unit))


def _state(
    problem: Problem, clearance: float, model: Any, total: Any, log: Any
) -> tuple[list[tuple[Any, Any]], list[list[Any]]]:
    """Add variables, objective and C1-C6 in squared distances; returns positions (T) and indicators (C, T) (Eq. 4)."""
    C, T = problem.psi.shape
    low, high = flight_box(problem)
    positions = [(model.addVar(lb=low[0], ub=high[0]), model.addVar(lb=low[1], ub=high[1])) for _ in range(T)]
    visits = [[model.addVar(vtype="B") for _ in range(T)] for _ in range(C)]
    for c, (mx, my) in enumerate(problem.centres):
        inner, outer = max(0.0, problem.radii[c] - clearance) ** 2, (problem.radii[c] + clearance) ** 2
        farthest = max(mx - low[0], high[0] - mx) ** 2 + max(my - low[1], high[1] - my) ** 2
        for visit, (x, y) in zip(visits[c], positions, strict=True):
            squared = (x - mx) * (x - mx) + (y - my) * (y - my)
            model.addCons(squared <= inner + max(0.0, farthest - inner) * (1 - visit))  # C2
            model.addCons(squared >= outer * (1 - visit))  # C3
    for t in range(T):
        model.addCons(total(visits[c][t] for c in range(C)) <= 1)  # C4
    for w, (first, stop) in enumerate(problem.spans):
        for c in range(C):
            model.addCons(total(visits[c][first:stop]) <= int(problem.imax[c, w]))  # C5
    for (x, y), (next_x, next_y) in pairwise(positions):
        squared = (next_x - x) * (next_x - x) + (next_y - y) * (next_y - y)
        if problem.dmin > 0:
            model.addCons(squared >= (problem.dmin + clearance) ** 2)  # C6
        if np.isfinite(problem.vmax):
            model.addCons(squared <= max(0.0, problem.vmax - clearance) ** 2)
    values = []
    for c in range(C):
        most = float(problem.psi[c].sum()) + problem.epsilon
        amount = model.addVar(lb=problem.epsilon, ub=most)
        value = model.addVar(lb=float(np.log(problem.epsilon)), ub=float(np.log(most)))
        collected = total(float(problem.psi[c, t]) * visits[c][t] for t in range(T))
        model.addCons(amount == collected + problem.epsilon)
        model.addCons(value <= log(amount))
        values.append(value)
    model.setObjective(total(values), "maximize")
    return positions, visits
