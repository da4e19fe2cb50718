"""The default planner: flights proven to be near the best, on open solvers (Eq. 4)."""

import time

import numpy as np

from skyfed.errors import InfeasibleError
from skyfed.flight.association import AssociationModel
from skyfed.flight.constraints.base import names, supports
from skyfed.flight.discs import anchor, distances
from skyfed.flight.place import PlacementError, place
from skyfed.flight.pricing import WalkMixture
from skyfed.flight.problem import Options, Problem
from skyfed.flight.travel import flyable_network, optimistic_network
from skyfed.flight.walk_search import Walk, WalkSearch
from skyfed.rng import stream
from skyfed.types import IDLE, Floats, Ints, Plan

_PATTERNS = 30  # runs of visits that cannot be placed, forbidden one by one
_BOUND_STEPS, _BOUND_GAP = 300, 5e-3  # nats: how well the speed-limited bound is worked out
_DIVE_STEPS, _DIVE_GAP = 8, 0.02
_WORK = 4e8  # links looked at by all dives of one vehicle, about 10 CPU seconds
_STALE = 8  # dives in a row that found nothing better, before diving ends
_GOOD = 0.002  # geometric-mean loss per class at which diving ends


@supports("points", "legs")
def solve(problem: Problem, options: Options) -> Plan:
    """Plan one vehicle's flight with a proven bound on the best objective.

    The bound is that of the problem without the user's constraints. They only shrink the set of plans, so it holds.
    """
    begin = time.process_time()
    if not any(anchor(problem, c) is not None for c in range(problem.classes)):
        raise InfeasibleError("every disc is covered by others: no class can be sensed")
    # a speed limit and closed legs both make travel take rounds
    travels = not _never_binds(problem) or any("legs" in constraint.kinds for constraint in problem.constraints)
    association, positions, bound, note = (_by_travel if travels else _unlimited)(problem, options)
    if problem.constraints:
        note += "; " if note else ""
        note += f"bound proven without {names(problem.constraints)}: it holds, and may be loose"
    objective = problem.objective(association)
    return Plan(positions, association, objective, max(bound, objective), time.process_time() - begin, "exact", note)


def _never_binds(problem: Problem) -> bool:
    """Tell whether any two points of discs lie within vmax, so that the speed limit cannot matter."""
    apart = distances(problem.centres, problem.centres)
    return bool((apart + problem.radii[:, None] + problem.radii[None]).max() <= problem.vmax)


def _unlimited(problem: Problem, options: Options) -> tuple[Ints, Floats, float, str]:
    """Associate first, then place; runs of visits that cannot be placed are forbidden and the search repeated.

    The bound is the first one, before anything was forbidden that is not proven impossible.
    """
    model = AssociationModel(problem, options.seconds)
    rng = stream(options.seed, "placement", vehicle=options.vehicle)
    bound = _association_bound(problem, options) if problem.constraints else None
    for _ in range(_PATTERNS):
        association, proven, note = model.solve()
        bound = proven if bound is None else bound
        try:
            return association, place(problem, association, options.placement, rng), bound, note
        except PlacementError as error:
            first = error.rounds[0]
            model.forbid(tuple((t - first, int(association[t])) for t in error.rounds))
    raise InfeasibleError(f"no positions were found for the best {_PATTERNS} associations")


def _by_travel(problem: Problem, options: Options) -> tuple[Ints, Floats, float, str]:
    """Prove a bound on the optimistic network, find plans on the flyable one, place and keep the best."""
    if _never_binds(problem):
        bound = _association_bound(problem, options)
    else:
        optimistic = WalkSearch(problem, optimistic_network(problem))
        relaxation = WalkMixture(problem, optimistic, lambda association, walk: None, options.seconds)
        bound = relaxation.generate(_BOUND_STEPS, _BOUND_GAP)
    search = WalkSearch(problem, flyable_network(problem))
    best = _BestFlight(problem, search)
    mixture = WalkMixture(problem, search, best.offer, options.seconds)
    mixture.generate(_BOUND_STEPS, _BOUND_GAP)
    work, dives, stale = search.work, 0, 0
    while search.work - work < _WORK and stale < _STALE and best.loss(bound) > _GOOD:
        before = best.value
        rng = None if dives == 0 else stream(options.seed, "dive", round=dives, vehicle=options.vehicle)
        mixture.dive(rng, _DIVE_STEPS, _DIVE_GAP, enough=lambda proven: proven <= best.value + 1e-9)
        dives += 1
        stale = 0 if best.value > before else stale + 1
    if best.association is None:
        limit = "" if np.isinf(problem.vmax) else f" within vmax = {problem.vmax:g} m a round"
        raise InfeasibleError(f"no flight{limit} was found")
    if options.placement != "anywhere":
        return best.association, best.positions, bound, ""
    rng = stream(options.seed, "placement", vehicle=options.vehicle)
    try:
        return best.association, place(problem, best.association, "anywhere", rng), bound, ""
    except PlacementError:
        return best.association, best.positions, bound, "placed for sensing: nothing else was found"


def _association_bound(problem: Problem, options: Options) -> float:
    """A bound without speed limit and user constraints: both only shrink the set of plans."""
    return AssociationModel(problem.paper_only, options.seconds).solve()[1]


class _BestFlight:
    """The best walk so far that could be placed."""

    def __init__(self, problem: Problem, search: WalkSearch) -> None:
        self._problem, self._search = problem, search
        self.value = -np.inf
        self.association: Ints | None = None
        self.positions: Floats = np.empty(0)
        self._failed: set[bytes] = set()

    def loss(self, bound: float) -> float:
        """Geometric-mean loss per class against a bound."""
        return float(-np.expm1((self.value - bound) / self._problem.classes))

    def offer(self, association: Ints, walk: Walk) -> None:
        value = self._problem.objective(association)
        if value <= self.value + 1e-12 or association.tobytes() in self._failed:
            return
        hint = np.where((walk == IDLE)[:, None], np.nan, self._search.network.points[walk])
        try:
            self.positions = place(self._problem, association, hint=hint)
        except PlacementError:
            self._failed.add(association.tobytes())
            return
        self.value, self.association = value, association
