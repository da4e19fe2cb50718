"""What can go wrong, by who has to act; the command line turns each into one line and an exit code."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_PACKAGE = str(Path(__file__).parent)


class SkyfedError(Exception):
    """The work failed; `trace` is the way there through the user's own code, which a worker process sends along."""

    exit_code = 1
    trace = ""


class BadInputError(SkyfedError):
    """A config, a file or an argument is not usable; the message says what, where, and what is allowed."""

    exit_code = 2


class OwnCodeError(SkyfedError):
    """Code of the user's own failed; the message says which and where, `--traceback` shows how it came about."""


class DivergedError(SkyfedError):
    """Training went to infinity; other algorithms may still do well."""


class StorageError(SkyfedError):
    """A folder or file could not be read, written or locked."""

    exit_code = 3


class InfeasibleError(SkyfedError):
    """No flight plan meets the constraints, or none was found and no fallback verifies."""


def one_line(text: str, most: int = 200) -> str:
    """Return what somebody else wrote as one short line without control characters; of a very long text the start."""
    letters = (letter if letter.isprintable() else " " for letter in text[: 20 * most])
    return " ".join("".join(letters).split())[:most].rstrip()


def printable(value: Any) -> Any:
    """Return a value that somebody else wrote, of tables, lists and texts, with blanks for control characters."""
    if isinstance(value, str):
        return "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in value)
    if isinstance(value, dict):
        return {printable(key): printable(inner) for key, inner in value.items()}
    return [printable(inner) for inner in value] if isinstance(value, list) else value


@contextmanager
def own_code(what: str, failure: type[SkyfedError] = OwnCodeError, hint: str = "") -> Iterator[None]:
    """Turn whatever a user's own code raises into one line that says what failed."""
    try:
        yield
    except SkyfedError:
        raise
    except (Exception, SystemExit) as error:
        reason = " ".join(str(error).split())
        failed = failure(f"{what}: {type(error).__name__}: {reason}{hint}")
        failed.trace = trace_of(error)
        raise failed from error


def trace_of(error: BaseException) -> str:
    """Return the traceback from the first line that is not skyfed's, without the last one: the message has it."""
    frame = error.__traceback__
    while frame is not None and _of_skyfed(frame.tb_frame.f_code.co_filename):
        frame = frame.tb_next
    return "".join(traceback.format_exception(type(error), error, frame)[:-1])


def _of_skyfed(file: str) -> bool:
    """Tell whether a file is skyfed's own, or part of what imports modules and runs `with` blocks."""
    return file.startswith((_PACKAGE, "<frozen")) or file.endswith(("contextlib.py", "importlib/__init__.py"))
