"""A whole experiment in one call: plan, train, keep everything in a folder; what `skyfed run` does, from Python."""

import os
import sys
from pathlib import Path

from skyfed.config import Config
from skyfed.drivers.execute import Watcher, execute
from skyfed.drivers.tracking import Tracking
from skyfed.errors import DivergedError
from skyfed.mission import prepare_mission
from skyfed.runs.flights import plan_into
from skyfed.runs.folder import RunFolder
from skyfed.runs.pictures import load_fitting
from skyfed.runs.store import Row


class Silent:
    """A watcher that shows nothing; the base of one's own."""

    def begin(self, algorithm: str, first: int, rows: list[Row]) -> None:
        """Take note of an algorithm that starts at round `first`."""

    def round(self, algorithm: str, row: Row) -> None:
        """Take note of a finished round."""

    def say(self, line: str) -> None:
        """Take note of a line."""


def run_experiment(config: Config, place: Path, watcher: Watcher | None = None) -> Path:
    """Plan the flights and train every algorithm of a config into a folder; returns the folder.

    A stopped run of the same config goes on, a finished one is left as it is. Figures and the page are not drawn: that
    is `skyfed report DIR`. Raises DivergedError at the end if an algorithm diverged, BadInputError for bad settings.
    """
    mission = prepare_mission(config.field, config.flight, config.sensing, config.vehicles, config.rounds, config.seed)
    pictures = load_fitting(config)
    workers = config.workers or os.cpu_count() or 1
    new = not (place / "manifest.json").exists()
    with RunFolder.claim(place, config, []) as folder:
        if new:
            folder.note(command=["python", *sys.argv])
        fleet = plan_into(folder, config, mission, workers, lambda *_: None)
        with Tracking(folder, config, watcher or Silent()) as tracking:
            diverged = execute(folder, config, pictures, fleet, workers, tracking)
    if diverged:
        raise DivergedError("; ".join(diverged))
    return place
