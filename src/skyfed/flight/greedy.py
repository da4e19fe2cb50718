"""Simple flights to compare with: greedy, random, hover; and the fallback when a solver fails.

All three fly from anchor to anchor (the allowed points nearest to the centres), so without constraints of the user's
own their visits can always be placed. A visit that cannot be flown is left out.
"""

import time
from collections.abc import Callable
from itertools import product

import numpy as np

from skyfed.errors import InfeasibleError
from skyfed.flight.constraints.base import supports
from skyfed.flight.discs import anchor, impossible_steps
from skyfed.flight.legs import fly_leg, flyable_steps
from skyfed.flight.place import PlacementError, place
from skyfed.flight.problem import Options, Problem
from skyfed.flight.travel import rounds_from
from skyfed.rng import stream
from skyfed.types import IDLE, Floats, Ints, Plan

# classes; what stands inside the logarithm so far, rounds until arrival, what a visit would add, for each -> its index
Choice = Callable[[Ints, Floats, Ints, Floats], int]


@supports("points", "legs")
def solve_greedy(problem: Problem, options: Options) -> Plan:
    """Fly to whatever adds most to the objective for each round it takes."""

    def most(classes: Ints, amount: Floats, arrival: Ints, added: Floats) -> int:
        gain = problem.value[classes] * np.log1p(added / amount)
        return int((gain / np.maximum(1, arrival)).argmax())

    return _fly(problem, options, "greedy", most)


@supports("points", "legs")
def solve_random(problem: Problem, options: Options) -> Plan:
    """Fly to any class that may be visited next."""
    rng = stream(options.seed, "random flight", vehicle=options.vehicle)
    return _fly(problem, options, "random", lambda classes, amount, arrival, added: int(rng.integers(len(arrival))))


@supports("points", "legs")
def solve_hover(problem: Problem, options: Options) -> Plan:
    """Stay at the class with most data over time and visit it whenever C5 allows."""
    total = np.where([anchor(problem, c) is not None for c in range(problem.classes)], problem.psi.sum(axis=1), -1.0)
    return _fly(problem, options, "hover", lambda classes, amount, arrival, added: 0, only=int(total.argmax()))


def _fly(problem: Problem, options: Options, method: str, choose: Choice, only: int | None = None) -> Plan:
    begin = time.process_time()
    rng = stream(options.seed, "placement", vehicle=options.vehicle)
    association = _walk(problem, choose, only)
    note = ""
    placement = options.placement
    while True:
        try:
            positions = place(problem, association, placement, rng)
            break
        except PlacementError as error:
            if placement == "anywhere":
                placement, note = "sensing", "placed for sensing: nothing else was found"
            elif error.rounds and (association[error.rounds] != IDLE).any():
                association[error.rounds[-1]] = IDLE  # a visit that cannot be flown is left out
            else:
                raise InfeasibleError(f"{method}: {error}") from None
    objective = problem.objective(association, positions)
    return Plan(positions, association, objective, np.inf, time.process_time() - begin, method, note)


def _walk(problem: Problem, choose: Choice, only: int | None) -> Ints:
    """Choose visits one after the other, each in the first round it can be reached and C5 allows."""
    anchors = [anchor(problem, c) for c in range(problem.classes)]
    labels = [c for c, point in enumerate(anchors) if point is not None and only in (None, c)]
    travel = _travel_rounds(problem, anchors)
    association = np.full(problem.rounds, IDLE)
    collected = np.zeros(problem.classes)
    last = np.full((1, problem.classes), IDLE)
    first = _first_rounds(problem, anchors)
    now, here = -1, -1
    while True:
        soonest = {c: now + int(travel[here, c] if here >= 0 else first[c]) for c in labels}
        arrivals = {c: _first_open(problem, association, c, t) for c, t in soonest.items()}
        reachable = [(c, t) for c, t in arrivals.items() if t < problem.rounds]
        if not reachable:
            return association
        # one that must wait for its window is only an option when nothing else is nearer
        prompt = [(c, t) for c, t in reachable if t == soonest[c]] or reachable
        classes, rounds = np.array(prompt).T
        added = problem.psi[classes, rounds]
        for k, (c, t) in enumerate(prompt):
            if (fresh := problem.fresh(t, last)) is not None:
                added[k] = min(added[k], fresh[0, c])
        pick = choose(classes, collected[classes] + problem.base[classes], rounds - now, added)
        here, now = int(classes[pick]), int(rounds[pick])
        association[now] = here
        collected[here] += added[pick]
        last[0, here] = now


def _first_open(problem: Problem, association: Ints, c: int, t: int) -> int:
    """First round from t on in which every window around it has room for a visit of c."""
    spans = problem.spans
    visits = np.concatenate([[0], np.cumsum(association == c)])
    full = visits[spans[:, 1]] - visits[spans[:, 0]] >= problem.imax[c]
    while t < problem.rounds and (full & (spans[:, 0] <= t) & (t < spans[:, 1])).any():
        t += 1
    return t


def _first_rounds(problem: Problem, anchors: list[Floats | None]) -> Ints:
    """Rounds from where the vehicle is to each anchor: one where it may begin anywhere."""
    rounds = np.ones(problem.classes, np.int64)
    for c, point in enumerate(anchors):
        if problem.start is None or point is None:
            continue
        rounds[c] = rounds_from(problem, problem.start, point[None])[0]
        if rounds[c] == 1 and not flyable_steps(problem, problem.start[None], point[None]).all():
            rounds[c] = 2
    return rounds


def _travel_rounds(problem: Problem, anchors: list[Floats | None]) -> Ints:
    """Rounds from anchor to anchor; a stay takes one, or two where the disc is too small for two points dmin apart."""
    C = problem.classes
    impossible = set(impossible_steps(problem))
    rounds = np.ones((C, C), np.int64)
    for a, b in product(range(C), repeat=2):
        start, stop = anchors[a], anchors[b]
        if start is None or stop is None:
            continue
        far = float(np.hypot(*(start - stop)))
        rounds[a, b] = max(1, int(min(np.ceil(far / problem.vmax - 1e-9), problem.rounds)))
        too_near = (problem.radii[a] if a == b else far) < problem.dmin
        if too_near or (a, b) in impossible:
            rounds[a, b] = 2
        if a != b and rounds[a, b] == 1 and problem.constraints:
            rounds[a, b] = 1 if flyable_steps(problem, start[None], stop[None]).all() else 2
        while 1 < rounds[a, b] < problem.rounds and fly_leg(problem, start, stop, int(rounds[a, b]) - 1) is None:
            rounds[a, b] += 1
    return rounds
