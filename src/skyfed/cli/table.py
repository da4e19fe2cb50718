"""The verb that turns runs into a table for a paper: table."""

from pathlib import Path
from typing import Annotated

import typer

from skyfed.cli.app import Json, algorithms, app
from skyfed.errors import BadInputError


def _measures(incomplete: str) -> list[tuple[str, str]]:
    """Complete measures with what they are."""
    from skyfed.report.measures import MEASURES

    before, comma, last = incomplete.rpartition(",")
    known = [(name, f"{each.title}, {each.about or each.source}") for name, each in MEASURES.items()]
    return [(f"{before}{comma}{name}", words) for name, words in known if name.startswith(last)]


def _accuracies(incomplete: str) -> list[tuple[str, str]]:
    """Complete the measures of accuracy."""
    from skyfed.report.measures import ACCURACIES

    return [each for each in _measures(incomplete) if each[0] in ACCURACIES]


@app.command()
def table(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Finished runs, folders of seeds, or a sweep's folder.")
    ],
    latex: Annotated[bool, typer.Option("--latex", help="Print LaTeX (booktabs).")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV: one line per cell, SI units.")] = False,
    as_json: Json = False,
    measure: Annotated[
        str, typer.Option(metavar="NAME", help="The accuracy of the first column.", autocompletion=_accuracies)
    ] = "late_accuracy_full",
    columns: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="The other columns, as uplink_bytes,joules.", autocompletion=_measures),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="LABEL", help="Compare with this row (Dunnett), not the best.", autocompletion=algorithms),
    ] = None,
    margin: Annotated[
        float | None, typer.Option(metavar="POINTS", help="Say what is not inferior by this margin.")
    ] = None,
) -> None:
    """Print one table of several runs, with intervals and verdicts.

    Runs that differ in the seed only share a row. Seeds are blocks: 95 % intervals, Tukey's test, or Dunnett's with
    --against. The best is marked, with all that is not told apart from it. docs/table.md explains the model.

    \b
    skyfed run smoke --seeds 0-2 --out runs/smoke
    skyfed table runs/smoke --against afl --margin 0.5
    skyfed table runs/smoke --latex > results.tex
    """
    from skyfed.report.result_table import build_table
    from skyfed.report.table_formats import print_table, to_csv, to_json, to_latex, to_markdown

    asked = {"--latex": latex, "--markdown": markdown, "--csv": as_csv, "--json": as_json}
    chosen = [name for name, wanted in asked.items() if wanted]
    if len(chosen) > 1:
        raise BadInputError(f"{' and '.join(chosen)}: allowed: one of them")
    names = None if columns is None else [name.strip() for name in columns.split(",") if name.strip()]
    built = build_table(folders, measure, names, against, margin)
    if not chosen:
        print_table(built, ", ".join(map(str, folders)))
        return
    formats = {"--latex": to_latex, "--markdown": to_markdown, "--csv": to_csv, "--json": to_json}
    print(formats[chosen[0]](built))
