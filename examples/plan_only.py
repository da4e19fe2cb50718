"""Flights without training: state a problem, solve it in several ways, check the plans, export one.

python plan_only.py
"""

import numpy as np

from skyfed.flight import Plan, Problem, plan, verify

CENTRES = np.array([[-300.0, -200.0], [250.0, -150.0], [0.0, 300.0], [350.0, 250.0]])
ROUNDS = 24


def survey(vmax: float = np.inf) -> Problem:
    """Four places to photograph; what there is to see at each comes and goes over the day."""
    phase = np.arange(ROUNDS) / ROUNDS
    psi = np.stack([1.2 + np.sin(2 * np.pi * (phase + shift)) for shift in (0.0, 0.25, 0.5, 0.75)])
    windows = len(range(len(CENTRES) - 1, ROUNDS, len(CENTRES)))  # C5 counts visits in windows
    return Problem(CENTRES, np.full(4, 45.0), psi / psi.sum(axis=0), np.full((4, windows), 2), vmax=vmax)


def line(name: str, problem: Problem, found: Plan) -> str:
    """Return a row of the table; a plan that breaks a constraint never gets this far."""
    assert verify(problem, found) == []
    far = np.hypot(*np.diff(found.positions, axis=0).T).sum()
    proven = f"{found.gap:.1e}" if np.isfinite(found.bound) else "none"
    return f"{name:<22}{found.objective:>10.4f}{proven:>12}{far / 1000:>8.1f}"


if __name__ == "__main__":
    print(f"{'method':<22}{'nats':>10}{'proven gap':>12}{'km':>8}")
    for method in ("exact", "sca", "greedy", "random", "hover"):
        print(line(method, survey(), plan(survey(), method)))
    slow = survey(vmax=200.0)
    print(line("exact, vmax = 200 m", slow, plan(slow)))
    np.savetxt("waypoints.csv", plan(slow).positions, "%.2f", ",", header="x,y", comments="")
