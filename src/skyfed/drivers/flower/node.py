"""The SuperNode process: Flower's own, which ends with its parent. `python -m skyfed.drivers.flower.node PARENT ARGS…`."""

import sys

from flwr.supercore.app_utils import start_parent_process_monitor
from flwr.supernode.cli import flower_supernode


def main() -> None:
    """Serve until told to stop, or until the parent has gone."""
    start_parent_process_monitor(int(sys.argv.pop(1)))
    flower_supernode()


if __name__ == "__main__":
    main()
