"""Verbs that measure."""

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skyfed.cli.app import Json, Out, Overrides, Source, bench
from skyfed.errors import BadInputError
from skyfed.pipeline import new_folder

if TYPE_CHECKING:
    from skyfed.bench.row import Row


@bench.command("planner")
def bench_planner(
    as_json: Json = False,
    seeds: Annotated[int, typer.Option(metavar="N", min=1, help="Instances of each kind: seeds 0 to N-1.")] = 10,
    cap: Annotated[float, typer.Option(metavar="N", min=1, help="Seconds SCIP gets for one instance.")] = 60.0,
    full: Annotated[bool, typer.Option("--full", help="Take all instances of the slow rows, not only three.")] = False,
) -> None:
    """Measure the flight planner (about 15 minutes).

    Against its bars, brute force, the paper's Algorithm 1 and, where they are installed, SCIP and OR-Tools.
    """
    from skyfed.bench.planner import bench_planner as measure

    show_rows(f"Flight planner, {seeds} seeds", measure(seeds, cap, _announce, full), as_json)


@bench.command("wire")
def bench_wire(
    as_json: Json = False,
    rounds: Annotated[int, typer.Option(metavar="N", min=1, help="Rounds of training before the measured one.")] = 10,
    repeats: Annotated[int, typer.Option(metavar="N", min=1, help="Times are medians of so many.")] = 9,
) -> None:
    """Measure messages made from real training (about 3 minutes).

    Their sizes, the speed of encoding and decoding, and the quantisers' variance, on CIFAR-10.
    """
    from skyfed.bench.wire import bench_wire as measure

    show_rows(f"Wire, d from round {rounds}", measure(rounds, repeats, _announce), as_json)


@bench.command("engine")
def bench_engine(
    as_json: Json = False,
    pairs: Annotated[int, typer.Option(metavar="N", min=5, help="Interleaved pairs of each ratio.")] = 7,
    figure: Annotated[
        Path | None, typer.Option(help="Draw measured time over delta into this file (PNG and PDF).")
    ] = None,
    flower: Annotated[
        str, typer.Option(metavar="PYTHON", help="A Python that has flwr[simulation], for the same job there.")
    ] = "",
    pfl: Annotated[str, typer.Option(metavar="PYTHON", help="A Python that has pfl, for the same job there.")] = "",
) -> None:
    """Measure training, testing and pruning (about 10 minutes).

    Against plain PyTorch, the paper's law and, in a checkout of skyfed's
    repository, Flower and pfl.
    """
    from skyfed.bench.peers import peers_folder

    for option, python in (("--flower", flower), ("--pfl", pfl)):
        if python and peers_folder() is None:
            raise BadInputError(f"{option}: the scripts that compare with peers are in skyfed's repository only")
        if python and shutil.which(python) is None:
            raise BadInputError(f"{option} {python}: no such program; allowed: a Python that has the package")
    from skyfed.bench.engine import bench_engine as measure

    rows, law = measure(pairs, _announce, flower or sys.executable, pfl or sys.executable)
    if figure is not None:
        from skyfed.report.curves import draw_law
        from skyfed.report.figures import save

        save(draw_law(*law), figure.with_suffix(""))
    show_rows(f"Engine, {pairs} pairs", rows, as_json)


@bench.command("run")
def bench_run(source: Source = "quick", overrides: Overrides = None, out: Out = None, as_json: Json = False) -> None:
    """Run a preset and tell where the time goes.

    Takes as long as skyfed run does.

    \b
    skyfed bench run paper --out runs/paper
    """
    from skyfed.cli.train import profile_run

    show_rows(f"skyfed run {source}", [profile_run(source, overrides, out or new_folder(source))], as_json)


@bench.command("fleet")
def bench_fleet(
    as_json: Json = False,
    vehicles: Annotated[int, typer.Option(metavar="N", min=1, help="Vehicles of the small fleet.")] = 3,
    rounds: Annotated[int, typer.Option(metavar="N", min=4, help="Rounds of the small fleet.")] = 20,
) -> None:
    """Measure rounds on Flower (about 3 minutes).

    What they cost beyond training, and whether big uploads go through.
    """
    from skyfed.bench.flower import bench_fleet as measure

    show_rows(f"Fleet on this machine, {vehicles} vehicles", measure(vehicles, rounds, _announce), as_json)


@bench.command("devices")
def bench_devices(as_json: Json = False) -> None:
    """Compare modelled vehicles with measurements (about 10 seconds).

    Watts of their computers, memory of one vehicle's round on this machine,
    power of the airframe, and how a mission's energy depends on each constant.
    """
    from skyfed.bench.devices import bench_devices as measure

    show_rows("Computers and airframe of the vehicles", measure(_announce), as_json)


@bench.command("links")
def bench_links(
    as_json: Json = False,
    vehicles: Annotated[int, typer.Option(metavar="N", min=1, max=15, help="Vehicles that share the cell.")] = 10,
    rounds: Annotated[int, typer.Option(metavar="N", min=2, help="Rounds, each at new places.")] = 100,
    ns3: Annotated[str, typer.Option(metavar="PYTHON", help="A Python that has ns3, if this one has not.")] = "",
) -> None:
    """Compare the modelled links with LTE in ns-3 (about 2 minutes).

    Seconds and rates of messages both ways, at the same places with the
    same path loss. Needs pip install 'skyfed[ns3]'.
    """
    from skyfed.bench.links import bench_links as measure

    show_rows(f"Links, {vehicles} vehicles", measure(vehicles, rounds, ns3 or sys.executable, _announce), as_json)


def _announce(what: str) -> None:
    print(f"bench: {what}", file=sys.stderr)


def show_rows(title: str, rows: "list[Row]", as_json: bool) -> None:
    """Print measured figures as a table, or as JSON."""
    from skyfed.bench.row import print_rows, to_json

    if as_json:
        print(to_json(rows))
    else:
        print_rows(title, rows)
