"""Everything in this process, one job after the other."""

from collections.abc import Iterator

from skyfed.jobs import Jobs, Reply
from skyfed.onboard import Onboard


class InlineDriver:
    """Does every job here."""

    keeps_memory, central = False, True

    def __init__(self, onboard: Onboard) -> None:
        self._onboard = onboard

    def call(self, jobs: Jobs) -> Iterator[Reply]:
        """Yield the replies in order."""
        return map(self._onboard.do, jobs)
