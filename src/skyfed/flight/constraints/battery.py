"""A battery with a reserve: what a planned flight may take, take-off and way home included.

The numbers come from whoever knows the vehicle. The check below is the verifier's own. Planners share no code with it.
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import Field, NonNegativeFloat, PositiveFloat

from skyfed.flight.constraints.base import Constraint, Kind, Violation
from skyfed.settings import StrictSettings
from skyfed.types import Plan

if TYPE_CHECKING:
    from skyfed.flight.problem import Problem

_WH = 3600.0  # joules
_JOULES = 1e-3  # rounding of sums of some 1e5 J
_SECONDS = 1e-6


class Battery(Constraint):
    """What one charge of the battery holds, and what every part of a flight takes.

    Round t of a flight takes the leg to its position at `leg` joules per metre, then hovering until the round ends. A
    flight begins with take-off at home, (0, 0), in a round of `first_seconds`, and ends with the way home and landing.
    A leg between rounds counts as much as hovering for as long, at least: a cruising airframe may need less, and a plan
    could otherwise save energy by detours.
    """

    name = "battery"
    kinds = frozenset[Kind]({"energy"})

    class Settings(StrictSettings):
        """Seconds, metres, joules and watts."""

        joules: PositiveFloat = Field(description="what a flight may take: a full battery less its reserve")
        hover: PositiveFloat = Field(description="watts at a round's place: hovering, training, radio")
        leg: list[PositiveFloat] = Field(
            min_length=1, description="joules per metre by heading: equal sectors, the first begins in the east"
        )
        speed: PositiveFloat = Field(description="m/s over ground")
        round_seconds: PositiveFloat = Field(description="how long a round lasts as planned")
        first_seconds: PositiveFloat = Field(description="how long a round with take-off lasts as planned")
        dwell: NonNegativeFloat = Field(description="seconds at a round's place, at least")
        lift_seconds: NonNegativeFloat
        lift_joules: NonNegativeFloat
        land_seconds: NonNegativeFloat
        land_joules: NonNegativeFloat
        recharge: PositiveFloat | None = Field(None, description="seconds on the ground until it is full; none: never")

    def verify(self, problem: "Problem", plan: Plan) -> list[Violation]:
        """Recompute the joules of every flight from take-off to landing."""
        landed = [bool(each) for each in plan.landed] if plan.landed.size else [False] * len(plan.association)
        return [*self._ground(plan, landed), *self._flights(plan, landed)]

    def _ground(self, plan: Plan, landed: list[bool]) -> Iterator[Violation]:
        """Who is at home is at home, senses nothing, and takes off again only when it is charged."""
        own = self.settings
        if landed[0]:
            yield self._broken(0, 0.0, "is on the ground in round 0: a flight begins there")
        since = 0.0
        for t, grounded in enumerate(landed):
            if grounded and (plan.association[t] >= 0 or math.hypot(*plan.positions[t]) > 0):
                yield self._broken(t, 0.0, "is on the ground, but has a class or a place away from home")
            if t and grounded and not landed[t - 1]:
                since = math.hypot(*plan.positions[t - 1]) / own.speed + own.land_seconds  # on the ground after that
            if not t or grounded or not landed[t - 1]:
                continue
            if own.recharge is None:
                yield self._broken(t, 0.0, "takes off again, but the battery is not recharged")
                continue
            stop = next(s for s in range(t - 1, -1, -1) if not landed[s]) if not all(landed[:t]) else -1
            had = (t - 1 - stop) * own.round_seconds - since
            if had < own.recharge - _SECONDS:
                text = f"takes off after {had:.0f} s on the ground, {own.recharge:g} s are needed to recharge"
                yield self._broken(t, own.recharge - had, text)

    def _flights(self, plan: Plan, landed: list[bool]) -> Iterator[Violation]:
        own = self.settings
        used, lasted = 0.0, 0.0
        for t, grounded in enumerate(landed):
            if grounded:
                continue
            rises = t == 0 or landed[t - 1]
            here = (0.0, 0.0) if rises else (float(plan.positions[t - 1][0]), float(plan.positions[t - 1][1]))
            there = (float(plan.positions[t][0]), float(plan.positions[t][1]))
            seconds = math.dist(here, there) / own.speed + (own.lift_seconds if rises else 0.0)
            flown = max(self._leg(here, there), math.dist(here, there) / own.speed * own.hover)
            way = flown + (own.lift_joules if rises else 0.0)
            planned = own.first_seconds if rises else own.round_seconds
            if seconds + own.dwell > planned + _SECONDS:
                text = f"flies for {seconds:.1f} s; the round of {planned:g} s leaves {planned - own.dwell:g} s"
                yield self._broken(t, seconds + own.dwell - planned, text)
            home = self._leg(there, (0.0, 0.0)) + own.land_joules
            # before a round a vehicle expects that it lasts as planned or as the last one
            expected = max(planned, 0.0 if rises else lasted)
            used = 0.0 if rises else used
            needed = used + way + (expected - seconds) * own.hover + home
            if needed > own.joules + _JOULES:
                text = f"needs {needed / _WH:.2f} Wh to get home, {own.joules / _WH:.2f} Wh are there without the reserve"
                yield self._broken(t, needed - own.joules, text)
                return
            used += way + (planned - seconds) * own.hover
            lasted = planned

    def _leg(self, here: tuple[float, float], there: tuple[float, float]) -> float:
        """Joules of a straight leg."""
        table = self.settings.leg
        heading = math.atan2(there[1] - here[1], there[0] - here[0]) % (2 * math.pi)
        sector = int(heading / (2 * math.pi) * len(table))
        nearby = [table[(sector + k) % len(table)] for k in (-1, 0, 1)] if len(table) > 1 else table
        edge = heading / (2 * math.pi) * len(table) - sector
        if 1e-9 < edge < 1 - 1e-9 or len(table) == 1:  # on the edge of two sectors either may be meant
            nearby = [table[sector % len(table)]]
        return math.dist(here, there) * max(nearby)

    def _broken(self, t: int, amount: float, text: str) -> Violation:
        return Violation(self.name, t, -1, amount, text)
