"""A fleet that is ready to train, for measurements without a station."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from skyfed.bench.sample_problems import planned
from skyfed.config import Config
from skyfed.jobs import Job
from skyfed.onboard import Onboard
from skyfed.runs.folder import RunFolder
from skyfed.runs.start import world_of
from skyfed.tasks import Task
from skyfed.types import Arrays
from skyfed.world import World


@dataclass(frozen=True)
class Prepared:
    """What a fleet has on board, and the world that it flies in."""

    onboard: Onboard
    world: World

    def state(self) -> Arrays:
        """Return w^0 and its buffers, as they are sent down."""
        initial = self.onboard.engine.initial()
        return {"weights": initial.weights, "buffers": initial.buffers}

    def job(self, sent: Arrays, vehicle: int, t: int = 0, label: str = "2ceoafl") -> Job:
        """Return a vehicle's round as a job."""
        return Job("local", sent, label, t, vehicle, self.world.data(vehicle, t))


def prepare(config: Config, task: Task) -> Prepared:
    """Plan a config's flights and build what its vehicles train."""
    with TemporaryDirectory() as place, RunFolder.claim(Path(place), config, []) as folder:
        plan = planned(folder, config)
    return Prepared(Onboard(config, task), world_of(config, task, plan))
