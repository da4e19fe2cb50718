"""What the verbs that plan and train are made of."""

import contextlib
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from skyfed.cli.draw import draw_flights, draw_training, drawn, write_report
from skyfed.cli.stop import StoppedError, stop
from skyfed.errors import SkyfedError

if TYPE_CHECKING:
    from skyfed.config import Config
    from skyfed.flight.fleet import FleetPlan
    from skyfed.mission import Mission
    from skyfed.runs.folder import RunFolder
    from skyfed.sensing.datasets import Pictures


def workers(configured: int) -> int:
    """Return how many worker processes to start."""
    return configured or os.cpu_count() or 1


def new_folder(source: str) -> Path:
    """Return a folder named by what runs and when."""
    from datetime import datetime

    return Path("runs") / f"{Path(source).stem}-{datetime.now().astimezone():%Y%m%d-%H%M%S}"


def prepare(config: "Config") -> "Mission":
    """Prepare what the fleet faces; bad input shows here, before anything is written."""
    from skyfed.mission import prepare_mission

    return prepare_mission(config.field, config.flight, config.sensing, config.vehicles, config.rounds, config.seed)


def load_pictures(config: "Config", plain: bool) -> "Pictures":
    """Load the pictures; what does not fit them or is not here shows now, before anything is written."""
    from skyfed.report.live import reading
    from skyfed.runs.pictures import load_fitting

    with reading(plain) as progress:
        return load_fitting(config, progress)


def plan_flights(folder: "RunFolder", config: "Config", mission: "Mission", plain: bool, again: str) -> "FleetPlan":
    """Plan what is not planned yet and print the table; a signal stops at once, finished flights are saved."""
    finished: set[int] = set()
    try:
        from skyfed.flight.planner import fell_back
        from skyfed.report.live import counting
        from skyfed.report.tables import print_flights
        from skyfed.runs.flights import plan_into

        for line in folder.complaints:
            print(line, file=sys.stderr)
        with counting("planning", config.vehicles, "vehicles", plain) as advance:

            def done(vehicle: int, found: object) -> None:
                finished.add(vehicle)
                advance()

            fleet = plan_into(folder, config, mission, workers(config.workers), done)
    except StoppedError:
        print(f"stopped: {len(finished)} of {config.vehicles} flights are saved; go on with: {again}", file=sys.stderr)
        raise
    print_flights(fleet, mission)
    failed = [str(note) for note in fleet.note if fell_back(str(note))]
    if failed:
        print(f"warning: {len(failed)} of {config.vehicles} flights are not as asked for: {failed[0]}", file=sys.stderr)
    return fleet


def again(place: Path) -> str:
    """Return the command that goes on with what was stopped."""
    name = shlex.quote(str(place))
    if sys.argv[1:2] == ["plan"]:
        return f"skyfed plan {shlex.quote(str(place / 'config.toml'))} --out {name}"
    return f"skyfed resume {name}"


@contextlib.contextmanager
def resumable(place: Path, command: str = "") -> Iterator[None]:
    """Say how to go on where a signal stops what is done inside."""
    try:
        yield
    except StoppedError:
        print(f"stopped; every finished round is kept; go on with: {command or again(place)}", file=sys.stderr)
        raise


def end_with(failures: list[str]) -> None:
    """End with what failed, once all else is done."""
    if failures:
        raise SkyfedError("; ".join(failures))


def finished(folder: Path) -> bool:
    """Tell whether a run has nothing left to do."""
    from skyfed.runs.folder import RunFolder
    from skyfed.runs.store import damaged, is_done

    config = RunFolder(folder).read_config()
    places = [folder / name for name in config.algorithms]
    return drawn(folder, config) and all(is_done(place) and not damaged(place) for place in places)


def train_seeds(place: Path, pictures: "Pictures", plain: bool) -> None:
    """Train every seed below a folder, one after the other, then draw them together."""
    from skyfed.report.tables import print_seeds
    from skyfed.runs.folder import RunFolder
    from skyfed.runs.seeds import seed_folders

    folders, failures = seed_folders(place), []
    for folder in folders:
        config = RunFolder(folder).read_config()
        if finished(folder):
            continue
        with RunFolder.claim(folder, config, sys.argv[1:]) as claimed:
            failures += [
                f"seed {config.seed}: {line}"
                for line in train_run(claimed, config, prepare(config), pictures, plain, place)
            ]
    config = RunFolder(folders[0]).read_config()
    with resumable(place):
        print_seeds(folders, config.algorithms, f"{place}: {len(folders)} seeds, mean ± standard deviation")
        draw_training(place, folders, config.algorithms)
        print(f"written to {place}: figures/ over all seeds, one folder a seed")
        write_report([place], place / "report.html")
    end_with(failures)


def train_run(
    folder: "RunFolder", config: "Config", mission: "Mission", pictures: "Pictures", plain: bool, place: Path
) -> list[str]:
    """Plan, train, tabulate, draw; a signal stops after the present round. Returns what diverged."""
    with resumable(place):  # what takes seconds to import
        from skyfed.drivers.execute import execute
        from skyfed.drivers.tracking import Tracking
        from skyfed.report.view import RunView
    fleet = plan_flights(folder, config, mission, plain, again(place))
    with resumable(place):
        stop.later = True
        try:
            with (
                RunView(config.algorithms, config.rounds, plain, stop.check) as view,
                Tracking(folder, config, view) as tracking,
            ):
                diverged = execute(folder, config, pictures, fleet, workers(config.workers), tracking)
        finally:
            stop.later = False
        stop.check()  # a signal after the last round
        show_run(folder, config, fleet)
        if place == folder.path:  # else one page for all seeds
            write_report([place], place / "report.html")
    return diverged


def show_run(folder: "RunFolder", config: "Config", fleet: "FleetPlan") -> None:
    """Tabulate and draw a run that has ended."""
    from skyfed.report.tables import print_resources, print_summary

    print_summary(folder.path, config.algorithms, f"Run {folder.path}")
    print_resources(folder.path, config.algorithms, f"What it cost: model {config.cost.model!r}, all vehicles together")
    draw_flights(folder, config, fleet)
    draw_training(folder.path, [folder.path], config.algorithms)
    print(f"written to {folder.path}: figures/, tables (parquet), models (safetensors)")
