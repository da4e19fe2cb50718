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


def new_folder(source: str) -> Path:
    """Return a folder named by what runs and when."""
    from datetime import datetime

    return Path("runs") / f"{Path(source).stem}-{datetime.now().astimezone():%Y%m%d-%H%M%S}"


def prepare(config: "Config") -> "Mission":
    """Prepare what the fleet faces; bad input shows here, before anything is written."""
    from skyfed.world.expected import Camera
    from skyfed.world.mission import prepare_mission

    return prepare_mission(
        config.field, config.flight, config.sensing, config.vehicles, config.rounds, config.seed, config.longest_leg,
        Camera(config.sensing, config.sensor, config.world),
    )  # fmt: skip


def load_data(config: "Config", plain: bool) -> "Task":
    """Load the data and check that it fits the field, and that trackers, algorithms, model and device are here.

    What is wrong shows now, before anything is written.
    """
    from skyfed.report.live import reading

    config.track.require_installed()
    with reading(plain) as progress:
        task = config.load_task(progress)
    from skyfed.learning.evaluate import try_task  # PyTorch: not before the data is known to be good
    from skyfed.onboard import Onboard

    try_task(task)
    Onboard(config, task)
    return task


def plan_flights(folder: "RunFolder", config: "Config", mission: "Mission", plain: bool) -> "FleetPlan":
    """Plan what is not planned yet, with a bar; every finished flight is saved at once."""
    from skyfed.report.live import counting
    from skyfed.runs.flights import plan_into

    with counting("planning", config.vehicles, "vehicles", plain) as advance:
        return plan_into(folder, config, mission, config.processes, lambda vehicle, plan: advance())


def train(
    folder: "RunFolder", config: "Config", task: "Task", fleet: "FleetPlan", plain: bool, stop: Stop = lambda: None
) -> list[str]:
    """Train what is not trained yet, with a live view; returns a line for each row that diverged."""
    from skyfed.drivers.execute import execute, open_here

    with watching(folder, config, plain, stop) as watcher:
        return execute(folder, config, task, fleet, watcher, open_here(config.processes))


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
