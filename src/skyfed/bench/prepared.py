"""A fleet that is ready to train, for measurements without a station."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from skyfed.config import Config, load_config
from skyfed.flight.fleet_plan import FleetPlan
from skyfed.jobs import Job
from skyfed.onboard import Onboard
from skyfed.runs.flights import plan_into
from skyfed.runs.folder import RunFolder
from skyfed.runs.start import world_of
from skyfed.tasks import Task
from skyfed.types import Arrays
from skyfed.world import World
from skyfed.world.mission import prepare_mission


@dataclass(frozen=True)
class Prepared:
    """What a fleet has on board, and the world that it flies in."""

    onboard: Onboard
    world: World

    def state(self) -> Arrays:
        """Return w^0 and its buffers, as they are sent down."""
        return vars(self.onboard.engine.initial())

    def job(self, sent: Arrays, vehicle: int, t: int = 0, label: str = "2ceoafl") -> Job:
        """Return a vehicle's round as a job."""
        return Job("local", sent, label, t, vehicle, self.world.data(vehicle, t))

    def do(self, sent: Arrays, vehicle: int = 0, label: str = "2ceoafl") -> None:
        """Do a vehicle's first round in this process."""
        self.onboard.do(self.job(sent, vehicle, label=label))

    def with_rows(self, rows: list[dict[str, Any]]) -> "Prepared":
        """Return the same fleet with other rows of algorithms."""
        config = self.onboard.config.model_copy(update={"algorithms": rows})
        return Prepared(Onboard(config, self.onboard.task), self.world)


def prepare(preset: str, overrides: Sequence[str], task: Task | None = None) -> Prepared:
    """Plan a config's flights and build what its vehicles train; without a task its own data is loaded."""
    config = load_config(preset, overrides)
    task = task or config.load_task()
    with TemporaryDirectory() as place, RunFolder.claim(Path(place), config, []) as folder:
        plan = planned(folder, config)
    return Prepared(Onboard(config, task), world_of(config, task, plan))


def planned(folder: RunFolder, config: Config) -> FleetPlan:
    """Plan a config's flights into a folder, in this process."""
    mission = prepare_mission(
        config.field, config.flight, config.sensing, config.vehicles, config.rounds, config.seed,
        config.longest_leg,
    )  # fmt: skip
    return plan_into(folder, config, mission, 1, lambda *_: None)
