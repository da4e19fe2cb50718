"""The log of one run of a sweep, whose lock says which process works on the run.

The run's own process inherits the log as its output, and with it the lock. So a run whose sweep was killed is free as
soon as the last of its processes has ended, and not before.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from skyfed.files import storage_errors
from skyfed.runs.lock import take

_FAILED = "skyfed sweep: failed: "  # begins the last line of a run that failed


class RunLog:
    """A log that this process holds; nobody else starts the run until it is released."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path, self.file = path, file

    @classmethod
    def claim(cls, path: Path) -> "RunLog | None":
        """Hold the log of a run; None if another process works on that run."""
        with storage_errors(path):
            file = path.open("ab", buffering=0)
            if take(file.fileno()):
                return cls(path, file)
            file.close()
        return None

    def fail(self, code: int) -> str:
        """Note that the run ended with this exit code; returns its last words."""
        words = f"{_last_line(self.path) or 'no output'} (exit {code})"
        with storage_errors(self.path):
            self.file.write(f"{_FAILED}{words}\n".encode())
        return words

    def release(self) -> None:
        """Let others start the run, whatever still has the log open."""
        with suppress(OSError):
            fcntl.flock(self.file, fcntl.LOCK_UN)
        self.file.close()


def failure(path: Path, since: int = 0) -> str:
    """Return the last words of a run if its last attempt failed and began beyond `since` bytes; otherwise nothing."""
    last = _last_line(path)
    return last.removeprefix(_FAILED) if last.startswith(_FAILED) and path.stat().st_size > since else ""


def lengths(logs: Path) -> dict[str, int]:
    """Return how long every log is now, by its name: what is longer later has been worked on since."""
    with storage_errors(logs):
        logs.mkdir(parents=True, exist_ok=True)
        return {entry.name: entry.stat().st_size for entry in os.scandir(logs) if entry.name.endswith(".log")}


def _last_line(path: Path) -> str:
    with suppress(OSError):
        if lines := path.read_text(encoding="utf-8", errors="replace").strip().splitlines():
            return lines[-1]
    return ""
