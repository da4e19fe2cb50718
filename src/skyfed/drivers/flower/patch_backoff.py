"""Shorter pauses while Flower waits for the parts of a message.

A message can be seen a few milliseconds before its parts have arrived. Flower then waits 1 s, then 2 s, and so on up to
10 s. In a short round that was half of the time.
"""

from flwr.supercore.inflatable import inflatable_utils

_DEFAULTS = {
    "initial_backoff": 0.05,  # seconds
    "backoff_cap": 2.0,
    "max_tries_per_object": None,  # the time limit stays
}


def patch_backoff() -> None:
    """Let this process ask again for missing parts after a short while.

    Flower has no setting for it, so defaults of a private function are changed. A Flower without that function, or
    whose function lacks one of these arguments, stays as it is.
    """
    pull = getattr(inflatable_utils, "pull_objects", None)
    defaults = getattr(pull, "__kwdefaults__", None) or {}
    if defaults.keys() >= _DEFAULTS.keys():
        defaults.update(_DEFAULTS)
