"""Shorter pauses while Flower waits for the parts of a message.

A message can be seen before its parts have been sent, a matter of milliseconds; Flower then waits for 1 s, then 2 s,
and so on up to 10 s. Half of a short round went by so.
"""

from flwr.supercore.inflatable.inflatable_utils import pull_objects

_FIRST, _LONGEST = 0.05, 2.0  # seconds


def hurry() -> None:
    """Let this process ask again for missing parts after a short while."""
    defaults = pull_objects.__kwdefaults__
    defaults["initial_backoff"], defaults["backoff_cap"] = _FIRST, _LONGEST
    defaults["max_tries_per_object"] = None  # the time limit stays
