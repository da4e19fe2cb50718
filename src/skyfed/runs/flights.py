"""Plan a run's flights into its folder; what is finished is never planned again."""

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np

from skyfed.config import Config
from skyfed.errors import BadInputError, InfeasibleError
from skyfed.files import storage_errors, write_whole
from skyfed.flight.fleet_plan import FleetPlan, load_fleet_plan
from skyfed.flight.planner import fell_back
from skyfed.flight.problem import Options
from skyfed.flight.remote import pack_plan, plan_fleet, unpack_plan
from skyfed.flight.verify import verify
from skyfed.runs.folder import RunFolder
from skyfed.types import Plan
from skyfed.world.mission import Mission

Done = Callable[[int, Plan], None]


def plan_into(folder: RunFolder, config: Config, mission: Mission, workers: int, done: Done) -> FleetPlan:
    """Return the flights of a run: from plan.npz, or planned now; each vehicle's plan is saved as soon as it stands."""
    target = folder.path / "plan.npz"
    if target.exists():
        return _checked(load_fleet_plan(target), config, mission, target)
    parts = folder.subfolder("plans")
    plans = _saved(parts, mission)
    for u, found in plans.items():
        done(u, found)
    open_ones = [u for u in range(config.vehicles) if u not in plans]
    options = [planner_options(config, u) for u in open_ones]
    problems = [mission.problems[u] for u in open_ones]
    for k, found in plan_fleet(problems, config.flight.method, options, workers):
        plans[open_ones[k]] = found
        write_whole(_part(parts, open_ones[k]), pack_plan(found))
        done(open_ones[k], found)
    failed = [plans[u].note for u in range(config.vehicles) if fell_back(plans[u].note)]
    if ":" in config.flight.method and len(failed) == config.vehicles:  # then it is the function, not the problem
        with storage_errors(parts):
            for path in parts.iterdir():
                path.unlink()
        reason = failed[0].partition(" failed ")[2]
        raise InfeasibleError(f"flight.method = {config.flight.method!r} failed for every vehicle: {reason[1:-1]}")
    fleet = gather(config, mission, [plans[u] for u in range(config.vehicles)])
    write_whole(target, fleet.to_bytes())
    with storage_errors(parts):
        for path in parts.iterdir():
            path.unlink()
        parts.rmdir()
    return fleet


def planner_options(config: Config, vehicle: int) -> Options:
    """Return what a vehicle's planner is told besides its problem."""
    return Options(seed=config.seed, vehicle=vehicle, placement=config.flight.placement, sca=config.flight.sca)


def gather(config: Config, mission: Mission, plans: list[Plan]) -> FleetPlan:
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
        vmax=np.asarray(np.inf if config.flight.vmax is None else config.flight.vmax),
        epsilon=np.asarray(config.flight.epsilon),
        region=np.asarray(config.field.region),
        windows=np.asarray(config.flight.windows),
        method=np.asarray(config.flight.method),
        objective=np.array([p.objective for p in plans]),
        bound=np.array([p.bound for p in plans]),
        seconds=np.array([p.seconds for p in plans]),
        note=np.array([p.note for p in plans], dtype=np.str_),
        history=np.array([[*p.history, *[np.nan] * (longest - len(p.history))] for p in plans]).reshape(
            len(plans), longest
        ),
        constraints=np.array(
            [json.dumps(spec.model_dump(), sort_keys=True) for spec in config.flight.constraints], np.str_
        ),
    )


def _checked(fleet: FleetPlan, config: Config, mission: Mission, path: Path) -> FleetPlan:
    """Return the fleet's plan if it is one of this mission and verifies."""
    plans = [
        Plan(fleet.positions[u], fleet.association[u], float(fleet.objective[u]), float(fleet.bound[u]),
             float(fleet.seconds[u]), str(fleet.method), str(fleet.note[u]), _history(fleet, u))
        for u in range(min(len(fleet.positions), config.vehicles))
    ]  # fmt: skip
    for u, (problem, found) in enumerate(zip(mission.problems, plans, strict=False)):
        violations = verify(problem, found)
        if violations:
            raise BadInputError(f"{path}: the plan of vehicle {u} does not verify: {violations[0]}")
    whole = gather(config, mission, plans) if len(plans) == config.vehicles else None
    for field in fields(FleetPlan):
        if whole is None or not _same(getattr(whole, field.name), getattr(fleet, field.name)):
            raise BadInputError(f"{path}: {field.name} is not this run's")
    return fleet


def _history(fleet: FleetPlan, u: int) -> tuple[float, ...]:
    if u >= len(fleet.history):
        return ()
    return tuple(float(x) for x in fleet.history[u] if not np.isnan(x))


def _same(ours: np.ndarray, saved: np.ndarray) -> bool:
    """Compare arrays; numbers up to what another processor rounds differently."""
    if ours.shape != saved.shape or ours.dtype.kind != saved.dtype.kind:
        return False
    return (
        bool(np.allclose(ours, saved, rtol=1e-9, atol=1e-9, equal_nan=True))
        if ours.dtype.kind == "f"
        else np.array_equal(ours, saved)
    )


def _part(parts: Path, vehicle: int) -> Path:
    return parts / f"vehicle-{vehicle:05d}.npz"


def _saved(parts: Path, mission: Mission) -> dict[int, Plan]:
    """Plans of an earlier, interrupted start that still verify."""
    plans = {}
    for u, problem in enumerate(mission.problems):
        path = _part(parts, u)
        if not path.exists():
            continue
        try:
            found = unpack_plan(path.read_bytes())
        except Exception:
            continue  # a damaged part is planned again
        if not verify(problem, found):
            plans[u] = found
    return plans
