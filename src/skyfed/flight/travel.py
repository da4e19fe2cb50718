"""Travel times between the discs under a speed limit, as a small network of points.

Each disc is sampled on rings; a link's length is the number of rounds the flight takes. A sample that another of the
same disc beats on every link is dropped: any flight through it can go through the other. A few samples a disc remain.
"""

from dataclasses import dataclass

import numpy as np

from skyfed.flight.discs import allowed, circle, corners
from skyfed.flight.legs import fly_leg
from skyfed.flight.problem import Problem
from skyfed.records import Floats, Ints

_SAMPLES = 2500  # samples over all discs, about
_MOST_RINGS = 8


@dataclass(frozen=True)
class Network:
    """Points to fly between: positions (N, 2), their class (N,), rounds from one to another (N, N) >= 1."""

    points: Floats
    label: Ints
    rounds: Ints


def flyable_network(problem: Problem) -> Network:
    """Points inside the allowed areas, linked by the rounds a flight takes that can be flown without meeting a disc."""
    rings = _rings(problem)
    points, label = [], []
    for c in range(problem.classes):
        sample = np.concatenate([_samples(problem, c, rings), corners(problem, c)])
        sample = sample[allowed(problem, c, sample)]
        points.append(sample)
        label.append(np.full(len(sample), c))
    found = _reduced(problem, np.concatenate(points), np.concatenate(label), np.zeros(problem.classes))
    rounds = found.rounds.copy()
    for i, j in np.argwhere(rounds > 1):
        while (
            rounds[i, j] < problem.rounds
            and fly_leg(problem, found.points[i], found.points[j], rounds[i, j] - 1) is None
        ):
            rounds[i, j] += 1
    return Network(found.points, found.label, rounds)


def optimistic_network(problem: Problem) -> Network:
    """Points whose travel times are never longer than true: whatever can be flown is a path on it.

    Every point of a disc lies within `reach` of a sample, so a flight between two discs takes at least as many
    rounds as the samples' distance less both reaches; and never fewer than the distance between the discs.
    """
    rings = _rings(problem)
    samples = [_samples(problem, c, rings) for c in range(problem.classes)]
    label = np.repeat(np.arange(problem.classes), [len(sample) for sample in samples])
    return _reduced(problem, np.concatenate(samples), label, problem.radii * _covering_radius(rings))


def _rings(problem: Problem) -> int:
    rings = 1
    while rings < _MOST_RINGS and problem.classes * _ring_points(rings + 1) <= _SAMPLES:
        rings += 1
    return rings


def _ring_points(rings: int) -> int:
    return 1 + 3 * rings * (rings + 1)


def _samples(problem: Problem, c: int, rings: int) -> Floats:
    centre, radius = problem.centres[c], problem.radii[c]
    return np.concatenate([centre[None], *(circle(centre, radius * k / rings, 6 * k) for k in range(1, rings + 1))])


def _covering_radius(rings: int) -> float:
    """Farthest any point of the unit disc lies from a sample, from above.

    In units of the rings' distance, a point s past ring k has that ring's nearest sample within
    sqrt(s^2 + (pi/6)^2 (1 + s/k)) and the next ring's within sqrt((1-s)^2 + (pi/6)^2); the smaller is below 0.75.
    """
    return 0.75 / rings


def _reduced(problem: Problem, points: Floats, label: Ints, reach: Floats) -> Network:
    far = np.hypot(*(points[:, None] - points[None]).transpose(2, 0, 1))
    far -= (reach[label][:, None] + reach[label][None]) - 1e-9
    rounds = np.ceil(far / problem.vmax - 1e-9).astype(np.int64)
    apart = np.hypot(*(problem.centres[:, None] - problem.centres[None]).transpose(2, 0, 1))
    apart -= problem.radii[:, None] + problem.radii[None]
    least = np.maximum(1, np.ceil(apart / problem.vmax - 1e-9)).astype(np.int64)
    rounds = np.maximum(rounds, least[label][:, label])
    keep = np.arange(len(label))
    while True:
        kept = _undominated(rounds[np.ix_(keep, keep)], label[keep])
        if len(kept) == len(keep):
            return Network(points[keep], label[keep], rounds[np.ix_(keep, keep)])
        keep = keep[kept]


def _undominated(rounds: Ints, label: Ints) -> Ints:
    """Indices to keep: one of each kind of link lengths, and none that another of its class never loses against."""
    _, columns = np.unique(rounds, axis=1, return_index=True)
    seen = rounds[:, columns]
    _, first = np.unique(np.column_stack([label, seen]), axis=0, return_index=True)
    first.sort()
    kept = []
    for c in np.unique(label):
        own = first[label[first] == c]
        beats = (seen[own][:, None] <= seen[own][None]).all(axis=2)  # beats[a, b]: a never longer than b
        np.fill_diagonal(beats, False)
        kept.append(own[~beats.any(axis=0)])
    return np.sort(np.concatenate(kept))
