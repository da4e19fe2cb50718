"""Small problems within a battery, solved by trying every association, best first (see `small`)."""

import numpy as np

from skyfed.flight.discs import SLACK
from skyfed.flight.energy import ClassEnergy, Energy
from skyfed.flight.legs import flyable_steps, trace_back
from skyfed.flight.place import PlacementError, place
from skyfed.flight.problem import Problem
from skyfed.flight.small import FinePoints, ranked
from skyfed.flight.travel import Network
from skyfed.types import IDLE, Bools, Floats, Ints

_TRIES = 400  # associations that are tried


def solve_small_within(
    problem: Problem, network: Network, energy: Energy, least: ClassEnergy
) -> tuple[float, tuple[Ints, Floats, Bools] | None]:
    """Return the proven bound, and the best flight that was placed: association, positions, and rounds at home."""
    value, candidates = ranked(problem, network)
    possible = np.array([least.walk(each) <= least.joules for each in candidates])
    value, candidates = value[possible], candidates[possible]
    cheap = _CheapestPoints(problem, energy)
    for association in candidates[:_TRIES]:
        positions = cheap.positions(association)
        if positions is not None:
            landed = np.arange(problem.rounds) >= len(positions)
            home = np.zeros((problem.rounds - len(positions), 2))
            return float(value[0]), (association, np.concatenate([positions, home]), landed)
    return float(value[0]), None


class _CheapestPoints:
    """The flight of fewest joules over an association, on points a few metres apart."""

    def __init__(self, problem: Problem, energy: Energy) -> None:
        self._problem, self._energy = problem, energy
        self._fine = FinePoints(problem)
        self._costs: dict[tuple[int, int], Floats] = {}

    def positions(self, association: Ints) -> Floats | None:
        """Return positions up to the last visit, None where the battery does not suffice or nothing was found."""
        visits = np.flatnonzero(association != IDLE)
        if not len(visits):
            return None
        flown = [int(c) for c in association[: visits[-1] + 1]]
        cheapest = self._cheapest(flown)
        if cheapest is None or self._energy.needed(cheapest) > self._energy.joules:
            return None
        return self._for_sensing(np.asarray(flown), cheapest)

    def _cheapest(self, flown: list[int]) -> Floats | None:
        points, energy = self._fine.points, self._energy
        value = energy.first(points[flown[0]])
        came: list[Ints] = []
        for k in range(1, len(flown)):
            total = value[:, None] + self._cost(flown[k - 1], flown[k])
            came.append(total.argmin(axis=0))
            value = total.min(axis=0)
        value = value + energy.home(points[flown[-1]])
        if not len(value) or not np.isfinite(value.min()):
            return None
        chosen = trace_back(value, came)
        return np.stack([points[c][k] for c, k in zip(flown, chosen, strict=True)])

    def _cost(self, a: int, b: int) -> Floats:
        """Joules of a leg between each two points, infinite where it cannot be flown."""
        if (a, b) not in self._costs:
            before, after = self._fine.points[a], self._fine.points[b]
            legs = self._energy.legs(before, after)
            self._costs[a, b] = np.where(flyable_steps(self._problem, before, after), legs, np.inf)
        return self._costs[a, b]

    def _for_sensing(self, association: Ints, cheapest: Floats) -> Floats:
        """Place the visits where they sense most, if the battery allows it."""
        hint = np.where((association == IDLE)[:, None], np.nan, cheapest)
        rest = self._problem.rounds - len(association)
        try:
            padded = np.concatenate([association, np.full(rest, IDLE)])
            hints = np.concatenate([hint, np.full((rest, 2), np.nan)])
            placed = place(self._problem, padded, hint=hints)[: len(association)]
        except PlacementError:
            return cheapest
        return placed if self._energy.needed(placed) <= self._energy.joules - SLACK else cheapest
