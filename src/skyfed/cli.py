"""The command line: verbs only."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer

from skyfed.errors import SkyfedError

if TYPE_CHECKING:
    from skyfed.flight.fleet import FleetPlan
    from skyfed.mission import Mission

app = typer.Typer(
    name="skyfed",
    help="Online federated learning on aerial vehicles: plan flights, sense, prune, train, compress, aggregate.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Source = Annotated[str, typer.Argument(metavar="[PRESET|FILE]", help="A preset's name or a TOML file.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting (TOML value); repeatable.")
]
Plain = Annotated[bool, typer.Option("--plain", help="Plain lines instead of live output.")]


class StoppedError(Exception):
    """A signal asked the program to stop."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def main() -> None:
    """Run the command line; errors become one line on standard error and an exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run with these arguments; returns the exit code."""
    try:
        with _signals():
            app(args=arguments, prog_name="skyfed", standalone_mode=False)
    except SkyfedError as error:
        print(f"skyfed: {error}", file=sys.stderr)
        return error.exit_code
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        print(f"skyfed: {error.format_message().splitlines()[0]} (see skyfed --help)", file=sys.stderr)
        return 2
    except StoppedError as stop:
        return 128 + stop.number
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader has gone; nothing to flush to
        return 1
    return 0


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    def stop(number: int, frame: Any) -> None:
        raise StoppedError(number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _version(asked: bool) -> None:
    if asked:
        from skyfed import __version__

        print(f"skyfed {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def presets() -> None:
    """List the presets with one line each."""
    from skyfed.config import presets as known

    names = known()
    width = max(map(len, names))
    for name, line in names.items():
        print(f"{name:<{width}}  {line}")


@app.command()
def plan(
    source: Source = "quick",
    overrides: Overrides = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results; a new one under runs/ if not given.")
    ] = None,
    plain: Plain = False,
) -> None:
    """Plan flights: plan.npz, map.png, figures, and a table with gap and seconds."""
    from skyfed.config import load_config
    from skyfed.mission import prepare_mission
    from skyfed.runs.flights import plan_into
    from skyfed.runs.folder import RunFolder

    config = load_config(source, overrides or [])
    mission = prepare_mission(config.field, config.flight, config.sensing, config.vehicles, config.rounds, config.seed)
    path = out or _new_folder(source)
    with RunFolder.claim(path, config, sys.argv[1:]) as folder:
        finished: set[int] = set()
        try:
            with _progress("planning", config.vehicles, "vehicles", plain) as advance:

                def done(vehicle: int, found: object) -> None:
                    finished.add(vehicle)
                    advance()

                fleet = plan_into(folder, config, mission, config.workers or os.cpu_count() or 1, done)
        except StoppedError:
            again = f"skyfed plan {folder.path / 'config.toml'} --out {folder.path}"
            print(
                f"stopped: {len(finished)} of {config.vehicles} flights are saved; go on with: {again}", file=sys.stderr
            )
            raise
        _print_flights(fleet, mission)
        _draw_flights(folder, fleet, config)
        print(f"written to {folder.path}: plan.npz, map.png, figures/")


bench = typer.Typer(help="Measure: ratios taken in one run, beside what they have to be.", no_args_is_help=True)
app.add_typer(bench, name="bench")
Json = Annotated[bool, typer.Option("--json", help="Print a JSON list of records instead of a table.")]


@bench.command("planner")
def bench_planner(
    as_json: Json = False,
    seeds: Annotated[int, typer.Option(min=1, help="Instances of each kind: seeds 0 to N-1.")] = 10,
    cap: Annotated[float, typer.Option(min=1, help="Seconds SCIP gets for one instance.")] = 60.0,
) -> None:
    """Measure the flight planner against its bars, Algorithm 1 and SCIP (about 20 minutes)."""
    from skyfed.bench.planner import bench_planner as measure
    from skyfed.bench.row import print_rows, to_json

    rows = measure(seeds, cap, os.cpu_count() or 1, lambda what: print(f"bench: {what}", file=sys.stderr))
    if as_json:
        print(to_json(rows))
    else:
        print_rows(f"Flight planner, {seeds} seeds", rows)


def _draw_flights(folder: Any, fleet: "FleetPlan", config: Any) -> None:
    from skyfed.report.figures import draw_association, draw_map, draw_psi, save
    from skyfed.report.waypoints import export_all
    from skyfed.runs.folder import storage_errors, write_whole
    from skyfed.sensing import footprint_side

    figures = folder.subfolder("figures")
    side = footprint_side(config.sensor.altitude, config.sensor.fov)
    with storage_errors(figures):
        save(draw_psi(fleet, 0), figures / "fig1-psi")
        save(draw_association(fleet, 0), figures / "fig2-association")
        picture = save(draw_map(fleet, side), figures / "map")[0]
        write_whole(folder.path / "map.png", picture.read_bytes())
        if config.field.origin is not None:
            export_all(
                fleet, folder.subfolder("waypoints"), config.field.origin, config.sensor.altitude, config.flight.hold
            )


def _print_flights(fleet: "FleetPlan", mission: "Mission") -> None:
    from rich.console import Console
    from rich.table import Table

    from skyfed.flight.fleet import age_of_information

    table = Table(
        title=f"Flights: {fleet.method}, {fleet.vehicles} vehicles, {fleet.rounds} rounds, {fleet.classes} classes"
    )
    shown = "vehicle|objective\n(nats)|proven bound\n(nats)|gap\n(nats)|loss per\nclass (%)|age mean/worst\n(rounds)"
    for name in [*shown.split("|"), "centre error\nmean/worst (m)", "CPU\n(s)", "note"]:
        table.add_column(name, justify="left" if name == "note" else "right")
    for u in range(fleet.vehicles):
        age = age_of_information(fleet.association[u], fleet.classes)
        error = mission.errors[u]
        proven = fleet.bound[u] < float("inf")
        table.add_row(
            str(u),
            f"{fleet.objective[u]:.4f}",
            f"{fleet.bound[u]:.4f}" if proven else "none",
            f"{fleet.gap[u]:.1e}" if proven else "-",
            f"{100 * fleet.loss[u]:.3f}" if proven else "-",
            f"{age.mean():.1f} / {age.max()}",
            f"{error.centre_mean:.1f} / {error.centre_worst:.1f}",
            f"{fleet.seconds[u]:.2f}",
            str(fleet.note[u]),
        )
    Console(width=None if sys.stdout.isatty() else 140).print(table)


@contextlib.contextmanager
def _progress(what: str, total: int, unit: str, plain: bool) -> Iterator[Any]:
    """Show how far the work is and how long it still takes: a bar on a terminal, a line now and then elsewhere."""
    import time

    if not plain and sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        columns = (
            TextColumn(what),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(unit),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(what, total=total)
            yield lambda: bar.advance(task)
        return
    begin, count, last = time.monotonic(), 0, 0.0

    def advance() -> None:
        nonlocal count, last
        count += 1
        now = time.monotonic()
        if count == total or now - last > 5:
            last = now
            left = (now - begin) / count * (total - count)
            print(f"{what}: {count} of {total} {unit}, {left:.0f} s left", file=sys.stderr)

    yield advance


def _new_folder(source: str) -> Path:
    from datetime import datetime

    stem = Path(source).stem
    return Path("runs") / f"{stem}-{datetime.now().astimezone():%Y%m%d-%H%M%S}"


if __name__ == "__main__":
    main()
