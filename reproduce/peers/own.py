"""The job in skyfed, in a process of its own: `python own.py RUN ROUNDS`."""

import sys
from pathlib import Path

from skyfed.flight.fleet_plan import load_fleet_plan
from skyfed.onboard import Onboard
from skyfed.runs.folder import RunFolder
from skyfed.runs.start import world_of
from skyfed.simulate import run
from skyfed.station import Report, Station
from skyfed.tasks import load_task
from skyfed.types import Arrays


class _Nobody:
    def record(self, state: Arrays, memories: dict[int, Arrays], report: Report) -> None:
        """Keep nothing."""


def main() -> None:
    """Fly, sense, train, pack, send and aggregate, from nothing to the last round."""
    place = Path(sys.argv[1])
    config = RunFolder.config_of(place).model_copy(update={"rounds": int(sys.argv[2])})
    task = load_task(config.data)
    onboard = Onboard(config, task)
    world = world_of(config, task, load_fleet_plan(place / "plan.npz"))
    station = Station("afl", onboard, world, onboard)
    run(station, _Nobody(), station.algorithm.start(onboard.engine.initial()))


if __name__ == "__main__":
    main()
