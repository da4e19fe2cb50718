"""The joules of flights as planners count them: take-off, rounds, legs, and the way home, for many points at once."""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from skyfed.flight.constraints.battery import Battery
from skyfed.flight.discs import distances
from skyfed.flight.problem import Problem
from skyfed.types import IDLE, Bools, Floats, Ints

_SAFE = 1e-2  # joules kept for rounding


def battery_of(problem: Problem) -> tuple[Battery | None, Problem]:
    """Return the battery among a problem's constraints, if there is one, and the problem without it."""
    batteries = [constraint for constraint in problem.constraints if isinstance(constraint, Battery)]
    if not batteries:
        return None, problem
    others = tuple(constraint for constraint in problem.constraints if not isinstance(constraint, Battery))
    return batteries[0], replace(problem, constraints=others)


class Energy:
    """What parts of a flight take, from a battery's numbers.

    A round takes `round_joules` of hovering all the time, and a leg adds what it takes beyond hovering.
    """

    def __init__(self, battery: Battery) -> None:
        own: Any = battery.settings
        self._own = own
        self._leg = np.asarray(own.leg)
        self.joules = own.joules - _SAFE
        self.recharge = own.recharge
        self.round_joules = own.hover * own.round_seconds
        self.first_joules = own.lift_joules + own.hover * (own.first_seconds - own.lift_seconds)
        self.second_extra = own.hover * max(0.0, own.first_seconds - own.round_seconds)  # expected of the next round
        self._free = own.hover / own.speed
        self.least_leg = float(self._leg.min())
        self.land_joules = own.land_joules
        self._first_longest = (own.first_seconds - own.dwell - own.lift_seconds) * own.speed

    @property
    def watt_hours(self) -> float:
        """What a flight may take, Wh."""
        return float(self._own.joules / 3600.0)

    @cached_property
    def rates(self) -> tuple[float, float]:
        """Least and most joules that a metre adds to a round of hovering."""
        return max(0.0, float(self._leg.min() - self._free)), max(0.0, float(self._leg.max() - self._free))

    def legs(self, starts: Floats, stops: Floats) -> Floats:
        """Joules that straight legs from starts (m, 2) to stops (n, 2) add to rounds of hovering; (m, n)."""
        return distances(starts, stops) * np.maximum(0.0, self._per_metre(starts, stops) - self._free)

    def first(self, points: Floats) -> Floats:
        """Joules of a flight's first round, from take-off on; infinite where the round is too short; (n,)."""
        legs = self.first_joules + self.legs(np.zeros((1, 2)), points)[0]
        return np.where(np.hypot(*points.T) <= self._first_longest, legs, np.inf)

    def home(self, points: Floats) -> Floats:
        """Joules of the way home and of landing; (n,)."""
        way = distances(points, np.zeros((1, 2))) * self._per_metre(points, np.zeros((1, 2)))
        return np.asarray(way[:, 0] + self._own.land_joules)

    def ground_rounds(self, points: Floats) -> Ints:
        """Rounds at home that recharging takes after a visit of these points; a very large number without; (n,)."""
        if self.recharge is None:
            return np.full(len(points), 2**40)
        seconds = np.hypot(*points.T) / self._own.speed + self._own.land_seconds + self.recharge
        return np.ceil(seconds / self._own.round_seconds - 1e-9).astype(np.int64)

    def needed(self, positions: Floats) -> float:
        """Joules of one flight over these positions from take-off to landing: the most that any round foresees."""
        first = float(self.first(positions[:1])[0])
        steps = self.round_joules + np.array([float(self.legs(a[None], b[None])[0, 0]) for a, b in pairwise(positions)])
        used = first + np.concatenate([[0.0], np.cumsum(steps)])
        foreseen = used + self.home(positions)
        foreseen[1:2] += self.second_extra
        return float(foreseen.max())

    def _per_metre(self, starts: Floats, stops: Floats) -> Floats:
        if len(self._leg) == 1:
            return np.full((len(starts), len(stops)), self._leg[0])
        way = stops[None] - starts[:, None]
        place = np.arctan2(way[..., 1], way[..., 0]) % (2 * np.pi) / (2 * np.pi) * len(self._leg)
        # beside the edge of two sectors the dearer one counts
        both = [self._leg[np.floor(place + off).astype(np.int64) % len(self._leg)] for off in (-1e-7, 1e-7)]
        return np.asarray(np.maximum(*both))


@dataclass(frozen=True)
class ClassEnergy:
    """Joules between discs from below, whichever points of them are flown to: for bounds.

    first  (C,) a flight's first round and the way to its first visit      home  (C,) way home and landing
    ways   (C, C) what the way between two visits adds to rounds of hovering
    each   joules of a round of hovering                                   joules  what there is
    """

    first: Floats
    home: Floats
    ways: Floats
    each: float
    joules: float

    def walk(self, association: Ints) -> float:
        """Joules of a flight over these classes, from below."""
        visits = np.flatnonzero(association != IDLE)
        if not len(visits):
            return 0.0
        labels = association[visits]
        ways = self.ways[labels[:-1], labels[1:]].sum()
        return float(self.first[labels[0]] + self.each * visits[-1] + ways + self.home[labels[-1]])

    @property
    def latest(self) -> Ints:
        """Last round in which each class can be visited, below 0 for never; (C,)."""
        spare = self.joules - (self.first.min() + self.home)
        return np.floor(spare / self.each + 1e-9).astype(np.int64)


def class_energy(problem: Problem, energy: Energy) -> ClassEnergy:
    """Work out the joules between discs from below: the shortest ways at the lowest rate."""
    rate = energy.rates[0]
    near = np.maximum(0.0, np.hypot(*problem.centres.T) - problem.radii)
    apart = distances(problem.centres, problem.centres) - problem.radii[:, None] - problem.radii[None]
    first = energy.first_joules + rate * near
    home = near * energy.least_leg + energy.land_joules
    return ClassEnergy(first, home, rate * np.maximum(0.0, apart), energy.round_joules, energy.joules)


def affordable(energy: Energy, points: Floats) -> Bools:
    """Tell which points can be reached and returned from; (n,)."""
    return np.asarray(energy.first(points) + energy.home(points) <= energy.joules)
