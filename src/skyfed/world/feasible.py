"""Whether a planned mission fits the batteries, before anybody takes off; and what would make it fit."""

from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from skyfed.types import Floats
from skyfed.world.airframe import hovering, landing, leg_joules, take_off
from skyfed.world.computers import fleet_computers
from skyfed.world.flights import HOME
from skyfed.world.settings import Conditions

_SPEEDS = range(1, 31)  # m/s that are tried where a mission does not fit
_WH = 3600.0  # joules


@dataclass(frozen=True)
class Forecast:
    """What a plan takes if every round lasts as planned.

    seconds  of the whole mission, the way home included
    left     (U, T) share of the battery after each round and the way home from there
    """

    seconds: float
    left: Floats

    def fits(self, reserve: float) -> bool:
        """Tell whether everybody lands with this share of its battery or more."""
        return bool((self.left[:, -1] >= reserve).all())


def forecast(positions: Floats, conditions: Conditions) -> Forecast:
    """Work out the batteries of planned flights, positions (U, T, 2)."""
    world, vehicle, altitude = conditions.world, conditions.vehicle, conditions.sensor.altitude
    U = len(positions)
    computers = fleet_computers(vehicle.computer, U)
    busy = np.array([max(computer.watts, computer.idle_watts) for computer in computers])
    idle = np.array([computer.idle_watts for computer in computers])
    places = np.concatenate([np.tile(HOME, (U, 1, 1)), positions], axis=1)
    seconds = np.hypot(*np.diff(places, axis=1).transpose(2, 0, 1)) / vehicle.speed  # (U, T)
    joules = _legs(conditions, places[:, :-1], places[:, 1:]) + seconds * idle[:, None]
    lift, land = (each(vehicle.airframe, altitude, world.wind) for each in (take_off, landing))
    joules[:, 0] += lift.joules
    seconds[:, 0] += lift.seconds
    lasts = np.maximum(world.round_time, seconds.max(axis=0) + world.dwell)  # (T,)
    power = hovering(vehicle.airframe, 1.0, world.wind) + busy[:, None]
    joules += (lasts - seconds) * power
    back = _legs(conditions, positions, np.broadcast_to(HOME, positions.shape))
    home = back + land.joules + (np.hypot(*positions.transpose(2, 0, 1)) / vehicle.speed + land.seconds) * idle[:, None]
    last = float(np.hypot(*positions[:, -1].T).max() / vehicle.speed + land.seconds)
    return Forecast(float(lasts.sum()) + last, 1 - (np.cumsum(joules, axis=1) + home) / vehicle.battery)


def _legs(conditions: Conditions, starts: Floats, stops: Floats) -> Floats:
    """Joules of legs between places, (U, T, 2) each; (U, T)."""
    vehicle = conditions.vehicle
    flat = leg_joules(
        vehicle.airframe, vehicle.speed, starts.reshape(-1, 2), stops.reshape(-1, 2), conditions.world.wind
    )
    return flat.reshape(starts.shape[:2])


def verdict(positions: Floats, conditions: Conditions) -> str:
    """Say in one line whether planned flights fit the batteries, and what would help if not."""
    if conditions.world.time == "law":
        return "mission: no flight time, no battery (world.time = 'law'): vehicles are at their places at once"
    planned, reserve = forecast(positions, conditions), conditions.vehicle.reserve
    U, T, _ = positions.shape
    head = f"mission: {T} rounds, about {planned.seconds / 60:.0f} min as planned"
    if planned.fits(reserve):
        least = 100 * planned.left[:, -1].min()
        return f"{head}; all land with {least:.0f} % of the battery or more (reserve {100 * reserve:.0f} %)"
    short = planned.left < reserve
    count, first = int(short[:, -1].sum()), int(short.any(axis=0).argmax())
    then = "fly on all the same (world.battery = 'ignore')" if conditions.world.battery == "ignore" else "go home"
    problem = f"{count} of {U} vehicles reach their reserve, the first in round {first}, and {then}"
    return f"{head}; {problem}; {_remedy(positions, conditions, planned)}"


def _remedy(positions: Floats, conditions: Conditions, planned: Forecast) -> str:
    """Say what would make a mission fit: another speed, or a larger battery."""
    vehicle = conditions.vehicle
    for speed in sorted(_SPEEDS, key=lambda speed: abs(speed - vehicle.speed)):
        other = replace(conditions, vehicle=vehicle.model_copy(update={"speed": float(speed)}))
        if forecast(positions, other).fits(vehicle.reserve):
            return f"with vehicle.speed = {speed} it holds"
    needed = (1 - planned.left[:, -1].min()) * vehicle.battery / (1 - vehicle.reserve)
    return f"a battery of {ceil(needed / _WH)} Wh holds (vehicle.battery = {ceil(needed / 1000)}e3)"
