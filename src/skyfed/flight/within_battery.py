"""Flights within a battery: planned as without one where that fits, else with joules as a resource of the search.

A vehicle lands after its last visit and stays at home. With recharging it may fly home between two visits and go on.
"""

from dataclasses import replace

import numpy as np

from skyfed.errors import InfeasibleError
from skyfed.flight.constraints.battery import Battery
from skyfed.flight.discs import anchor, samples
from skyfed.flight.energy import Energy, affordable, class_energy
from skyfed.flight.fuel import Fuel
from skyfed.flight.improve import Improvement
from skyfed.flight.place import PlacementError, fill_idle, place
from skyfed.flight.problem import Options, Problem, window_spans
from skyfed.flight.small import is_small
from skyfed.flight.small_battery import solve_small_within
from skyfed.flight.speed import bound_and_search
from skyfed.flight.travel import Network, flyable_network, optimistic_network
from skyfed.flight.walk_search import Walk
from skyfed.types import IDLE, Bools, Floats, Ints, Plan

_RINGS = 6  # on which a disc is sampled for the point that is cheapest to reach
_PLACED = 40  # walks that are tried to be placed, best first

Flown = tuple[Ints, Floats, Bools]  # association (T,), positions (T, 2), landed (T,)


def fits(energy: Energy, plan: Plan) -> bool:
    """Tell whether a flight over all rounds fits the battery."""
    return energy.needed(plan.positions) <= energy.joules


def may_fit(problem: Problem, energy: Energy) -> bool:
    """Tell whether a flight over all rounds could fit, from below."""
    return int(class_energy(problem, energy).latest.max()) >= problem.rounds - 1


def out_of_reach(problem: Problem, energy: Energy, vehicle: int) -> tuple[list[int], str]:
    """Return the classes that cannot be reached and returned from, and a sentence about them; raises if all are."""
    open_classes = [c for c in range(problem.classes) if anchor(problem, c) is not None]
    far = [c for c in open_classes if not affordable(energy, samples(problem, c, _RINGS)).any()]
    if not far:
        return [], ""
    which = f"class {far[0]}" if len(far) == 1 else f"classes {', '.join(map(str, far))}"
    text = f"vehicle {vehicle} cannot reach {which} and return on {energy.watt_hours:.3g} Wh"
    if far == open_classes:
        raise InfeasibleError(text)
    return far, text


def plan_within(problem: Problem, battery: Battery, options: Options) -> tuple[Flown, float, str]:
    """Prove a bound and search for a flight within the battery; `problem` is without it.

    Returns the flight, the bound and a note.
    """
    energy = Energy(battery)
    _, note = out_of_reach(problem, energy, options.vehicle)
    short, tolls = _shortened(problem, energy), None
    if energy.recharge is None:
        tolls = class_energy(short, energy)
        if is_small(short):
            bound, flown = solve_small_within(short, optimistic_network(short), energy, tolls)
            if flown is not None:
                return _padded(problem, *flown), bound, note
    network = flyable_network(short)
    fuel = Fuel(energy, network)
    bound, search = bound_and_search(short, options, tolls, network, fuel)
    flown = _placed(short, search, fuel, energy)
    if energy.recharge is not None:
        note += ("; " if note else "") + "bound proven without the battery, since it can be recharged: it may be loose"
    return _padded(problem, *flown), bound, note


def cut_short(problem: Problem, battery: Battery, plan: Plan, vehicle: int) -> Plan:
    """Let a flight that was planned without the battery land in time: after the last visit that it affords."""
    energy = Energy(battery)
    _, note = out_of_reach(problem, energy, vehicle)
    if fits(energy, plan):
        return plan
    for t in np.flatnonzero(plan.association != IDLE)[::-1]:
        if energy.needed(plan.positions[: t + 1]) <= energy.joules:
            association, positions, landed = _padded(
                problem, plan.association[: t + 1], plan.positions[: t + 1], np.zeros(t + 1, bool)
            )
            said = "; ".join(part for part in (plan.note, note) if part)
            value = problem.objective(association)
            return replace(plan, association=association, positions=positions, landed=landed, objective=value, note=said)
    raise InfeasibleError(f"{plan.method}: no visit can be reached and returned from on {energy.watt_hours:.3g} Wh")


def _shortened(problem: Problem, energy: Energy) -> Problem:
    """Leave out the rounds that no flight lasts to; with recharging there are none."""
    last = int(class_energy(problem, energy).latest.max()) + 1
    uneven = problem.windows == "rolling" and bool((problem.imax != problem.imax[:, :1]).any())
    if energy.recharge is not None or last >= problem.rounds or uneven:
        return problem
    return truncated(problem, max(1, last))


def truncated(problem: Problem, rounds: int) -> Problem:
    """Return the problem of the first rounds alone."""
    windows = len(window_spans(problem.classes, rounds, problem.windows))
    return replace(problem, psi=problem.psi[:, :rounds], imax=problem.imax[:, :windows])


def _padded(problem: Problem, association: Ints, positions: Floats, landed: Bools) -> Flown:
    """Stay at home after the last round."""
    more = problem.rounds - len(association)
    return (
        np.concatenate([association, np.full(more, IDLE)]),
        np.concatenate([positions, np.zeros((more, 2))]),
        np.concatenate([landed, np.ones(more, bool)]),
    )


def _placed(problem: Problem, search: Improvement, fuel: Fuel, energy: Energy) -> Flown:
    """Return the best flight that can be placed within the battery."""
    value, best = -np.inf, None
    tried: set[bytes] = set()
    for walk in search.walks()[:_PLACED]:
        association = search.beam.association(walk)
        if walk.tobytes() in tried or problem.objective(association) <= value:
            continue
        tried.add(walk.tobytes())
        flown = _flown(problem, search.beam.network, fuel, energy, walk)
        if flown is not None and problem.objective(flown[0]) > value:
            value, best = problem.objective(flown[0]), flown
    if best is None:
        raise InfeasibleError(f"no flight on {energy.watt_hours:.3g} Wh was found")
    return best


def _flown(problem: Problem, network: Network, fuel: Fuel, energy: Energy, walk: Walk) -> Flown | None:
    """Place every flight between two landings; one that does not fit lands earlier."""
    T = problem.rounds
    association = np.where(walk == IDLE, IDLE, network.label[walk])
    positions, landed = np.zeros((T, 2)), np.ones(T, bool)
    some = False
    for first, stop in fuel.sorties(walk):
        hint = np.where((walk == IDLE)[:, None], np.nan, network.points[walk])
        while stop > first:
            part = slice(first, stop)
            own = _positions(problem, association[part], hint[part], first, energy)
            if own is not None:
                positions[part], landed[part], some = own, False, True
                break
            association[stop - 1] = IDLE  # without its last visit
            busy = np.flatnonzero(association[part] != IDLE)
            stop = first + (int(busy[-1]) + 1 if len(busy) else 0)
    return (association, positions, landed) if some else None


def _positions(problem: Problem, association: Ints, hint: Floats, first: int, energy: Energy) -> Floats | None:
    """Place one flight for sensing, or else at the points that the search counted with; None where neither fits."""
    rounds = slice(first, first + len(association))
    windows = len(window_spans(problem.classes, len(association), problem.windows))
    part = replace(problem, psi=problem.psi[:, rounds], imax=np.full((problem.classes, windows), len(association)))
    try:
        positions = place(part, association, hint=hint)
        if energy.needed(positions) <= energy.joules:
            return positions
    except PlacementError:
        pass
    positions = hint.copy()
    if fill_idle(part, positions, np.flatnonzero(association != IDLE)) is not None:
        return None
    return positions if energy.needed(positions) <= energy.joules else None
