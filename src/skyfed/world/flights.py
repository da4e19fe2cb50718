"""Where the fleet is, round by round, and when: the clock, the legs, and who goes home."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from skyfed.types import Arrays, Floats
from skyfed.world.airframe import Leg, hovering, landing, leg, take_off
from skyfed.world.battery import Batteries
from skyfed.world.clock import Spending, round_end
from skyfed.world.computers import Computer, fleet_computers
from skyfed.world.settings import Conditions
from skyfed.world.vehicle import VehicleSettings

HOME = np.zeros(2)  # beside the station
FLYING, RETURNING, GROUNDED = "flying", "going home", "on the ground"
_INSTANT = 1e-6  # seconds: rounding of the clock must not keep a charged vehicle on the ground


class Flights:
    """One row's flights.

    positions  (U, t, 2) metres                  arrive  (U, t) mission seconds; NaN where a vehicle senses nothing
    clock      mission seconds at the end of the last round
    status     what each vehicle does in the present round
    turns      each vehicle's flight of the present round, as the first part of what it spends
    """

    def __init__(self, conditions: Conditions, vehicles: int) -> None:
        """Start on the ground, at the station."""
        self._world, self._vehicle = conditions.world, conditions.vehicle
        self._planned = conditions.planned
        self._every = conditions.flight.replan if conditions.flight and not conditions.planned else 0
        self._altitude, self._law = conditions.sensor.altitude, conditions.world.time == "law"
        self.computers = fleet_computers(conditions.vehicle.computer, vehicles)
        self.batteries = Batteries(conditions.vehicle, vehicles)
        self.positions, self.arrive = np.empty((vehicles, 0, 2)), np.empty((vehicles, 0))
        self.clock, self._closed, self._lasted = 0.0, 0, conditions.world.round_time
        self._all = range(vehicles)
        self._landed = 0.0  # mission seconds at which the last of those who went home is on the ground
        self.status = [GROUNDED] * vehicles
        self.turns = [Spending()] * vehicles
        self._settled_batteries = self.batteries.state()  # at the end of the last round
        self._told: dict[int, Floats] = {}  # arrivals that a vehicle was told instead of working them out

    @property
    def rounds(self) -> int:
        """How many rounds have been flown."""
        return self.positions.shape[1]

    def tell(self, vehicle: int, arrive: Floats) -> None:
        """Let a vehicle know when it arrived in every round so far; on a fleet the station keeps the clock."""
        self._told[vehicle] = arrive

    def start(self, t: int) -> float:
        """Return the mission second at which round t starts: by the clock, or as planned where that is not known."""
        return self.clock if t == self._closed else t * self._world.round_time

    def fly(self, targets: Floats) -> None:
        """Fly the next round to these places, (U, 2), or home where a battery asks for it."""
        t = self.rounds
        live, now = t == self._closed and not self._planned, self.start(t)
        flown, arrive = targets.copy(), np.full(len(targets), np.nan)
        ready = [not live or self.batteries.ready_at(u, now + _INSTANT) for u in self._all]
        ways = [self._way(u, targets[u], ready[u]) for u in self._all]
        fit = self._fit(targets, ways, ready) if live and self._world.battery == "enforce" and not self._law else ready
        for u in self._all:
            self.status[u], self.turns[u] = self._leave(u, ways[u], ready[u] and fit[u])
            if self.status[u] == FLYING:
                arrive[u] = t if self._law else now + self.turns[u].fly_seconds
            else:
                flown[u] = HOME
            if u in self._told and t < len(self._told[u]):
                arrive[u] = self._told[u][t]
        self.positions = np.concatenate([self.positions, flown[:, None]], axis=1)
        self.arrive = np.concatenate([self.arrive, arrive[:, None]], axis=1)

    def close(self, t: int, work: Mapping[int, Spending], last: bool) -> tuple[float, list[Spending]]:
        """End round t; returns its seconds and what everybody spent. After the last round all fly home."""
        out = [u for u, status in enumerate(self.status) if status == FLYING]
        dwell = 0.0 if self._law else self._world.dwell
        self._landed = max(self._landed, self.clock + max(turn.home_seconds for turn in self.turns))
        done = {u: _join(self.turns[u], work.get(u), dwell) for u in out}
        end = round_end(list(done.values()), self._world.closes) if done else self._quiet()
        spent = [done[u].until(end) if u in done else turn for u, turn in enumerate(self.turns)]
        if not self._law:
            spent = [self._settled(u, turn, end) if u in done else turn for u, turn in enumerate(spent)]
        if last and not self._law:
            home = {u: self._home(u, self.positions[u, t]) for u in done}
            spent = [_and_home(turn, home[u]) if u in home else turn for u, turn in enumerate(spent)]
            end = max([end + way.seconds for way in home.values()] + [self._landed - self.clock])
        for u, turn in enumerate(spent):
            self.batteries.used[u] += turn.joules
            if self.status[u] == RETURNING:
                self.batteries.land(u, self.clock + turn.home_seconds)
        self.clock, self._closed = self.clock + end, t + 1
        self._lasted = end if done else self._lasted  # a round of waiting says nothing about the next
        self._settled_batteries = self.batteries.state()
        return end, spent

    def metres(self, vehicle: int, t: int) -> float:
        """Return the way to a round's place, metres."""
        return float(np.hypot(*(self.positions[vehicle, t] - self._before(vehicle, t))))

    def state(self) -> Arrays:
        """Return what must be kept to go on later: all as it was at the end of the last round."""
        times = np.array([self.clock, self._closed, self._lasted, self._landed])
        return {"positions": self.positions[:, : self._closed], "arrive": self.arrive[:, : self._closed],
                "times": times, **self._settled_batteries}  # fmt: skip

    def restore(self, state: Arrays) -> None:
        """Go on from what `state` returned."""
        self.batteries.restore(state)
        self._settled_batteries = self.batteries.state()
        self.positions, self.arrive = np.array(state["positions"]), np.array(state["arrive"])
        self.clock, closed, self._lasted, self._landed = map(float, state["times"])
        self._closed = int(closed)

    def flown(self) -> Arrays:
        """Return the flights as they were: places, (U, T, 2), and mission seconds of arriving there, (U, T).

        And the rounds before which vehicles planned again, if they do.
        """
        done = self._closed
        again = {} if not self._every else {"replanned": np.arange(self._every, done, self._every)}
        return {"positions": self.positions[:, :done], "arrive": self.arrive[:, :done], "home": HOME, **again}

    def hover_power(self, vehicle: int) -> float:
        """Watts of staying in the air at one place, with an idle computer."""
        return hovering(self._vehicle.airframe, 1.0, self._world.wind) + self.computers[vehicle].idle_watts

    def _before(self, vehicle: int, t: int) -> Floats:
        return self.positions[vehicle, t - 1] if t else HOME

    def _way(self, u: int, target: Floats, ready: bool) -> Leg:
        """Return the way to the round's place; who is ready on the ground has a full battery and takes off first."""
        if self._law:
            return Leg(0.0, 0.0, 0.0)
        way = self._leg(u, self._before(u, self.rounds), target)
        if self.batteries.aloft[u]:
            return way
        if ready:
            self.batteries.charge(u)
        return _plus(way, self._lift(u))

    def _fit(self, targets: Floats, ways: list[Leg], ready: list[bool]) -> list[bool]:
        """Tell whose battery allows the round.

        It may last as planned or as the last one, and until everybody who can fly it has looked at the ground.
        """
        usual = max(self._world.round_time, self._lasted)
        able = [ready[u] and self._affords(u, ways[u], targets[u], usual) for u in self._all]
        lasts = max([usual, *(ways[u].seconds + self._world.dwell for u in self._all if able[u])])
        return [able[u] and self._affords(u, ways[u], targets[u], lasts) for u in self._all]

    def _affords(self, u: int, way: Leg, target: Floats, lasts: float) -> bool:
        """Tell whether a vehicle can fly a round that lasts so many seconds, and get home after it."""
        rest = max(self._world.dwell, lasts - way.seconds)
        power = full_power(self._vehicle, self.computers[u], self._world.wind)
        return self.batteries.affords(u, way.joules + rest * power + self._home(u, target).joules)

    def _leave(self, u: int, way: Leg, flies: bool) -> tuple[str, Spending]:
        """Let a vehicle go to the round's place, home, or nowhere."""
        if flies:
            self.batteries.take_off(u)
            return FLYING, Spending(fly_seconds=way.seconds, fly_joules=way.joules)
        if not self.batteries.aloft[u]:
            return GROUNDED, Spending()
        return RETURNING, _and_home(Spending(), self._home(u, self._before(u, self.rounds)))

    def _settled(self, u: int, turn: Spending, end: float) -> Spending:
        """Return a turn with the joules of staying in the air."""
        computer = self.computers[u]
        hover = self.hover_power(u) * max(0.0, end - turn.fly_seconds) - computer.idle_watts * turn.train_seconds
        return replace(turn, hover_joules=hover)

    def _leg(self, u: int, here: Floats, there: Floats) -> Leg:
        return self._idling(u, leg(self._vehicle.airframe, self._vehicle.speed, here, there, self._world.wind))

    def _lift(self, u: int) -> Leg:
        return self._idling(u, take_off(self._vehicle.airframe, self._altitude, self._world.wind))

    def _home(self, u: int, here: Floats) -> Leg:
        down = self._idling(u, landing(self._vehicle.airframe, self._altitude, self._world.wind))
        return _plus(self._leg(u, here, HOME), down)

    def _idling(self, u: int, way: Leg) -> Leg:
        """Return a piece of flight with what the idle computer takes meanwhile."""
        return replace(way, joules=way.joules + self.computers[u].idle_watts * way.seconds)

    def _quiet(self) -> float:
        """Return how long a round lasts in which nobody works: until all have landed, or somebody can take off."""
        homeward = max(0.0, self._landed - self.clock)
        ready = self.batteries.ready
        waits = ready[np.isfinite(ready) & (ready > self.clock + _INSTANT)] - self.clock
        return homeward or float(waits.min()) if len(waits) else homeward


def full_power(vehicle: VehicleSettings, computer: Computer, wind: tuple[float, float]) -> float:
    """Return the most watts that a vehicle draws at its place: it hovers and trains, and its radio is on."""
    radio = max(vehicle.radio.sending_power, vehicle.radio.receiving_power)
    return hovering(vehicle.airframe, 1.0, wind) + computer.watts + radio


def _plus(one: Leg, other: Leg) -> Leg:
    return Leg(one.seconds + other.seconds, one.joules + other.joules, one.metres + other.metres)


def _and_home(turn: Spending, home: Leg) -> Spending:
    return replace(turn, home_seconds=home.seconds, fly_joules=turn.fly_joules + home.joules)


def _join(turn: Spending, work: Spending | None, dwell: float) -> Spending:
    """Return a vehicle's flight together with what it did at its place."""
    return replace(work or Spending(), fly_seconds=turn.fly_seconds, fly_joules=turn.fly_joules, sense_seconds=dwell)
