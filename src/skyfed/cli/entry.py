"""From arguments to an exit code; errors become one line on standard error."""

import os
import sys

import click

from skyfed.cli.app import app
from skyfed.cli.stop import Faint, StoppedError, signals, stop
from skyfed.errors import SkyfedError, StorageError
from skyfed.workers import PARENT, end_with

traceback = False  # whether errors show where they come from (--traceback)


def main() -> None:
    """Run the command line; errors become one line on standard error and an exit code."""
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - closed before the start
    sys.stderr = Faint(sys.stderr or sys.stdout)
    parent = os.environ.pop(PARENT, "")
    if parent.isdecimal():
        end_with(int(parent))
    sys.exit(run_arguments(sys.argv[1:]))


def run_arguments(arguments: list[str]) -> int:
    """Run with these arguments; returns the exit code."""
    try:
        with signals():
            app(args=arguments, prog_name="skyfed", standalone_mode=False)
            sys.stdout.flush()
    except SkyfedError as error:
        if traceback:
            print(error.trace, end="", file=sys.stderr)
        hint = " (skyfed --traceback shows where)" if error.trace and not traceback else ""
        print(f"skyfed: {_one_line(str(error))}{hint}", file=sys.stderr)
        return error.exit_code
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 2
    except click.ClickException as error:
        verb = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "skyfed"
        # typer writes its suggestion into the message, and click would add the same once more
        message = error.message if "Did you mean" in error.message else error.format_message()
        print(f"skyfed: {message.splitlines()[0]} (see {verb} --help)", file=sys.stderr)
        return 2
    except StoppedError as stopped:
        try:
            sys.stdout.flush()
        except OSError:
            _close_output()  # a terminal that was closed
        return 128 + stopped.number
    except BrokenPipeError:
        _close_output()
        return 1
    except OSError as error:
        _close_output()
        print(f"skyfed: {_one_line(str(error))}", file=sys.stderr)
        return StorageError.exit_code
    except Exception:
        if stop.heard:  # a library took the signal for a failure of its own
            return 128 + stop.heard
        raise
    return 0


def _one_line(text: str) -> str:
    """Show what no line of a terminal should hold, such as an escape or a line's end in a file's name, as its code."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def _close_output() -> None:
    """Let standard output lead nowhere: its reader has gone, and Python would fail to flush it at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
