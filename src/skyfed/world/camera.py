"""The onboard camera: what a vehicle sees of the ground from its altitude."""

import math

from pydantic import Field, PositiveFloat

from skyfed.settings import StrictSettings


class SensorSettings(StrictSettings):
    """A camera that looks straight down."""

    altitude: PositiveFloat = Field(50.0, description="h, height above ground, m")
    fov: float = Field(30.0, gt=0, lt=90, description="theta, half the opening angle, degrees (as in 2 h tan(theta))")


def footprint_side(altitude: float, fov: float) -> float:
    """Side of the square of ground in view, m: 2 h tan(theta)."""
    return 2 * altitude * math.tan(math.radians(fov))
