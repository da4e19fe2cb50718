"""What every test starts from."""

import signal

from hypothesis import settings

# the same examples every day: what random ones find belongs into a test of its own
settings.register_profile("same", derandomize=True)
settings.load_profile("same")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as for a job in the background; programs under test inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
