"""Small builders that the learning tests share: pictures, flights, configs, stations, updates."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import count

import numpy as np
import torch

from run_cases import fleet_plan, pictures
from skyfed.blocks.aggregate import alphas
from skyfed.config import Config
from skyfed.flight.fleet_plan import FleetPlan
from skyfed.jobs import Driver, Job, Jobs, Reply
from skyfed.learning.local import Trained
from skyfed.onboard import Onboard
from skyfed.runs.columns import TABLES
from skyfed.runs.start import world_of
from skyfed.runs.tables import Row
from skyfed.simulate import run
from skyfed.station import Report, Station
from skyfed.tasks import Pictures, Task
from skyfed.types import Arrays, Raw, Update
from skyfed.wire import Message, Reference
from skyfed.world import World
from skyfed.world.columns import VehicleRow

_vehicles = count()


def raw_update(
    values: np.ndarray, mask: np.ndarray | None = None, buffers: Sequence[float] = (), **about: int
) -> Update:
    """Return an upload of raw values; `about` may set round and vehicle, which else is a new one."""
    size = len(values) if mask is None else len(mask)
    body = Raw(np.asarray(values, np.float32))
    return Update(
        about.get("round", 0), about.get("vehicle", next(_vehicles)), size, mask, body, np.asarray(buffers, np.float32)
    )  # fmt: skip


def reference(size: int, buffers: int = 0, starts: Sequence[int] = ()) -> Reference:
    """Return what both sides know of a model of zeros."""
    zeros = np.zeros(size, np.float32), np.zeros(buffers, np.float32)
    return Reference(*zeros, np.array(starts or [0, size]))


def message_of(update: Update, known: Reference, weight: float = 1.0) -> Message:
    """Return an upload of one vector as the station sees it."""
    return Message(update.vehicle, update.round, {"update": update}, known, weight)


class Memory:
    """A recorder that keeps everything: states, memories and reports, and of the world what a run would keep.

    worlds  the world's state after every round        rows  its rows of the table of vehicles
    costs   its columns of the table of uploads, by vehicle
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.states: list[Arrays] = []
        self.memories: list[dict[int, Arrays]] = []
        self.reports: list[Report] = []
        self.worlds: list[Arrays] = []
        self.rows: list[list[VehicleRow]] = []
        self.costs: list[dict[int, dict[str, float]]] = []

    def record(self, state: Arrays, memories: dict[int, Arrays], report: Report) -> None:
        self.states.append(state)
        self.memories.append(dict(memories))
        self.reports.append(report)
        self.worlds.append({name: array.copy() for name, array in self._world.state().items()})
        self.rows.append([dict(row) for row in self._world.rows()])
        came = {upload.vehicle for upload in report.uploads}
        self.costs.append({u: dict(self._world.upload_costs(u)) for u in sorted(came)})


def onboard_of(config: Config, task: Task | Pictures | None = None, dtype: torch.dtype = torch.float32) -> Onboard:
    """Return a process's engine and algorithms; on small pictures unless a task is given."""
    task = pictures() if task is None else task
    return Onboard(config, task.task() if isinstance(task, Pictures) else task, dtype)


class Relay:
    """A driver that does jobs in this process; tests change what it passes on."""

    def __init__(self, onboard: Onboard) -> None:
        self._onboard = onboard

    def call(self, jobs: Jobs) -> Iterator[Reply]:
        """Yield the replies in order."""
        return self._onboard.call(jobs)


def station_of(
    config: Config,
    label: str,
    driver: Driver | None = None,
    onboard: Onboard | None = None,
    plan: FleetPlan | None = None,
    memories: dict[int, Arrays] | None = None,
    kept: Arrays | None = None,
) -> Station:
    """Return the station of a row before round 0, or with the world's state that was kept after a later one.

    Jobs are done in this process unless a driver is given.
    """
    onboard = onboard or onboard_of(config)
    plan = plan or fleet_plan(config.vehicles, config.rounds)
    world = world_of(config, onboard.task, plan)
    if kept is not None:
        world.restore(kept)
    return Station(label, onboard, world, driver or onboard, memories)


def start_of(station: Station) -> Arrays:
    """Return the state before round 0."""
    return station.algorithm.start(station.onboard.engine.initial())


def run_row(station: Station, state: Arrays | None = None, first: int = 0) -> Memory:
    """Run a row to its end and return everything that was recorded."""
    memory = Memory(station.world)
    final = run(station, memory, start_of(station) if state is None else state, first)
    assert final is memory.states[-1]
    return memory


def job_of(station: Station, vehicle: int, t: int, state: Arrays | None = None) -> Job:
    """Return the job of a vehicle's round."""
    state = start_of(station) if state is None else state
    weights = alphas(station.algorithm.settings.server, station.world.samples(t))
    sent = station.algorithm.send(state, vehicle, t)
    return station._job(t, 0, vehicle, sent, float(weights[vehicle] / weights.sum()))


def retrained(station: Station, vehicle: int, t: int, state: Arrays, delta: float) -> Trained:
    """Return what a vehicle of the paper's algorithms trains in round t, once more."""
    kit = station.onboard.kit(job_of(station, vehicle, t, state))
    ticket = kit.winning_ticket(state, delta) if station.algorithm.prunes(delta) else None
    return kit.descend(state, ticket, delta=delta)


def exchanged(
    station: Station, t: int, state: Arrays | None = None, vehicles: Iterable[int] | None = None
) -> tuple[list[Message], Report]:
    """Let some vehicles, or all, train in round t; returns what was decoded and what happened."""
    state, report = start_of(station) if state is None else state, Report(t)
    who = range(station.world.vehicles) if vehicles is None else vehicles
    sent = {u: station.algorithm.send(state, u, t) for u in who}
    return list(station.exchange(t, 0, sent, report)), report


def blank(table: str) -> Row:
    """Return a row of a run's table that says nothing."""
    nothing = {"int": 0, "float": 0.0, "bool": False, "text": None, "floats": []}
    return {column.name: nothing[column.kind] for column in TABLES[table]}
