"""Modelled power and energy of a rotary-wing airframe: level flight in wind, hovering, climbing and descending.

Level flight is Eq. 12 of Zeng, Xu and Zhang, "Energy Minimization for Wireless Communication With Rotary-Wing UAV",
IEEE Trans. Wireless Commun. 18(4), 2019, with the constants of that paper's Table I:

    P0 = drag/8 air solidity disc tip^3, with 0.012, 1.225 kg/m^3, 0.05, 0.503 m^2, 120 m/s: 79.86 W
    Pi = (1 + k) weight^1.5 / sqrt(2 air disc), with k = 0.1 and 20 N: 88.63 W
    v0 = sqrt(weight / (2 air disc)): 4.03 m/s;  fuselage drag ratio d0 = 0.6

Climbing adds the growth of potential energy, m g v. Zeng, Wu and Zhang use the same approximation in "Accessing From
the Sky", Proc. IEEE 107(12), 2019, Section II-C, and say that nobody has derived a closed form. Descending draws the
power of level flight: nothing is won back, so the energy of a descent is an upper bound.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import hypot, sqrt

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat, model_validator

from skyfed.settings import StrictSettings
from skyfed.types import Floats

GRAVITY = 9.80665  # m/s^2, standard gravity
_CALM = (0.0, 0.0)
_HALVINGS = 80  # of a bracket: beyond the precision of a float


class AirframeSettings(StrictSettings):
    """A rotary-wing vehicle by Zeng, Xu and Zhang, IEEE Trans. Wireless Commun. 18(4), 2019, Eq. 12 and Table I."""

    blade_power: NonNegativeFloat = Field(79.86, description="P0, blade profile power in hover, W")
    induced_power: NonNegativeFloat = Field(88.63, description="Pi, induced power in hover, W")
    tip_speed: PositiveFloat = Field(120.0, description="tip speed of the blades, m/s")
    induced_velocity: PositiveFloat = Field(4.03, description="v0, mean induced velocity of the rotor in hover, m/s")
    drag: NonNegativeFloat = Field(
        0.009242625, description="d0 rho s A / 2, parasite drag, kg/m (0.6, 1.225 kg/m3, 0.05, 0.503 m2)"
    )
    mass: PositiveFloat = Field(
        2.039, description="kg, for climbing alone: lift is in the induced power (a weight of 20 N)"
    )
    climb_speed: PositiveFloat = Field(3.0, description="vertical speed after take-off, m/s (PX4: MPC_Z_V_AUTO_UP)")
    descent_speed: PositiveFloat = Field(1.5, description="vertical speed before landing, m/s (PX4: MPC_Z_V_AUTO_DN)")

    @model_validator(mode="after")
    def _can_be_too_fast(self) -> "AirframeSettings":
        """Without any drag a faster flight would always cost less, and no speed would be the best."""
        if self.blade_power == self.drag == 0:
            raise ValueError("blade_power, drag: allowed: at least one above 0")
        return self

    def power(self, airspeed: float, climb: float = 0.0) -> float:
        """Watts at this speed through the air and this rate of climb, m/s; a negative rate is a descent."""
        return self._of_square(airspeed * airspeed) + self.mass * GRAVITY * max(0.0, climb)

    def powers(self, airspeeds: Floats) -> Floats:
        """Watts of level flight at each of these speeds through the air, m/s."""
        square = airspeeds * airspeeds
        blades = self.blade_power * (1 + 3 * square / self.tip_speed**2)
        induced = self.induced_power * np.exp(-0.5 * np.arcsinh(square / (2 * self.induced_velocity**2)))
        return np.asarray(blades + induced + self.drag * square * airspeeds)

    @property
    def hover(self) -> float:
        """Watts while it hovers in calm air."""
        return self.power(0.0)

    @property
    def best_endurance_speed(self) -> float:
        """Speed through the air at which it stays up longest, m/s: least power."""
        return sqrt(_root(self._slope, 0.0))

    @property
    def best_range_speed(self) -> float:
        """Speed through the air at which it gets furthest in calm air, m/s: least energy per metre."""
        slowest = self.best_endurance_speed**2  # P/V cannot be least where P itself still falls
        return sqrt(_root(lambda square: 2 * square * self._slope(square) - self._of_square(square), slowest))

    def heavier(self, factor: float) -> "AirframeSettings":
        """Return the same airframe with so many times the mass, its rotors and blade speed unchanged.

        Induced power goes with weight^1.5 and induced velocity with weight^0.5, as above.
        """
        return self.model_copy(
            update={
                "mass": self.mass * factor,
                "induced_power": self.induced_power * factor**1.5,
                "induced_velocity": self.induced_velocity * sqrt(factor),
            }
        )

    def _of_square(self, square: float) -> float:
        """Watts of level flight by the square of the speed, of which they are a convex function."""
        ratio = square / (2 * self.induced_velocity**2)
        blades = self.blade_power * (1 + 3 * square / self.tip_speed**2)
        # the paper's sqrt(sqrt(1 + ratio^2) - ratio) without its cancellation at high speed
        induced = self.induced_power / sqrt(hypot(1.0, ratio) + ratio)
        return blades + induced + self.drag * square * sqrt(square)

    def _slope(self, square: float) -> float:
        """Derivative of the power by the square of the speed."""
        ratio = square / (2 * self.induced_velocity**2)
        root = hypot(1.0, ratio)
        induced = self.induced_power / sqrt(root + ratio) / (2 * root) / (2 * self.induced_velocity**2)
        return 3 * self.blade_power / self.tip_speed**2 - induced + 1.5 * self.drag * sqrt(square)


@dataclass(frozen=True)
class Leg:
    """A piece of a flight, modelled."""

    seconds: float
    joules: float
    metres: float


def leg(
    airframe: AirframeSettings,
    speed: float,
    start: Sequence[float] | Floats,
    stop: Sequence[float] | Floats,
    wind: tuple[float, float] = _CALM,
) -> Leg:
    """Return a straight level leg at this speed over ground, m/s; the wind is the velocity of the air, m/s."""
    east, north = float(stop[0] - start[0]), float(stop[1] - start[1])
    metres = hypot(east, north)
    if metres == 0:
        return Leg(0.0, 0.0, 0.0)
    seconds = metres / speed
    airspeed = hypot(east / seconds - wind[0], north / seconds - wind[1])
    return Leg(seconds, seconds * airframe.power(airspeed), metres)


def leg_joules(
    airframe: AirframeSettings, speed: float, starts: Floats, stops: Floats, wind: tuple[float, float] = _CALM
) -> Floats:
    """Return the joules of many legs as `leg` does; starts and stops are (n, 2), the result is (n,)."""
    way = np.asarray(stops, float) - np.asarray(starts, float)
    metres = np.hypot(way[:, 0], way[:, 1])
    direction = way / np.where(metres > 0, metres, 1.0)[:, None]
    air = speed * direction - np.asarray(wind)
    return np.asarray(metres / speed * airframe.powers(np.hypot(air[:, 0], air[:, 1])))


def hovering(airframe: AirframeSettings, seconds: float, wind: tuple[float, float] = _CALM) -> float:
    """Return the joules of staying over one place; in wind this is flight at the wind's speed through the air."""
    return seconds * airframe.power(hypot(*wind))


def take_off(airframe: AirframeSettings, altitude: float, wind: tuple[float, float] = _CALM) -> Leg:
    """Return the climb from the ground to this height, straight up."""
    seconds = altitude / airframe.climb_speed
    return Leg(seconds, seconds * airframe.power(hypot(*wind), airframe.climb_speed), altitude)


def landing(airframe: AirframeSettings, altitude: float, wind: tuple[float, float] = _CALM) -> Leg:
    """Return the descent from this height to the ground, straight down."""
    seconds = altitude / airframe.descent_speed
    return Leg(seconds, seconds * airframe.power(hypot(*wind), -airframe.descent_speed), altitude)


def _root(rising: Callable[[float], float], low: float) -> float:
    """Return where a function of the squared speed changes from negative to positive, at least `low`."""
    if rising(low) >= 0:
        return low
    high = max(1.0, 2 * low)
    while rising(high) < 0:
        high *= 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return (low + high) / 2
