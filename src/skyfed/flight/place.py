"""Positions for a given association: inside the discs by dynamic programming, between them by legs (C2, C3, C6, vmax)."""

from typing import Literal

import numpy as np

from skyfed.flight.discs import allowed, anchor, circle, corners
from skyfed.flight.legs import fly_leg
from skyfed.flight.problem import Problem
from skyfed.records import IDLE, Floats, Ints

_SLACK = 1e-9  # m
_LEG_TRIES = 50  # pairs of end points given up because no leg joins them, before the whole placement is
_UNREACHED = -np.inf


class PlacementError(Exception):
    """No positions were found; `rounds` are the ones whose classes do not go together."""

    def __init__(self, rounds: list[int]) -> None:
        super().__init__(f"no positions join the visits of rounds {rounds}")
        self.rounds = rounds


def place(
    problem: Problem, association: Ints, placement: Literal["sensing", "anywhere"] = "sensing",
    rng: np.random.Generator | None = None, hint: Floats | None = None,
) -> Floats:
    """Return positions (T, 2) of an association; raises PlacementError when none are found.

    "sensing": the most samples, sum_t psi * exp(-distance / decay_length). Where discs stand free the best points
    of a stay are the centre and a circle of radius dmin around it, since the decay is convex: of two points dmin
    apart one at the centre beats both halfway. Which rounds get the centre is what the programme decides.
    "anywhere": random allowed points, as a planner that is indifferent would leave them.
    hint: positions (T, 2) that are known to be joinable; they become candidates of their classes.
    """
    visits = np.flatnonzero(association != IDLE)
    points = {int(c): _candidates(problem, int(c), placement, rng) for c in np.unique(association[visits])}
    if hint is not None:
        for c in points:
            known = np.unique(hint[association == c], axis=0)
            points[c] = np.concatenate([points[c], known[allowed(problem, c, known)]])
    scores = {c: _scores(problem, c, p, placement, rng) for c, p in points.items()}
    banned: set[tuple[int, int, int]] = set()
    for _ in range(_LEG_TRIES):
        chosen = _best_points(problem, association, visits, points, scores, banned)
        positions = np.empty((problem.rounds, 2))
        positions[visits] = [points[int(association[t])][k] for t, k in zip(visits, chosen, strict=True)]
        failed = _fill_idle(problem, positions, visits)
        if failed is None:
            return positions
        if failed in (-1, len(visits) - 1):
            raise PlacementError([int(visits[max(failed, 0)])])
        banned.add((failed, chosen[failed], chosen[failed + 1]))
    raise PlacementError([int(t) for t in visits[failed : failed + 2]])


def _candidates(problem: Problem, c: int, placement: str, rng: np.random.Generator | None) -> Floats:
    centre, radius = problem.centres[c], problem.radii[c]
    if placement == "anywhere" and rng is not None:
        reach, angle = radius * np.sqrt(rng.random(200)), rng.uniform(0, 2 * np.pi, 200)
        spot = centre + reach[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        spot = spot[allowed(problem, c, spot)][:40]
        if len(spot):
            return np.concatenate([spot, corners(problem, c)])
    start = anchor(problem, c)
    if start is None:
        raise PlacementError([])
    sets = [start[None], circle(start, problem.dmin * (1 + 1e-12), 12), circle(centre, radius, 24), corners(problem, c)]
    if np.isfinite(problem.vmax):
        sets += [circle(centre, radius * part, 18, phase=part) for part in (0.33, 0.67, 0.9)]
    found = np.concatenate(sets)
    return found[allowed(problem, c, found)]


def _scores(problem: Problem, c: int, points: Floats, placement: str, rng: np.random.Generator | None) -> Floats:
    if placement == "anywhere" and rng is not None:
        return rng.random(len(points))
    return np.asarray(np.exp(-np.hypot(*(points - problem.centres[c]).T) / problem.decay_length))


def _best_points(
    problem: Problem, association: Ints, visits: Ints, points: dict[int, Floats], scores: dict[int, Floats],
    banned: set[tuple[int, int, int]],
) -> list[int]:
    """Choose one candidate a visit by dynamic programming over the visits."""
    value: Floats = np.empty(0)
    came: list[Ints] = []
    for v, t in enumerate(visits):
        c = int(association[t])
        own = problem.psi[c, t] * scores[c]
        if v == 0:
            value = own
            continue
        link = _links(problem, association, visits, v, points)
        for when, i, j in banned:
            if when == v - 1:
                link[i, j] = False
        total = np.where(link, value[:, None], _UNREACHED)
        came.append(total.argmax(axis=0))
        value = total.max(axis=0) + own
        if not np.isfinite(value).any():
            raise PlacementError(_culprits(problem, association, visits, v, points))
    chosen = [int(value.argmax())] if len(visits) else []
    for back in reversed(came):
        chosen.append(int(back[chosen[-1]]))
    return chosen[::-1]


def _links(
    problem: Problem, association: Ints, visits: Ints, v: int, points: dict[int, Floats]
) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Tell which candidates of visit v-1 and of visit v a vehicle can fly between in the rounds it has."""
    before, now = points[int(association[visits[v - 1]])], points[int(association[visits[v]])]
    steps = int(visits[v] - visits[v - 1])
    far = np.hypot(*(before[:, None] - now[None]).transpose(2, 0, 1))
    fits = far <= steps * problem.vmax + _SLACK
    if steps == 1:
        fits &= far >= problem.dmin - _SLACK
    return np.asarray(fits)


def _culprits(problem: Problem, association: Ints, visits: Ints, last: int, points: dict[int, Floats]) -> list[int]:
    """Shortest run of visits up to `last` that cannot be placed."""
    for first in range(last - 1, -1, -1):
        reached = np.ones(len(points[int(association[visits[first]])]), bool)
        for v in range(first + 1, last + 1):
            reached = _links(problem, association, visits, v, points)[reached].any(axis=0)
        if not reached.any():
            return [int(t) for t in visits[first : last + 1]]
    return [int(t) for t in visits[: last + 1]]


def _fill_idle(problem: Problem, positions: Floats, visits: Ints) -> int | None:
    """Write positions of the rounds between visits; returns the visit after which no leg was found."""
    stops = [None, *(int(t) for t in visits), None]
    for v, (first, last) in enumerate(zip(stops, stops[1:], strict=False)):
        start = -1 if first is None else first
        stop = problem.rounds if last is None else last
        if stop - start < 2:
            continue
        leg = fly_leg(
            problem, None if first is None else positions[first], None if last is None else positions[last],
            stop - start - 1,
        )  # fmt: skip
        if leg is None:
            return v - 1
        positions[start + 1 : stop] = leg
    return None
