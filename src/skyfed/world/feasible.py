"""Whether a planned mission fits the batteries, before anybody takes off; and what would make it fit."""

from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from skyfed.types import Bools, Floats
from skyfed.world.airframe import landing, leg_joules, take_off
from skyfed.world.computers import fleet_computers
from skyfed.world.flights import HOME, full_power
from skyfed.world.settings import Conditions

_SPEEDS = range(1, 31)  # m/s that are tried where a mission does not fit
_WH = 3600.0  # joules


@dataclass(frozen=True)
class Forecast:
    """What a plan takes if every round lasts as planned, and everybody is busy all the time.

    seconds   of the whole mission, the way home included
    left      (U, T) share of the battery after each round and the way home from there
    foreseen  (U, T) the same as a vehicle works it out before the round, which may last as the one before
    """

    seconds: float
    left: Floats
    foreseen: Floats

    def short(self, reserve: float) -> Bools:
        """Tell who reaches this share of its battery in which round; (U, T)."""
        return np.asarray(self.foreseen < reserve)

    def fits(self, reserve: float) -> bool:
        """Tell whether everybody flies all rounds and lands with this share of its battery or more."""
        return not self.short(reserve).any()


def forecast(positions: Floats, conditions: Conditions, landed: Bools | None = None) -> Forecast:
    """Work out the batteries of planned flights, positions (U, T, 2); landed (U, T): at home by plan.

    Who is at home has what it landed with. Who takes off again has a full battery.
    """
    world, vehicle, altitude = conditions.world, conditions.vehicle, conditions.sensor.altitude
    U = len(positions)
    aloft = np.ones(positions.shape[:2], bool) if landed is None or not landed.size else ~landed
    rises = aloft & ~np.concatenate([np.zeros((U, 1), bool), aloft[:, :-1]], axis=1)
    computers = fleet_computers(vehicle.computer, U)
    idle = np.array([[computer.idle_watts] for computer in computers])
    power = np.array([[full_power(vehicle, computer, world.wind)] for computer in computers])
    places = np.concatenate([np.tile(HOME, (U, 1, 1)), positions], axis=1)
    lift, land = (each(vehicle.airframe, altitude, world.wind) for each in (take_off, landing))
    seconds = np.hypot(*np.diff(places, axis=1).transpose(2, 0, 1)) / vehicle.speed  # (U, T)
    ways = _legs(conditions, places[:, :-1], places[:, 1:])
    seconds += rises * lift.seconds
    ways += rises * lift.joules
    ways += seconds * idle
    homeward = np.hypot(*positions.transpose(2, 0, 1)) / vehicle.speed + land.seconds
    home = _legs(conditions, positions, np.broadcast_to(HOME, positions.shape)) + land.joules + homeward * idle
    lasts = np.maximum(world.round_time, np.where(aloft, seconds, 0.0).max(axis=0) + world.dwell)  # (T,)
    joules = np.where(aloft, ways + (lasts - seconds) * power, 0.0)
    used = np.cumsum(joules, axis=1)
    used -= np.maximum.accumulate(np.where(rises, used - joules, 0.0), axis=1)  # since the last take-off
    expected = np.maximum(lasts, np.concatenate([[world.round_time], lasts[:-1]]))
    foreseen = used - joules + ways + (expected - seconds) * power
    total = float(lasts.sum() + (aloft[:, -1] * homeward[:, -1]).max())
    left, seen = (_kept(1 - (each + home) / vehicle.battery, aloft) for each in (used, foreseen))
    return Forecast(total, left, seen)


def _kept(share: Floats, aloft: Bools) -> Floats:
    """Return shares of a battery (U, T) that stay as they are while a vehicle is at home."""
    rounds = np.where(aloft, np.arange(share.shape[1]), 0)
    return np.asarray(np.take_along_axis(share, np.maximum.accumulate(rounds, axis=1), axis=1))


def _legs(conditions: Conditions, starts: Floats, stops: Floats) -> Floats:
    """Joules of legs between places, (U, T, 2) each; (U, T)."""
    vehicle = conditions.vehicle
    flat = leg_joules(
        vehicle.airframe, vehicle.speed, starts.reshape(-1, 2), stops.reshape(-1, 2), conditions.world.wind
    )
    return flat.reshape(starts.shape[:2])


def verdict(positions: Floats, conditions: Conditions, landed: Bools | None = None) -> str:
    """Say in one line whether planned flights fit the batteries, and what would help if not."""
    if conditions.world.time == "law":
        return "mission: no flight time, no battery (world.time = 'law'): vehicles are at their places at once"
    planned, reserve = forecast(positions, conditions, landed), conditions.vehicle.reserve
    U, T, _ = positions.shape
    head = f"mission: {T} rounds, about {planned.seconds / 60:.0f} min as planned"
    early = 0 if landed is None or not landed.size else int(landed[:, -1].sum())
    head += f", {early} of {U} vehicles land earlier by plan" if early else ""
    if planned.fits(reserve):
        least = 100 * planned.left[:, -1].min()
        ignored = ", which is ignored (world.battery = 'ignore')" if conditions.world.battery == "ignore" else ""
        return f"{head}; all land with {least:.0f} % of the battery or more (reserve {100 * reserve:.0f} %{ignored})"
    short = planned.short(reserve)
    count, first = int(short.any(axis=1).sum()), int(short.any(axis=0).argmax())
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
    needed = (1 - planned.foreseen.min()) * vehicle.battery / (1 - vehicle.reserve)
    return f"a battery of {ceil(needed / _WH)} Wh holds (vehicle.battery = {ceil(needed / 1000)}e3)"
