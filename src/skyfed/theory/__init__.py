"""Theorem 1: its bound for a round or a run, and the constants in it, estimated from a live run."""

from skyfed.theory.bound import FORMS, TERMS, Bound, Condition, Form, Round, averaged, bound, largest_rate

__all__ = ["FORMS", "TERMS", "Bound", "Condition", "Form", "Round", "averaged", "bound", "largest_rate"]
