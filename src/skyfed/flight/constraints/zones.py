"""No-fly zones and a geofence: polygons that points and legs stay outside of, or inside."""

from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import AfterValidator, BaseModel, Field, FiniteFloat

from skyfed.flight.constraints.base import Constraint, Violation, Zone
from skyfed.flight.constraints.polygon_check import leg_fault
from skyfed.flight.constraints.polygons import contains, crosses_itself, meets_rim
from skyfed.types import Bools, Floats, Plan

if TYPE_CHECKING:
    from skyfed.flight.problem import Problem


def _simple(corners: list[tuple[float, float]]) -> list[tuple[float, float]]:
    if corners[0] == corners[-1]:  # as GeoJSON closes a ring
        corners = corners[:-1]
    array = np.array(corners)
    (ax, ay), (bx, by) = array.T, np.roll(array, -1, axis=0).T
    if len(corners) < 3 or abs(float((ax * by - bx * ay).sum())) < 1e-9:  # twice its area
        raise ValueError("a polygon needs three corners that are not on one line")
    if crosses_itself(array):
        raise ValueError("the polygon's edges cross")
    return corners


Corners = Annotated[list[tuple[FiniteFloat, FiniteFloat]], Field(min_length=3), AfterValidator(_simple)]
_MARGIN = Field(0.0, ge=0, allow_inf_nan=False, description="least distance to the polygon's edges, m")


class NoFly(Constraint):
    """Keep out of polygons; their edges belong to them."""

    name = "no-fly"

    class Settings(BaseModel):
        """What may stand beside `use` in the config."""

        polygons: list[Corners] = Field(min_length=1, description="corners of each, in order, m")
        margin: float = _MARGIN

    @cached_property
    def _polygons(self) -> list[Floats]:
        return [np.array(corners) for corners in self.settings.polygons]

    def allows_points(self, points: Floats) -> Bools:
        """Tell which points lie outside of all polygons."""
        return self.allows_legs(points, points)

    def allows_legs(self, start: Floats, stop: Floats) -> Bools:
        """Tell which legs stay outside of all polygons: they start there and touch no edge."""
        free = np.ones(len(start), bool)
        for corners in self._polygons:
            free &= ~contains(corners, start) & ~meets_rim(corners, start, stop, self.settings.margin)
        return free

    def verify(self, problem: "Problem", plan: Plan) -> list[Violation]:
        """Walk along every leg, by code that the planners do not use."""
        return _faults(self, plan, [(zone.corners, False) for zone in self.zones()])

    def zones(self) -> list[Zone]:
        """Return the polygons."""
        return [Zone(tuple(corners), inside=False) for corners in self.settings.polygons]


class Geofence(Constraint):
    """Stay inside one polygon; its edges do not belong to it."""

    name = "geofence"

    class Settings(BaseModel):
        """What may stand beside `use` in the config."""

        polygon: Corners = Field(description="corners in order, m")
        margin: float = _MARGIN

    @cached_property
    def _corners(self) -> Floats:
        return np.array(self.settings.polygon)

    def allows_points(self, points: Floats) -> Bools:
        """Tell which points lie inside."""
        return self.allows_legs(points, points)

    def allows_legs(self, start: Floats, stop: Floats) -> Bools:
        """Tell which legs stay inside: they start there and touch no edge."""
        return contains(self._corners, start) & ~meets_rim(self._corners, start, stop, self.settings.margin)

    def verify(self, problem: "Problem", plan: Plan) -> list[Violation]:
        """Walk along every leg, by code that the planners do not use."""
        return _faults(self, plan, [(zone.corners, True) for zone in self.zones()])

    def zones(self) -> list[Zone]:
        """Return the polygon."""
        return [Zone(tuple(self.settings.polygon), inside=True)]


def _faults(
    constraint: Constraint, plan: Plan, polygons: list[tuple[tuple[tuple[float, float], ...], bool]]
) -> list[Violation]:
    margin, name = constraint.settings.margin, constraint.name
    places = [(float(x), float(y)) for x, y in plan.positions]
    violations = []
    for corners, inside in polygons:
        for t, place in enumerate(places):
            if fault := leg_fault(place, place, corners, inside, margin):
                violations.append(
                    Violation(name, t, -1, fault[0], f"position ({place[0]:.1f}, {place[1]:.1f}) {fault[1]}")
                )
        for t, (here, there) in enumerate(pairwise(places)):
            if fault := leg_fault(here, there, corners, inside, margin):
                leg = f"leg from ({here[0]:.1f}, {here[1]:.1f}) to ({there[0]:.1f}, {there[1]:.1f})"
                violations.append(Violation(name, t, -1, fault[0], f"{leg} {fault[1]}"))
    return violations
