"""A few of the faults of `make endurance`, on real processes; the page shows what the full run recorded."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from endurance.__main__ import PARTS
from endurance.licences import _plain
from endurance.page import PAGE, RESULTS, figures

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_a_few_of_every_fault(tmp_path, part):
    out = tmp_path / "rows.json"
    command = [sys.executable, "-m", "endurance", "--small", "--out", str(out), part]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "TERM": "dumb"})
    missed = [row for row in json.loads(out.read_text()) if not row["holds"]]
    assert (missed, done.returncode) == ([], 0), done.stderr


def test_the_page_shows_what_was_recorded():
    shown = re.search(r"<!-- figures.*?-->\n(.*?)\n<!-- end of figures -->", PAGE.read_text(), re.DOTALL)
    assert shown
    rows = json.loads(RESULTS.read_text())
    assert shown[1] == figures(rows)
    assert list(dict.fromkeys(row["part"] for row in rows)) == list(PARTS)


# what mended the faults, one by one


def test_weights_left_in_memory_by_a_killed_process_are_removed_and_others_are_not(tmp_path, monkeypatch):
    from skyfed.drivers import pool

    monkeypatch.setattr(pool.os.path, "isdir", lambda path: False)
    monkeypatch.setattr(pool.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(pool.tempfile, "tempdir", str(tmp_path))
    with pool.folder_in_memory() as held:
        (tmp_path / "skyfed-killed").mkdir()
        for name in ("lock", "1.f32"):
            (tmp_path / "skyfed-killed" / name).write_bytes(b"weights")
        (tmp_path / "skyfed-new").mkdir()  # another process has just made it and does not hold its lock yet
        with pool.folder_in_memory() as other:
            assert sorted(tmp_path.iterdir()) == sorted([held, other, tmp_path / "skyfed-new"])
    assert list(tmp_path.iterdir()) == [tmp_path / "skyfed-new"]


def test_a_stream_whose_reader_is_gone_takes_no_run_with_it():
    from skyfed.cli.stop import Faint

    with open("/dev/full", "w", buffering=1) as full:
        stream = Faint(full)
        assert print("a line", file=stream, flush=True) is None
        assert stream.write("another\n") == 8
        assert stream.isatty() is False
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())


def test_a_second_signal_stops_at_once_but_a_closed_terminal_sends_two():
    from skyfed.cli.stop import Stop, StoppedError

    stop = Stop()
    with pytest.raises(StoppedError):
        stop(signal.SIGHUP, None)
    stop.later = True
    for _ in range(2):
        stop(signal.SIGHUP, None)
    with pytest.raises(StoppedError):
        stop.check()
    with pytest.raises(StoppedError):
        stop(signal.SIGTERM, None)


def test_the_sources_call_nothing_that_executes_data():
    from endurance.audit import SOURCES, forbidden

    assert [line for path in SOURCES.rglob("*.py") for line in forbidden(path)] == []


@pytest.mark.parametrize(
    "text",
    ["import pickle", "from pickle import loads", "eval(x)", "exec(x)", "torch.load(x)", "np.load(x)", "import socket",
     "np.load(x, allow_pickle=True)", "os.system(x)", "__import__(x)", "from os import system",
     "import multiprocessing", "from torch import load", "import numpy\nnumpy.load(x)"],
)  # fmt: skip
def test_the_check_of_the_sources_sees_what_it_is_there_for(tmp_path, monkeypatch, text):
    from endurance import audit

    monkeypatch.setattr(audit, "SOURCES", tmp_path)
    (tmp_path / "one.py").write_text(text)
    assert len(list(audit.forbidden(tmp_path / "one.py"))) == 1


def test_every_pin_has_its_licence_listed():
    pins = set(re.findall(r"^([A-Za-z0-9._-]+)==", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    listed = re.findall(r"^\| (\S+) \|", (ROOT / "docs" / "licences.md").read_text(), re.MULTILINE)
    assert {_plain(name) for name in pins} <= {_plain(name) for name in listed}
