"""Verbs that inspect what exists: runs, evaluate, report, bound."""

from pathlib import Path
from typing import Annotated

import typer

from skyfed.cli.app import Json, Trust, algorithms, app
from skyfed.errors import BadInputError
from skyfed.report.draw import write_report

_RUNS = Path("runs")


@app.command("runs")
def list_runs(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="A folder of runs, a sweep, or one run.")] = _RUNS,
    as_json: Json = False,
) -> None:
    """List the runs in a folder: state and key figures.

    States: running, done, interrupted (skyfed resume goes on), planned, not begun, diverged, failed, damaged. Seeds and
    sweeps are shown together; name their folder to look inside.
    """
    from skyfed.report.listing import listing_json, print_listing
    from skyfed.runs.listing import list_runs as look

    if not folder.is_dir() and folder != _RUNS:
        raise BadInputError(f"{folder}: no such folder; allowed: a folder of runs, a sweep, a run")
    listed = look(folder)
    if as_json:
        print(listing_json(listed))
    elif listed:
        print_listing(listed, folder)
    else:
        print(f"{folder}: no runs here; make one with: skyfed run quick")


@app.command()
def evaluate(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run's folder.")],
    algorithm: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="One algorithm; all that are finished if not given.", autocompletion=algorithms
        ),
    ] = None,
    pictures: Annotated[
        Path | None, typer.Option(help="Your own pictures: a directory of class folders named as the classes.")
    ] = None,
    as_json: Json = False,
    trust: Trust = False,
) -> None:
    """Print the accuracy of a run's models, class by class.

    \b
    skyfed evaluate runs/mine --algorithm 2ceoafl
    skyfed evaluate runs/mine --pictures my-pictures --json
    """
    from skyfed.report.score import print_scores, score_models

    print_scores(score_models(folder, algorithm, pictures, trust), as_json)


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
    """Write one interactive page of one run or many.

    Runs, folders of several seeds and sweeps stand side by side, finished or not.
    """
    if out is not None and out.suffix.lower() not in (".html", ".htm"):
        raise BadInputError(f"--out {out}: the page is HTML; allowed: a name that ends in .html")
    write_report(folders, out or (folders[0] if len(folders) == 1 else Path()) / "report.html")


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
    from skyfed.report.bound import diagnoses, draw_bound, print_bound, print_json
    from skyfed.report.figures import save
    from skyfed.runs.folder import RunFolder

    diagnosed = diagnoses(folder)
    if as_json:
        print_json(diagnosed)
        return
    for diagnosis in diagnosed:
        print_bound(diagnosis)
    figures = RunFolder(folder).subfolder("figures")
    rounds = RunFolder(folder).read_config().rounds
    for diagnosis in diagnosed:
        save(draw_bound(diagnosis, rounds), figures / f"bound-{diagnosis.algorithm}")
    print(f"written to {figures}: {', '.join(f'bound-{diagnosis.algorithm}.png' for diagnosis in diagnosed)}")
