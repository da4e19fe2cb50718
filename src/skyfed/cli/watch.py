"""The verb that shows runs in a browser while they go on: watch."""

import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skyfed.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Iterator


@app.command()
def watch(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="DIR...", help="Runs, folders of seeds, or folders of runs such as a sweep's."),
    ],
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="The port on 127.0.0.1; 0: any.")] = 0,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for folders that are not there yet.")] = False,
) -> None:
    """Show a run in the browser while it goes on.

    Serves the report on this machine only and prints its address. Curves, map and batteries follow the run. Several
    seeds are means and bands; all runs of a sweep stand side by side. It goes on after the run has ended, until Ctrl-C.

    \b
    skyfed watch runs/mine --open
    skyfed watch runs/my-sweep --wait
    """
    from skyfed.report.watch import wait_for

    if wait:
        print(f"waiting for {', '.join(map(str, folders))}; Ctrl-C ends it", file=sys.stderr)
        wait_for(folders)
    with announced(folders, True, port, show):
        print("Ctrl-C ends it", file=sys.stderr)
        while True:
            time.sleep(3600)


@contextmanager
def announced(folders: list[Path], asked: bool, port: int = 0, show: bool = False) -> "Iterator[None]":
    """Serve the page of these folders while this lasts, if that was asked for, and say where it is."""
    if not asked:
        yield
        return
    from skyfed.report.watch import serving

    with serving(folders, port) as address:
        print(f"watch: {address}", flush=True)
        if show:
            import webbrowser

            webbrowser.open(address)
        yield
