"""What signals do: stop at once, or after the present round; a terminal that is closed takes no run with it."""

import contextlib
import signal
import sys
from collections.abc import Iterator
from typing import Any, TextIO


class StoppedError(BaseException):
    """A signal asked the program to stop; no `except Exception` on the way may take it for a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Stop:
    """What a signal does: stop at once, or after the present round; a second one stops at once.

    Not so a SIGHUP: a terminal that is closed sends it twice, by its shell and by the kernel. `heard` is the one that
    stopped at once, 0 if none.
    """

    def __init__(self) -> None:
        self.later, self.heard, self._asked = False, 0, 0

    def __call__(self, number: int, frame: Any) -> None:
        """Take a signal."""
        if self.later and self._asked and number == signal.SIGHUP:
            return
        if not self.later or self._asked:
            self.heard = number
            raise StoppedError(number)
        self._asked = number
        print("stopping after this round; once more stops at once", file=sys.stderr)

    def check(self) -> None:
        """Stop now if that was asked for."""
        if self._asked:
            raise StoppedError(self._asked)

    @contextlib.contextmanager
    def after_round(self) -> Iterator[None]:
        """Let a signal stop the program after the present round while this lasts."""
        self.later = True
        try:
            yield
        finally:
            self.later = False


stop = Stop()


class Faint:
    """A text stream whose reader may go away: what nobody can read must not end a run, nor change its exit code."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write what can be written."""
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush what can be flushed."""
        with contextlib.suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def signals() -> Iterator[None]:
    """Let signals stop the program while this lasts."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]  # nohup ignores SIGHUP
    before = {number: signal.signal(number, stop) for number in heard}
    stop.heard = stop._asked = 0  # nothing was asked of this command yet
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
