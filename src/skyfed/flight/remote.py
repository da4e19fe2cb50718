"""Plan a fleet in parallel: problems and plans as bytes, one job a vehicle."""

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from skyfed.flight.constraints.load import ConstraintSpec, load_constraints
from skyfed.flight.planner import plan
from skyfed.flight.problem import Options, Problem, ScaSettings
from skyfed.types import Plan
from skyfed.workers import Crew


def plan_fleet(
    problems: Sequence[Problem], method: str, options: Sequence[Options], workers: int
) -> Iterator[tuple[int, Plan]]:
    """Plan every problem; yields (index, plan) as they are done. The answers do not depend on the number of workers."""
    jobs = [_pack_job(problem, method, option) for problem, option in zip(problems, options, strict=True)]
    with Crew("skyfed.flight.remote:handle", min(workers, len(jobs))) as crew:
        for index, answer in crew.run(jobs):
            yield index, unpack_plan(answer)


def handle(job: bytes) -> bytes:
    """Plan one packed job."""
    with np.load(io.BytesIO(job), allow_pickle=False) as archive:
        told = json.loads(str(archive["told"]))
        arrays = {key: archive[key] for key in ("centres", "radii", "psi", "imax")}
    option = told["options"]
    options = Options(**{**option, "sca": ScaSettings(**option["sca"])})
    rest = {**told["problem"], "region": tuple(told["problem"]["region"])}
    constraints = load_constraints([ConstraintSpec(**spec) for spec in told["constraints"]])
    return pack_plan(plan(Problem(**arrays, **rest, constraints=constraints), told["method"], options))


def _pack_job(problem: Problem, method: str, options: Options) -> bytes:
    scalars = ("dmin", "vmax", "windows", "epsilon", "region", "decay_length")
    told = {
        "method": method,
        "options": {f.name: getattr(options, f.name) for f in fields(options)} | {"sca": options.sca.model_dump()},
        "problem": {name: getattr(problem, name) for name in scalars},
        "constraints": [constraint.spec() for constraint in problem.constraints],  # the worker imports them itself
    }
    buffer = io.BytesIO()
    np.savez(
        buffer, told=json.dumps(told), centres=problem.centres, radii=problem.radii, psi=problem.psi, imax=problem.imax
    )
    return buffer.getvalue()


def pack_plan(found: Plan) -> bytes:
    """Pack a plan as an NPZ archive without objects."""
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {f.name: np.asarray(getattr(found, f.name)) for f in fields(found)}
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def unpack_plan(data: bytes) -> Plan:
    """Read what `pack_plan` wrote."""
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        return Plan(
            positions=archive["positions"],
            association=archive["association"],
            objective=float(archive["objective"]),
            bound=float(archive["bound"]),
            seconds=float(archive["seconds"]),
            method=str(archive["method"]),
            note=str(archive["note"]),
            history=tuple(float(x) for x in archive["history"]),
        )
