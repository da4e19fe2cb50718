"""Who is looking: a person at a terminal, a log, or a CI job."""

import os
import sys


def in_ci() -> bool:
    """Tell whether a CI system runs this; they all set CI."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false", "no")


def is_live(plain: bool) -> bool:
    """Tell whether lines on standard error may be drawn over: a terminal that can, no CI, not asked to be plain."""
    return not plain and not in_ci() and os.environ.get("TERM") not in ("dumb", "unknown") and sys.stderr.isatty()


def line_every(plain: bool) -> float:
    """Seconds between two plain lines: a person asked for them, or nobody watches."""
    return 5.0 if plain and not in_ci() else 30.0
