"""Flights as the round loop asks for them, stretch by stretch; a plan made before take-off answers once."""

from dataclasses import dataclass
from typing import Protocol

from skyfed.flight.fleet_plan import FleetPlan
from skyfed.types import Floats, Ints


@dataclass(frozen=True)
class Stretch:
    """The fleet's flight over some rounds.

    first        the first of these rounds
    positions    (U, H, 2) metres, station at (0, 0)
    association  (U, H) the class each vehicle means to sense, IDLE where none
    """

    first: int
    positions: Floats
    association: Ints


class Flights(Protocol):
    """Answers where the fleet flies next."""

    def stretch(self, t: int) -> Stretch:
        """Return the flight from round t on, for one round or more."""


@dataclass(frozen=True)
class Offline:
    """Flights that were all planned before take-off."""

    plan: FleetPlan

    def stretch(self, t: int) -> Stretch:
        """Return everything from round t on."""
        return Stretch(t, self.plan.positions[:, t:], self.plan.association[:, t:])
