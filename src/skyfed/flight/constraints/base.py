"""What a constraint is: the points, legs and plans it allows, its settings, and how a config names it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from skyfed.errors import BadInputError, own_code
from skyfed.imports import OWN, check_path, import_path
from skyfed.settings import first_fault
from skyfed.types import Bools, Floats, Plan

if TYPE_CHECKING:
    from skyfed.flight.problem import Problem

Kind = Literal["points", "legs", "rounds", "plans", "fleet"]
METHODS: dict[Kind, str] = {
    "points": "allows_points", "legs": "allows_legs", "rounds": "allows_rounds", "plans": "plan_violations",
    "fleet": "fleet_violations",
}  # fmt: skip
# name in a config: where the class is; imported on use
BUILT_IN = {
    "no-fly": "skyfed.flight.constraints.zones:NoFly",
    "geofence": "skyfed.flight.constraints.zones:Geofence",
    "times": "skyfed.flight.constraints.times:Times",
    "wind": "skyfed.flight.constraints.wind:Wind",
    "separation": "skyfed.flight.constraints.separation:Separation",
}
_RASTER = 160  # points along each side of a map of what is allowed
_LEGS = 200_000  # legs asked about in one call: keeps a constraint's own arrays small


@dataclass(frozen=True)
class Violation:
    """One broken constraint: which, when, which class (or -1), by how much (0 if not measured), in words."""

    constraint: str
    round: int
    label: int
    amount: float
    message: str

    def __str__(self) -> str:
        return f"{self.constraint} at round {self.round}: {self.message}"


@dataclass(frozen=True)
class Zone:
    """A polygon for maps and exported plans: corners in metres; vehicles stay inside it, or outside."""

    corners: tuple[tuple[float, float], ...]
    inside: bool


class Constraint:
    """A constraint on flights; subclass it and write the methods that apply.

    allows_points    which points a vehicle may be at in a round
    allows_legs      which straight legs it may fly from one round's position to the next one's
    allows_rounds    in which rounds it may visit a class
    plan_violations  what is wrong with a whole plan: positions, association, order in time
    fleet_violations what is wrong with the flights of several vehicles together

    A planner searches with the first three. The first two must not depend on the round. `verify` asks all but the last,
    `verify_fleet` the last.
    """

    name: str = ""  # in messages; the class's name where it is empty
    use: str = ""  # "package.module:Name" or "/path/file.py:Name": how another process finds the class

    class Settings(BaseModel):
        """The keys beside `use` in the config; a constraint without settings keeps this empty one."""

    def __init__(self, **settings: Any) -> None:
        self.name = self.name or type(self).__name__
        self.use = self.use or f"{type(self).__module__}:{type(self).__qualname__}"
        self.settings: Any = _validated(self.name, self.Settings, settings)

    def allows_points(self, points: Floats) -> Bools:
        """Tell which points (n, 2), in metres with the station at (0, 0), may be flown to; (n,)."""
        raise NotImplementedError

    def allows_legs(self, start: Floats, stop: Floats) -> Bools:
        """Tell which legs from start (n, 2) straight to stop (n, 2) may be flown; (n,)."""
        raise NotImplementedError

    def allows_rounds(self, classes: int, rounds: int) -> Bools:
        """Tell in which rounds a vehicle may visit each class; (classes, rounds)."""
        raise NotImplementedError

    def plan_violations(self, problem: "Problem", plan: Plan) -> list[Violation]:
        """Return what is wrong with a whole plan."""
        raise NotImplementedError

    def fleet_violations(self, positions: Floats, above: Floats) -> list[Violation]:
        """Return what is wrong with positions (U, T, 2) of vehicles that fly `above` (U,) metres over the lowest."""
        raise NotImplementedError

    def zones(self) -> list[Zone]:
        """Return polygons that maps and exported plans show."""
        return []

    @cached_property
    def kinds(self) -> frozenset[Kind]:
        """What the constraint restricts, told from the methods that its class defines."""
        own = type(self)
        return frozenset(kind for kind, name in METHODS.items() if getattr(own, name) is not getattr(Constraint, name))

    def verify(self, problem: "Problem", plan: Plan) -> list[Violation]:
        """Return every violation in a plan whose arrays have the right shape."""
        q = plan.positions
        points = np.flatnonzero(~points_allowed([self], q))
        legs = np.flatnonzero(~legs_allowed([self], q[:-1], q[1:]))
        broken = [(t, f"position {_spot(q[t])}") for t in points]
        broken += [(t, f"leg from {_spot(q[t])} to {_spot(q[t + 1])}") for t in legs]
        violations = [Violation(self.name, int(t), -1, 0.0, f"{what} is not allowed") for t, what in broken]
        open_rounds = rounds_allowed([self], *problem.psi.shape)
        for t, c in enumerate(plan.association):
            if c >= 0 and not open_rounds[c, t]:
                violations.append(Violation(self.name, t, int(c), 0.0, f"class {c} must not be visited in this round"))
        if "plans" in self.kinds:
            with own_code(f"constraint {self.name}: plan_violations", BadInputError):
                own = list(self.plan_violations(problem, plan))
                if not all(isinstance(violation, Violation) for violation in own):
                    raise TypeError("gave something else; allowed: a list of skyfed.flight.Violation")
            violations += own
        return violations

    def spec(self) -> dict[str, Any]:
        """Return `use` and settings as plain values; another process builds the same constraint from them."""
        return {"use": self.use, **json.loads(self.settings.model_dump_json())}


def _known(use: str) -> str:
    if use in BUILT_IN:
        return use
    try:
        return check_path(use)
    except ValueError:
        raise ValueError(f"allowed: {', '.join(BUILT_IN)}, {OWN}") from None


class ConstraintSpec(BaseModel):
    """One entry of flight.constraints: where the class is, and its settings."""

    model_config = ConfigDict(extra="allow", frozen=True)

    use: Annotated[str, AfterValidator(_known)] = Field(description="a built-in one's name, or an import path")

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, given: Any) -> Any:
        return {"use": given} if isinstance(given, str) else given

    @property
    def settings(self) -> dict[str, Any]:
        """The constraint's own settings."""
        return dict(self.model_extra or {})


def load_constraints(specs: Sequence[ConstraintSpec]) -> tuple[Constraint, ...]:
    """Import and build the constraints; raises BadInputError in one line for one that cannot be.

    That happens when a plan is made or verified, never when a config is read: reading a folder from someone else runs
    nothing.
    """
    return tuple(_load(spec) for spec in specs)


def _load(spec: ConstraintSpec) -> Constraint:
    kind = import_path(BUILT_IN.get(spec.use, spec.use), "flight.constraints")
    if not (isinstance(kind, type) and issubclass(kind, Constraint)):
        what = kind.__name__ if isinstance(kind, type) else f"a {type(kind).__name__}"
        raise BadInputError(
            f"flight.constraints = {spec.use!r} is {what}; allowed: a subclass of skyfed.flight.Constraint"
        )
    try:
        constraint = kind(**spec.settings)
    except Exception as error:  # whatever its own __init__ does
        kind_of = "" if isinstance(error, BadInputError) else f"{type(error).__name__}: "
        raise BadInputError(f"flight.constraints = {spec.use!r}: {kind_of}{' '.join(str(error).split())}") from None
    if not constraint.kinds:
        raise BadInputError(
            f"flight.constraints = {spec.use!r} restricts nothing; define {' or '.join(METHODS.values())}"
        )
    constraint.use = spec.use
    return constraint


def points_allowed(constraints: Sequence[Constraint], points: Floats) -> Bools:
    """Tell which points (n, 2) every constraint allows; (n,)."""
    allowed = np.ones(len(points), bool)
    for constraint in constraints:
        if "points" in constraint.kinds:
            left = np.flatnonzero(allowed)
            allowed[left] = _ask(constraint, "allows_points", points[left])
    return allowed


def allowed_raster(constraints: Sequence[Constraint], region: Floats) -> Bools:
    """Tell which points of a region (2,), in metres around the station, every constraint allows: a grid for maps.

    Rows go from south to north, columns from west to east. It is (0, 0) if no constraint restricts points.
    """
    if not any("points" in constraint.kinds for constraint in constraints):
        return np.empty((0, 0), bool)
    middles = (np.arange(_RASTER) + 0.5) / _RASTER - 0.5
    x, y = np.meshgrid(middles * region[0], middles * region[1])
    return points_allowed(constraints, np.stack([x.ravel(), y.ravel()], axis=1)).reshape(_RASTER, _RASTER)


def legs_allowed(constraints: Sequence[Constraint], start: Floats, stop: Floats) -> Bools:
    """Tell which legs from start (n, 2) to stop (n, 2) every constraint allows; (n,)."""
    allowed = np.ones(len(start), bool)
    for constraint in constraints:
        if "legs" not in constraint.kinds:
            continue
        left = np.flatnonzero(allowed)
        for first in range(0, len(left), _LEGS):
            part = left[first : first + _LEGS]
            allowed[part] = _ask(constraint, "allows_legs", start[part], stop[part])
    return allowed


def rounds_allowed(constraints: Sequence[Constraint], classes: int, rounds: int) -> Bools:
    """Tell in which rounds every constraint allows a visit of each class; (classes, rounds)."""
    allowed = np.ones((classes, rounds), bool)
    for constraint in constraints:
        if "rounds" in constraint.kinds:
            with own_code(f"constraint {constraint.name}: allows_rounds", BadInputError):
                answer = np.asarray(constraint.allows_rounds(classes, rounds))
                if answer.shape != allowed.shape or answer.dtype != bool:
                    raise TypeError(f"gave {answer.dtype} of shape {answer.shape}; allowed: bool of {allowed.shape}")
            allowed &= answer
    return allowed


def names(constraints: Sequence[Constraint]) -> str:
    """Return the names of constraints for a message, each once."""
    return ", ".join(dict.fromkeys(constraint.name for constraint in constraints))


Planner = TypeVar("Planner", bound=Callable[..., Any])


def supports(*kinds: Kind) -> Callable[[Planner], Planner]:
    """Declare that a planner meets constraints that restrict these: "points", "legs", "rounds", "plans", "fleet".

    "rounds" and "fleet" need nothing of the planner but leave: visits in closed rounds are dropped from its plan, and
    flights that come too near to others are changed after all vehicles are planned.
    The paper's constraints need no declaration. A planner without one supports no other constraint.
    """
    unknown = set(kinds) - set(get_args(Kind))
    if unknown:
        raise ValueError(f"supports: {sorted(unknown)[0]!r}; allowed: {', '.join(get_args(Kind))}")

    def declare(planner: Planner) -> Planner:
        planner.supports = frozenset(kinds)  # type: ignore[attr-defined]
        return planner

    return declare


def _ask(constraint: Constraint, method: str, *points: Floats) -> Bools:
    """Return a constraint's answers about points, which it cannot change, or about legs between two sets of them."""
    for array in points:
        array.flags.writeable = False
    wanted = (len(points[0]),)
    with own_code(f"constraint {constraint.name}: {method}", BadInputError):
        answers = np.asarray(getattr(constraint, method)(*points))
        if answers.shape != wanted or answers.dtype != bool:
            raise TypeError(f"gave {answers.dtype} of shape {answers.shape}; allowed: bool of shape {wanted}")
    return answers


def _spot(point: Floats) -> str:
    return f"({point[0]:.1f}, {point[1]:.1f})"


def _validated(name: str, model: type[BaseModel], given: dict[str, Any]) -> BaseModel:
    """Check settings as strictly as a config's; arrays count as lists."""
    unknown = sorted(given.keys() - model.model_fields.keys())
    if unknown and model.model_config.get("extra") != "allow":
        allowed = ", ".join(model.model_fields) or "none, it has no settings"
        raise BadInputError(f"constraint {name}: {unknown[0]} is not a setting; allowed: {allowed}")
    try:
        return model.model_validate_json(json.dumps(given, default=np.ndarray.tolist), strict=True)
    except TypeError as error:
        raise BadInputError(f"constraint {name}: settings must be plain values: {error}") from None
    except ValidationError as error:
        key, reason = first_fault(error)
        raise BadInputError(f"constraint {name}: {key + ': ' if key else ''}{reason}") from None
