"""What a vehicle senses on its way."""

from skyfed.sensing.arrivals import SensingSettings, initial_counts, new_counts
from skyfed.sensing.camera import SensorSettings, footprint_side
from skyfed.sensing.pool import Flight, Growth, Schedule, grow

__all__ = [
    "Flight",
    "Growth",
    "Schedule",
    "SensingSettings",
    "SensorSettings",
    "footprint_side",
    "grow",
    "initial_counts",
    "new_counts",
]
