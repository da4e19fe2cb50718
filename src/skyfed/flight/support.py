"""What a planner says it supports, declared beside its code; the rest is refused."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, get_args

from skyfed.flight.constraints.base import Constraint, Kind

Planner = TypeVar("Planner", bound=Callable[..., Any])


def supports(*kinds: Kind) -> Callable[[Planner], Planner]:
    """Declare that a planner meets constraints that restrict these: "points", "legs", "plans".

    The paper's constraints need no declaration. A planner without one supports no other constraint.
    """
    unknown = set(kinds) - set(get_args(Kind))
    if unknown:
        raise ValueError(f"supports: {sorted(unknown)[0]!r}; allowed: {', '.join(get_args(Kind))}")

    def declare(planner: Planner) -> Planner:
        planner.supports = frozenset(kinds)  # type: ignore[attr-defined]
        return planner

    return declare


def unsupported(planner: Callable[..., Any], constraints: Sequence[Constraint]) -> list[tuple[Constraint, list[Kind]]]:
    """Return the constraints that a planner does not support, each with what it restricts beyond that."""
    known: frozenset[Kind] = getattr(planner, "supports", frozenset())
    beyond = [(constraint, sorted(constraint.kinds - known)) for constraint in constraints]
    return [(constraint, kinds) for constraint, kinds in beyond if kinds]
