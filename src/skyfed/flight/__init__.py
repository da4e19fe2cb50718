"""Flight plans: the problem, its planners, and the check that every plan passes."""

from skyfed.flight.constraints.base import Constraint, Violation, supports
from skyfed.flight.fleet_plan import FleetPlan, load_fleet_plan
from skyfed.flight.planner import plan
from skyfed.flight.problem import Options, Problem
from skyfed.flight.verify import verify
from skyfed.types import IDLE, Plan

__all__ = [
    "IDLE",
    "Constraint",
    "FleetPlan",
    "Options",
    "Plan",
    "Problem",
    "Violation",
    "load_fleet_plan",
    "plan",
    "supports",
    "verify",
]
