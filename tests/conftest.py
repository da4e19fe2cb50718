"""What every test starts from."""

import os
import signal
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# the same examples every day: what random ones find belongs into a test of its own; and on every machine, however slow
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("same")

try:
    Path.home()
except RuntimeError:  # no HOME, and a user whom the system does not know: Flower, MLflow and Jupyter need one
    os.environ["HOME"] = tempfile.mkdtemp(prefix="skyfed-tests-")

os.environ.pop("CI", None)  # what is shown depends on it, and tests of that set it themselves

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as for a job in the background; programs under test inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # and below nohup
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """One thread and a known state of torch's generator; both are put back."""
    import torch

    before, state = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)
    torch.set_rng_state(state)


@pytest.fixture(autouse=True, scope="session")
def pictures_once() -> Iterator[None]:
    """The generated pictures, made once in a process of tests: that takes a second, and each run of a test asks."""
    from skyfed import tasks

    class Kept:
        generate = staticmethod(cache(tasks.synthetic.generate))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "synthetic", Kept)
        yield


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A chromium without a window, which asks nobody for anything by itself."""
    from playwright.sync_api import sync_playwright

    from page_cases import CHROMIUM
    from waiting import LONG

    quiet = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync"]  # fmt: skip
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=quiet, timeout=1e3 * LONG)
        yield running
        running.close()
