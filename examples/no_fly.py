"""A constraint of one's own: a polygon that no vehicle may enter or cross.

Plan with it, from this folder (corners in metres, the station is at (0, 0)):

    skyfed plan smoke --out detour --set flight.method=greedy \\
      --set 'flight.constraints=[{use="no_fly.py:NoFly", polygon=[[-50,-400],[50,-400],[0,400]]}]'

A constraint says which points and which straight legs it allows. The planners look for flights within that, and every
plan is verified against it before anything flies.
"""

import numpy as np
from pydantic import BaseModel, Field

from skyfed.flight import Constraint


class NoFly(Constraint):
    """Keep out of a polygon; its boundary belongs to it."""

    class Settings(BaseModel):
        """What may stand beside `use` in the config."""

        polygon: list[tuple[float, float]] = Field(min_length=3, description="corners in order, m")

    def allows_points(self, points):
        """Tell which points (n, 2) lie outside; (n,)."""
        return ~self._inside(points)

    def allows_legs(self, start, stop):
        """Tell which legs from start (n, 2) to stop (n, 2) stay outside: they start there and meet no edge; (n,)."""
        a, b = self._edges()
        start, stop = start[:, None], stop[:, None]  # every leg against every edge: (n, 1, 2) and (edges, 2)
        legs_part_edge = side(start, stop, a) * side(start, stop, b) <= 0
        edges_part_leg = side(a, b, start) * side(a, b, stop) <= 0
        return ~(legs_part_edge & edges_part_leg).any(axis=1) & ~self._inside(start[:, 0])

    def _edges(self):
        corners = np.array(self.settings.polygon)
        return corners, np.roll(corners, -1, axis=0)

    def _inside(self, points):
        """Count the edges that a ray from each point to the right meets: an odd number means inside."""
        (ax, ay), (bx, by) = (ends.T for ends in self._edges())
        x, y = points[:, :1], points[:, 1:]
        spans = (ay > y) != (by > y)  # edges that reach from below the ray to above it
        height = np.where(by == ay, 1.0, by - ay)  # a level edge spans nothing; 1 avoids dividing by 0
        return (spans & (x <= ax + (y - ay) / height * (bx - ax))).sum(axis=1) % 2 == 1


def side(a, b, point):
    """Tell on which side of the line from a to b a point lies: above 0 left, below 0 right, 0 on it."""
    way, to = b - a, point - a
    return way[..., 0] * to[..., 1] - way[..., 1] * to[..., 0]
