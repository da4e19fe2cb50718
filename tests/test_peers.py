"""The benchmark's peers: what runs without them."""

import subprocess
import sys
from pathlib import Path

import pytest

import skyfed.bench.peers

REAP = Path(skyfed.bench.peers.__file__).parent / "reap.py"
BURN = "import time\nwhile time.process_time() < 0.5: pass"


@pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")
@pytest.mark.parametrize(
    "program",
    [
        BURN,
        f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {BURN!r}])",  # does not wait for it
        f"import os, subprocess, sys\nif not os.fork(): subprocess.Popen([sys.executable, '-c', {BURN!r}])",
    ],
    ids=["itself", "a child", "an orphan"],
)
def test_the_seconds_of_all_that_a_command_starts_are_counted(program: str) -> None:
    done = subprocess.run([sys.executable, str(REAP), sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert 0.5 <= float(done.stdout) < 2.5


def test_a_command_that_fails_says_so() -> None:
    done = subprocess.run(
        [sys.executable, str(REAP), sys.executable, "-c", "raise SystemExit(3)"], capture_output=True, text=True
    )
    assert done.returncode == 3
