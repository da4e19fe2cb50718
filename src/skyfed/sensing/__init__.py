"""What a vehicle senses on its way."""

from skyfed.sensing.arrivals import SensingSettings, initial_counts
from skyfed.sensing.camera import SensorSettings, footprint_side

__all__ = ["SensingSettings", "SensorSettings", "footprint_side", "initial_counts"]
