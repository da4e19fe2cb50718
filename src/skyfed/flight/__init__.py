"""Flight plans: the problem, its planners, and the check that every plan passes."""

from skyfed.flight.constraints.base import Constraint, Violation, supports
from skyfed.flight.fleet_plan import FleetPlan, age_of_information, load_fleet_plan
from skyfed.flight.planner import METHODS, plan
from skyfed.flight.problem import FlightSettings, Options, Problem
from skyfed.flight.verify import verify
from skyfed.types import IDLE, Plan

__all__ = [
    "IDLE",
    "METHODS",
    "Constraint",
    "FleetPlan",
    "FlightSettings",
    "Options",
    "Plan",
    "Problem",
    "Violation",
    "age_of_information",
    "load_fleet_plan",
    "plan",
    "supports",
    "verify",
]
