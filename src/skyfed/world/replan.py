"""Replanning in flight: a vehicle plans the rounds ahead from what it knows by then (flight.replan)."""

from dataclasses import dataclass

import numpy as np

from skyfed.errors import InfeasibleError
from skyfed.field import Mixture
from skyfed.field.truncated import View, fit_in_squares
from skyfed.flight.constraints.base import load_constraints
from skyfed.flight.fleet_plan import FleetPlan
from skyfed.flight.planner import plan
from skyfed.flight.problem import FlightSettings, Options, Problem, window_spans
from skyfed.types import Floats, Ints
from skyfed.world.arrivals import initial_counts
from skyfed.world.expected import Camera
from skyfed.world.footprint import CameraGrowth, beginnings, in_square
from skyfed.world.sensing import Growth
from skyfed.world.settings import Conditions

HORIZON = 20  # rounds that are planned ahead at least, where the mission has so many left
_SURE = 20.0  # samples that the expectation before take-off is worth
_EFFORT = 0.05  # of what the planner does before take-off


@dataclass(frozen=True)
class Known:
    """What a vehicle knows in flight, t rounds after take-off.

    positions    (t, 2) m                        arrive  (t,) mission seconds, NaN where it sensed nothing
    association  (t,) classes it flew over       held    (C,) samples that it holds of each class
    value        (C,) worth of each class, as the station last told
    """

    positions: Floats
    arrive: Floats
    association: Ints
    held: Floats
    value: Floats


class Replanner:
    """Plans the rounds ahead of one vehicle after the other."""

    def __init__(self, fleet: FleetPlan, conditions: Conditions, flight: FlightSettings, places: Ints) -> None:
        """Plan for a fleet whose training samples occur at these places (classes)."""
        self._places = places
        self._fleet, self._flight, self._seed = fleet, flight, conditions.seed
        self._zeta, self._by_round = conditions.zeta, conditions.follows == "rounds"
        self._camera = Camera(conditions.sensing, conditions.sensor, conditions.world)
        self._constraints = load_constraints(flight.constraints)

    def ahead(self, vehicle: int, known: Known, growth: Growth | CameraGrowth) -> tuple[Floats, Ints]:
        """Return positions and classes of the rounds ahead; as planned before take-off where nothing else is found."""
        t, fleet = len(known.positions), self._fleet
        rounds = min(fleet.rounds - t, max(HORIZON, self._flight.replan))
        problem = self.problem(vehicle, known, growth, rounds)
        options = Options(self._seed, vehicle, self._flight.placement, effort=_EFFORT)
        try:
            flight = plan(problem, self._flight.method, options)
        except InfeasibleError:
            return fleet.positions[vehicle, t : t + rounds], fleet.association[vehicle, t : t + rounds]
        return flight.positions, flight.association

    def problem(self, vehicle: int, known: Known, growth: Growth | CameraGrowth, rounds: int) -> Problem:
        """Return the flight problem of the next rounds."""
        fleet, flight, t = self._fleet, self._flight, len(known.positions)
        believed = self.believed(vehicle, known, growth)
        occurring, seen = self._occurring(vehicle, known, growth, believed)
        starts = self._starts(known, rounds)
        gains, pictures = self._camera.expected(
            fleet.psi[vehicle], starts, believed, occurring, known.held, known.value, seen
        )
        spans = window_spans(fleet.classes, t + rounds, flight.windows)
        left = fleet.imax[vehicle][:, : len(spans)].copy()
        for w, (a, b) in enumerate(spans):
            visits = known.association[a : min(t, b)]
            left[:, w] -= np.bincount(visits[visits >= 0], minlength=fleet.classes)
        imax = np.maximum(0, left[:, spans[:, 1] > t])
        aloft = not np.isnan(known.arrive[-1])
        return Problem(
            believed.centres, self._zeta * believed.deviations, gains, imax,
            flight.dmin, float(fleet.vmax), flight.windows, flight.epsilon,
            (float(fleet.region[0]), float(fleet.region[1])), self._camera.sensing.decay_length, self._constraints,
            pictures, known.positions[-1] if aloft else None, t,
        )  # fmt: skip

    def believed(self, vehicle: int, known: Known, growth: Growth | CameraGrowth) -> Mixture:
        """Return the field as estimated from the initial samples and all that was photographed since."""
        fleet = self._fleet
        centres, deviations = fleet.centres[vehicle].copy(), fleet.radii[vehicle] / self._zeta
        weights = np.full(fleet.classes, 1 / fleet.classes)
        if isinstance(growth, CameraGrowth) and self._flight.field == "estimated":
            initial = np.maximum(1, initial_counts(fleet.psi[vehicle], self._camera.sensing.initial))
            views = growth.views(len(known.positions))
            for c in range(fleet.classes):
                own: list[View] = [(middle, where[self._places[taken] == c]) for middle, where, taken in views]
                fitted = fit_in_squares(centres[c], deviations[c], int(initial[c]), own, self._camera.side)
                centres[c], deviations[c] = fitted
        return Mixture(centres, deviations, weights)

    def _starts(self, known: Known, rounds: int) -> Floats:
        """Mission seconds at which the rounds ahead are expected to start: they last as those so far did."""
        t, world = len(known.positions), self._camera.world
        there = np.flatnonzero(~np.isnan(known.arrive))
        if self._by_round or not len(there):
            return world.round_time * np.arange(t, t + rounds, dtype=np.float64)
        first, last = there[0], there[-1]
        lasts = world.round_time if first == last else float(known.arrive[last] - known.arrive[first]) / (last - first)
        begun = max(0.0, float(known.arrive[last]) - world.flight_time)
        return np.asarray(begun + lasts * (np.arange(t, t + rounds) - last))

    def _occurring(
        self, vehicle: int, known: Known, growth: Growth | CameraGrowth, believed: Mixture
    ) -> tuple[Floats, Floats]:
        """Return how many samples of each class occur in a mission, by those seen, and until when each was watched."""
        classes, prior = self._fleet.classes, self._flight.occurring
        seen = np.full(classes, -np.inf)
        if not isinstance(growth, CameraGrowth):
            return np.full(classes, prior), seen
        camera = self._camera
        knots, mass = beginnings(self._fleet.psi[vehicle], camera.world.round_time, camera.sensing.stay)
        whole = np.where(mass[:, -1] > 0, mass[:, -1], 1.0)
        inside = in_square(known.positions, camera.side, believed.centres, believed.deviations)
        near = (np.abs(known.positions[:, None] - believed.centres) <= camera.side / 2).all(axis=2)
        exposed = np.zeros(classes)
        for s in range(1, len(known.positions)):
            if np.isnan(known.arrive[s]):
                continue
            leave = known.arrive[s] + camera.world.dwell
            for c in np.flatnonzero(inside[s] > 1e-3):
                since = max(known.arrive[s] - camera.sensing.stay, seen[c])
                exposed[c] += inside[s, c] * np.diff(np.interp([since, leave], knots, mass[c]))[0] / whole[c]
            seen[near[s]] = leave
        taken = growth.samples[growth.size[0] : growth.size[len(known.positions) - 1]]
        counted = np.bincount(self._places[taken], minlength=classes)
        return (_SURE + counted) / (_SURE / prior + exposed), seen
