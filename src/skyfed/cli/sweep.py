"""The verb that runs many: sweep."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skyfed.cli.app import Plain, app
from skyfed.cli.execution import end_with, resumable
from skyfed.errors import BadInputError
from skyfed.pipeline import load_data
from skyfed.report.draw import draw_training, write_report

if TYPE_CHECKING:
    from skyfed.runs.search_space import Search
    from skyfed.runs.sweep_file import SweepJob

_ON_THE_PAGE = 10  # trials of a search, the best ones: more are hard to tell apart


@app.command()
def sweep(
    source: Annotated[
        Path, typer.Argument(metavar="FILE", help="A TOML file: base, set, seeds; [grid], [[variant]] or [search].")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results; runs/ and the file's name if not given.")
    ] = None,
    jobs: Annotated[int, typer.Option(metavar="N", min=1, help="Runs side by side; they share the cores.")] = 1,
    part: Annotated[
        str | None, typer.Option(metavar="K/N", help="Run the Kth of N fixed shares, as a task of a job array.")
    ] = None,
    plain: Plain = False,
) -> None:
    """Run grids, variants, seeds or a search over a config.

    What is finished is not run again, what was stopped goes on; one table and one page at the end. Several processes or
    nodes may give the same command: they divide the runs. docs/sweeps.md shows the file, docs/cluster.md a Slurm job.

    \b
    skyfed sweep my-sweep.toml --out runs/my --jobs 2
    skyfed sweep my-sweep.toml --out runs/my --part 1/4
    """
    from skyfed.runs.search_space import read_search
    from skyfed.runs.sweep_file import read_sweep, settle, share_of

    place = out or Path("runs") / source.stem
    search = read_search(source)
    if search is not None:
        if part is not None:
            raise BadInputError("--part: a search has no fixed shares; allowed: the same command several times")
        _search(search, place, jobs, plain)
        return
    planned = read_sweep(source)
    from skyfed.drivers.run_log import lengths  # SciPy and Arrow: not before the file is known to be good
    from skyfed.drivers.sweep_jobs import run_jobs, unfinished
    from skyfed.report.live import counting
    from skyfed.runs.lock import locked

    mine = share_of(planned, part)
    distinct = {repr((job.config.data, job.config.model, job.config.device)): job.config for job in planned}
    for config in distinct.values():
        load_data(config, plain)  # bad or missing data, models and devices show here
    settle(place, planned)
    if part is None:
        _warn_of_local_locks(place)
    since = lengths(place / "logs")
    with resumable(place, _again(source, place, part)), locked(place, shared=True):
        with counting(f"sweep {source.stem}", len(mine), "runs", plain) as advance:
            outcome = run_jobs(mine, place, jobs, lambda job: advance(), since)
        many = "run" if outcome.started == 1 else "runs"
        done_here = f"{outcome.started} {many} done here" if outcome.started else "nothing left to do here"
        if left := len(unfinished(planned, place)):
            print(
                f"{place}: {done_here}; {left} of {len(planned)} runs are not finished; "
                "the process that ends last writes the table"
            )
        else:
            _tabulate(planned, place, done_here)
    end_with(outcome.failures)


def _warn_of_local_locks(place: Path) -> None:
    """Say if processes on other nodes would not see that a run is taken."""
    from skyfed.runs.lock import only_on_this_node

    if option := only_on_this_node(place):
        print(
            f"warning: {place}: mounted with {option}, other nodes do not see which runs are taken; "
            "with several nodes use --part K/N",
            file=sys.stderr,
        )


def _tabulate(planned: "list[SweepJob]", place: Path, done_here: str) -> None:
    """Write the figures, the page and the table of a sweep that has ended, unless they are there."""
    from skyfed.files import drop_dead_parts
    from skyfed.report.terminal_tables import print_sweep, sweep_rows
    from skyfed.runs.lock import in_turn
    from skyfed.runs.sweep_file import TURN
    from skyfed.runs.tables import read_parquet, write_parquet

    table, page = place / "sweep.parquet", place / "report.html"
    with in_turn(place / TURN):
        drop_dead_parts(place)
        rows = sweep_rows(planned, place)
        if page.exists() and table.exists() and read_parquet(table) == rows:
            print(f"{place}: {done_here}; the table of all {len(planned)} runs is in sweep.parquet and report.html")
            return
        for variant in dict.fromkeys(job.variant for job in planned):
            begun = [job for job in planned if job.variant == variant and (place / job.place / "config.toml").exists()]
            if begun:
                draw_training(place / variant, [place / job.place for job in begun], begun[0].config.rows)
        print_sweep(rows, f"{place}: {len(planned)} runs, mean ± 95 % interval over seeds")
        print(f"written to {place}: sweep.parquet, one folder per variant with one per seed, logs/")
        if rows:
            write_report([place], page)
        write_parquet(table, rows)  # last: where it is there, all is


def _again(source: Path, place: Path, part: str | None = None) -> str:
    """Return the command that goes on with a sweep."""
    words = ["skyfed", "sweep", str(source), "--out", str(place)]
    return shlex.join(words if part is None else [*words, "--part", part])


def _search(search: "Search", place: Path, jobs: int, plain: bool) -> None:
    """Let a sampler choose the runs of a sweep, then say which was best."""
    from skyfed.drivers.optuna_search import require_optuna, run_search
    from skyfed.report.live import counting
    from skyfed.report.terminal_tables import goal_of, print_search
    from skyfed.runs.lock import in_turn
    from skyfed.runs.search_space import Trials
    from skyfed.runs.sweep_file import TURN

    require_optuna()
    load_data(search.jobs({}, "base")[0].config, plain)  # bad or missing data shows here
    trials = Trials(place, search.about())
    length = max(search.table.trials, len(trials))
    with (
        resumable(place, _again(search.path, place)),
        counting(f"search {search.path.stem}", length, "trials", plain) as advance,
    ):
        failures = run_search(search, trials, place, jobs, lambda job: goal_of(search, place, job), advance)
    for line in [*failures[:3], *([f"and {len(failures) - 3} more, see {place}/logs"] if failures[3:] else [])]:
        print(line, file=sys.stderr)
    ranked = trials.ranked(search.table.upwards)
    if not ranked:
        end_with([f"{place}: no trial reached the end"])
    print_search(search, trials, f"{place}: {len(trials)} trials, the best first")
    print(f"written to {place}: best.toml ({ranked[0].name}), search.json, one folder per trial")
    with in_turn(place / TURN):
        write_report([place / trial.name for trial in ranked[:_ON_THE_PAGE]], place / "report.html")
    print(f"go on with the best: skyfed run {place}/best.toml")
