"""Travel times between the discs under a speed limit, as a small network of points.

Each disc is sampled on rings; a link's length is the number of rounds the flight takes. A sample that another of the
same disc beats on every link is dropped: any flight through it can go through the other. A few samples per disc remain.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from skyfed.errors import BadInputError
from skyfed.flight.constraints.base import legs_allowed
from skyfed.flight.discs import allowed, anchor, corners, distances, samples
from skyfed.flight.legs import can_fly
from skyfed.flight.problem import Problem
from skyfed.types import Floats, Ints

_SAMPLES = 2500  # samples over all discs, about
_MOST_RINGS = 8
_POINTS = 130  # left of them, at most: a slow vehicle's samples hardly drop out, and the searches' time is quadratic
_FLYABLE_POINTS = 80  # the same where every link is tried
_DETOUR = 3  # rounds that a flight around discs may take longer than the straight line
_CONSTRAINED_RINGS = 3  # fewer where constraints cut links, since fewer points then drop out
_LOST_STEP = 0.15  # of the samples in view: points that show nearly as much are compared by their links alone
_CRAWL = 10  # missions that it takes to cross the region where a vehicle hardly moves
STATES = 90  # memory states per point, at most, in the search for walks
_MEMORY = 3 * 2**30  # bytes that search may take


@dataclass(frozen=True)
class Network:
    """Points to fly between: positions (N, 2), their class (N,), rounds from one to another (N, N) >= 1."""

    points: Floats
    label: Ints
    rounds: Ints


def flyable_network(problem: Problem) -> Network:
    """Points inside the allowed areas, linked by the rounds a flight takes that can be flown without meeting a disc."""

    def build(rings: int) -> Network:
        sets = [_allowed_samples(problem, c, rings) for c in range(problem.classes)]
        network = _linked(problem, sets, np.zeros(problem.classes))
        if problem.constraints:
            i, j = np.nonzero(network.rounds == 1)
            legs = legs_allowed(problem.constraints, network.points[i], network.points[j])
            network.rounds[i, j] = np.where(legs, 1, 2)
        return _reduced(network, _levels(problem, network))

    rings = _CONSTRAINED_RINGS if problem.constraints else _rings(problem)
    network = _that_fits(problem, build, rings, _FLYABLE_POINTS)
    points, label, rounds = network.points, network.label, network.rounds
    # a vehicle that cannot leave its disc in one round cannot idle in the next
    inside = problem.radii[label] - np.hypot(*(points - problem.centres[label]).T)
    stuck = inside > problem.vmax
    rounds[(rounds > 1) & (stuck[:, None] | stuck[None])] = problem.rounds
    both_ways = not problem.constraints
    for i, j in np.argwhere((rounds > 1) & (rounds < problem.rounds)):
        if not both_ways or i < j:
            rounds[i, j] = _flown_in(problem, points[i], points[j], int(rounds[i, j]))
    if both_ways:
        rounds[:] = np.triu(rounds) + np.triu(rounds, 1).T
    return network


def _flown_in(problem: Problem, start: Floats, stop: Floats, least: int) -> int:
    """Rounds from `least` on in which a flight is found, the mission's where none is found soon."""
    for rounds in range(least, min(least + _DETOUR + 1, problem.rounds)):
        if can_fly(problem, start, stop, rounds - 1):
            return rounds
    return problem.rounds


def optimistic_network(problem: Problem) -> Network:
    """Points whose travel times are never longer than true: whatever can be flown is a path on it.

    Every point of a disc lies within `reach` of a sample, so a flight between two discs takes at least as many
    rounds as the samples' distance less both reaches; and never fewer than the distance between the discs.
    Constraints of the user's own are ignored: they never shorten a flight.
    """

    _refuse_crawl(problem)

    def build(rings: int) -> Network:
        sets = [samples(problem, c, rings) for c in range(problem.classes)]
        return _reduced(_linked(problem, sets, problem.radii * _covering_radius(rings)))

    return _that_fits(problem, build, _rings(problem))


def _that_fits(problem: Problem, build: Callable[[int], Network], most: int, points: int = _POINTS) -> Network:
    """Build a network with as many rings as the search for walks has memory and time for."""
    needed = _search_bytes(problem, problem.classes)  # every class keeps a point or more
    for rings in range(most if needed <= _MEMORY else 0, 0, -1):
        network = build(rings)
        needed = _search_bytes(problem, len(network.label))
        if needed <= _MEMORY and (rings == 1 or len(network.label) <= points):
            return network
    raise BadInputError(
        f"flight.vmax = {problem.vmax:g}: exact would need {needed / 2**30:.0f} GiB for {problem.classes} classes and "
        f"{problem.rounds} rounds; use flight.method = greedy, or a larger vmax"
    )


def _search_bytes(problem: Problem, points: int) -> int:
    """Bytes that `WalkSearch` takes, from above: four tables over the rounds, and seven numbers for every link."""
    return 8 * points * STATES * (4 * problem.rounds + 7 * points)


def _allowed_samples(problem: Problem, c: int, rings: int) -> Floats:
    """Points of disc c that are allowed; (n, 2)."""
    sets = [samples(problem, c, rings), corners(problem, c)]
    start = anchor(problem, c) if problem.constraints else None
    if start is not None:  # constraints cut into the disc: the samples may have missed what they leave of it
        sets.append(start[None])
    points = np.concatenate(sets)
    return points[allowed(problem, c, points)]


def _rings(problem: Problem) -> int:
    fitting = [k for k in range(1, _MOST_RINGS + 1) if problem.classes * _ring_points(k) <= _SAMPLES]
    return max(fitting, default=1)


def _refuse_crawl(problem: Problem) -> None:
    """Raise where a vehicle hardly moves in a whole mission: no two samples are alike then, so none would drop out."""
    far = float(np.hypot(*np.ptp(problem.centres, axis=0)) + 2 * problem.radii.max())
    needed = _search_bytes(problem, problem.classes * _ring_points(_rings(problem)))
    if far > _CRAWL * problem.rounds * problem.vmax and needed > _MEMORY:
        enough = 1.1 * far / _CRAWL / problem.rounds
        raise BadInputError(
            f"flight.vmax = {problem.vmax:g}: the discs lie up to {far:.0f} m apart, and exact would need "
            f"{needed / 2**30:.0f} GiB; use vmax of {enough:.2g} m or more, or flight.method = greedy"
        )


def _ring_points(rings: int) -> int:
    return 1 + 3 * rings * (rings + 1)


def _covering_radius(rings: int) -> float:
    """Farthest any point of the unit disc lies from a sample, from above.

    In units of the rings' distance, a point s past ring k has that ring's nearest sample within
    sqrt(s^2 + (pi/6)^2 (1 + s/k)) and the next ring's within sqrt((1-s)^2 + (pi/6)^2); the smaller is below 0.75.
    """
    return 0.75 / rings


def _linked(problem: Problem, sets: list[Floats], reach: Floats) -> Network:
    """Join the points of every class by the fewest rounds at vmax; `reach` (C,): how far from one a vehicle may be.

    Links that take longer than the mission count as long as it.
    """
    points, label = np.concatenate(sets), np.repeat(np.arange(len(sets)), [len(own) for own in sets])
    apart = distances(problem.centres, problem.centres) - (problem.radii[:, None] + problem.radii[None])
    least = np.maximum(1, _rounds_at(problem, apart))
    rounds = np.empty((len(label), len(label)), np.int16 if problem.rounds < 2**15 else np.int64)
    x, y = points.T
    for c in range(len(sets)):  # class by class: what is worked on stays in the processor's cache
        own = label == c
        far = np.sqrt((x[own][:, None] - x) ** 2 + (y[own][:, None] - y) ** 2)
        far -= reach[c] + reach[label] - 1e-9
        rounds[own] = np.maximum(_rounds_at(problem, far), least[c][label])
    return Network(points, label, rounds)


def rounds_from(problem: Problem, start: Floats, points: Floats) -> Ints:
    """Rounds that the flight from one place to each point takes, at least one."""
    return np.maximum(1, _rounds_at(problem, np.hypot(*(points - start).T)))


def _rounds_at(problem: Problem, far: Floats) -> Ints:
    """Fewest rounds for these distances, up to the mission's."""
    with np.errstate(over="ignore"):
        return np.minimum(np.ceil(far / problem.vmax - 1e-9), problem.rounds).astype(np.int64)


def _levels(problem: Problem, network: Network) -> Ints | None:
    """Return how little each point shows of its class, in steps, as a further column to be compared; (N, 1).

    Where a start is given, the rounds from there are compared too.
    """
    columns = []
    if problem.pictures is not None:
        lost = 1 - problem.share(network.points, network.label)
        columns.append(np.ceil(lost / _LOST_STEP - 1e-9).astype(np.int64))
    if problem.start is not None:
        columns.append(rounds_from(problem, problem.start, network.points))
    return np.stack(columns, axis=1) if columns else None


def _reduced(network: Network, levels: Ints | None = None) -> Network:
    """Drop the points that others beat."""
    points, label, rounds = network.points, network.label, network.rounds
    while True:
        kept = _undominated(rounds, label, levels)
        if len(kept) == len(label):
            return Network(points, label, rounds.astype(np.int64))
        points, label, rounds = points[kept], label[kept], rounds[np.ix_(kept, kept)]
        levels = None if levels is None else levels[kept]


def _undominated(rounds: Ints, label: Ints, levels: Ints | None = None) -> Ints:
    """Indices to keep: one of each kind of link lengths, and none that another of its class never loses against."""
    seen = rounds[:, _unlike(rounds)]  # links are as long both ways
    if levels is not None:
        seen = np.column_stack([seen, levels])
    first = _unlike(np.column_stack([label, seen]))
    kept = []
    for c in np.unique(label):
        own = first[label[first] == c]
        own = own[np.argsort(seen[own].sum(axis=1), kind="stable")]  # what beats a point comes before it
        links = seen[own]
        left = [0]
        best = links.copy()  # rows of the points that are left come first
        for k in range(1, len(own)):
            if not (best[: len(left)] <= links[k]).all(axis=1).any():
                best[len(left)] = links[k]
                left.append(k)
        kept.append(own[left])
    return np.sort(np.concatenate(kept))


def _unlike(rows: Ints) -> Ints:
    """First index of each kind of row, found by two random sums that are exact in float64."""
    factors = np.random.default_rng(0).integers(1, 2**26, (rows.shape[1], 2)).astype(np.float64)
    parts = np.array_split(rows, max(1, len(rows) // 200))
    sums = np.concatenate([part.astype(np.float64) @ factors for part in parts])
    _, first = np.unique(sums, axis=0, return_index=True)
    return np.sort(first)
