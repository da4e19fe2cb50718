"""Small speed-limited flights against brute force: every association, on points at most 5 m apart."""

import itertools

import numpy as np

from skyfed.bench.row import Progress, Row
from skyfed.flight.planner import plan
from skyfed.flight.problem import Problem, window_spans
from skyfed.flight.verify import verify
from skyfed.types import Bools, Floats, Ints

_STEP = 5.0  # metres
_RIM = 60


def small_flights(count: int, progress: Progress) -> Row:
    """Compare plans of random small problems with the best of all associations."""
    losses, proven, below, verified = [], 0, 0, True
    for seed in range(count):
        if seed % 20 == 0:
            progress(f"small flights against brute force, {seed} of {count}")
        problem = random_problem(seed)
        flight = plan(problem)
        best = brute_force(problem)
        verified &= not verify(problem, flight)
        losses.append(100 * max(0.0, -float(np.expm1((flight.objective - best) / problem.classes))))
        proven += flight.gap <= 1e-6
        below += flight.bound < best - 1e-7
    worst = max(losses)
    also = {
        "proven optimal": f"{proven} of {count}", "loss above 0.01 %": sum(loss > 0.01 for loss in losses),
        "bounds below brute force": below, "verified": verified,
    }  # fmt: skip
    return Row(
        f"{count} random flights with T <= 8, C <= 3, against brute force on points 5 m apart", worst, "% (worst loss)",
        "never more than 1 % below", "optimum proven", worst <= 1 and below == 0 and verified, also,
    )  # fmt: skip


def random_problem(seed: int) -> Problem:
    """Return a random problem of up to three classes and eight rounds; small regions make discs touch."""
    rng = np.random.default_rng(seed)
    C, T = int(rng.integers(1, 4)), int(rng.integers(3, 9))
    side, windows = float(rng.choice([80.0, 150.0, 300.0])), str(rng.choice(["paper", "rolling"]))
    spans = window_spans(C, T, "paper" if windows == "paper" else "rolling")
    return Problem(
        centres=rng.uniform(-side / 2, side / 2, (C, 2)), radii=rng.uniform(20, 40, C),
        psi=rng.dirichlet(np.ones(C), T).T, imax=np.full((C, len(spans)), int(rng.integers(1, 3))),
        vmax=float(rng.choice([20.0, 40.0, 60.0, 90.0, 130.0])), region=(side, side),
        windows="paper" if windows == "paper" else "rolling",
    )  # fmt: skip


def brute_force(problem: Problem) -> float:
    """Return the best objective of any association whose visits grid points can fly; idle rounds are not looked at."""
    C, T = problem.psi.shape
    every = np.array(list(itertools.product(range(-1, C), repeat=T)))
    for w, (first, stop) in enumerate(problem.spans):
        for c in range(C):
            every = every[(every[:, first:stop] == c).sum(axis=1) <= problem.imax[c, w]]
    collected = np.stack([np.where(every == c, problem.psi[c], 0.0).sum(axis=1) for c in range(C)])
    value = np.log(collected + problem.epsilon).sum(axis=0)
    points = [_grid(problem, c) for c in range(C)]
    links: dict[tuple[int, int, int], Bools] = {}
    for k in np.argsort(-value, kind="stable"):
        if _flies(problem, every[k], points, links):
            return float(value[k])
    raise AssertionError("even staying away is impossible")


def _flies(problem: Problem, association: Ints, points: list[Floats], links: dict[tuple[int, int, int], Bools]) -> bool:
    visits = [(int(t), int(association[t])) for t in np.flatnonzero(association >= 0)]
    if not visits:
        return True
    alive: Bools = np.ones(len(points[visits[0][1]]), bool)
    for (t, a), (s, b) in itertools.pairwise(visits):
        key = (a, b, s - t)
        if key not in links:
            far = np.hypot(*(points[a][:, None] - points[b][None]).transpose(2, 0, 1))
            links[key] = (far <= (s - t) * problem.vmax + 1e-9) & ((s - t > 1) | (far >= problem.dmin - 1e-9))
        alive = np.asarray(links[key][alive].any(axis=0))
        if not alive.any():
            return False
    return bool(alive.any())


def _grid(problem: Problem, c: int) -> Floats:
    """Points over disc c and no other, on a grid and on the rim."""
    radius = problem.radii[c]
    ticks = np.arange(-radius, radius + _STEP, _STEP)
    x, y = np.meshgrid(ticks, ticks)
    angle = np.linspace(0, 2 * np.pi, _RIM, endpoint=False)
    rim = radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    points = problem.centres[c] + np.concatenate([np.stack([x.ravel(), y.ravel()], axis=1), rim])
    far = np.hypot(*(points[:, None] - problem.centres[None]).transpose(2, 0, 1))
    others = np.arange(problem.classes) != c
    keep = (far[:, c] <= radius + 1e-9) & (far[:, others] >= problem.radii[others] - 1e-9).all(axis=1)
    return np.asarray(points[keep], np.float64)
