"""How long a run still takes, from the pace of each algorithm in this session."""

from collections import deque
from collections.abc import Callable, Mapping

_RECENT = 20  # rounds that tell the present pace; training sets grow, so old rounds were shorter


class Pace:
    """Counts rounds and measures what they take; rounds of an earlier session count as done but say nothing of pace."""

    def __init__(self, kinds: Mapping[str, bool], rounds: int, clock: Callable[[], float]) -> None:
        """Take the algorithms, with whether each is central: that makes another pace."""
        self._clock, self._rounds, self._kinds = clock, rounds, kinds
        self._left = dict.fromkeys(kinds, rounds)
        self._took: dict[str, deque[float]] = {}
        self._last = clock()
        self._now: str | None = None

    def begin(self, algorithm: str, first: int) -> None:
        """Start an algorithm at round `first`; the one before is over, wherever it got to."""
        if self._now is not None:
            self._left[self._now] = 0
        self._now, self._left[algorithm] = algorithm, self._rounds - first
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
            since = self._clock() - self._last if algorithm == self._now else 0.0
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
