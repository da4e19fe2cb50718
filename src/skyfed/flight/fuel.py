"""Joules along walks on a flyable network: what the search for flights within a battery keeps track of.

A tank is (joules used since take-off, round of the last visit, round of take-off). Every visit must leave enough to get
home, so a flight may land after any of them. With recharging, a vehicle that has the time flies home and starts anew.
"""

import numpy as np

from skyfed.flight.walk_search import Walk
from skyfed.flight.energy import Energy
from skyfed.flight.travel import Network
from skyfed.types import IDLE, Bools, Floats, Ints

Tank = Floats  # (..., 3)


class Fuel:
    """What every link of a network takes."""

    def __init__(self, energy: Energy, network: Network) -> None:
        self._energy = energy
        points, N = network.points, len(network.label)
        self._none = N  # the point of a walk that has visited nothing yet
        self._first = energy.first(points)
        self._hop = np.vstack([energy.legs(points, points), self._first - energy.first_joules])
        self._home = energy.home(points)
        self._ground = np.append(energy.ground_rounds(points), 2**40)
        self.full: Tank = np.array([energy.first_joules - energy.round_joules, -1.0, 0.0])

    def visit(self, point: Ints, tank: Tank, t: int) -> tuple[Tank, Bools]:
        """Return the tanks (n, N, 3) after visiting each point in round t, and whether they suffice to get home."""
        energy = self._energy
        gap = t - tank[:, 1]
        used = (tank[:, 0] + gap * energy.round_joules)[:, None] + self._hop[point]
        rose = np.broadcast_to(tank[:, 2:], used.shape)
        charged = (gap >= self._ground[point] + 1)[:, None] & (self._first[None] < used)
        used = np.where(charged, self._first, used)
        rose = np.where(charged, float(t), rose)
        return np.stack([used, np.full_like(used, t), rose], axis=2), self._suffices(used, rose, t)

    def _suffices(self, used: Floats, rose: Floats, t: int) -> Bools:
        foreseen = used + self._home + np.where(rose == t - 1, self._energy.second_extra, 0.0)
        return np.asarray(foreseen <= self._energy.joules)

    def along(self, walk: Walk, tank: Tank | None = None, point: int | None = None, first: int = 0) -> tuple[Tank, bool]:
        """Return the tank after a walk's last visit, from round `first` on, and whether it always suffices."""
        tank = self.full if tank is None else tank
        here = self._none if point is None else point
        fine = True
        for t in np.flatnonzero(walk[first:] != IDLE) + first:
            tanks, enough = self.visit(np.array([here]), tank[None], int(t))
            here = int(walk[t])
            tank, fine = tanks[0, here], fine and bool(enough[0, here])
        return tank, fine

    def spare(self, walk: Walk, end: int) -> float:
        """Return the most joules that may be used at the visit of round `end`, so that the walk after it can be flown."""
        low, high = 0.0, self._energy.joules
        here = int(walk[end])
        if self.along(walk, np.array([high, end, -9.0]), here, end + 1)[1]:
            return high
        for _ in range(40):
            middle = (low + high) / 2
            fine = self.along(walk, np.array([middle, end, -9.0]), here, end + 1)[1]
            low, high = (middle, high) if fine else (low, middle)
        return low

    def sorties(self, walk: Walk) -> list[tuple[int, int]]:
        """Return the flights between landings as [first round, one past the last visit)."""
        tank, here = self.full, self._none
        flights: list[list[int]] = []
        for t in np.flatnonzero(walk != IDLE):
            tanks, _ = self.visit(np.array([here]), tank[None], int(t))
            here = int(walk[t])
            rose = int(tanks[0, here, 2])
            if not flights or rose != flights[-1][0]:
                flights.append([rose, int(t) + 1])
            flights[-1][1] = int(t) + 1
            tank = tanks[0, here]
        return [(first, stop) for first, stop in flights]
