"""The convex subproblem of Algorithm 1 in CVXPY, and the linearisations h1 and h2 that it is built around (Eq. 5)."""

import warnings
from typing import Any

import cvxpy as cp
import numpy as np

from skyfed.errors import InfeasibleError
from skyfed.flight.discs import circle, flight_box
from skyfed.flight.problem import Problem, labels_of
from skyfed.types import Floats, Ints

CLEARANCE = 1e-4  # m kept from every rim, so that a solver's tolerance cannot break C2, C3 or C6
COINCIDENT = 1e-6  # m: below it two points count as one and have no direction between them
SOLVER_TOLERANCE = 1e-9  # integrality: times the largest big-M, some 1e3 m, it stays far below CLEARANCE
GAP = 1e-3  # nats: a subproblem is solved this close to its optimum, 0.01 % per class with ten classes
NODES = 1000  # branch-and-bound nodes of one solve; counts, unlike seconds, are the same on every machine
SPEED_SIDES = 32  # least number of sides of the polygon that limits a step
TANGENT_RATIO = 1.1  # neighbouring tangents of the logarithm; it is overestimated by ln(1.1)^2 / 8 = 1.1e-3 at most
SMALLEST_AMOUNT = 1e-4  # of psi: no tangent below it, its slope would spoil the solver's scaling


def disc_slopes(points: Floats, centres: Floats, spare: Floats) -> Floats:
    """Return the unit slopes u of h1(q) = u . (q - mu_c) at points (T, 2); (C, T, 2) (h1).

    The printed h1 is |q0 - mu| + u . (q - q0) with u = (q0 - mu) / |q0 - mu|, which is u . (q - mu): the tangent of a
    convex function, so never above it. Its epsilon_tol only guards the centre, where u is spare[t] instead.
    """
    offset = points[None] - centres[:, None]
    distance = np.linalg.norm(offset, axis=2, keepdims=True)
    return np.where(distance > COINCIDENT, offset / np.maximum(distance, COINCIDENT), spare[None])


def step_slopes(points: Floats) -> Floats:
    """Return the unit slopes v of h2(q, q') = v . (q' - q) at points (T, 2), no two neighbours equal; (T-1, 2) (h2)."""
    step = np.diff(points, axis=0)
    return np.asarray(step / np.linalg.norm(step, axis=1, keepdims=True))


def polygon_normals(sides: int) -> Floats:
    """Return the outward unit normals of a regular polygon; inscribed in a unit disc each side is cos(pi/sides) out."""
    return circle(np.zeros(2), 1.0, sides)


class Subproblem:
    """The transformed problem over positions and associations jointly, built once; each solve only sets slopes (Eq. 5).

    With MOSEK C2 is a second-order cone and the logarithm an exponential cone. Open solvers have no such
    mixed-integer cones: there a disc is the polygon inscribed in it, so that what is feasible here is feasible for the
    disc, and the logarithm is the least of its tangents.
    """

    def __init__(self, problem: Problem, sides: int, solver: str, seconds: float) -> None:
        C, T = problem.psi.shape
        self._problem, self._solver, self._seconds = problem, solver, seconds
        self._box = flight_box(problem)
        self.position = cp.Variable((2, T), bounds=[np.tile(edge[:, None], T) for edge in self._box])
        self.visits = cp.Variable((C, T), boolean=True)
        self._disc_slope = [cp.Parameter((C, T)) for _ in range(2)]
        self._disc_base = cp.Parameter((C, T))
        self._step_slope = [cp.Parameter(T - 1) for _ in range(2)] if T > 1 and problem.dmin > 0 else []
        cones = solver == "MOSEK"
        collected = cp.sum(cp.multiply(problem.psi, self.visits), axis=1) + problem.epsilon
        value, constraints = (cp.sum(cp.log(collected)), []) if cones else _log_by_tangents(problem, collected)
        constraints += self._visit_limits() + self._outside_discs() + self._apart()
        constraints += self._inside_discs_by_cones() if cones else self._inside_discs_by_polygons(sides)
        if np.isfinite(problem.vmax) and T > 1:
            constraints += self._speed(max(sides, SPEED_SIDES), cones)
        self.model = cp.Problem(cp.Maximize(value), constraints)

    def solve(self, points: Floats, spare: Floats) -> tuple[Floats, Ints, bool]:
        """Linearise C3 and C6 at points (T, 2) and solve; raises InfeasibleError where no solution is found (Eq. 5).

        Returns positions, association, and whether the solver stopped at a limit before its gap was reached.
        """
        slope = disc_slopes(points, self._problem.centres, spare)
        for axis, parameter in enumerate(self._disc_slope):
            parameter.value = slope[:, :, axis]
        self._disc_base.value = np.einsum("cta,ca->ct", slope, self._problem.centres)
        for axis, parameter in enumerate(self._step_slope):
            parameter.value = step_slopes(points)[:, axis]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Solution may be inaccurate")  # a limit: the answer tells of it
            try:
                # The last iterate meets its own linearisation, so the solver starts from it and ends no lower.
                self.model.solve(solver=self._solver, warm_start=True, **_solver_settings(self._solver, self._seconds))
            except cp.SolverError as error:
                raise InfeasibleError(f"{self._solver} failed: {str(error).splitlines()[0]}") from None
        visits, positions, status = self.visits.value, self.position.value, self.model.status
        if status in (cp.INFEASIBLE, cp.INFEASIBLE_INACCURATE, "infeasible_or_unbounded"):
            raise InfeasibleError("the convex subproblem is infeasible")
        if visits is None or positions is None or not self._has_point():
            raise InfeasibleError(f"no solution of the convex subproblem in {self._seconds:g} s")
        return np.array(positions.T), labels_of(visits), status != cp.OPTIMAL

    def _has_point(self) -> bool:
        """Whether HiGHS has a feasible point: at a limit without one it hands out zeros."""
        feasible = 2  # HiGHS's kSolutionStatusFeasible
        return bool(self._solver != "HIGHS" or self.model.solver_stats.extra_stats.primal_solution_status == feasible)

    def _visit_limits(self) -> list[Any]:
        """C4, at most one class per round, and C5, at most Imax visits per window."""
        window = self._problem.window_rounds.astype(np.float64)
        limits = [cp.sum(self.visits, axis=0) <= 1]
        return [*limits, self.visits @ window.T <= self._problem.imax] if len(window) else limits

    def _outside_discs(self) -> list[Any]:
        """C3 linearised: h1 >= radius - M I. Inside disc c h1 is at least -radius, so M is twice the radius (h1)."""
        rim = np.tile(self._problem.radii[:, None] + CLEARANCE, self._problem.rounds)
        column = np.ones((self._problem.classes, 1))
        across, up = (cp.multiply(self._disc_slope[a], column @ self.position[a : a + 1]) for a in range(2))
        return [across + up - self._disc_base >= rim - cp.multiply(2 * rim, self.visits)]

    def _apart(self) -> list[Any]:
        """C6 linearised: h2 >= dmin; with dmin = 0 there is nothing to ask (h2)."""
        if not self._step_slope:
            return []
        step = self.position[:, 1:] - self.position[:, :-1]
        along = cp.multiply(self._step_slope[0], step[0]) + cp.multiply(self._step_slope[1], step[1])
        return [along >= self._problem.dmin + CLEARANCE]

    def _inside_discs_by_polygons(self, sides: int) -> list[Any]:
        """C2 on polygons, one row per side and round: C4 lets one indicator be 1, and its side is the limit then.

        The same points as with a row and an M for each class, in fewer and tighter rows.
        """
        normals = polygon_normals(sides)
        low, high = self._box
        farthest = np.maximum(normals, 0) @ high + np.minimum(normals, 0) @ low
        apothem = np.maximum(0.0, self._problem.radii * np.cos(np.pi / sides) - CLEARANCE)
        side = normals @ self._problem.centres.T + apothem
        idle = np.tile(farthest[:, None], self._problem.rounds)
        return [normals @ self.position <= idle + (side - farthest[:, None]) @ self.visits]

    def _inside_discs_by_cones(self) -> list[Any]:
        """C2 as printed; M is the distance to the farthest corner of the box, for each class its own."""
        limits = []
        for c, (centre, radius) in enumerate(zip(self._problem.centres, self._problem.radii, strict=True)):
            farthest = np.hypot(*np.maximum(np.abs(self._box[0] - centre), np.abs(self._box[1] - centre)))
            distance = cp.norm(self.position - np.tile(centre[:, None], self._problem.rounds), axis=0)
            limit = max(0.0, radius - CLEARANCE)
            limits.append(distance <= limit + (farthest - limit) * (1 - self.visits[c]))
        return limits

    def _speed(self, sides: int, cones: bool) -> list[Any]:
        """Speed limit; without cones on an inscribed polygon, a fine one: dmin and vmax may leave little room."""
        step = self.position[:, 1:] - self.position[:, :-1]
        if cones:
            return [cp.norm(step, axis=0) <= self._problem.vmax - CLEARANCE]
        return [polygon_normals(sides) @ step <= max(0.0, self._problem.vmax * np.cos(np.pi / sides) - CLEARANCE)]


def tangent_points(problem: Problem, label: int) -> Floats:
    """Return the amounts at which the logarithm of one class is touched, smallest to largest, TANGENT_RATIO apart."""
    psi = problem.psi[label]
    largest = max(psi.sum(), SMALLEST_AMOUNT)
    smallest = min(max(psi[psi > 0].min(initial=largest), SMALLEST_AMOUNT), largest)
    count = 1 + int(np.ceil(np.log(largest / smallest) / np.log(TANGENT_RATIO)))
    return np.geomspace(smallest, largest, count) + problem.epsilon


def _log_by_tangents(problem: Problem, collected: Any) -> tuple[Any, list[Any]]:
    """The objective from above: each class's logarithm is at most every tangent (Eq. 4).

    A class that is never visited has log(epsilon). The tangent there is too steep for a solver, so a chord from it to
    the smallest amount takes its place: it cuts off no amount that can be collected.
    """
    labels, slopes, bases = [], [], []
    for c in range(problem.classes):
        touch = tangent_points(problem, c)
        chord = np.log(touch[0] / problem.epsilon) / (touch[0] - problem.epsilon)
        slopes += [chord, *(1 / touch)]
        bases += [np.log(problem.epsilon) - chord * problem.epsilon, *(np.log(touch) - 1)]
        labels += [c] * (1 + len(touch))
    amount, log = cp.Variable(problem.classes), cp.Variable(problem.classes)
    below = log[labels] <= np.array(bases) + cp.multiply(np.array(slopes), amount[labels])
    return cp.sum(log), [amount == collected, below]


def _solver_settings(solver: str, seconds: float) -> dict[str, Any]:
    """One thread, a fixed seed and limits on gap and nodes, so that a solve repeats; seconds are the last resort."""
    if solver == "MOSEK":
        parameters = {
            "MSK_IPAR_NUM_THREADS": 1,
            "MSK_IPAR_MIO_MAX_NUM_BRANCHES": NODES,
            "MSK_DPAR_MIO_TOL_ABS_GAP": GAP,
            "MSK_DPAR_MIO_TOL_REL_GAP": 0.0,
            "MSK_DPAR_MIO_TOL_ABS_RELAX_INT": SOLVER_TOLERANCE,
            "MSK_DPAR_MIO_MAX_TIME": seconds,
        }
        return {"mosek_params": parameters}
    return {
        "threads": 1,
        "random_seed": 0,
        "mip_abs_gap": GAP,
        "mip_rel_gap": 0.0,
        "mip_max_nodes": NODES,
        "mip_feasibility_tolerance": SOLVER_TOLERANCE,
        "time_limit": seconds,
    }
