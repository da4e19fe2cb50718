"""Constraints of a user's own, found by import path or file path.

A config only names them. They are imported when a plan is made or verified, never when a config is read, so that
reading a folder from someone else runs nothing.
"""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from skyfed.errors import BadInputError
from skyfed.flight.constraints.base import Constraint, one_line
from skyfed.imports import check_path, import_path


class ConstraintSpec(BaseModel):
    """One entry of flight.constraints: where the class is, and its settings."""

    model_config = ConfigDict(extra="allow", frozen=True)

    use: str = Field(description="package.module:Name or path/to/file.py:Name")

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, given: Any) -> Any:
        return {"use": given} if isinstance(given, str) else given

    @field_validator("use")
    @classmethod
    def _names_a_class(cls, use: str) -> str:
        return check_path(use)

    @property
    def settings(self) -> dict[str, Any]:
        """The constraint's own settings."""
        return dict(self.model_extra or {})


def load_constraints(specs: Sequence[ConstraintSpec]) -> tuple[Constraint, ...]:
    """Import and build the constraints; raises BadInputError in one line for one that cannot be."""
    return tuple(_load(spec) for spec in specs)


def _load(spec: ConstraintSpec) -> Constraint:
    kind = import_path(spec.use, "flight.constraints")
    if not (isinstance(kind, type) and issubclass(kind, Constraint)):
        what = kind.__name__ if isinstance(kind, type) else f"a {type(kind).__name__}"
        raise BadInputError(
            f"flight.constraints = {spec.use!r} is {what}; allowed: a subclass of skyfed.flight.Constraint"
        )
    try:
        constraint = kind(**spec.settings)
    except Exception as error:  # whatever its own __init__ does
        reason = str(error) if isinstance(error, BadInputError) else one_line(error)
        raise BadInputError(f"flight.constraints = {spec.use!r}: {reason}") from None
    if not constraint.kinds:
        raise BadInputError(
            f"flight.constraints = {spec.use!r} restricts nothing; define allows_points, allows_legs or plan_violations"
        )
    constraint.use = spec.use
    return constraint
