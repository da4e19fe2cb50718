"""The world of a mission: positions, clock, energy, links and sensing."""

from skyfed.world.arrivals import SensingSettings, SensorSettings, footprint_side, initial_counts, new_counts
from skyfed.world.clock import Effort, Spending, round_flops
from skyfed.world.settings import Conditions, WorldSettings
from skyfed.world.vehicle import VehicleSettings
from skyfed.world.world import View, World, data_of, samples_of

__all__ = [
    "Conditions",
    "Effort",
    "SensingSettings",
    "SensorSettings",
    "Spending",
    "VehicleSettings",
    "View",
    "World",
    "WorldSettings",
    "data_of",
    "footprint_side",
    "initial_counts",
    "new_counts",
    "round_flops",
    "samples_of",
]
