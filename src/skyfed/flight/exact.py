"""The default planner: flights proven to be near the best, on open solvers (Eq. 4)."""

import time

from skyfed.errors import InfeasibleError
from skyfed.flight.association import AssociationModel
from skyfed.flight.constraints.base import names, supports
from skyfed.flight.discs import anchor
from skyfed.flight.place import PlacementError, place
from skyfed.flight.problem import Options, Problem
from skyfed.flight.speed import association_bound, never_binds, plan_by_travel
from skyfed.rng import stream
from skyfed.types import Floats, Ints, Plan

_PATTERNS = 30  # runs of visits that cannot be placed, forbidden one by one


@supports("points", "legs")
def solve(problem: Problem, options: Options) -> Plan:
    """Plan one vehicle's flight with a proven bound on the best objective.

    The bound is that of the problem without the user's constraints. They only shrink the set of plans, so it holds.
    """
    begin = time.process_time()
    if not any(anchor(problem, c) is not None for c in range(problem.classes)):
        raise InfeasibleError("every disc is covered by others: no class can be sensed")
    # a speed limit and closed legs both make travel take rounds
    travels = not never_binds(problem) or any("legs" in constraint.kinds for constraint in problem.constraints)
    travels = travels or problem.pictures is not None or problem.start is not None
    association, positions, bound, note = (plan_by_travel if travels else _unlimited)(problem, options)
    if problem.constraints:
        note += "; " if note else ""
        note += f"bound proven without {names(problem.constraints)}: it holds, and may be loose"
    objective = problem.objective(association, positions)
    return Plan(positions, association, objective, max(bound, objective), time.process_time() - begin, "exact", note)


def _unlimited(problem: Problem, options: Options) -> tuple[Ints, Floats, float, str]:
    """Associate first, then place; runs of visits that cannot be placed are forbidden and the search repeated.

    The bound is the first one, before anything was forbidden that is not proven impossible.
    """
    model = AssociationModel(problem, options.seconds)
    rng = stream(options.seed, "placement", vehicle=options.vehicle)
    bound = association_bound(problem, options) if problem.constraints else None
    for _ in range(_PATTERNS):
        association, proven, note = model.solve()
        bound = proven if bound is None else bound
        try:
            return association, place(problem, association, options.placement, rng), bound, note
        except PlacementError as error:
            first = error.rounds[0]
            model.forbid(tuple((t - first, int(association[t])) for t in error.rounds))
    raise InfeasibleError(f"no positions were found for the best {_PATTERNS} associations")
