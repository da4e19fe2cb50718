"""Flights where travel takes rounds, under a speed limit or closed legs: a proven bound, and a plan by search.

The bound comes from relaxations on the optimistic network (`pricing`, `visited_bound`), the plan from a beam search and
large-neighbourhood search on the flyable one (`improve`). Both networks are `travel`'s.
"""

from dataclasses import replace

import numpy as np

from skyfed.errors import InfeasibleError
from skyfed.flight.association import AssociationModel
from skyfed.flight.beam import Walk
from skyfed.flight.discs import distances
from skyfed.flight.improve import Improvement
from skyfed.flight.place import PlacementError, place
from skyfed.flight.pricing import WalkMixture
from skyfed.flight.problem import Options, Problem
from skyfed.flight.small import is_small, solve_small
from skyfed.flight.travel import Network, flyable_network, optimistic_network
from skyfed.flight.visited import visited_bound
from skyfed.flight.walk_search import WalkSearch
from skyfed.rng import stream
from skyfed.types import IDLE, Floats, Ints

_BOUND_STEPS, _BOUND_GAP = 300, 5e-3  # nats: how well the bound is worked out
_BOUND_WORK = 1e9  # links looked at for the bound, about 5 CPU seconds
_STATES = 730  # memory states per point in the last search for the bound: six classes' visits
_SHORT = 3  # missions of up to this many rounds per class: which classes are visited at all decides
_LOWEST = 0.02  # least amount per class that prices start from
_WIDTH = 300  # labels kept in a stretch
_START_WIDTH = 1000  # labels kept in a whole flight
_WORK, _MOST_WORK = 100.0, 1e8  # ways looked at per cubed round, and at most: some 8 CPU seconds for 100 rounds
_GOOD = 5e-4  # geometric-mean loss per class at which the search ends
_PLACED = 20  # walks that are tried to be placed, best first


def never_binds(problem: Problem) -> bool:
    """Tell whether any two points of discs lie within vmax, so that the speed limit cannot matter."""
    apart = distances(problem.centres, problem.centres)
    return bool((apart + problem.radii[:, None] + problem.radii[None]).max() <= problem.vmax)


def association_bound(problem: Problem, options: Options) -> float:
    """A bound without speed limit and user constraints: both only shrink the set of plans."""
    return AssociationModel(problem.paper_only, options.seconds).solve()[1]


def plan_by_travel(problem: Problem, options: Options) -> tuple[Ints, Floats, float, str]:
    """Prove a bound, then search; returns association, positions, bound and note."""
    if problem.pictures is not None:
        scale = float(problem.psi.max()) or 1.0
        unit = replace(problem, psi=problem.psi / scale, pictures=problem.pictures.scaled(scale))
        association, positions, bound, note = _plan_by_travel(unit, options)
        return association, positions, bound + float(problem.value.sum()) * np.log(scale), note
    return _plan_by_travel(problem, options)


def _plan_by_travel(problem: Problem, options: Options) -> tuple[Ints, Floats, float, str]:
    network = optimistic_network(problem)
    if is_small(problem) and problem.pictures is None:  # pictures also depend on where inside a disc
        bound, association, positions = solve_small(problem, network)
        if association is not None:
            return _as_asked(problem, options, association, positions, bound)
    search = WalkSearch(problem, network)
    mixture = WalkMixture(problem, search, options.seconds)
    bound = mixture.generate(_BOUND_STEPS, _BOUND_GAP, _BOUND_WORK * options.effort)
    if never_binds(problem) and problem.pictures is None and problem.start is None:
        bound = min(bound, association_bound(problem, options))
    price, rent = mixture.prices
    start = problem.value / np.maximum(0.7 * (mixture.agreement * problem.psi).sum(axis=1), _LOWEST)
    if problem.rounds <= _SHORT * problem.classes and problem.pictures is None:  # pictures are held of every class
        proven, start = visited_bound(problem, network, start)
        bound = min(bound, proven)
    elif options.effort >= 1:
        more = WalkSearch(problem, network, _STATES)  # remembers more, so it is slower: the prices so far save it steps
        if more.states > search.states:
            tighter = WalkMixture(problem, more, options.seconds, mixture.prices)
            bound = min(bound, tighter.generate(_BOUND_STEPS, _BOUND_GAP, _BOUND_WORK))
    found = _search(problem, options, mixture.agreement, price, rent, start, bound)
    association, positions = _placed(problem, found)
    return _as_asked(problem, options, association, positions, bound)


def _as_asked(
    problem: Problem, options: Options, association: Ints, positions: Floats, bound: float
) -> tuple[Ints, Floats, float, str]:
    """Place the visits anywhere where that is asked for."""
    if options.placement != "anywhere":
        return association, positions, bound, ""
    rng = stream(options.seed, "placement", vehicle=options.vehicle)
    try:
        return association, place(problem, association, "anywhere", rng), bound, ""
    except PlacementError:
        return association, positions, bound, "placed for sensing: nothing else was found"


def _search(
    problem: Problem, options: Options, agreement: Floats, price: Floats, rent: Floats, start: Floats, bound: float
) -> Improvement:
    """Search from several first flights, a part of the work each, then from the best of them."""
    T, C = problem.rounds, problem.classes
    rng = stream(options.seed, "flight search", vehicle=options.vehicle)
    best = Improvement(problem, flyable_network(problem), rent, _WIDTH, rng)
    expected = agreement * problem.psi
    later = expected.sum(axis=1)[None] - np.cumsum(expected, axis=1).T
    nothing, free = np.zeros((T, C)), np.zeros_like(rent)
    enough = bound + float(problem.value.sum()) * np.log1p(-_GOOD)
    work = min(_MOST_WORK, _WORK * T**3) * options.effort
    starts = [(price, rent, later)]
    if T <= _SHORT * C and problem.pictures is None:
        starts = [(start, free, nothing), *starts]
    for prices, rents, future in starts:
        best.begin()
        best.fly_all(prices, rents, future, _START_WIDTH)
        best.polish(3 if len(starts) == 1 else 1)
        best.search(work / 2 / len(starts), enough)
    best.resume()
    best.search(work / 2, enough)
    return best


def _placed(problem: Problem, found: Improvement) -> tuple[Ints, Floats]:
    """Return the best flight that can be placed, as association and positions; visits that cannot be are left out."""
    value, best = -np.inf, None
    tried: set[bytes] = set()
    for walk in found.walks()[:_PLACED]:
        association = found.beam.association(walk)
        if association.tobytes() in tried or problem.objective(association) <= value:
            continue
        tried.add(association.tobytes())
        placed = _repaired(problem, association, _positions(found.beam.network, walk))
        if placed is not None and problem.objective(*placed) > value:
            value, best = problem.objective(*placed), placed
    if best is None:
        limit = "" if np.isinf(problem.vmax) else f" within vmax = {problem.vmax:g} m a round"
        raise InfeasibleError(f"no flight{limit} was found")
    return best


def _repaired(problem: Problem, association: Ints, hint: Floats) -> tuple[Ints, Floats] | None:
    """Place a flight without the visits that cannot be."""
    association = association.copy()
    for _ in range(problem.rounds):
        try:
            return association, place(problem, association, hint=hint)
        except PlacementError as error:
            busy = [t for t in error.rounds if association[t] != IDLE]
            if not busy:
                return None
            association[busy[-1]] = IDLE
            hint[busy[-1]] = np.nan
    return None


def _positions(network: Network, walk: Walk) -> Floats:
    """Positions of a walk's visits, NaN where it idles; (T, 2)."""
    return np.where((walk == IDLE)[:, None], np.nan, network.points[walk])
