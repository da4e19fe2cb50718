"""From a config to a finished folder, step by step: what the command line and `skyfed.run` are both made of."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skyfed.config import Config
    from skyfed.drivers.tracking import Tracking
    from skyfed.flight.fleet_plan import FleetPlan
    from skyfed.runs.folder import RunFolder
    from skyfed.tasks import Task
    from skyfed.world.mission import Mission

Stop = Callable[[], None]  # is called after every round, and raises when the run shall end


def workers(configured: int) -> int:
    """Return how many worker processes to start."""
    from skyfed.workers import usable_cores

    return configured or usable_cores()


def new_folder(source: str) -> Path:
    """Return a folder named by what runs and when."""
    from datetime import datetime

    return Path("runs") / f"{Path(source).stem}-{datetime.now().astimezone():%Y%m%d-%H%M%S}"


def prepare(config: "Config") -> "Mission":
    """Prepare what the fleet faces; bad input shows here, before anything is written."""
    from skyfed.world.mission import prepare_mission

    return prepare_mission(config.field, config.flight, config.sensing, config.vehicles, config.rounds, config.seed)


def load_data(config: "Config", plain: bool) -> "Task":
    """Load the data; what does not fit it or is not here shows now, before anything is written."""
    from skyfed.report.live import reading
    from skyfed.runs.data import load_fitting

    with reading(plain) as progress:
        return load_fitting(config, progress)


def plan_flights(
    folder: "RunFolder", config: "Config", mission: "Mission", plain: bool, done: Callable[[int], None] = lambda u: None
) -> "FleetPlan":
    """Plan what is not planned yet, with a bar; every finished flight is saved at once."""
    from skyfed.report.live import counting
    from skyfed.runs.flights import plan_into

    with counting("planning", config.vehicles, "vehicles", plain) as advance:

        def note(vehicle: int, plan: object) -> None:
            done(vehicle)
            advance()

        return plan_into(folder, config, mission, workers(config.workers), note)


def train(
    folder: "RunFolder", config: "Config", task: "Task", fleet: "FleetPlan", plain: bool, stop: Stop = lambda: None
) -> list[str]:
    """Train what is not trained yet, with a live view; returns a line for each row that diverged."""
    from skyfed.drivers.execute import execute, open_here

    with watching(folder, config, plain, stop) as watcher:
        return execute(folder, config, task, fleet, watcher, open_here(workers(config.workers)))


@contextmanager
def watching(folder: "RunFolder", config: "Config", plain: bool, stop: Stop) -> "Iterator[Tracking]":
    """Give a watcher that shows a run as it goes on and hands it to the trackers; it calls `stop` after every round."""
    from skyfed.drivers.tracking import Tracking
    from skyfed.report.view import RunView

    with RunView(config.rows, config.rounds, plain, stop) as view, Tracking(folder, config, view) as tracking:
        yield tracking


def import_training() -> None:
    """Import what `train` needs, which takes seconds."""
    import skyfed.drivers.execute
    import skyfed.report.view  # noqa: F401
