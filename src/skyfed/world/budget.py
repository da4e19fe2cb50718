"""A vehicle's battery as the flight planner needs it: the world's model of energy as plain numbers."""

from math import ceil, hypot, pi

import numpy as np

from skyfed.errors import BadInputError
from skyfed.flight.constraints.battery import Battery
from skyfed.types import Floats
from skyfed.world.airframe import AirframeSettings, landing, take_off
from skyfed.world.computers import fleet_computers
from skyfed.world.flights import full_power
from skyfed.world.settings import Conditions

_SECTORS = 360  # headings that are told apart in wind


def batteries(conditions: Conditions, vehicles: int, longest_leg: float, farthest: float) -> tuple[Battery, ...]:
    """Return every vehicle's battery.

    longest_leg  metres per round              farthest  metres from home of any place that is flown to

    A round lasts as planned, or until the longest leg is flown and the ground looked at. A round of take-off lasts until
    the farthest place is reached, since everybody waits for the last.
    """
    world, vehicle, altitude = conditions.world, conditions.vehicle, conditions.sensor.altitude
    if world.time == "law":
        raise BadInputError("flight.battery = 'plan' needs world.time = 'mission'; 'law' has no battery")
    if not np.isfinite(longest_leg):
        raise BadInputError("flight.battery = 'plan' needs a speed limit; flight.vmax = 'unlimited'")
    lift, land = (each(vehicle.airframe, altitude, world.wind) for each in (take_off, landing))
    per_metre = leg_table(vehicle.airframe, vehicle.speed, world.wind)
    first = lift.seconds + farthest / vehicle.speed + world.dwell
    return tuple(
        Battery(
            joules=vehicle.battery * (1 - vehicle.reserve),
            hover=full_power(vehicle, computer, world.wind),
            leg=(per_metre + computer.idle_watts / vehicle.speed).tolist(),
            speed=vehicle.speed,
            round_seconds=max(world.round_time, ceil(longest_leg / vehicle.speed * 1e6) / 1e6 + world.dwell),
            first_seconds=max(world.round_time, ceil(first * 1e6) / 1e6),
            dwell=world.dwell,
            lift_seconds=lift.seconds,
            lift_joules=lift.joules + lift.seconds * computer.idle_watts,
            land_seconds=land.seconds,
            land_joules=land.joules + land.seconds * computer.idle_watts,
            recharge=vehicle.recharge,
        )
        for computer in fleet_computers(vehicle.computer, vehicles)
    )


def leg_table(airframe: AirframeSettings, speed: float, wind: tuple[float, float]) -> Floats:
    """Return joules per metre of level flight by heading, from above; one number in calm air.

    Power is a convex function of the squared airspeed, which rises from tailwind to headwind. So the most in a sector is
    at one of its edges, or at headwind or tailwind inside it.
    """
    if hypot(*wind) == 0:
        return np.array([airframe.power(speed) / speed])
    edges = 2 * pi * np.arange(_SECTORS + 1) / _SECTORS
    along = float(np.arctan2(wind[1], wind[0])) % pi
    most = np.maximum(_power(airframe, speed, wind, edges[:-1]), _power(airframe, speed, wind, edges[1:]))
    for heading in (along, along + pi):
        sector = int(heading / (2 * pi) * _SECTORS) % _SECTORS
        most[sector] = max(most[sector], _power(airframe, speed, wind, np.array([heading]))[0])
    return np.asarray(most / speed)


def _power(airframe: AirframeSettings, speed: float, wind: tuple[float, float], headings: Floats) -> Floats:
    air = speed * np.stack([np.cos(headings), np.sin(headings)], axis=1) - np.asarray(wind)
    return airframe.powers(np.hypot(air[:, 0], air[:, 1]))
