"""The world of a mission: positions, clock, energy, links and sensing."""

from skyfed.world.arrivals import SensingSettings, SensorSettings, footprint_side, initial_counts, new_counts
from skyfed.world.cost import CostSettings, Effort, Spending, Where, round_flops, spend_at
from skyfed.world.world import View, World, WorldSettings, data_of, samples_of

__all__ = [
    "CostSettings",
    "Effort",
    "SensingSettings",
    "SensorSettings",
    "Spending",
    "View",
    "Where",
    "World",
    "WorldSettings",
    "data_of",
    "footprint_side",
    "initial_counts",
    "new_counts",
    "round_flops",
    "samples_of",
    "spend_at",
]
