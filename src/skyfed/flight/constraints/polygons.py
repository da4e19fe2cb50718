"""Polygons as planners ask about them: thousands of points and legs at once, against every edge."""

import numpy as np

from skyfed.types import Bools, Floats

_LEGS = 20_000  # legs worked on at once, so that the arrays over legs and edges stay small


def contains(corners: Floats, points: Floats) -> Bools:
    """Tell which points (n, 2) lie inside: a ray to the right meets an odd number of edges; (n,)."""
    x, y = points.T
    (left, below), (right, above) = corners.min(axis=0), corners.max(axis=0)
    within = np.asarray((x >= left) & (x <= right) & (y >= below) & (y <= above))
    (ax, ay), (bx, by) = corners.T, np.roll(corners, -1, axis=0).T
    x, y = x[within][:, None], y[within][:, None]
    spans = (ay > y) != (by > y)  # edges that reach from below the ray to above it
    height = np.where(by == ay, 1.0, by - ay)  # a level edge spans nothing; 1 avoids dividing by 0
    within[within] = (spans & (x <= ax + (y - ay) / height * (bx - ax))).sum(axis=1) % 2 == 1
    return within


def meets_rim(corners: Floats, start: Floats, stop: Floats, margin: float) -> Bools:
    """Tell which legs from start (n, 2) to stop (n, 2) touch an edge, or come within `margin` metres of one; (n,)."""
    low, high = corners.min(axis=0) - margin, corners.max(axis=0) + margin
    boxes = (np.minimum(start, stop) <= high) & (np.maximum(start, stop) >= low)
    close = np.flatnonzero(boxes[:, 0] & boxes[:, 1])  # most legs pass nowhere near
    met = np.zeros(len(start), bool)
    for first in range(0, len(close), _LEGS):
        part = close[first : first + _LEGS]
        met[part] = _meets(corners, start[part], stop[part], margin)
    return met


def crosses_itself(corners: Floats) -> bool:
    """Tell whether two edges that are no neighbours touch."""
    n = len(corners)
    ends = np.roll(corners, -1, axis=0)
    first, second = np.array([(i, j) for i in range(n) for j in range(i + 2, n) if (j + 1) % n != i] or [(0, 0)]).T
    return n > 3 and bool(_crossing(corners[first], ends[first], corners[second], ends[second]).any())


def _meets(corners: Floats, start: Floats, stop: Floats, margin: float) -> Bools:
    a, b = (
        corners[None],
        np.roll(corners, -1, axis=0)[None],
    )  # every leg against every edge: (n, 1, 2) and (1, edges, 2)
    start, stop = start[:, None], stop[:, None]
    met = _crossing(start, stop, a, b)
    if margin > 0:
        near = (
            _to_segment(start, a, b),
            _to_segment(stop, a, b),
            _to_segment(a, start, stop),
            _to_segment(b, start, stop),
        )
        met |= np.minimum.reduce(near) < margin
    return np.asarray(met.any(axis=1))


def _crossing(start: Floats, stop: Floats, a: Floats, b: Floats) -> Bools:
    """Tell which segments touch: each has the other's ends on both sides, and their boxes overlap."""
    (px, py), (qx, qy), (ax, ay), (bx, by) = (np.moveaxis(each, -1, 0) for each in (start, stop, a, b))
    wx, wy, ex, ey = qx - px, qy - py, bx - ax, by - ay
    met = (wx * (ay - py) - wy * (ax - px)) * (wx * (by - py) - wy * (bx - px)) <= 0
    met &= (ex * (py - ay) - ey * (px - ax)) * (ex * (qy - ay) - ey * (qx - ax)) <= 0
    for p, q, c, d in ((px, qx, ax, bx), (py, qy, ay, by)):  # on one line they may still be apart
        met &= (np.minimum(p, q) <= np.maximum(c, d)) & (np.minimum(c, d) <= np.maximum(p, q))
    return np.asarray(met)


def _to_segment(point: Floats, a: Floats, b: Floats) -> Floats:
    """Distance from points to segments."""
    way = b - a
    length = np.maximum((way**2).sum(axis=-1), 1e-300)
    part = np.clip(((point - a) * way).sum(axis=-1) / length, 0, 1)
    return np.asarray(np.hypot(*np.moveaxis(a + part[..., None] * way - point, -1, 0)))
