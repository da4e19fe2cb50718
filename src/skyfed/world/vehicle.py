"""A vehicle: its airframe, battery, computer and radio."""

from math import isfinite
from typing import Any

from pydantic import Field, PositiveFloat, field_validator, model_validator

from skyfed.settings import StrictSettings
from skyfed.world.airframe import AirframeSettings, hovering, landing, leg, take_off
from skyfed.world.computers import ComputerSettings, computer_of, training_cost
from skyfed.world.links import RadioSettings

_USUAL = {  # small rotary-wing vehicles
    "battery": (3.6e4, 3.6e6, "J"),  # 10 to 1000 Wh
    "speed": (1.0, 30.0, "m/s"),
}


class VehicleSettings(StrictSettings):
    """What every vehicle of the fleet is."""

    speed: PositiveFloat = Field(15.0, description="cruising speed over ground, m/s")
    battery: PositiveFloat = Field(4.68e5, description="joules of a full battery (130 Wh)")
    reserve: float = Field(0.2, ge=0, lt=1, description="share of the battery that must be left after landing")
    recharge: PositiveFloat | None = Field(
        None, description="seconds on the ground until the battery is full and the vehicle comes back; none: it stays"
    )
    computer: str | ComputerSettings | list[str | ComputerSettings] = Field(
        "raspberry-pi-5", description="the computer on board: a name, a table of your own, or a list, one per vehicle"
    )
    airframe: AirframeSettings = AirframeSettings()
    radio: RadioSettings = RadioSettings()

    @field_validator("computer")
    @classmethod
    def _known(cls, given: Any) -> Any:
        for each in given if isinstance(given, list) else [given]:
            computer_of(each)
        return given

    @model_validator(mode="after")
    def _finite(self) -> "VehicleSettings":
        """A way of 10 km, an hour in the air and a round of training must have a time and an energy."""
        try:
            ways = [leg(self.airframe, self.speed, (0.0, 0.0), (1e4, 0.0)), *(
                each(self.airframe, 100.0) for each in (take_off, landing))]  # fmt: skip
            given = self.computer if isinstance(self.computer, list) else [self.computer]
            costs = [training_cost(computer_of(each), 1e12) for each in given]
            costs += [(way.seconds, way.joules) for way in ways]
            good = all(isfinite(number) for cost in costs for number in cost)
            good = good and isfinite(hovering(self.airframe, 3600.0))
        except ArithmeticError:
            good = False
        if not good:
            raise ValueError("speed, airframe, computer: allowed: values that give a finite time and energy over 10 km")
        return self


def implausible(vehicle: VehicleSettings) -> list[str]:
    """Return a line for every setting that is far from what real vehicles have."""
    return [
        f"warning: vehicle.{key} = {getattr(vehicle, key):g} {unit}; usual: {low:g} to {high:g} {unit}"
        for key, (low, high, unit) in _USUAL.items()
        if not low <= getattr(vehicle, key) <= high
    ]
