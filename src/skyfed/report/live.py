"""What a person sees while countable work goes on: bars on a terminal, lines in a log or a CI job."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from rich import progress
from rich.console import Console

from skyfed.report.units import megabytes


def in_ci() -> bool:
    """Tell whether a CI system runs this; they all set CI."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false", "no")


def is_live(plain: bool) -> bool:
    """Tell whether lines on standard error may be drawn over: a terminal that can, no CI, not asked to be plain."""
    return not plain and not in_ci() and os.environ.get("TERM") not in ("dumb", "unknown") and sys.stderr.isatty()


def line_every(plain: bool) -> float:
    """Seconds between two plain lines: a person asked for them, or nobody watches."""
    return 5.0 if plain and not in_ci() else 30.0


@contextmanager
def counting(what: str, total: int, unit: str, plain: bool) -> Iterator[Callable[[], None]]:
    """Show how far countable work is and how long it still takes; yields what to call after each piece."""
    if is_live(plain):
        with _bars(progress.MofNCompleteColumn(), progress.TextColumn(unit), progress.TimeElapsedColumn()) as bars:
            task = bars.add_task(what, total=total)
            yield lambda: bars.advance(task)
        return
    begin, count, every = time.monotonic(), 0, line_every(plain)
    last = begin

    def advance() -> None:
        nonlocal count, last
        count += 1
        now = time.monotonic()
        if count == total or now - last > every:
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


def _bars(*columns: progress.ProgressColumn) -> progress.Progress:
    """Return bars with these columns between the bar and the time left."""
    first = progress.TextColumn("{task.description}"), progress.BarColumn(24)
    last = progress.TextColumn("left"), progress.TimeRemainingColumn()
    return progress.Progress(*first, *columns, *last, console=Console(stderr=True))


@contextmanager
def transferring(plain: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Show how far downloads are; yields what to call with (what, bytes done, bytes in all; 0 where not known).

    On a terminal a bar with size, speed and time left; elsewhere a line now and then, and one at the end. What has
    no known size is only named, once.
    """
    if not is_live(plain):
        yield _transfer_lines(line_every(plain))
        return
    with _bars(progress.DownloadColumn(), progress.TransferSpeedColumn()) as bars:
        tasks: dict[str, progress.TaskID] = {}
        named: set[str] = set()

        def show(what: str, done: int, total: int) -> None:
            if total > 0:
                if what not in tasks:
                    tasks[what] = bars.add_task(what, total=total, completed=done)
                bars.update(tasks[what], completed=done, total=max(done, total))
            elif what not in named:
                bars.console.print(f"fetching {what}")
                named.add(what)

        yield show


def _transfer_lines(every: float) -> Callable[[str, int, int], None]:
    begun: dict[str, tuple[float, int]] = {}  # when a download was first heard of, and the bytes there were by then
    last: dict[str, float] = {}

    def show(what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if what not in begun:
            begun[what], last[what] = (now, done), now
            size = f", {megabytes(total):.1f} MB" if total > 0 else ""
            print(f"fetching {what}{size}", file=sys.stderr)
        elif total > 0 and (done == total or now - last[what] > every):
            last[what] = now
            since, before = begun[what]
            speed = max(0, done - before) / max(now - since, 1e-9)
            left = f", {max(0, total - done) / speed:.0f} s left" if speed > 0 else ""
            print(
                f"{what}: {megabytes(done):.1f} of {megabytes(total):.1f} MB, {megabytes(speed):.1f} MB/s{left}",
                file=sys.stderr,
            )

    return show
