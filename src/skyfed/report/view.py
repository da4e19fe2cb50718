"""A run while it goes on: one line per algorithm, redrawn, on a terminal or in a notebook; elsewhere plain lines."""

import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from time import monotonic

from rich.console import Console
from rich.live import Live
from rich.text import Text

from skyfed.algorithms import Row as Algorithm
from skyfed.report.live import is_live, line_every
from skyfed.report.notebook import NotebookOutput, notebook
from skyfed.report.numbers import amount
from skyfed.runs.tables import Row

Clock = Callable[[], float]  # seconds

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII = "_.-=+*%#"  # for terminals that show no blocks
_WIDEST = 40  # cells of a curve
_RECENT = 20  # rounds that tell the present pace; training sets grow, so old rounds were shorter
_NOTEBOOK_WIDTH, _NOTEBOOK_EVERY = 100, 0.5  # characters of a line, and seconds between two pictures
_SPAN = 0.05  # accuracies that differ by less are drawn about level


class RunView:
    """Shows a run: for each algorithm its accuracy as a curve, megabytes and time left; or a line now and then."""

    def __init__(
        self, algorithms: list[Algorithm], rounds: int, plain: bool, stop: Callable[[], None], clock: Clock = monotonic
    ) -> None:
        """Let `stop` be called after every round; it raises when the run shall end."""
        self._rounds, self._stop, self._clock, self._every = rounds, stop, clock, line_every(plain)
        self._titles = {row.name: row.title[:14] for row in algorithms}
        self._pace = Pace({row.name: row.central for row in algorithms}, rounds, clock)
        self._curves: dict[str, list[float | None]] = {name: [] for name in self._titles}
        self._bytes = dict.fromkeys(self._titles, 0)
        self._begun = self._last = clock()
        self._lock = threading.RLock()  # the terminal is drawn from a thread of its own
        self._live = None
        self._output = NotebookOutput() if notebook() and not plain else None
        if self._output is None and is_live(plain):
            console = Console(stderr=True)
            blocks = console.encoding.startswith("utf")
            self._live = Live(console=console, get_renderable=lambda: self.picture(console.width, blocks))

    def __enter__(self) -> "RunView":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()
        self._refresh()

    def _refresh(self) -> None:
        """Draw the lines of a notebook again."""
        if self._output:
            self._last = self._clock()
            self._output.show(self.picture(_NOTEBOOK_WIDTH, blocks=True).plain)

    def say(self, line: str) -> None:
        """Show a line."""
        if self._live:
            self._live.console.print(line, markup=False, highlight=False)
        else:
            print(line, file=sys.stderr)

    def begin(self, algorithm: str, first: int, rows: list[Row]) -> None:
        """Announce an algorithm that starts at round `first`."""
        with self._lock:
            self._pace.begin(algorithm, first)
            for row in rows[:first]:
                self._note(algorithm, row)
        self._refresh()
        if first and not self._live and not self._output:
            print(f"{algorithm}: {first} of {self._rounds} rounds were done before", file=sys.stderr)

    def round(self, algorithm: str, row: Row) -> None:
        """Show a finished round, then ask whether to stop."""
        done, now = row["round"] + 1, self._clock()
        with self._lock:
            self._note(algorithm, row)
            self._pace.round(algorithm, done)
        if self._output and now - self._last >= _NOTEBOOK_EVERY:
            self._refresh()
        elif not self._live and not self._output and (done == self._rounds or now - self._last >= self._every):
            self._last = now
            where, left = f"{algorithm}: round {done} of {self._rounds}", self._pace.left
            rest = "" if left is None else f", about {left:.0f} s left in all"
            print(f"{where}, accuracy {self._accuracy(algorithm)}, {self._sent(algorithm)} sent{rest}", file=sys.stderr)
        if row["dropped"]:
            self.say(f"{algorithm}: round {row['round']}: {row['dropped']} upload(s) dropped")
        self._stop()

    def _note(self, algorithm: str, row: Row) -> None:
        curve, accuracy = self._curves[algorithm], row["accuracy"]
        self._bytes[algorithm] += row["wire_bytes"]
        if accuracy is None and curve:
            accuracy = curve[-1]  # not tested: what was known
        curve.append(accuracy)

    def _accuracy(self, algorithm: str) -> str:
        curve = self._curves[algorithm]
        return f"{100 * curve[-1]:.1f} %" if curve and curve[-1] is not None else "-"

    def _sent(self, algorithm: str) -> str:
        return amount(self._bytes[algorithm], "B")

    def picture(self, width: int, blocks: bool) -> Text:
        """Draw all algorithms, as much of each as a terminal so wide holds; `blocks` if it can show them."""
        with self._lock:
            fields = {name: self._fields(name) for name in self._curves}
            widths = [max(map(len, column)) for column in zip(*fields.values(), strict=True)]
            while len(widths) > 1 and sum(widths) + 2 * len(widths) > width:
                widths.pop()  # the last columns matter least
            room = min(_WIDEST, width - sum(widths) - 2 * len(widths) - 1)
            marks, blank = (BLOCKS, "·") if blocks else (ASCII, " ")
            known = [value for curve in self._curves.values() for value in curve if value is not None]
            low = min(known, default=0.0)  # one scale for all curves
            top = max([0.0, low + _SPAN, *known])
            lines = []
            for name, (title, *others) in fields.items():
                line = Text(f"{title:<{widths[0]}}"[: width - 1], "bold" if name == self._pace.now else "")
                if room >= 4:
                    curve = sparkline(self._curves[name], self._rounds, room, low, top, marks)
                    line.append(f"  {curve}", "cyan").append(blank * (room - len(curve)), "dim")
                for wide, text in zip(widths[1:], others, strict=False):
                    line.append(f"  {text:>{wide}}", "")
                lines.append(line)
            lines.append(Text(self._foot(), "dim"))
        for line in lines:
            line.truncate(max(1, width - 1))
        return Text("\n", no_wrap=True).join(lines)

    def _fields(self, name: str) -> list[str]:
        done, left = len(self._curves[name]), self._pace.left_of(name)
        rest = "" if left is None else "ended" if left == 0 else f"{clock_time(left)} left"
        if done == self._rounds:
            rest = "done"
        return [
            self._titles[name],
            f"{self._accuracy(name):>6}",
            f"{done}/{self._rounds}",
            self._sent(name),
            f"{rest:>9}",
        ]

    def _foot(self) -> str:
        done, total = sum(map(len, self._curves.values())), self._rounds * len(self._curves)
        left = self._pace.left
        rest = "measuring the pace" if left is None else f"about {clock_time(left)} left"
        gone = clock_time(self._clock() - self._begun)
        return f"{rest}, {gone} gone, {done} of {total} rounds; Ctrl-C stops after this one"


class Pace:
    """Counts rounds and measures what they take; rounds of an earlier session count as done but say nothing of pace."""

    def __init__(self, kinds: Mapping[str, bool], rounds: int, clock: Clock) -> None:
        """Take the algorithms, with whether each is central: that makes another pace."""
        self._clock, self._rounds, self._kinds = clock, rounds, kinds
        self._left = dict.fromkeys(kinds, rounds)
        self._took: dict[str, deque[float]] = {}
        self._last = clock()
        self.now: str | None = None  # the algorithm that is trained at present

    def begin(self, algorithm: str, first: int) -> None:
        """Start an algorithm at round `first`; the one before is over, wherever it got to."""
        if self.now is not None:
            self._left[self.now] = 0
        self.now, self._left[algorithm] = algorithm, self._rounds - first
        self._last = self._clock()

    def round(self, algorithm: str, done: int) -> None:
        """Note a finished round."""
        now = self._clock()
        if algorithm in self._took:
            self._took[algorithm].append(now - self._last)
        else:  # the first round also starts workers and reads pictures
            self._took[algorithm] = deque(maxlen=_RECENT)
        self._last, self._left[algorithm] = now, self._rounds - done

    def left_of(self, algorithm: str) -> float | None:
        """Seconds an algorithm still takes, by its own pace or else that of similar ones; None while none is known."""
        left, each = self._left[algorithm], self._each(algorithm)
        if not left:
            return 0.0
        if each is not None:
            since = self._clock() - self._last if algorithm == self.now else 0.0
            return max(left * each - min(since, each), 0.0)
        known = {name: own for name in self._left if (own := self._each(name)) is not None}
        alike = [own for name, own in known.items() if self._kinds[name] == self._kinds[algorithm]] or [*known.values()]
        return left * sum(alike) / len(alike) if alike else None

    def _each(self, algorithm: str) -> float | None:
        """Seconds per round of an algorithm; None before two rounds were seen."""
        took = self._took.get(algorithm)
        return sum(took) / len(took) if took else None

    @property
    def left(self) -> float | None:
        """Seconds the whole run still takes; None while nothing is known."""
        each = [self.left_of(name) for name in self._left]
        known = [seconds for seconds in each if seconds is not None]
        return sum(known) if len(known) == len(each) else None


def clock_time(seconds: float) -> str:
    """Return seconds as minutes and seconds, and hours where there are any."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"


def sparkline(
    values: Sequence[float | None], total: int, width: int, low: float, high: float, marks: str = BLOCKS
) -> str:
    """Draw the values so far, of `total` to come, into a line `width` wide; blank where nothing is known.

    A cell shows the last value in it. The line is as long as the share that is done, so it tells progress too.
    """
    done = min(len(values), total)
    cells = -(-done * width // total)
    last = [min(done, max(-(-(cell + 1) * total // width), 1)) - 1 for cell in range(cells)]
    return "".join(_mark(values[index], low, high, marks) for index in last)


def _mark(value: float | None, low: float, high: float, marks: str) -> str:
    if value is None:
        return " "
    share = (value - low) / (high - low) if high > low else 1.0
    return marks[min(len(marks) - 1, max(0, int(share * len(marks))))]
