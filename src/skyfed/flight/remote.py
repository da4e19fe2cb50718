"""Plan a fleet in parallel: problems and plans as bytes, one job per vehicle."""

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from skyfed.arrays import read_npz
from skyfed.flight.constraints.base import ConstraintSpec, load_constraints
from skyfed.flight.pictures import Pictures
from skyfed.flight.planner import plan
from skyfed.flight.problem import Options, Problem, ScaSettings
from skyfed.types import Plan
from skyfed.workers import Crew

_ARRAYS = ("centres", "radii", "psi", "imax")  # of a problem; the rest of it is plain values
_COUNTED = ("held", "value", "spread", "ends")  # of its pictures, beside the side


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
    archive = read_npz(job)
    settings = json.loads(str(archive["told"]))
    arrays: dict[str, Any] = {name: archive[name] for name in _ARRAYS}
    options = Options(**settings["options"] | {"sca": ScaSettings(**settings["options"]["sca"])})
    scalars = settings["problem"] | {"region": tuple(settings["problem"]["region"])}
    constraints = load_constraints([ConstraintSpec(**spec) for spec in settings["constraints"]])
    if "held" in archive:
        scalars["pictures"] = Pictures(**{name: archive[name] for name in _COUNTED}, side=settings["side"])
    return pack_plan(plan(Problem(**arrays, **scalars, constraints=constraints), settings["method"], options))


def _pack_job(problem: Problem, method: str, options: Options) -> bytes:
    given = {f.name: getattr(problem, f.name) for f in fields(problem) if f.name not in ("constraints", "pictures")}
    given["start"] = None if problem.start is None else problem.start.tolist()
    arrays = {name: given.pop(name) for name in _ARRAYS}
    if problem.pictures is not None:
        arrays |= {name: getattr(problem.pictures, name) for name in _COUNTED}
    settings = {
        "method": method,
        "options": {f.name: getattr(options, f.name) for f in fields(options)} | {"sca": options.sca.model_dump()},
        "problem": given,
        "side": problem.pictures.side if problem.pictures else 0.0,
        "constraints": [constraint.spec() for constraint in problem.constraints],  # the worker imports them itself
    }
    return _archive(told=json.dumps(settings), **arrays)


def pack_plan(plan: Plan) -> bytes:
    """Pack a plan as an NPZ archive without objects."""
    return _archive(**{f.name: np.asarray(getattr(plan, f.name)) for f in fields(plan)})


def _archive(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def unpack_plan(data: bytes) -> Plan:
    """Read what `pack_plan` wrote."""
    arrays = read_npz(data)
    values: dict[str, Any] = {name: arrays[name] for name in ("positions", "association")}
    values |= {name: float(arrays[name]) for name in ("objective", "bound", "seconds")}
    values |= {name: str(arrays[name]) for name in ("method", "note")}
    return Plan(**values, history=tuple(map(float, arrays["history"])))
