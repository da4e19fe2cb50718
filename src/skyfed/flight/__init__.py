"""Flight plans: the problem, its planners, and the check that every plan passes."""

from skyfed.flight.constraints.base import Constraint, Violation, Zone, supports
from skyfed.flight.fleet_plan import FleetPlan, load_fleet_plan
from skyfed.flight.planner import plan
from skyfed.flight.problem import Options, Problem
from skyfed.flight.separate import separate
from skyfed.flight.verify import verify, verify_fleet
from skyfed.types import IDLE, Plan

__all__ = [
    "IDLE",
    "Constraint",
    "FleetPlan",
    "Options",
    "Plan",
    "Problem",
    "Violation",
    "Zone",
    "load_fleet_plan",
    "plan",
    "separate",
    "supports",
    "verify",
    "verify_fleet",
]
