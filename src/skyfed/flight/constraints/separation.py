"""Vehicles keep apart from each other: in the plane, or on layers of different altitude.

In every round all vehicles leave together, fly at one speed, and wait where they arrive. So the place of a vehicle
follows from how far everybody has flown.
"""

import math

from pydantic import BaseModel, Field

from skyfed.flight.constraints.base import Constraint, Violation
from skyfed.types import Floats

_TOLERANCE = 1e-6  # m


class Separation(Constraint):
    """No two vehicles come nearer than so many metres, in any round or on the way to it, unless on different layers."""

    name = "separation"

    class Settings(BaseModel):
        """What may stand beside `use` in the config."""

        metres: float = Field(gt=0, allow_inf_nan=False, description="least distance between two vehicles of a layer")
        layers: int = Field(1, ge=1, le=100, description="most layers that vehicles may be spread over")
        spacing: float = Field(10.0, gt=0, allow_inf_nan=False, description="metres from one layer to the next")

    def fleet_violations(self, positions: Floats, above: Floats) -> list[Violation]:
        """Follow every two vehicles of a layer through every round, in plain Python."""
        flights: list[list[list[float]]] = positions.tolist()
        heights: list[float] = above.tolist()
        least = self.settings.metres
        violations = []
        for u in range(len(flights)):
            for v in range(u):
                if abs(heights[u] - heights[v]) >= self.settings.spacing - _TOLERANCE:
                    continue
                for t in range(len(flights[u])):
                    before = max(t - 1, 0)  # the first round has no leg that is known
                    near = _nearest(flights[u][before], flights[u][t], flights[v][before], flights[v][t], least)
                    if near < least - _TOLERANCE:
                        text = f"vehicles {v} and {u} come within {near:.6g} m; at least {least:g} m is needed"
                        violations.append(Violation(self.name, t, -1, least - near, text))
        return violations


def _nearest(a: list[float], b: list[float], c: list[float], d: list[float], least: float) -> float:
    """Least distance of two vehicles that fly a to b and c to d at one speed; infinite if plainly above `least`."""
    first, second = math.dist(a, b), math.dist(c, d)
    if math.dist(a, c) - first - second > least:
        return math.inf
    stops = [0.0, min(first, second), max(first, second)]  # metres flown when one of them arrives
    places = [(_after(a, b, first, flown), _after(c, d, second, flown)) for flown in stops]
    gaps = [(p[0] - q[0], p[1] - q[1]) for p, q in places]
    return min(_to_origin(gaps[0], gaps[1]), _to_origin(gaps[1], gaps[2]))


def _after(start: list[float], stop: list[float], length: float, flown: float) -> tuple[float, float]:
    part = 1.0 if flown >= length else flown / length
    return start[0] + part * (stop[0] - start[0]), start[1] + part * (stop[1] - start[1])


def _to_origin(p: tuple[float, float], q: tuple[float, float]) -> float:
    """Distance from the origin to the segment from p to q."""
    x, y = q[0] - p[0], q[1] - p[1]
    if x == y == 0:
        return math.hypot(*p)
    part = min(1.0, max(0.0, -(p[0] * x + p[1] * y) / (x * x + y * y)))
    return math.hypot(p[0] + part * x, p[1] + part * y)
