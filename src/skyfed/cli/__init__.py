"""The command line: verbs only, a file for each family of them."""

from skyfed.cli import bench, data, fleet, inspect, sweep, train  # noqa: F401  (they add their verbs)
from skyfed.cli.app import app
from skyfed.cli.entry import main, run_arguments

__all__ = ["app", "main", "run_arguments"]
