"""The verb that runs many: sweep."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skyfed.cli.app import Plain, app
from skyfed.cli.execution import end_with, resumable
from skyfed.pipeline import load_data
from skyfed.report.draw import draw_training, write_report

if TYPE_CHECKING:
    from skyfed.runs.search_space import Search

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
    plain: Plain = False,
) -> None:
    """Run grids, variants, seeds or a search over a config.

    What is finished is not run again, what was stopped goes on; one table and one page at the end.
    docs/sweeps.md shows the file.

    \b
    skyfed sweep my-sweep.toml --out runs/my --jobs 2
    """
    from skyfed.runs.search_space import read_search
    from skyfed.runs.sweep_file import read_sweep, settle

    place = out or Path("runs") / source.stem
    search = read_search(source)
    if search is not None:
        _search(search, place, jobs, plain)
        return
    planned = read_sweep(source)
    from skyfed.drivers.sweep_jobs import run_sweep  # SciPy and Arrow: not before the file is known to be good
    from skyfed.report.live import counting
    from skyfed.report.terminal_tables import print_sweep, sweep_rows
    from skyfed.runs.tables import write_parquet

    distinct = {repr((job.config.data, job.config.model, job.config.device)): job.config for job in planned}
    for config in distinct.values():
        load_data(config, plain)  # bad or missing data, models and devices show here
    settle(place, planned)
    with resumable(place, _again(source, place)):
        with counting(f"sweep {source.stem}", len(planned), "runs", plain) as advance:
            failures = run_sweep(planned, place, jobs, lambda job: advance())
        for variant in dict.fromkeys(job.variant for job in planned):
            begun = [job for job in planned if job.variant == variant and (place / job.place / "config.toml").exists()]
            if begun:
                draw_training(place / variant, [place / job.place for job in begun], begun[0].config.rows)
        rows = sweep_rows(planned, place)
        write_parquet(place / "sweep.parquet", rows)
        print_sweep(rows, f"{place}: {len(planned)} runs, mean ± 95 % interval over seeds")
        print(f"written to {place}: sweep.parquet, a folder a variant with one a seed, logs/")
        if rows:
            write_report([place], place / "report.html")
    end_with(failures)


def _again(source: Path, place: Path) -> str:
    """Return the command that goes on with a sweep."""
    return shlex.join(["skyfed", "sweep", str(source), "--out", str(place)])


def _search(search: "Search", place: Path, jobs: int, plain: bool) -> None:
    """Let a sampler choose the runs of a sweep, then say which was best."""
    from skyfed.drivers.optuna_search import require_optuna, run_search
    from skyfed.report.live import counting
    from skyfed.report.terminal_tables import goal_of, print_search
    from skyfed.runs.search_space import Trials

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
    print(f"written to {place}: best.toml ({ranked[0].name}), search.json, a folder a trial")
    write_report([place / trial.name for trial in ranked[:_ON_THE_PAGE]], place / "report.html")
    print(f"go on with the best: skyfed run {place}/best.toml")
