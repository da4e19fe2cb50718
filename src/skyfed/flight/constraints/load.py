"""Constraints of a user's own, found by import path or file path.

A config only names them. They are imported when a plan is made or verified, never when a config is read, so that
reading a folder from someone else runs nothing.
"""

import hashlib
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from skyfed.errors import BadInputError
from skyfed.flight.constraints.base import Constraint, one_line

_ALLOWED = 'allowed: "package.module:Name" or "path/to/file.py:Name"'


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
        if not re.fullmatch(r"\w+(\.\w+)*:\w+|[^\0]*\.py:\w+", use):
            raise ValueError(f"use = {use!r}; {_ALLOWED}")
        return use

    @property
    def settings(self) -> dict[str, Any]:
        """The constraint's own settings."""
        return dict(self.model_extra or {})


def resolve_uses(flight: Any, absolute: Callable[[str], str]) -> None:
    """Make the file paths in a config's [flight] table absolute; anything else there is left for validation."""
    given = flight.get("constraints") if isinstance(flight, dict) else None
    for k, entry in enumerate(given if isinstance(given, list) else ()):
        use = entry.get("use") if isinstance(entry, dict) else entry
        path, colon, name = use.rpartition(":") if isinstance(use, str) else ("", "", "")
        if not path.endswith(".py"):
            continue
        use = f"{absolute(str(Path(path).expanduser()))}{colon}{name}"
        flight["constraints"][k] = {**entry, "use": use} if isinstance(entry, dict) else use


def load_constraints(specs: Sequence[ConstraintSpec]) -> tuple[Constraint, ...]:
    """Import and build the constraints; raises BadInputError in one line for one that cannot be."""
    return tuple(_load(spec) for spec in specs)


def _load(spec: ConstraintSpec) -> Constraint:
    where, _, name = spec.use.rpartition(":")
    try:
        kind = getattr(_from_file(Path(where)) if where.endswith(".py") else importlib.import_module(where), name)
    except Exception as error:  # whatever a module of the user's own does when it is imported
        raise BadInputError(f"flight.constraints: {spec.use!r}: {one_line(error)}") from None
    if not (isinstance(kind, type) and issubclass(kind, Constraint)):
        what = kind.__name__ if isinstance(kind, type) else f"a {type(kind).__name__}"
        raise BadInputError(
            f"flight.constraints: {spec.use!r} is {what}; allowed: a subclass of skyfed.flight.Constraint"
        )
    try:
        constraint = kind(**spec.settings)
    except Exception as error:  # whatever its own __init__ does
        reason = str(error) if isinstance(error, BadInputError) else one_line(error)
        raise BadInputError(f"flight.constraints: {spec.use!r}: {reason}") from None
    if not constraint.kinds:
        raise BadInputError(
            f"flight.constraints: {spec.use!r} restricts nothing; define allows_points, allows_legs or plan_violations"
        )
    constraint.use = spec.use
    return constraint


def _from_file(path: Path) -> ModuleType:
    """Run a file as a module of its own; it is read anew each time, so that an edited file counts."""
    name = f"skyfed_constraint_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError("no such file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # pydantic looks up the names in annotations there
    spec.loader.exec_module(module)
    return module
