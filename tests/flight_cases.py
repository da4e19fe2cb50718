"""Flight problems for tests, and a brute force that shares nothing with the planners."""

import itertools

import numpy as np

from skyfed.flight.problem import Problem, window_spans
from skyfed.types import Plan


def case(
    seed: int,
    classes: int = 3,
    rounds: int = 6,
    vmax: float = np.inf,
    windows: str = "paper",
    imax: int = 2,
    dmin: float = 5.0,
    radii: tuple[float, float] = (20.0, 40.0),
    side: float = 300.0,
) -> Problem:
    """A small random problem; discs may overlap."""
    rng = np.random.default_rng(seed)
    psi = rng.dirichlet(np.ones(classes), rounds).T
    spans = window_spans(classes, rounds, windows)
    return Problem(
        centres=rng.uniform(-side / 2, side / 2, (classes, 2)),
        radii=rng.uniform(*radii, classes),
        psi=psi,
        imax=np.full((classes, len(spans)), imax),
        dmin=dmin,
        vmax=vmax,
        windows=windows,
        region=(side, side),
    )


def grid(problem: Problem, c: int, step: float) -> np.ndarray:
    """Points over disc c and no other, on a fine grid and on the rim."""
    r = problem.radii[c]
    ticks = np.arange(-r, r + step, step)
    x, y = np.meshgrid(ticks, ticks)
    angle = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    points = np.concatenate([np.stack([x.ravel(), y.ravel()], 1), r * np.stack([np.cos(angle), np.sin(angle)], 1)])
    points = problem.centres[c] + points
    keep = np.hypot(*(points - problem.centres[c]).T) <= r + 1e-9
    for k in range(problem.classes):
        if k != c:
            keep &= np.hypot(*(points - problem.centres[k]).T) >= problem.radii[k] - 1e-9
    return points[keep]


def flyable(problem: Problem, association: tuple[int, ...], points: dict[int, np.ndarray]) -> bool:
    """Whether grid points join the visits: dmin between consecutive rounds, k * vmax over k rounds."""
    visits = [(t, c) for t, c in enumerate(association) if c >= 0]
    if not visits:
        return True
    alive = np.ones(len(points[visits[0][1]]), bool)
    for (t, a), (s, b) in itertools.pairwise(visits):
        if not alive.any():
            return False
        far = np.hypot(*(points[a][alive][:, None] - points[b][None]).transpose(2, 0, 1))
        fits = far <= (s - t) * problem.vmax + 1e-9
        if s - t == 1:
            fits &= far >= problem.dmin - 1e-9
        alive = fits.any(axis=0)
    return bool(alive.any())


def brute_force(problem: Problem, step: float = 4.0) -> float:
    """Best objective over every association that C5 allows and grid points can fly."""
    C, T = problem.psi.shape
    points = {c: grid(problem, c, step) for c in range(C)}
    if problem.windows == "paper":
        windows = [range(t1, min(t1 + C, T - 1) + 1) for t1 in range(T) if (t1 + 1) % C == 0]
    else:
        windows = [range(t1, min(t1 + C, T)) for t1 in range(max(1, T - C + 1))]
    scored = []
    for association in itertools.product(range(-1, C), repeat=T):
        crowded = any(
            sum(association[t] == c for t in window) > problem.imax[c, w]
            for w, window in enumerate(windows)
            for c in range(C)
        )
        if not crowded:
            total = np.full(C, problem.epsilon)
            for t, c in enumerate(association):
                if c >= 0:
                    total[c] += problem.psi[c, t]
            scored.append((float(np.log(total).sum()), association))
    for value, association in sorted(scored, reverse=True):
        if all(len(points[c]) for c in association if c >= 0) and flyable(problem, association, points):
            return value
    raise AssertionError("even staying away is impossible")


def valid_plan() -> tuple[Problem, Plan]:
    """A problem worked by hand and a plan that holds: two discs of 10 m, 100 m apart, five rounds."""
    problem = Problem(
        centres=np.array([[0.0, 0.0], [100.0, 0.0]]),
        radii=np.array([10.0, 10.0]),
        psi=np.array([[0.5, 0.6, 0.7, 0.2, 0.1], [0.5, 0.4, 0.3, 0.8, 0.9]]),
        imax=np.array([[2, 2], [2, 2]]),
        region=(300.0, 300.0),
    )
    positions = np.array([[0.0, 0.0], [0.0, 6.0], [50.0, 0.0], [100.0, 0.0], [106.0, 0.0]])
    association = np.array([0, 0, -1, 1, 1])
    objective = float(np.log(1.1 + 1e-6) + np.log(1.7 + 1e-6))
    return problem, Plan(positions, association, objective, 1.0, 0.0, "hand")
