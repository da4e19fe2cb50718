"""Plan a run's flights into its folder; finished flights are never planned again."""

import contextlib
import json
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np

from skyfed.config import Config
from skyfed.errors import BadInputError, InfeasibleError
from skyfed.files import storage_errors, write_whole
from skyfed.flight.constraints.base import allowed_raster
from skyfed.flight.fleet_plan import FleetPlan, load_fleet_plan
from skyfed.flight.planner import fell_back
from skyfed.flight.problem import Options
from skyfed.flight.remote import pack_plan, plan_fleet, unpack_plan
from skyfed.flight.separate import separate
from skyfed.flight.verify import verify, verify_fleet
from skyfed.runs.folder import RunFolder
from skyfed.types import Floats, Plan
from skyfed.world.mission import Mission

Done = Callable[[int, Plan], None]


def plan_into(folder: RunFolder, config: Config, mission: Mission, workers: int, done: Done) -> FleetPlan:
    """Return the flights of a run, from plan.npz or planned now; each vehicle's plan is saved as soon as it is made."""
    target = folder.path / "plan.npz"
    if target.exists():
        return _checked(load_fleet_plan(target), config, mission, target)
    parts = folder.subfolder("plans")
    plans = _saved(parts, mission)
    for u, plan in plans.items():
        done(u, plan)
    missing = [u for u in range(config.vehicles) if u not in plans]
    options = [
        Options(seed=config.seed, vehicle=u, placement=config.flight.placement, sca=config.flight.sca) for u in missing
    ]
    problems = [mission.problems[u] for u in missing]
    for k, plan in plan_fleet(problems, config.flight.method, options, workers):
        plans[missing[k]] = plan
        write_whole(_part(parts, missing[k]), pack_plan(plan))
        done(missing[k], plan)
    failed = [plans[u].note for u in range(config.vehicles) if fell_back(plans[u].note)]
    if ":" in config.flight.method and len(failed) == config.vehicles:  # then it is the function, not the problem
        _drop(parts, config.vehicles)
        reason = failed[0].partition(" failed ")[2]
        raise InfeasibleError(f"flight.method = {config.flight.method!r} failed for every vehicle {reason}")
    flights, above = [plans[u] for u in range(config.vehicles)], np.empty(0)
    if mission.together:
        flights, above = separate(mission.problems, flights, mission.together)
    fleet = _gather(config, mission, flights, above)
    write_whole(target, fleet.to_bytes())
    _drop(parts, config.vehicles)
    return fleet


def _gather(config: Config, mission: Mission, plans: list[Plan], above: Floats) -> FleetPlan:
    """Put the plans of all vehicles side by side with what they were planned on."""
    problems = mission.problems
    truth = mission.field.mixtures
    longest = max(len(p.history) for p in plans)
    return FleetPlan(
        positions=np.stack([p.positions for p in plans]),
        association=np.stack([p.association for p in plans]),
        centres=np.stack([p.centres for p in problems]),
        radii=np.stack([p.radii for p in problems]),
        true_centres=np.stack([m.centres for m in truth]),
        true_radii=np.stack([config.field.zeta * m.deviations for m in truth]),
        psi=mission.field.psi,
        imax=np.stack([p.imax for p in problems]),
        dmin=np.asarray(config.flight.dmin),
        vmax=np.asarray(config.longest_leg),
        epsilon=np.asarray(config.flight.epsilon),
        region=np.asarray(config.field.region),
        windows=np.asarray(config.flight.windows),
        method=np.asarray(config.flight.method),
        objective=np.array([p.objective for p in plans]),
        bound=np.array([p.bound for p in plans]),
        seconds=np.array([p.seconds for p in plans]),
        note=np.array([p.note for p in plans], dtype=np.str_),
        history=np.array([[*p.history, *[np.nan] * (longest - len(p.history))] for p in plans]),
        constraints=np.array([json.dumps(c.model_dump(), sort_keys=True) for c in config.flight.constraints], np.str_),
        allowed=allowed_raster(problems[0].constraints, np.asarray(config.field.region)),
        zones=np.array(
            [json.dumps(asdict(zone)) for each in problems[0].constraints for zone in each.zones()], np.str_
        ),
        above=above,
    )


def _checked(fleet: FleetPlan, config: Config, mission: Mission, path: Path) -> FleetPlan:
    """Return the fleet's plan if it is one of this mission and verifies."""
    plans = []
    for u, problem in enumerate(mission.problems[: len(fleet.positions)]):
        history = fleet.history[u][~np.isnan(fleet.history[u])] if u < len(fleet.history) else ()
        plan = Plan(
            fleet.positions[u], fleet.association[u], float(fleet.objective[u]), float(fleet.bound[u]),
            float(fleet.seconds[u]), str(fleet.method), str(fleet.note[u]), tuple(map(float, history)),
        )  # fmt: skip
        violations = verify(problem, plan)
        if violations:
            raise BadInputError(f"{path}: the plan of vehicle {u} does not verify: {violations[0]}")
        plans.append(plan)
    if mission.together and fleet.above.shape != (len(plans),):
        raise BadInputError(f"{path}: above is not this run's")
    together = verify_fleet(mission.together, fleet.positions, fleet.above)
    if together:
        raise BadInputError(f"{path}: the fleet's plan does not verify: {together[0]}")
    whole = _gather(config, mission, plans, fleet.above) if len(plans) == config.vehicles else None
    for field in fields(FleetPlan):
        if whole is None or not _same(getattr(whole, field.name), getattr(fleet, field.name)):
            raise BadInputError(f"{path}: {field.name} is not this run's")
    return fleet


def _same(ours: np.ndarray, saved: np.ndarray) -> bool:
    """Compare arrays; real numbers up to rounding that differs between processors."""
    if ours.shape != saved.shape or ours.dtype.kind != saved.dtype.kind:
        return False
    if ours.dtype.kind == "f":
        return bool(np.allclose(ours, saved, rtol=1e-9, atol=1e-9, equal_nan=True))
    return np.array_equal(ours, saved)


def _part(parts: Path, vehicle: int) -> Path:
    return parts / f"vehicle-{vehicle:05d}.npz"


def _drop(parts: Path, vehicles: int) -> None:
    """Remove the parts of a plan, by name, and their folder unless somebody else keeps something in it."""
    with storage_errors(parts):
        for u in range(vehicles):
            _part(parts, u).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        parts.rmdir()


def _saved(parts: Path, mission: Mission) -> dict[int, Plan]:
    """Return the plans of an earlier, interrupted start that still verify."""
    plans = {}
    for u, problem in enumerate(mission.problems):
        try:
            plan = unpack_plan(_part(parts, u).read_bytes())
        except Exception:
            continue  # a missing or damaged part is planned again
        if not verify(problem, plan):
            plans[u] = plan
    return plans
