"""Commands in this process, or without figures: a tiny one spends most of its time on imports and on drawing.

For tests that are about what a command does, not about processes, signals and what is drawn.
"""

import contextlib
import importlib
import io
import runpy
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from skyfed import api
from skyfed.cli import execution, run_arguments, sweep
from skyfed.report import draw

# a command in a process of its own that draws neither figures nor the page
UNDRAWN = [
    sys.executable,
    "-c",
    "from skyfed.cli import execution, main; execution.draw_run = execution.write_report = lambda *_: None; main()",
]


class Said(NamedTuple):
    """How a command ended and what it said, named as in subprocess."""

    returncode: int
    stdout: str
    stderr: str


def undrawn(patch: pytest.MonkeyPatch) -> None:
    """Let no figure and no page be drawn; what else is said and written stays as it is."""

    def say(places: list[Path], target: Path) -> None:
        print(f"report: {target}")

    for module in (draw, execution, sweep, api):
        for name in ("draw_run", "draw_flights", "draw_training"):
            patch.setattr(module, name, lambda *words: None, raising=False)
        patch.setattr(module, "write_report", say, raising=False)


@contextlib.contextmanager
def standing_in(place: Path) -> Iterator[pytest.MonkeyPatch]:
    """Be in a folder, as a new process that was started there: its modules are found, and forgotten afterwards."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setattr(sys, "path", [*sys.path, str(place)])
        importlib.invalidate_caches()
        try:
            yield patch
        finally:
            for name in set(sys.modules) - before:
                if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(place):
                    del sys.modules[name]


def program(place: Path, path: Path, *words: str, draws: bool = False) -> str:
    """Run a Python file in a folder as its own program, without workers; returns what it said."""
    said = io.StringIO()
    with standing_in(place) as patch, contextlib.redirect_stdout(said):
        if not draws:
            undrawn(patch)
        patch.setattr("skyfed.workers.usable_cores", lambda: 1)
        patch.setattr(sys, "argv", [str(path), *words])
        runpy.run_path(str(path), run_name="__main__")
    return said.getvalue()


def skyfed(place: Path, *words: str, draws: bool = False) -> Said:
    """Run a command in a folder, by default without figures and the page."""
    out, err = io.StringIO(), io.StringIO()
    with standing_in(place) as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        if not draws:
            undrawn(patch)
        patch.setattr(sys, "argv", ["skyfed", *words])
        code = run_arguments(list(words))
    return Said(code, out.getvalue(), err.getvalue())


class Popen:
    """What a sweep starts, in place of subprocess.Popen: the run is over when it has begun."""

    def __init__(self, command: Sequence[str], stdout: Any, **others: Any) -> None:
        assert command[:3] == [sys.executable, "-m", "skyfed"]
        done = skyfed(Path.cwd(), *command[3:])
        stdout.write((done.stdout + done.stderr).encode())
        self.returncode = done.returncode

    def poll(self) -> int:
        """Return the exit code."""
        return self.returncode
