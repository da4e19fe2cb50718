"""Run every row of a config in its folder, or go on where an earlier start stopped."""

from contextlib import nullcontext
from functools import partial
from typing import Protocol

from skyfed.config import Config
from skyfed.drivers.pool import Open, PoolDriver
from skyfed.errors import DivergedError
from skyfed.flight.fleet_plan import FleetPlan
from skyfed.onboard import Onboard
from skyfed.runs.folder import RunFolder
from skyfed.runs.recorder import RowRecorder
from skyfed.runs.start import remarks, try_rows, world_of
from skyfed.runs.tables import Row
from skyfed.simulate import run
from skyfed.station import Station
from skyfed.tasks import Task


class Watcher(Protocol):
    """Sees the run go on."""

    def begin(self, algorithm: str, first: int, rows: list[Row]) -> None:
        """Announce a row that starts at round `first`."""

    def round(self, algorithm: str, row: Row) -> None:
        """Show a finished round; may raise to stop the run."""

    def say(self, line: str) -> None:
        """Show a line."""


def open_here(workers: int) -> Open:
    """Return what opens a driver on this machine: worker processes, or this process where one is enough."""
    return lambda onboard: PoolDriver(onboard, workers) if workers > 1 else nullcontext(onboard)


def execute(
    folder: RunFolder, config: Config, task: Task, plan: FleetPlan, watcher: Watcher, open_driver: Open = nullcontext
) -> list[str]:
    """Train what is not yet trained; every finished round is kept. Returns a line for each row that diverged."""
    diverged: dict[str, str] = {}
    folder.keep_to(task.content_hash())
    folder.note(diverged=None)
    onboard = Onboard(config, task)
    world = world_of(config, task, plan, planned=True)
    try_rows(onboard, world)
    for line in remarks(folder, onboard, world):
        watcher.say(line)
    identity = folder.identity()
    with open_driver(onboard) as driver:
        for label in config.labels:
            world = world_of(config, task, plan, planned=onboard.algorithms[label].central)
            recorder = RowRecorder(folder, onboard, label, world, identity, after=partial(watcher.round, label))
            if recorder.done:
                watcher.begin(label, config.rounds, recorder.rows())
                continue
            standing = recorder.standing()
            for line in standing.complaints:
                watcher.say(f"{line}; going back to what is intact")
            watcher.begin(label, standing.first, recorder.rows())
            station = Station(label, onboard, world, driver, standing.memories, watcher.say)
            try:
                state = run(station, recorder, standing.state, standing.first)
            except DivergedError as error:
                diverged[label] = str(error)
                folder.note(diverged=diverged)
                watcher.say(str(error))
                continue
            if not recorder.done:  # an earlier start was stopped between its last round and its last file
                recorder.finish(state)
    return list(diverged.values())
