"""Constraints on flights: what one is, the paper's own, and those that a user brings as a file."""

from skyfed.flight.constraints.base import Constraint, Violation

__all__ = ["Constraint", "Violation"]
