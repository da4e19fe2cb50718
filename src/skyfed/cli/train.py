"""Verbs that plan and train: presets, plan, run, resume."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skyfed.cli.app import Out, Overrides, Plain, Source, Trust, Watched, app
from skyfed.cli.execution import again, end_with, plan_flights, resumable, train_run, train_seeds
from skyfed.cli.watch import announced
from skyfed.errors import BadInputError
from skyfed.pipeline import load_data, new_folder, prepare

if TYPE_CHECKING:
    from skyfed.bench.row import Row


@app.command()
def presets() -> None:
    """List the presets with one line each."""
    from skyfed.presets import describe

    lines = describe()
    width = max(map(len, lines))
    for name, line in lines.items():
        print(f"{name:<{width}}  {line}")


@app.command()
def plan(source: Source = "quick", overrides: Overrides = None, out: Out = None, plain: Plain = False) -> None:
    """Plan flights; nothing is trained.

    Leaves plan.npz, map.png and figures in a folder and prints a table with every vehicle's proven gap and seconds.

    \b
    skyfed plan quick --set flight.vmax=150 --set vehicles=3
    skyfed plan my-survey.toml --out runs/survey
    """
    from skyfed.config import load_config
    from skyfed.report.draw import draw_flights
    from skyfed.runs.folder import RunFolder
    from skyfed.world.feasible import verdict

    config = load_config(source, overrides or [])
    mission = prepare(config)
    with RunFolder.claim(out or new_folder(source), config, sys.argv[1:]) as folder:
        fleet = plan_flights(folder, config, mission, plain, again(folder.path))
        draw_flights(folder, config, fleet)
        print(verdict(fleet.positions, config.conditions, fleet.landed))
        print(f"written to {folder.path}: plan.npz, map.png, figures/")


@app.command()
def run(
    source: Source = "quick",
    overrides: Overrides = None,
    out: Out = None,
    seeds: Annotated[
        str | None,
        typer.Option(metavar="LIST", help='Several seeds, as "0-4" or "0,3,7": a folder each, mean and band.'),
    ] = None,
    plain: Plain = False,
    watched: Watched = False,
) -> None:
    """Plan flights, then train every algorithm asked for.

    Tables, figures and models end in one folder. Ctrl-C stops after the round; skyfed resume goes on to the same bits.

    \b
    skyfed run quick --out runs/mine
    skyfed run smoke --set 'algorithms=["afl","2ceoafl"]' --set prune.delta=0.5
    skyfed run quick --seeds 0-2 --set 'track.to=["tensorboard"]'
    """
    from skyfed.config import load_config
    from skyfed.runs.folder import RunFolder
    from skyfed.runs.seeds import claim_seeds, parse_seeds

    config = load_config(source, overrides or [])
    numbers = parse_seeds(seeds) if seeds is not None else []
    mission, task = prepare(config), load_data(config, plain)
    place = out or new_folder(source)
    if numbers:
        claim_seeds(place, config, numbers, sys.argv[1:])
        with announced([place], watched):
            train_seeds(place, task, plain)
        return
    with RunFolder.claim(place, config, sys.argv[1:]) as folder, announced([place], watched):
        end_with(train_run(folder, config, mission, task, plain, place))


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a run, or of several seeds.")],
    plain: Plain = False,
    watched: Watched = False,
    trust: Trust = False,
) -> None:
    """Go on where a stopped run stood.

    Gives the same bits as if it had never been stopped. A finished run says so.
    """
    with resumable(folder):
        from skyfed.report.draw import drawn, finished
        from skyfed.runs.folder import RunFolder
        from skyfed.runs.seeds import seed_folders

        several = seed_folders(folder)
        if not several and not (folder / "config.toml").is_file():
            raise BadInputError(f"{folder}: not a run's folder (no config.toml)")
        folders = several or [folder]
        configs = [RunFolder.trusted_config(place, trust) for place in folders]
        config = configs[0]
        if drawn(folder, config) and (folder / "report.html").exists() and all(finished(place) for place in folders):
            print(f"{folder}: finished; nothing to resume")
            return
        mission, task = prepare(config), load_data(config, plain)
    if several:
        with announced([folder], watched):
            train_seeds(folder, task, plain)
        return
    with RunFolder.claim(folder, config, sys.argv[1:]) as claimed, announced([folder], watched):
        end_with(train_run(claimed, config, mission, task, plain, folder))


def profile_run(source: str, overrides: list[str] | None, place: Path) -> "Row":
    """Run a config and return where the time went."""
    from contextlib import redirect_stdout
    from cProfile import Profile

    from skyfed.bench.spent import spent
    from skyfed.runs.folder import RunFolder

    if (place / "config.toml").exists():
        raise BadInputError(f"--out {place}: has a run already; allowed: a new folder")
    profile, start = Profile(), time.monotonic()
    with redirect_stdout(sys.stderr):
        profile.runcall(run, source, overrides, place, None, plain=True)
    return spent(profile, time.monotonic() - start, RunFolder.config_of(place), place)
