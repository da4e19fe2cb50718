"""The SuperLink's part of the station's log, in which strangers cannot forge, flood or hide a line."""

import logging
import os
import re
import time
from collections import Counter
from logging.handlers import RotatingFileHandler
from pathlib import Path

_SIZE, _KEPT = 4_000_000, 4  # bytes of a file, and how many old ones are kept
_QUOTED, _LONGEST = 100, 4000  # characters of a stranger's word, and of a line with its traceback
_ALIKE, _ALL = 3, 60  # lines per pause for one reason and address, and for all
_LONG_PAUSE = 600.0  # seconds; pauses grow from one second while lines are left out

log = logging.getLogger("skyfed.guard")


def quoted(text: str) -> str:
    """Return a stranger's word in quotes, in ASCII without control characters, and not longer than a word may be."""
    return ascii(text[:_QUOTED])[: _QUOTED + 2]


def say_refused(what: str, address: str, reason: str) -> None:
    """Log a refusal; those that differ in numbers alone count as alike."""
    log.warning("refused %s from %s: %s", what, address, reason, extra={"like": (address, re.sub(r"\d+", "", reason))})


class Calm(logging.Filter):
    """Leaves lines out where there are too many, and says how many."""

    def __init__(self) -> None:
        super().__init__()
        self._pause, self._since, self._counts, self._shown = 1.0, time.monotonic(), Counter[object](), 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a line is written."""
        like = getattr(record, "like", (record.name, str(record.msg)[:_QUOTED]))
        self._counts[like] += 1
        fits = self._counts[like] <= _ALIKE and self._shown < _ALL
        self._shown += fits
        return fits

    def turn(self) -> None:
        """Begin anew at the end of a pause, with a line on what was left out in it."""
        if time.monotonic() - self._since < self._pause:
            return
        counts, left = self._counts, self._counts.total() - self._shown
        self._pause = min(2 * self._pause, _LONG_PAUSE) if left else 1.0
        self._since, self._counts, self._shown = time.monotonic(), Counter(), 0
        if left:
            most = ": ".join(map(str, counts.most_common(1)[0][0]))  # type: ignore[call-overload]
            log.warning("%d lines were left out, most of them like this: %s", left, most)


class LogFile(RotatingFileHandler):
    """A log that is renamed when it is large; who appends to it by its name goes on in the new one."""

    def __init__(self, path: Path, calm: Calm) -> None:
        super().__init__(path, maxBytes=_SIZE, backupCount=_KEPT, encoding="utf-8")
        self.addFilter(calm)
        self.setFormatter(_Lines("%(asctime)s %(message)s"))

    def doRollover(self) -> None:  # noqa: N802
        """Begin a new file, for what is printed as well."""
        super().doRollover()
        for descriptor in (1, 2):
            os.dup2(self.stream.fileno(), descriptor)  # type: ignore[union-attr]


class _Lines(logging.Formatter):
    """Only the first line of a record begins at the margin, and nothing in it moves the cursor."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record's text."""
        text = super().format(record)
        if len(text) > _LONGEST:  # a traceback's last words say most
            text = f"{text[:_QUOTED]} … {text[_QUOTED - _LONGEST :]}"
        clean = ("".join(c if c.isprintable() else ascii(c)[1:-1] for c in line) for line in text.splitlines())
        return "\n    ".join(clean)
