"""Flight plans: the problem, its planners, and the check that every plan passes."""

from skyfed.flight.fleet import FleetPlan, age_of_information, load_fleet_plan
from skyfed.flight.planner import METHODS, plan
from skyfed.flight.problem import FlightSettings, Options, Problem
from skyfed.flight.verify import Violation, verify
from skyfed.records import IDLE, Plan

__all__ = [
    "IDLE",
    "METHODS",
    "FleetPlan",
    "FlightSettings",
    "Options",
    "Plan",
    "Problem",
    "Violation",
    "age_of_information",
    "load_fleet_plan",
    "plan",
    "verify",
]
