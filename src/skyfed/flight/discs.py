"""Geometry of the discs: where a vehicle may fly while it is associated with a class (C2, C3, C4 together).

Over disc c and over no other: the disc less the open interiors of all others. The overlap of two discs is
forbidden ground, since both indicators would have to be 1.
"""

import itertools

import numpy as np

from skyfed.flight.constraints.base import points_allowed
from skyfed.flight.problem import Problem
from skyfed.types import Bools, Floats

_RIM = 360  # directions in which a rim is sampled
_RINGS = 12  # rings on which a disc is sampled where constraints cut into it
SLACK = 1e-9  # m: a point computed to lie on a circle may miss it by rounding


def neighbours(problem: Problem, c: int) -> list[int]:
    """Discs whose closed area meets that of c."""
    apart = np.hypot(*(problem.centres - problem.centres[c]).T) - problem.radii - problem.radii[c]
    return [int(k) for k in np.flatnonzero(apart <= SLACK) if k != c]


def allowed(problem: Problem, c: int, points: Floats) -> Bools:
    """Tell which points (n, 2) lie over disc c and over no other, and are allowed by the user's constraints."""
    inside: Bools = np.hypot(*(points - problem.centres[c]).T) <= problem.radii[c] + SLACK
    for k in neighbours(problem, c):
        inside &= np.hypot(*(points - problem.centres[k]).T) >= problem.radii[k] - SLACK
    return _and_constraints(problem, points, inside)


def outside_all(problem: Problem, points: Floats) -> Bools:
    """Tell which points (n, 2) lie over no disc: where a vehicle may be in a round without association."""
    free = np.ones(len(points), bool)
    for centre, radius in zip(problem.centres, problem.radii, strict=True):
        free &= np.hypot(*(points - centre).T) >= radius
    return _and_constraints(problem, points, free)


def _and_constraints(problem: Problem, points: Floats, fits: Bools) -> Bools:
    """Drop the points that a constraint of the user's own forbids."""
    if problem.constraints:
        fits[fits] = points_allowed(problem.constraints, points[fits])
    return fits


def distances(before: Floats, after: Floats) -> Floats:
    """Distance from each point of `before` (m, 2) to each of `after` (n, 2); (m, n)."""
    return np.asarray(np.hypot(*(before[:, None] - after[None]).transpose(2, 0, 1)))


def unit_vectors(angle: Floats | float) -> Floats:
    """Unit vectors at these angles; (..., 2)."""
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def circle(centre: Floats, radius: float, directions: int, phase: float = 0.0) -> Floats:
    """Points on a circle, evenly spread; (directions, 2)."""
    angle = phase + 2 * np.pi * np.arange(directions) / directions
    return np.asarray(centre + radius * unit_vectors(angle))


def flight_box(problem: Problem) -> tuple[Floats, Floats]:
    """Return the lower left and upper right corner of the region, widened to hold every disc's centre."""
    half = np.asarray(problem.region) / 2
    return np.minimum(-half, problem.centres.min(axis=0)), np.maximum(half, problem.centres.max(axis=0))


def samples(problem: Problem, c: int, rings: int) -> Floats:
    """Points all over disc c: its centre and evenly spread ones on rings; (1 + 3 rings (rings + 1), 2)."""
    centre, radius = problem.centres[c], problem.radii[c]
    return np.concatenate([centre[None], *(circle(centre, radius * k / rings, 6 * k) for k in range(1, rings + 1))])


def crossings(centre_a: Floats, radius_a: float, centre_b: Floats, radius_b: float) -> Floats:
    """Points where two circles meet; (0 or 2, 2)."""
    way = centre_b - centre_a
    distance = float(np.hypot(*way))
    if distance == 0 or distance > radius_a + radius_b or distance < abs(radius_a - radius_b):
        return np.empty((0, 2))
    along = (distance**2 + radius_a**2 - radius_b**2) / (2 * distance)
    across = np.sqrt(max(0.0, radius_a**2 - along**2))
    unit = way / distance
    normal = np.array([-unit[1], unit[0]])
    return np.stack([centre_a + along * unit + across * normal, centre_a + along * unit - across * normal])


def corners(problem: Problem, c: int) -> Floats:
    """Allowed points where the rim of c or of a neighbour meets the rim of another neighbour."""
    rims = [c, *neighbours(problem, c)]
    points = [
        crossings(problem.centres[a], problem.radii[a], problem.centres[b], problem.radii[b])
        for a, b in itertools.combinations(rims, 2)
    ]
    everywhere = np.concatenate([np.empty((0, 2)), *points])
    return everywhere[allowed(problem, c, everywhere)]


def extremes(problem: Problem, c: int) -> Floats:
    """Allowed points of the rim and the corners; without constraints empty exactly when c can never be sensed.

    Farthest points of the allowed area lie among the free arcs of the rim and the corners, because the other
    discs' arcs bulge inwards.
    """
    rim = circle(problem.centres[c], problem.radii[c], _RIM)
    return np.concatenate([rim[allowed(problem, c, rim)], corners(problem, c)])


def anchor(problem: Problem, c: int) -> Floats | None:
    """Return the allowed point nearest to the centre of c, None if there is none.

    Constraints of the user's own can have any shape: with them it is the nearest of many samples.
    """
    centre = problem.centres[c]
    near = neighbours(problem, c)
    way = centre - problem.centres[near]
    distance = np.hypot(*way.T)[:, None]
    unit = np.divide(way, distance, out=np.tile([1.0, 0.0], (len(near), 1)), where=distance > 0)
    rims = problem.centres[near] + problem.radii[near][:, None] * unit
    options = np.concatenate([centre[None], rims, extremes(problem, c)])
    if problem.constraints:
        options = np.concatenate([options, samples(problem, c, _RINGS)])
    options = options[allowed(problem, c, options)]
    if not len(options):
        return None
    return np.asarray(options[np.hypot(*(options - centre).T).argmin()])


def impossible_steps(problem: Problem) -> list[tuple[int, int]]:
    """Pairs (a, b) that no two consecutive rounds can visit, because no allowed points lie dmin apart (C6).

    Proven: the sampled farthest distance is raised by half the sampling step of each rim. Constraints of the user's
    own are left aside, since the rims prove nothing about what they leave.
    """
    if problem.dmin == 0:
        return []
    problem = problem.paper_only
    small = np.flatnonzero(problem.radii < problem.dmin)
    sets = {int(c): extremes(problem, c) for c in range(problem.classes) if neighbours(problem, c) or c in small}
    impossible = []
    for (a, points), (b, others) in itertools.product(sets.items(), repeat=2):
        slack = (problem.radii[a] + problem.radii[b]) * np.pi / _RIM
        if len(points) and len(others) and distances(points, others).max() + slack < problem.dmin:
            impossible.append((a, b))
    return impossible
