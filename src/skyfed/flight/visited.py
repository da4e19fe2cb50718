"""A bound for short missions: which classes are visited at all decides more than how often."""

import numpy as np

from skyfed.flight.guide import Guide, Stretch
from skyfed.flight.problem import Problem
from skyfed.flight.travel import Network
from skyfed.types import IDLE, Floats

_STEPS = 14
_SETS = 12  # classes of which every set is looked at
_WORK = 6e9  # links times sets looked at, about 4 CPU seconds
_ROUNDING = 1e-3  # nats; the guide's numbers have 24 bits
_STRIDE, _FARTHEST = 0.3, 0.5  # of the step towards the lowest bound, and the most it changes log(price)


def visited_bound(problem: Problem, network: Network, price: Floats) -> tuple[float, Floats]:
    """Return the lowest bound found over prices, and those prices.

    For any prices, sum over visited classes of price * (y + eps) - 1 - log(price), plus log(eps) for every other,
    is at least the objective of a walk; `Guide` finds the walk of which it is greatest. The prices are lowered and
    raised along its slope (a subgradient).
    """
    bound, best = np.inf, np.log(price)
    log_price, work = best, 0.0
    tracked = np.argsort(problem.psi.sum(axis=1), kind="stable")
    none = np.zeros(problem.imax.shape)
    for _ in range(_STEPS):
        price = np.exp(log_price)
        guide = Guide(problem, network, Stretch(0, problem.rounds), price, none, tracked)
        value, walk = guide.walk()
        remembered = guide.bit > 0
        worth = problem.value
        tangent = price * problem.base - worth - worth * log_price + worth * np.log(worth)
        total = value + float(np.where(remembered, worth * np.log(problem.base), tangent).sum()) + _ROUNDING
        if total < bound:
            bound, best = total, log_price
        work += guide.work
        if work > _WORK:
            break
        amount = problem.collected(np.where(walk == IDLE, IDLE, network.label[walk]))
        slope = price * amount - worth * np.where(remembered, amount > 0, True)
        stride = _STRIDE * np.clip(total - bound + 1, 0.05, 5) / max(1e-9, float(slope @ slope))
        log_price = (best + log_price) / 2 - np.clip(stride * slope, -_FARTHEST, _FARTHEST)
    return bound, np.exp(best)


def most_visited(problem: Problem, network: Network) -> int:
    """Return how many classes one flight can visit at most, on the optimistic network; all of them past 12 classes.

    A programme over sets of classes: the earliest round in which a set can have been visited, ending at each point.
    """
    C, N = problem.classes, len(network.label)
    if C > _SETS:
        return C
    own = [np.flatnonzero(network.label == c) for c in range(C)]
    earliest = np.full((2**C, N), problem.rounds)
    for c in range(C):
        earliest[1 << c, own[c]] = 0
    for visited in range(1, 2**C):
        if earliest[visited].min() >= problem.rounds:
            continue
        arrival = (earliest[visited][:, None] + network.rounds).min(axis=0)
        for c in range(C):
            if not visited >> c & 1:
                more = visited | 1 << c
                earliest[more, own[c]] = np.minimum(earliest[more, own[c]], arrival[own[c]])
    within = np.flatnonzero((earliest < problem.rounds).any(axis=1))
    return max((int(visited).bit_count() for visited in within), default=0)
