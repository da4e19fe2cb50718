"""The job in skyfed, in a process of its own: `python -m skyfed.bench.peers.own RUN ROUNDS`."""

import sys
from pathlib import Path

from skyfed.drivers.inline import InlineDriver
from skyfed.flight.fleet import load_fleet_plan
from skyfed.runs.folder import RunFolder
from skyfed.sensing.datasets import load_data
from skyfed.simulate import Report, State, run
from skyfed.vehicle import Vehicles


class _Nobody:
    def record(self, state: State, report: Report) -> None:
        """Keep nothing."""


def main() -> None:
    """Fly, sense, train, pack, send and aggregate, from nothing to the last round."""
    place = Path(sys.argv[1])
    config = RunFolder.config_of(place).model_copy(update={"rounds": int(sys.argv[2])})
    vehicles = Vehicles(config, load_data(config.data), load_fleet_plan(place / "plan.npz"))
    run(config, "afl", InlineDriver(vehicles), _Nobody(), State(*vehicles.initial()))


if __name__ == "__main__":
    main()
