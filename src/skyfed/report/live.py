"""What a person sees while a run goes on: bars on a terminal, lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from skyfed.algorithms import find_recipe
from skyfed.runs.store import Row

_EVERY = 5.0  # seconds between two plain lines


@contextmanager
def counting(what: str, total: int, unit: str, plain: bool) -> Iterator[Callable[[], None]]:
    """Show how far countable work is and how long it still takes; yields what to call after each piece."""
    if not plain and sys.stderr.isatty():
        with _bars(TextColumn(unit)) as bars:
            task = bars.add_task(what, total=total)
            yield lambda: bars.advance(task)
        return
    begin, count, last = time.monotonic(), 0, 0.0

    def advance() -> None:
        nonlocal count, last
        count += 1
        now = time.monotonic()
        if count == total or now - last > _EVERY:
            last = now
            left = (now - begin) / count * (total - count)
            print(f"{what}: {count} of {total} {unit}, {left:.0f} s left", file=sys.stderr)

    yield advance


@contextmanager
def reading(plain: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Show how far the reading of pictures is; yields what to call as (what, done, total)."""
    with ExitStack() as stack:
        advance: list[Callable[[], None]] = []

        def show(what: str, done: int, total: int) -> None:
            if not advance:
                advance.append(stack.enter_context(counting("reading", total, what, plain)))
            advance[0]()

        yield show


class RunView:
    """Shows a run: a bar an algorithm with accuracy, megabytes and time left, or a line now and then."""

    def __init__(self, algorithms: list[str], rounds: int, plain: bool, stop: Callable[[], None]) -> None:
        """Let `stop` be called after every round; it raises when the run shall end."""
        self._rounds, self._stop = rounds, stop
        self._bars = None if plain or not sys.stderr.isatty() else _bars(TextColumn("{task.fields[figures]}"))
        self._tasks: dict[str, TaskID] = {}
        self._algorithms = algorithms
        self._bytes: dict[str, int] = {}
        self._accuracy: dict[str, float] = {}
        self._seconds: list[float] = []
        self._last = 0.0
        self._left = len(algorithms) * rounds

    def __enter__(self) -> "RunView":
        if self._bars:
            self._bars.start()
            for name in self._algorithms:
                title = f"{find_recipe(name).title:<9}"
                self._tasks[name] = self._bars.add_task(title, total=self._rounds, figures="", start=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars:
            self._bars.stop()

    def say(self, line: str) -> None:
        """Show a line."""
        if self._bars:
            self._bars.console.print(line)
        else:
            print(line, file=sys.stderr)

    def begin(self, algorithm: str, first: int, rows: list[Row]) -> None:
        """Announce an algorithm that starts at round `first`."""
        self._left -= first
        for row in rows:
            self._note(algorithm, row)
        if self._bars:
            self._bars.start_task(self._tasks[algorithm])
            self._bars.update(self._tasks[algorithm], completed=first, figures=self._figures(algorithm))
        elif first:
            print(f"{algorithm}: {first} of {self._rounds} rounds were done before", file=sys.stderr)

    def round(self, algorithm: str, row: Row) -> None:
        """Show a finished round, then ask whether to stop."""
        self._note(algorithm, row)
        self._seconds = [*self._seconds[-49:], row["seconds"]]
        self._left -= 1
        done = row["round"] + 1
        if self._bars:
            self._bars.update(self._tasks[algorithm], completed=done, figures=self._figures(algorithm))
        elif done == self._rounds or time.monotonic() - self._last > _EVERY:
            self._last = time.monotonic()
            left = sum(self._seconds) / len(self._seconds) * self._left
            where = f"{algorithm}: round {done} of {self._rounds}"
            print(f"{where}, {self._figures(algorithm)}, about {left:.0f} s left in all", file=sys.stderr)
        if row["dropped"]:
            self.say(f"{algorithm}: round {row['round']}: {row['dropped']} upload(s) dropped")
        self._stop()

    def _note(self, algorithm: str, row: Row) -> None:
        self._bytes[algorithm] = self._bytes.get(algorithm, 0) + row["wire_bytes"]
        if row["accuracy"] is not None:
            self._accuracy[algorithm] = row["accuracy"]

    def _figures(self, algorithm: str) -> str:
        accuracy = self._accuracy.get(algorithm)
        shown = "accuracy   -  " if accuracy is None else f"accuracy {100 * accuracy:4.1f} %"
        return f"{shown}, {self._bytes.get(algorithm, 0) / 1e6:.1f} MB sent"


def _bars(last: TextColumn) -> Progress:
    return Progress(
        TextColumn("{task.description}"), BarColumn(24), MofNCompleteColumn(), last, TimeElapsedColumn(),
        TextColumn("left"), TimeRemainingColumn(), console=Console(stderr=True),
    )  # fmt: skip


@contextmanager
def transferring(plain: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Show how far downloads are; yields what to call with (what, bytes done, bytes in all; 0 where not known).

    On a terminal a bar with size, speed and time left; elsewhere a line at most every 5 s, and one at the end. What has
    no known size is only named, once.
    """
    if plain or not sys.stderr.isatty():
        yield _transfer_lines()
        return
    columns = TextColumn("{task.description}"), BarColumn(24), DownloadColumn(), TransferSpeedColumn()
    with Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=Console(stderr=True)) as bars:
        tasks: dict[str, TaskID] = {}
        named: set[str] = set()

        def show(what: str, done: int, total: int) -> None:
            if total <= 0:
                if what not in named:
                    bars.console.print(f"fetching {what}")
                named.add(what)
                return
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total, completed=done)
            bars.update(tasks[what], completed=done, total=max(done, total))

        yield show


def _transfer_lines() -> Callable[[str, int, int], None]:
    begun: dict[str, tuple[float, int]] = {}  # when a download was first heard of, and the bytes there were by then
    last: dict[str, float] = {}

    def show(what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if what not in begun:
            begun[what], last[what] = (now, done), now
            size = f", {total / 1e6:.1f} MB" if total > 0 else ""
            print(f"fetching {what}{size}", file=sys.stderr)
        elif total > 0 and (done == total or now - last[what] > _EVERY):
            last[what] = now
            since, before = begun[what]
            speed = max(0, done - before) / max(now - since, 1e-9)
            left = f", {max(0, total - done) / speed:.0f} s left" if speed > 0 else ""
            print(f"{what}: {done / 1e6:.1f} of {total / 1e6:.1f} MB, {speed / 1e6:.1f} MB/s{left}", file=sys.stderr)

    return show
