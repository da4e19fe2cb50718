"""From settings to a mission: the true field, every vehicle's estimate of it, and its flight problem."""

from dataclasses import dataclass, replace

import numpy as np

from skyfed.errors import BadInputError
from skyfed.field import FITS, Field, FieldSettings, Mixture, build_field, estimation_error
from skyfed.flight.constraints.base import load_constraints
from skyfed.flight.discs import allowed, corners, flight_box, samples
from skyfed.flight.planner import load_solver, refuse_objective, refuse_unsupported
from skyfed.flight.problem import FlightSettings, Problem, spread_imax, window_spans
from skyfed.rng import stream
from skyfed.types import Floats
from skyfed.world.arrivals import SensingSettings, initial_counts
from skyfed.world.expected import Camera

_RINGS = 12  # on which a disc is sampled for a point inside the region


@dataclass(frozen=True)
class Mission:
    """What the fleet faces: the truth, what each vehicle believes, and what it therefore solves."""

    field: Field
    estimates: tuple[Mixture, ...]
    errors: tuple[Floats, ...]
    problems: tuple[Problem, ...]


def prepare_mission(
    field: FieldSettings, flight: FlightSettings, sensing: SensingSettings, vehicles: int, rounds: int, seed: int,
    longest_leg: float | None = None, camera: Camera | None = None,
) -> Mission:  # fmt: skip
    """Build the field, let every vehicle estimate it from the positions of its initial samples, state the problems.

    longest_leg  metres per round; without it flight.vmax if that is a number, else no limit
    camera       how vehicles sense, for the objective "pictures"; without it the default one with these settings
    """
    if longest_leg is None:
        longest_leg = np.inf if isinstance(flight.vmax, str) else flight.vmax
    if ":" in flight.method:
        load_solver(flight.method)  # one's own planner that is not there shows here, before anything is written
    constraints = load_constraints(flight.constraints)
    refuse_unsupported(flight.method, constraints)
    refuse_objective(flight.method, flight.objective, flight.replan > 0)
    truth = build_field(field, vehicles, rounds, seed)
    estimates = tuple(_estimate(truth, u, field, sensing, seed) for u in range(vehicles))
    errors = tuple(estimation_error(*pair) for pair in zip(estimates, truth.mixtures, strict=True))
    believed = estimates if flight.field == "estimated" else truth.mixtures
    spans = window_spans(field.classes, rounds, flight.windows)
    imax = spread_imax(flight.imax, vehicles, field.classes, len(spans))
    problems = tuple(
        Problem(
            centres=mixture.centres,
            radii=field.zeta * mixture.deviations,
            psi=truth.psi[u],
            imax=imax[u],
            dmin=flight.dmin,
            vmax=longest_leg,
            windows=flight.windows,
            epsilon=flight.epsilon,
            region=field.region,
            decay_length=sensing.decay_length,
            constraints=constraints,
        )
        for u, mixture in enumerate(believed)
    )
    for problem in problems:
        _refuse_outside(problem)
    if flight.objective == "pictures":
        camera = camera or Camera(sensing)
        problems = tuple(
            _counting(problem, mixture, camera, flight.occurring)
            for problem, mixture in zip(problems, believed, strict=True)
        )
    return Mission(truth, estimates, errors, problems)


def _counting(problem: Problem, mixture: Mixture, camera: Camera, occurring: float) -> Problem:
    """Return the problem of most pictures, before take-off: every class is worth the same."""
    starts = camera.world.round_time * np.arange(problem.rounds, dtype=np.float64)
    held = initial_counts(problem.psi, camera.sensing.initial).astype(np.float64)
    gains, pictures = camera.expected(problem.psi, starts, mixture, occurring, held, np.ones(problem.classes))
    return replace(problem, psi=gains, pictures=pictures)


def _refuse_outside(problem: Problem) -> None:
    """Raise where a flight could not stay in the region, widened to hold every disc's centre."""
    low, high = flight_box(problem)
    size, farthest = "{:g} x {:g} m".format(*problem.region), float(np.hypot(*(high - low)))
    if problem.rounds > 1 and problem.dmin > farthest:
        raise BadInputError(
            f"flight.dmin = {problem.dmin:g}: no two points of the region of {size} are so far apart; "
            f"allowed: at most {farthest:.0f}, or a larger field.region"
        )
    free = problem.paper_only
    some = False
    for c in range(free.classes):
        points = np.concatenate([samples(free, c, _RINGS), corners(free, c)])
        points = points[allowed(free, c, points)]
        if ((points >= low) & (points <= high)).all(axis=1).any():
            return
        some = some or bool(len(points))
    if some:  # else the planner says that every disc is covered
        raise BadInputError(
            f"field.region: no point of the {size} lies over a single disc, so all flights would leave it; "
            "allowed: a larger region, or smaller field.radii or field.zeta"
        )


def _estimate(truth: Field, vehicle: int, field: FieldSettings, sensing: SensingSettings, seed: int) -> Mixture:
    counts = np.maximum(1, initial_counts(truth.psi[vehicle], sensing.initial))
    rng = stream(seed, "initial positions", vehicle=vehicle)
    if counts.max() < 2:
        raise BadInputError(
            f"sensing.initial = {sensing.initial}: one sample per place tells no radius; allowed: two of some place"
        )
    positions, labels = truth.mixtures[vehicle].sample(counts, rng)
    return FITS[field.estimate](positions, labels, field.classes)
