"""The verifier's own geometry of polygons, in plain Python: it cuts a leg where it meets edges and looks at each piece.

It shares nothing with `polygons`, which the planners use.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

Point = tuple[float, float]
TOLERANCE = 1e-6  # m: rounding of float64 positions in a region of kilometres


def leg_fault(
    start: Point, stop: Point, corners: Sequence[Point], inside: bool, margin: float
) -> tuple[float, str] | None:
    """Return by how many metres a leg is wrong and in words, None where it stays on its side of the polygon."""
    edges = list(zip(corners, [*corners[1:], corners[0]], strict=True))
    length = math.dist(start, stop)
    cuts = sorted({0.0, 1.0, *(cut for edge in edges for cut in _cuts(start, stop, *edge))})
    pieces: Iterable[tuple[float, float]] = pairwise(cuts) if length > 0 else [(0.0, 0.0)]
    wrong = 0.0
    for first, last in pieces:
        middle = (first + last) / 2
        x, y = (a + middle * (b - a) for a, b in zip(start, stop, strict=True))
        if _turns_around((x, y), edges) != inside and min(_apart((x, y), *edge) for edge in edges) > TOLERANCE:
            wrong = max(wrong, (last - first) * length, TOLERANCE)
    if wrong:
        where = "outside the polygon" if inside else "inside a polygon"
        return wrong, f"is {where}" + (f" over {wrong:.6g} m" if length > 0 else "")
    nearest = min(
        min(_apart(start, a, b), _apart(stop, a, b), _apart(a, start, stop), _apart(b, start, stop)) for a, b in edges
    )
    if nearest < margin - TOLERANCE:
        return margin - nearest, f"is {nearest:.6g} m from an edge; at least {margin:g} m is needed"
    return None


def _cuts(start: Point, stop: Point, a: Point, b: Point) -> list[float]:
    """Where along a leg, 0 to 1, it meets the line of an edge."""
    dx, dy, ex, ey = stop[0] - start[0], stop[1] - start[1], b[0] - a[0], b[1] - a[1]
    determinant = dx * ey - dy * ex
    if determinant == 0:
        return []
    cut = ((a[0] - start[0]) * ey - (a[1] - start[1]) * ex) / determinant
    return [cut] if 0 < cut < 1 else []


def _turns_around(point: Point, edges: list[tuple[Point, Point]]) -> bool:
    """Tell whether the polygon turns once around a point, by the sum of the angles of its edges."""
    turned = 0.0
    for (ax, ay), (bx, by) in edges:
        turn = math.atan2(by - point[1], bx - point[0]) - math.atan2(ay - point[1], ax - point[0])
        turned += math.remainder(turn, math.tau)
    return abs(turned) > math.pi


def _apart(point: Point, a: Point, b: Point) -> float:
    """Distance from a point to a segment, by the angles at its ends."""
    length = math.dist(a, b)
    from_a, from_b = math.dist(point, a), math.dist(point, b)
    if length == 0 or from_a**2 >= from_b**2 + length**2:
        return from_b
    if from_b**2 >= from_a**2 + length**2:
        return from_a
    return abs((b[0] - a[0]) * (point[1] - a[1]) - (b[1] - a[1]) * (point[0] - a[0])) / length
