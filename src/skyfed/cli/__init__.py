"""The command line: verbs only, a file for each family of them."""

from skyfed.cli import train, watch, inspect, export, sweep, table, fleet, data, bench  # noqa: F401, I001  (they add verbs in this order)
from skyfed.cli.app import app
from skyfed.cli.entry import main, run_arguments

__all__ = ["app", "main", "run_arguments"]
