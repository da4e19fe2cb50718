"""Earliest and latest rounds in which a class may be visited."""

from typing import TYPE_CHECKING

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from skyfed.errors import BadInputError
from skyfed.flight.constraints.base import Constraint, Violation
from skyfed.types import Bools, Plan

if TYPE_CHECKING:
    from skyfed.flight.problem import Problem


class Visits(BaseModel):
    """When some classes may be visited."""

    model_config = ConfigDict(extra="forbid")

    classes: list[int] = Field(min_length=1, description="the classes, counted from 0")
    earliest: int = Field(0, ge=0, description="first round, counted from 0")
    latest: int | None = Field(None, ge=0, description="last round; none: the mission's")

    @model_validator(mode="after")
    def _ordered(self) -> "Visits":
        if self.latest is not None and self.latest < self.earliest:
            raise ValueError(f"latest = {self.latest} is before earliest = {self.earliest}")
        return self


class Times(Constraint):
    """Visit classes only in the rounds that are given for them; other classes at any time."""

    name = "times"

    class Settings(BaseModel):
        """What may stand beside `use` in the config."""

        visits: list[Visits] = Field(min_length=1, description="tables with classes, earliest, latest")

    def allows_rounds(self, classes: int, rounds: int) -> Bools:
        """Tell in which rounds each class may be visited."""
        t = np.arange(rounds)
        open_rounds = np.ones((classes, rounds), bool)
        for entry in self.settings.visits:
            for c in entry.classes:
                if not 0 <= c < classes:
                    raise BadInputError(f"class {c} does not exist; there are {classes}")
                open_rounds[c] &= (t >= entry.earliest) & (t <= (rounds if entry.latest is None else entry.latest))
        return open_rounds

    def verify(self, problem: "Problem", plan: Plan) -> list[Violation]:
        """Look at every visit by itself."""
        violations = []
        for t, c in enumerate(plan.association.tolist()):
            for entry in self.settings.visits:
                if c not in entry.classes:
                    continue
                wait, late = entry.earliest - t, t - entry.latest if entry.latest is not None else 0
                if wait > 0:
                    violations.append(Violation(self.name, t, c, wait, f"class {c} is visited {wait} rounds too early"))
                if late > 0:
                    violations.append(Violation(self.name, t, c, late, f"class {c} is visited {late} rounds too late"))
        return violations
