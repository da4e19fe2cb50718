"""How tests wait: longer than any machine needs, so that only what hangs is given up."""

import time
from collections.abc import Callable

LONG = 1500.0  # seconds; pytest's own timeout comes after it


def wait_until(holds: Callable[[], bool], seconds: float = LONG, pause: float = 0.02) -> bool:
    """Wait until something holds; tells whether it does."""
    end = time.monotonic() + seconds
    while not (done := holds()) and time.monotonic() < end:
        time.sleep(pause)
    return done
