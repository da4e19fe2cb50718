"""A few of the faults of `make endurance`, on real processes; the page shows what the full run recorded."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from endurance.__main__ import PARTS  # noqa: E402
from endurance.page import PAGE, RESULTS, figures  # noqa: E402

# two halves of about the same length, for two processes of pytest
HALVES = (("kills", "disk", "malformed", "audit"), ("signals", "damage", "crew", "races", "solver", "soak", "diverge"))


@pytest.mark.slow
@pytest.mark.parametrize("parts", HALVES, ids=["first half", "second half"])
def test_a_few_of_every_fault(tmp_path, parts):
    out = tmp_path / "rows.json"
    command = [sys.executable, "-m", "endurance", "--small", "--out", str(out), *parts]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "TERM": "dumb"})
    missed = [row for row in json.loads(out.read_text()) if not row["holds"]]
    assert (missed, done.returncode) == ([], 0), done.stderr


def test_every_part_is_tried():
    assert sorted(PARTS) == sorted(part for half in HALVES for part in half)


def test_the_page_shows_what_was_recorded():
    shown = re.search(r"<!-- figures.*?-->\n(.*?)\n<!-- end of figures -->", PAGE.read_text(), re.DOTALL)
    assert shown
    rows = json.loads(RESULTS.read_text())
    assert shown[1] == figures(rows)
    assert list(dict.fromkeys(row["part"] for row in rows)) == list(PARTS)
