"""Algorithm 1: successive convexification, as the paper prints it."""

import time
from dataclasses import replace

import cvxpy as cp
import numpy as np

from skyfed.errors import BadInputError, InfeasibleError
from skyfed.flight.discs import circle, flight_box, unit_vectors
from skyfed.flight.place import PlacementError, place
from skyfed.flight.problem import Options, Problem
from skyfed.flight.sca_model import COINCIDENT, Subproblem
from skyfed.flight.verify import verify
from skyfed.rng import stream
from skyfed.types import Floats, Plan


def solve(problem: Problem, options: Options) -> Plan:
    """Linearise C3 and C6 at the last positions, solve over positions and associations, repeat (Alg. 1).

    options.sca holds J (iterations), varpi (precision), the initial points' kind and the solver. h1 and h2 are inner
    approximations, so every iterate is feasible for the true C3 and C6 even if the initial points are not; each is
    verified. The last good iterate is the plan. It has no proven bound: the convex subproblem bounds itself only.
    Nothing draws it towards a centre; options.sca.placement = "sensing" keeps its visits and places them anew.

    The objective is counted anew from each association. It falls between iterations by no more than the solver's gap
    and what the tangents overestimate the logarithms by, about 1e-3 nats per class.
    """
    began = time.process_time()
    sca = options.sca
    rng = stream(options.seed, "sca start", vehicle=options.vehicle)
    points = start_points(problem, sca.start, rng)
    spare = unit_vectors(rng.uniform(0, 2 * np.pi, problem.rounds))
    subproblem = Subproblem(problem, sca.sides, choose_solver(sca.solver), sca.seconds)
    plan: Plan | None = None
    history: list[float] = []
    limited: list[int] = []
    notes: list[str] = []
    for j in range(1, sca.iterations + 1):
        try:
            positions, association, cut_off = subproblem.solve(points, spare)
        except InfeasibleError as error:
            notes.append(f"iteration {j}: {error}")
            break
        value = problem.objective(association)
        candidate = Plan(positions, association, value, np.inf, 0.0, "sca")
        broken = verify(problem, candidate)
        if broken:
            notes.append(f"iteration {j} does not verify: {broken[0]}")
            break
        if cut_off:
            limited.append(j)
            if plan is not None and value < plan.objective:  # cut off before it was as far as its own start
                break
        plan, points = candidate, positions
        history.append(value)
        if j > 1 and abs(history[-1] - history[-2]) < sca.precision:
            break
    else:
        if sca.iterations > 1:
            notes.append(f"not converged in J = {sca.iterations} iterations")
    if limited:
        notes.append(f"solver's limit reached in iteration {', '.join(map(str, limited))}")
    if plan is None:
        raise InfeasibleError(f"flight.method = 'sca': {'; '.join(notes)}; try another flight.sca.start or seed")
    positions = plan.positions
    if sca.placement == "sensing":
        try:
            positions = place(problem, plan.association, hint=positions)
        except PlacementError as error:
            notes.append(f"not placed for sensing: {error}")
    spent = time.process_time() - began
    return replace(plan, positions=positions, seconds=spent, note="; ".join(notes), history=tuple(history))


def start_points(problem: Problem, kind: str, rng: np.random.Generator) -> Floats:
    """Return the initial points q^{t,0}, neighbours apart; (T, 2) (Alg. 1).

    random  uniform in the region
    circle  once around the station, at a quarter of the region's smaller side
    greedy  the centre of the class with the largest psi among those that C5 still allows
    """
    T = problem.rounds
    if kind == "random":
        points = rng.uniform(*flight_box(problem), size=(T, 2))
    elif kind == "circle":
        points = circle(np.zeros(2), min(problem.region) / 4, T)
    else:
        points = problem.centres[_best_allowed(problem)]
    if np.isfinite(problem.vmax):
        points = slow_down(points, 0.9 * problem.vmax)
    return part_neighbours(points, min(max(problem.dmin, 1.0), problem.vmax), rng)


def _best_allowed(problem: Problem) -> list[int]:
    """Walk through the rounds and take the largest psi that C5 leaves; where it leaves none, the largest."""
    left = problem.imax.copy()
    walk = []
    for t in range(problem.rounds):
        windows = problem.window_rounds[:, t]
        allowed = (left[:, windows] > 0).all(axis=1)
        behind = 1 + problem.psi.max()  # puts what C5 forbids behind all that it allows
        best = int(np.argmax(problem.psi[:, t] - behind * ~allowed))
        left[best, windows] -= 1
        walk.append(best)
    return walk


def part_neighbours(points: Floats, step: float, rng: np.random.Generator) -> Floats:
    """Move a point that lies on its predecessor by `step` metres in a random direction: h2 needs a direction there."""
    parted = points.copy()
    for t in range(1, len(parted)):
        if np.hypot(*(parted[t] - parted[t - 1])) < COINCIDENT:
            parted[t] = parted[t - 1] + step * unit_vectors(rng.uniform(0, 2 * np.pi))
    return parted


def slow_down(points: Floats, reach: float) -> Floats:
    """Fly towards each point in turn, at most `reach` metres per round."""
    slow = points.copy()
    for t in range(1, len(slow)):
        step = points[t] - slow[t - 1]
        slow[t] = slow[t - 1] + step * min(1.0, reach / max(np.hypot(*step), COINCIDENT))
    return slow


def choose_solver(wanted: str) -> str:
    """Return CVXPY's name of the solver: MOSEK where it is asked for or automatic and a trial problem solves."""
    if wanted != "highs" and _mosek_works():
        return "MOSEK"
    if wanted == "mosek":
        raise BadInputError(
            "flight.sca.solver = 'mosek': not installed or no licence; allowed without it: 'auto', 'highs'"
        )
    return "HIGHS"


def _mosek_works() -> bool:
    if "MOSEK" not in cp.installed_solvers():
        return False
    trial = cp.Variable()
    try:
        return bool(np.isfinite(cp.Problem(cp.Minimize(trial), [trial >= 1]).solve(solver="MOSEK")))
    except Exception:  # MOSEK raises its own errors for a licence that is missing or has run out
        return False
