"""Missions without training for tests of the world, and a ledger that works out their seconds and joules anew.

The ledger knows settings, plans and tables. It uses no function of `skyfed.world`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import hypot, isclose, sqrt

import numpy as np

from run_cases import fleet_plan, pictures, tiny_config
from skyfed.arrays import pack_arrays, view_arrays
from skyfed.config import Config
from skyfed.flight.fleet_plan import FleetPlan
from skyfed.runs.start import world_of
from skyfed.types import Arrays
from skyfed.world import Effort, View, World
from skyfed.world.columns import VehicleRow

TASK = pictures().task()
GRAVITY = 9.80665
WORK = Effort(3.0, 4e9, 40_000)  # about a second of training on a Raspberry Pi 5, and 40 kB
Choose = Callable[[View], list[int]]
Efforts = Callable[[int, int], Effort]


def settings(*overrides: str, vehicles: int = 3, rounds: int = 8) -> Config:
    """Return a tiny config."""
    return tiny_config(f"vehicles={vehicles}", f"rounds={rounds}", *overrides)


def plan_of(config: Config) -> FleetPlan:
    """Return the usual flights of a config."""
    return fleet_plan(config.vehicles, config.rounds)


def world_for(config: Config, plan: FleetPlan | None = None) -> World:
    """Return a world before round 0."""
    return world_of(config, TASK, plan or plan_of(config))


@dataclass
class Mission:
    """What a mission gave: tables of rounds and of vehicles, who was dropped, the world's state after each round."""

    config: Config
    world: World
    rounds: list[dict[str, float]] = field(default_factory=list)
    rows: list[list[VehicleRow]] = field(default_factory=list)
    dropped: list[dict[int, str]] = field(default_factory=list)
    uploads: list[dict[int, dict[str, float]]] = field(default_factory=list)
    states: list[Arrays] = field(default_factory=list)


def fly_mission(
    config: Config,
    plan: FleetPlan | None = None,
    *,
    choose: Choose = lambda view: view.present,
    work: Efforts = lambda t, u: WORK,
    model: int = 30_000,
    difference: int = 9_000,
    first: int = 0,
    state: Arrays | None = None,
    world: World | None = None,
    order: Callable[[list[int]], Iterable[int]] = list,
) -> Mission:
    """Do what the station does in every round, with made-up work and sizes of messages."""
    world = world or world_for(config, plan)
    if state is not None:
        world.restore(state)
    mission = Mission(config, world)
    for t in range(first, config.rounds):
        chosen = choose(world.view(t))
        world.radios.tune(chosen, {})
        dropped = world.receive(t, chosen)
        unreached = set(dropped)
        for u in order([u for u in chosen if u not in dropped]):
            if missed := world.send(u, t, work(t, u)):
                dropped[u] = missed
        mission.rounds.append(world.close(t))
        mission.rows.append(world.rows())
        mission.uploads.append({u: world.upload_costs(u) for u in chosen if u not in dropped})
        mission.dropped.append(dropped)
        if t + 1 < config.rounds:
            had = {u for u in chosen if u not in unreached}
            due = choose(world.view(t + 1))
            world.radios.announce({u: (difference, 0) if u in had else (model, 1) for u in due})
        mission.states.append(kept(world.state()))
    return mission


def kept(state: Arrays) -> Arrays:
    """Return a state as a checkpoint brings it back."""
    return {name: np.array(array) for name, array in view_arrays(pack_arrays(state, {}))[0].items()}


def level_power(config: Config, airspeed: float) -> float:
    """Watts of level flight: Zeng, Xu and Zhang, Eq. 12, as it is printed."""
    frame = config.vehicle.airframe
    ratio = airspeed**2 / (2 * frame.induced_velocity**2)
    induced = frame.induced_power * sqrt(max(0.0, sqrt(1 + ratio**2) - ratio))
    return frame.blade_power * (1 + 3 * airspeed**2 / frame.tip_speed**2) + induced + frame.drag * airspeed**3


def leg_of(config: Config, here: np.ndarray, there: np.ndarray) -> tuple[float, float]:
    """Seconds and joules of the airframe from one place to another."""
    way = there - here
    seconds = float(hypot(*way)) / config.vehicle.speed
    if not seconds:
        return 0.0, 0.0
    air = way / seconds - np.array(config.world.wind)
    return seconds, seconds * level_power(config, float(hypot(*air)))


def vertical(config: Config, up: bool) -> tuple[float, float]:
    """Seconds and joules of the airframe for a climb or a descent."""
    frame, still = config.vehicle.airframe, level_power(config, hypot(*config.world.wind))
    if not up:
        seconds = config.sensor.altitude / frame.descent_speed
        return seconds, seconds * still
    seconds = config.sensor.altitude / frame.climb_speed
    return seconds, seconds * still + frame.mass * GRAVITY * config.sensor.altitude


def way_home(config: Config, here: np.ndarray, idle: float) -> tuple[float, float]:
    """Seconds and joules of the way home and of landing, with an idle computer."""
    back, down = leg_of(config, here, np.zeros(2)), vertical(config, up=False)
    seconds = back[0] + down[0]
    return seconds, back[1] + down[1] + idle * seconds


JOULES = ("fly_joules", "hover_joules", "receive_joules", "train_joules", "send_joules")
WORKING = ("sense_seconds", "receive_seconds", "train_seconds", "send_seconds")


def near(one: float, other: float, size: float = 0.0) -> bool:
    """Tell whether two numbers are equal but for rounding; `size`: of what they were worked out from."""
    return isclose(one, other, rel_tol=1e-9, abs_tol=1e-9 * size)


def audit(config: Config, rounds: list[dict[str, float]], rows: list[list[VehicleRow]], flown: Arrays) -> None:
    """Work out all seconds and joules of a mission from its tables and flights; assert that they are the tables'."""
    vehicle, world = config.vehicle, config.world
    idle = [computer.idle_watts for computer in boards(config)]
    busy = [computer.watts for computer in boards(config)]
    still = level_power(config, hypot(*world.wind))
    radio = vehicle.radio
    clock, used = 0.0, np.zeros(config.vehicles)
    here, aloft = np.zeros((config.vehicles, 2)), [False] * config.vehicles
    ready, landed = np.zeros(config.vehicles), 0.0
    for t, (about, everybody) in enumerate(zip(rounds, rows, strict=True)):
        last, flying = t == config.rounds - 1, [row for row in everybody if row["status"] == "flying"]
        until = {row["vehicle"]: row["fly_seconds"] + sum(row[name] for name in WORKING) for row in flying}
        ends = {u: seconds + everybody[u]["wait_seconds"] for u, seconds in until.items()}
        end = max(ends.values(), default=0.0)
        landings = [0.0, landed - clock]
        for u, row in enumerate(everybody):
            assert (row["round"], row["vehicle"]) == (t, u)
            place = flown["positions"][u, t]
            assert (row["x"], row["y"]) == tuple(place)
            assert near(row["flown"], float(hypot(*(place - here[u]))))
            home_seconds, home_joules = 0.0, 0.0
            if row["status"] == "flying":
                if not aloft[u]:
                    assert ready[u] <= clock + 1e-6  # nobody takes off before its battery is full
                    used[u] = 0.0 if ready[u] else used[u]
                seconds, joules = leg_of(config, here[u], place)
                lift = (0.0, 0.0) if aloft[u] else vertical(config, up=True)
                assert near(row["fly_seconds"], seconds + lift[0])
                assert near(row["arrive"], clock + row["fly_seconds"], clock)
                assert flown["arrive"][u, t] == row["arrive"]
                assert near(row["sense_seconds"], world.dwell)
                assert near(ends[u], end, end)
                assert row["wait_seconds"] >= 0
                if last:
                    home_seconds, home_joules = way_home(config, place, idle[u])
                    landings.append(end + home_seconds)
                outward = joules + lift[1] + idle[u] * row["fly_seconds"]
                assert near(row["fly_joules"], outward + home_joules)
                staying = (still + idle[u]) * (end - row["fly_seconds"]) - idle[u] * row["train_seconds"]
                assert near(row["hover_joules"], staying, outward)
                assert near(row["train_joules"], busy[u] * row["train_seconds"], 1e-6)
                assert near(row["receive_joules"], radio.receive_power * row["receive_seconds"], 1e-6)
                sending = radio.power / radio.efficiency + radio.circuit_power
                assert near(row["send_joules"], sending * row["send_seconds"], 1e-6)
                aloft[u] = True
            else:
                assert tuple(place) == (0.0, 0.0)
                assert row["arrive"] is None
                assert np.isnan(flown["arrive"][u, t])
                assert all(row[name] == 0 for name in ("fly_seconds", "wait_seconds", *WORKING, *JOULES[1:]))
                assert row["sent_bytes"] == row["received_bytes"] == 0
                assert not row["present"]
                if row["status"] == "going home":
                    assert aloft[u]
                    home_seconds, home_joules = way_home(config, here[u], idle[u])
                    landings.append(home_seconds)
                    landed = max(landed, clock + home_seconds)
                    aloft[u], ready[u] = False, clock + home_seconds + (vehicle.recharge or np.inf)
                else:
                    assert row["status"] == "on the ground"
                    assert not aloft[u]
                    if 0 < ready[u] <= clock + 1e-6:
                        used[u] = 0.0  # full again, but the round is too much for a full battery
                assert near(row["fly_joules"], home_joules)
            assert near(row["home_seconds"], home_seconds)
            used[u] += sum(row[name] for name in JOULES)
            if world.battery == "enforce":
                assert near(row["battery_left"], vehicle.battery - used[u], vehicle.battery)
            here[u] = place
        check_end(config, t, about["mission_seconds"], end, everybody, until, landings, ready - clock)
        assert near(about["joules"], sum(row[name] for row in everybody for name in JOULES))
        clock += about["mission_seconds"]
        assert near(about["clock"], clock)


def check_end(
    config: Config, t: int, lasted: float, end: float, everybody: list[VehicleRow], until: dict[int, float],
    landings: list[float], ready: np.ndarray,
) -> None:  # fmt: skip
    """Assert that a round lasted as long as it had to."""
    world = config.world
    if t == config.rounds - 1:
        assert near(lasted, max(landings))
    elif not until:  # nobody works
        waits = ready[np.isfinite(ready) & (ready > 1e-6)]
        assert near(lasted, max(landings) or (float(waits.min()) if len(waits) else 0.0))
    else:
        assert near(lasted, end)
    if until:
        arrived = max(everybody[u]["fly_seconds"] + world.dwell for u in until)
        assert end >= arrived * (1 - 1e-9)
        assert any(everybody[u]["wait_seconds"] == 0 for u in until)  # somebody is the slowest
        if world.deadline is not None and world.late == "drop":
            assert end <= max(arrived, world.deadline) * (1 + 1e-9)


def boards(config: Config) -> list:
    """Return every vehicle's computer."""
    from skyfed.world.computers import COMPUTERS

    given = config.vehicle.computer
    names = given if isinstance(given, list) else [given] * config.vehicles
    return [COMPUTERS[name] if isinstance(name, str) else name for name in names]


def audited(mission: Mission) -> Mission:
    """Return a mission from round 0 whose seconds and joules were worked out anew."""
    flights = mission.world.flights
    audit(mission.config, mission.rounds, mission.rows, flights.flown())
    spent = np.array([[sum(row[name] for name in JOULES) for row in rows] for rows in mission.rows])
    np.testing.assert_allclose(spent.sum(axis=0), flights.batteries.used, rtol=1e-9)
    assert near(sum(about["mission_seconds"] for about in mission.rounds), flights.clock)
    return mission
