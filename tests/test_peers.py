"""The comparison with peers: what runs without them, and what an installed package says instead."""

import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from skyfed.bench import peers
from skyfed.cli import run_arguments
from skyfed.errors import SkyfedError

ROOT = Path(__file__).parents[1]
REAP = ROOT / "reproduce" / "peers" / "reap.py"
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


@pytest.fixture
def no_packages(tmp_path: Path) -> str:
    """A Python without any package."""
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_a_peer_that_is_not_installed_has_a_row_without_a_figure(no_packages: str) -> None:
    rows = peers.against_peers(no_packages, no_packages, print)
    assert [row.name.split(",")[0] for row in rows] == ["same job in Flower", "same job in pfl"]
    assert [(row.value, row.holds) for row in rows] == [(None, None)] * 2


def test_a_comparison_that_fails_fails_the_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "compare.py").write_text("raise SystemExit('flower.py failed')")
    monkeypatch.setattr(peers, "peers_folder", lambda: tmp_path)
    with pytest.raises(SkyfedError, match="failed with exit code 1"):
        peers.against_peers("", "", print)


def test_a_package_outside_its_checkout_leaves_the_peers_out_and_says_so(tmp_path: Path) -> None:
    """Whatever lies beside an installed package: only a checkout has a folder `src`."""
    (tmp_path / "lib" / "reproduce" / "peers").mkdir(parents=True)
    shutil.copytree(ROOT / "src" / "skyfed", tmp_path / "lib" / "site-packages" / "skyfed")
    script = """
        import json
        from skyfed.bench.peers import against_peers, student_round
        said = []
        print(json.dumps([against_peers("", "", said.append), said, student_round()]))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={"PYTHONPATH": str(tmp_path / "lib" / "site-packages")}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    rows, said, student = json.loads(done.stdout)
    assert rows == []
    assert student is None
    assert said == ["no comparison with a PyTorch loop, Flower and pfl: its scripts are in skyfed's repository only"]


def test_pythons_of_peers_are_refused_where_they_are_of_no_use(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_arguments(["bench", "engine", "--flower", "no-such-python"]) == 2
    assert "--flower no-such-python: no such program" in capsys.readouterr().err
    monkeypatch.setattr(peers, "peers_folder", lambda: None)
    assert run_arguments(["bench", "engine", "--pfl", sys.executable]) == 2
    assert "--pfl: the scripts that compare with peers are in skyfed's repository only" in capsys.readouterr().err
