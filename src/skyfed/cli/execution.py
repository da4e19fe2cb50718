"""The parts of the verbs that plan and train: the pipeline, with tables, lines and signals around it."""

import contextlib
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from skyfed import pipeline
from skyfed.cli.stop import StoppedError, stop
from skyfed.errors import SkyfedError
from skyfed.report.draw import draw_run, draw_training, finished, write_report

if TYPE_CHECKING:
    from skyfed.config import Config
    from skyfed.flight.fleet_plan import FleetPlan
    from skyfed.runs.folder import RunFolder
    from skyfed.tasks import Task
    from skyfed.world.mission import Mission


def plan_flights(folder: "RunFolder", config: "Config", mission: "Mission", plain: bool, again: str) -> "FleetPlan":
    """Plan what is not planned yet and print the table; a signal stops at once, finished flights are saved."""
    try:
        from skyfed.flight.planner import fell_back
        from skyfed.report.terminal_tables import print_flights

        for line in folder.complaints:
            print(line, file=sys.stderr)
        fleet = pipeline.plan_flights(folder, config, mission, plain)
    except StoppedError:
        saved = folder.flights_saved(config.vehicles)
        print(f"stopped: {saved} of {config.vehicles} flights are saved; go on with: {again}", file=sys.stderr)
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
    """Say how to go on if a signal stops the work inside."""
    try:
        yield
    except StoppedError:
        print(f"stopped; every finished round is kept; go on with: {command or again(place)}", file=sys.stderr)
        raise


def end_with(failures: list[str]) -> None:
    """Fail with these lines, if any, once all else is done."""
    if failures:
        raise SkyfedError("; ".join(failures))


def train_seeds(place: Path, task: "Task", plain: bool) -> None:
    """Train every seed below a folder, one after the other, then draw them together."""
    from skyfed.report.terminal_tables import print_seeds
    from skyfed.runs.folder import RunFolder
    from skyfed.runs.seeds import seed_folders

    folders, failures = seed_folders(place), []
    for folder in folders:
        config = RunFolder(folder).read_config()
        if finished(folder):
            continue
        with RunFolder.claim(folder, config, sys.argv[1:]) as claimed:
            diverged = train_run(claimed, config, pipeline.prepare(config), task, plain, place)
            failures += [f"seed {config.seed}: {line}" for line in diverged]
    config = RunFolder(folders[0]).read_config()
    with resumable(place):
        print_seeds(folders, config.rows, f"{place}: {len(folders)} seeds, mean ± 95 % interval")
        draw_training(place, folders, config.rows)
        print(f"written to {place}: figures/ over all seeds, one folder per seed")
        write_report([place], place / "report.html")
    end_with(failures)


def train_run(
    folder: "RunFolder", config: "Config", mission: "Mission", task: "Task", plain: bool, place: Path
) -> list[str]:
    """Plan, train, tabulate, draw; a signal stops after the present round. Returns what diverged."""
    with resumable(place):
        pipeline.import_training()
    fleet = plan_flights(folder, config, mission, plain, again(place))
    with resumable(place):
        with stop.after_round():
            diverged = pipeline.train(folder, config, task, fleet, plain, stop.check)
        stop.check()  # a signal after the last round
        show_run(folder, config)
        if place == folder.path:  # else one page for all seeds
            write_report([place], place / "report.html")
    return diverged


def show_run(folder: "RunFolder", config: "Config") -> None:
    """Tabulate and draw a run that has ended."""
    from skyfed.flight.fleet_plan import load_fleet_plan
    from skyfed.report.terminal_tables import print_resources, print_summary

    print_summary(folder.path, config.rows, f"Run {folder.path}")
    print_resources(folder.path, config.rows, "What it cost, all vehicles together")
    draw_run(folder, config, load_fleet_plan(folder.path / "plan.npz"))
    print(f"written to {folder.path}: figures/, tables (parquet), models (safetensors)")
