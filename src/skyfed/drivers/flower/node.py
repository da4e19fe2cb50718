"""The SuperNode process: Flower's own, which ends with its parent and looks for messages as often as it is told.

`python -m skyfed.drivers.flower.node PARENT POLL ARGS…`
"""

import sys
import time
from typing import Any

from flwr.supercore.app_utils import start_parent_process_monitor
from flwr.supernode import start_client_internal
from flwr.supernode.cli import flower_supernode

from skyfed.drivers.flower.hurry import hurry


class _Clock:
    """Stands in for `time` in Flower's loop, which sleeps 3 s between looks for messages and 0.5 s for replies."""

    def __init__(self, poll: float) -> None:
        self._poll = poll

    def sleep(self, seconds: float) -> None:
        """Sleep, but not longer than asked for."""
        time.sleep(min(seconds, self._poll))

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def main() -> None:
    """Serve until told to stop, or until the parent has gone."""
    parent, poll = int(sys.argv.pop(1)), float(sys.argv.pop(1))
    start_parent_process_monitor(parent)
    start_client_internal.time = _Clock(poll)
    hurry()
    flower_supernode()


if __name__ == "__main__":
    main()
