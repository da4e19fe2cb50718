"""The program, its groups of verbs, and the options that verbs share."""

import glob
from pathlib import Path
from typing import Annotated

import typer
import typer.core

typer.core.HAS_RICH = False  # typer 0.20 escapes "[default: …]" for rich in plain help too

app = typer.Typer(
    name="skyfed",
    help="Online federated learning on aerial vehicles: plan flights, sense, prune, train, compress, aggregate.",
    epilog="Start with: skyfed run smoke. Exit codes: 0 fine, 1 the work failed, 2 bad input, 3 storage, 130 stopped.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
bench = typer.Typer(help="Measure speed, sizes and gaps, each beside its bar.", no_args_is_help=True)
data = typer.Typer(help="Download data sets, and show where they are stored.", no_args_is_help=True)
fleet = typer.Typer(help="The same experiment across machines, on Flower.", no_args_is_help=True)
app.add_typer(fleet, name="fleet")
app.add_typer(data, name="data")
app.add_typer(bench, name="bench")


def _sources(incomplete: str) -> list[tuple[str, str]]:
    """Complete presets with what they are, and config files."""
    from skyfed.presets import describe

    files = [(f"{path}{'/' * path.is_dir()}", "") for path in Path().glob(f"{glob.escape(incomplete)}*")]
    known = [(name, line) for name, line in describe().items() if name.startswith(incomplete)]
    return known + [file for file in files if file[0].endswith(("/", ".toml"))]


def algorithms(incomplete: str) -> list[tuple[str, str]]:
    """Complete algorithms with the paper's names."""
    from skyfed.algorithms import KNOWN

    return [(name, known.title) for name, known in KNOWN.items() if name.startswith(incomplete)]


def _version(asked: bool) -> None:
    if asked:
        from skyfed import __version__

        print(f"skyfed {__version__}")
        raise typer.Exit


Source = Annotated[
    str, typer.Argument(metavar="[PRESET|FILE]", help="A preset's name or a TOML file.", autocompletion=_sources)
]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting (TOML value); repeatable.")
]
Out = Annotated[Path | None, typer.Option(help="Folder for the results; a new one under runs/ if not given.")]
Plain = Annotated[bool, typer.Option("--plain", help="Plain lines instead of live output.")]
Watched = Annotated[bool, typer.Option("--watch", help="Serve the report on 127.0.0.1 until the run ends.")]
Trust = Annotated[bool, typer.Option("--trust", help="Run the code that a folder's config names, whoever made it.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Version = Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")]
Traceback = Annotated[bool, typer.Option("--traceback", help="Show where an error comes from, for your own code.")]


@app.callback()
def _top(version: Version = False, traceback: Traceback = False) -> None:
    from skyfed.cli import entry

    entry.traceback = traceback
