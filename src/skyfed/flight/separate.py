"""Keep a fleet's flights apart: spread vehicles over layers, then change flights where two still come too near.

Vehicles are settled one after the other. One that comes too near to a settled one gets new positions in the rounds
around that place, by dynamic programming over points and legs that are free of all settled vehicles. A visit is left
out only if no way with it is found.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from skyfed.errors import InfeasibleError
from skyfed.flight.apart import conflicts
from skyfed.flight.constraints.base import Constraint, Violation
from skyfed.flight.constraints.separation import Separation
from skyfed.flight.detour import Detours
from skyfed.flight.problem import Problem
from skyfed.flight.verify import verify, verify_fleet
from skyfed.types import IDLE, Floats, Ints, Plan

_WIDTHS = (1, 3, 6)  # rounds around a conflict that are planned anew: the first without a loss is taken
_WIDER = (15, 40, 10**6)  # where these do not do
_ORDERS = 6  # orders of vehicles tried: one that finds no way is settled first in the next


def separate(
    problems: Sequence[Problem], plans: Sequence[Plan], constraints: Sequence[Constraint]
) -> tuple[list[Plan], Floats]:
    """Return verified plans that keep constraints on the whole fleet, and each vehicle's metres above the lowest layer.

    Raises InfeasibleError that names the vehicle and the round where none are found.
    """
    done, above = list(plans), np.zeros(len(plans))
    for rule in constraints:
        if isinstance(rule, Separation):
            layer = _layers(np.stack([plan.positions for plan in done]), rule.settings.metres, rule.settings.layers)
            above = layer * rule.settings.spacing
            done = _apart(problems, done, layer, rule.settings.metres)
    for u, (problem, plan) in enumerate(zip(problems, done, strict=True)):
        if plan is not plans[u] and (broken := verify(problem, plan)):
            raise InfeasibleError(f"vehicle {u}, kept apart from others, does not verify: {broken[0]}")
    violations: list[Violation] = verify_fleet(constraints, np.stack([plan.positions for plan in done]), above)
    if violations:
        raise InfeasibleError(f"the fleet's plan does not verify: {violations[0]}")
    return done, above


def _layers(positions: Floats, metres: float, most: int) -> Ints:
    """Assign a layer to every vehicle: those that meet most others choose first, the one where they meet fewest."""
    count = len(positions)
    layer = np.zeros(count, np.int64)
    if most == 1:
        return layer
    meetings = np.zeros((count, count), np.int64)
    for u in range(count):
        for v in range(u):
            meetings[u, v] = meetings[v, u] = conflicts(positions[u], positions[v : v + 1], metres).sum()
    settled: list[int] = []
    for u in np.argsort(-(meetings > 0).sum(axis=1), kind="stable"):
        met = [sum(int(meetings[u, v]) for v in settled if layer[v] == k) for k in range(most)]
        layer[u] = int(np.argmin(met))
        settled.append(int(u))
    return layer


def _apart(problems: Sequence[Problem], plans: Sequence[Plan], layer: Ints, metres: float) -> list[Plan]:
    """Settle one vehicle after the other."""
    order = list(range(len(plans)))
    reason = ""
    for _ in range(_ORDERS):
        done: dict[int, Plan] = {}
        for u in order:
            near = [done[v].positions for v in done if layer[v] == layer[u]]
            others = np.stack(near) if near else np.empty((0, problems[u].rounds, 2))
            changed, stuck = _changed(problems[u], plans[u], others, metres)
            if changed is None:
                reason = f"vehicle {u} finds no flight {metres:g} m apart from the others at round {stuck}"
                order.remove(u)
                order.insert(0, u)
                break
            done[u] = changed
        else:
            return [done[u] for u in range(len(plans))]
    raise InfeasibleError(f"separation: {reason}; allow more layers, or fewer metres")


def _changed(problem: Problem, plan: Plan, others: Floats, metres: float) -> tuple[Plan | None, int]:
    """Return a flight that keeps apart from others (K, T, 2), the same one if it does; None with the round if stuck."""
    positions, association = plan.positions.copy(), plan.association.copy()
    detours = Detours(problem, others, metres)
    while (near := np.flatnonzero(conflicts(positions, others, metres))).size:
        best: tuple[Floats, Ints] | None = None
        value = -np.inf
        for width in (*_WIDTHS, *_WIDER):
            if best is not None and (width in _WIDER or (best[1] == association).all()):
                break
            found = detours.around(positions, association, int(near[0]), width)
            if found is not None and problem.objective(found[1]) > value:
                best, value = found, problem.objective(found[1])
        if best is None:
            return None, int(near[0])
        positions, association = best
    return _as_plan(problem, plan, positions, association), -1


def _as_plan(problem: Problem, plan: Plan, positions: Floats, association: Ints) -> Plan:
    moved = int((positions != plan.positions).any(axis=1).sum())
    if not moved:
        return plan
    left_out = np.unique(plan.association[(association == IDLE) & (plan.association != IDLE)], return_counts=True)
    said = [f"{count} visit{'s' if count > 1 else ''} of class {c}" for c, count in zip(*left_out, strict=True)]
    note = f"separation moves {moved} positions" + (f" and leaves out {', '.join(said)}" if said else "")
    return replace(
        plan, positions=positions, association=association, objective=problem.objective(association),
        note=f"{plan.note}; {note}" if plan.note else note,
    )  # fmt: skip
