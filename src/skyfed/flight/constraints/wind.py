"""Wind: a leg against it is shorter than one along it, for the same airspeed and time."""

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from pydantic import BaseModel, Field, FiniteFloat, model_validator

from skyfed.flight.constraints.base import Constraint, Violation
from skyfed.types import Bools, Floats, Plan

if TYPE_CHECKING:
    from skyfed.flight.problem import Problem

_TOLERANCE = 1e-6  # m per leg


class Wind(Constraint):
    """Fly no leg that needs more airspeed than there is, in the seconds that a round has for flying."""

    name = "wind"

    class Settings(BaseModel):
        """What may stand beside `use` in the config."""

        air: tuple[FiniteFloat, FiniteFloat] = Field(description="where the air moves to, m/s east and north")
        airspeed: float = Field(gt=0, allow_inf_nan=False, description="most speed through the air, m/s")
        seconds: float = Field(gt=0, allow_inf_nan=False, description="longest flight within a round, s")

        @model_validator(mode="after")
        def _can_hover(self) -> "Wind.Settings":
            if math.hypot(*self.air) >= self.airspeed:
                raise ValueError("the wind must be slower than airspeed: a vehicle could not hold its place")
            return self

    def allows_legs(self, start: Floats, stop: Floats) -> Bools:
        """Tell which legs fit: the way over ground less the way of the air is at most what airspeed gives.

        A vehicle that can hold its place can also arrive earlier, so the whole time is the easiest case.
        """
        seconds = self.settings.seconds
        through_air = stop - start - seconds * np.asarray(self.settings.air)
        return np.asarray(np.hypot(*through_air.T) <= seconds * self.settings.airspeed)

    def verify(self, problem: "Problem", plan: Plan) -> list[Violation]:
        """Compare each leg's length with the ground speed that its course allows."""
        violations = []
        east, north = self.settings.air
        for t, ((ax, ay), (bx, by)) in enumerate(pairwise(plan.positions.tolist())):
            length = math.hypot(bx - ax, by - ay)
            if length == 0:
                continue
            along = (east * (bx - ax) + north * (by - ay)) / length
            across = (east * (by - ay) - north * (bx - ax)) / length
            ground = along + math.sqrt(self.settings.airspeed**2 - across**2)
            over = length - ground * self.settings.seconds
            if over > _TOLERANCE:
                text = f"moves {length:.6g} m; in this direction the wind allows {ground * self.settings.seconds:.6g} m"
                violations.append(Violation(self.name, t, -1, over, text))
        return violations
