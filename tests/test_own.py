"""The pages "Write your own …" work as they stand: every file is saved, every command is run, shrunk to seconds."""

import re
import shlex
from pathlib import Path

import pytest

from in_process import skyfed
from test_commands import ROOT, fences, own_files

TINY = ["rounds=2", "vehicles=4", "workers=1", "sensing.initial=60", "sensing.initial_test=20", "eval_every=2",
        "flight.method=greedy", "train.kappa=1"]  # fmt: skip
PAGES = [page for page in ("algorithm.md", "task.md") if (ROOT / "docs" / page).exists()]


def shell_lines(page: Path) -> list[list[str]]:
    """Return the words of every line of the page's blocks of shell lines."""
    text = [block for language, block in fences(page.read_text()) if language == "sh"]
    return [shlex.split(line) for block in text for line in block.splitlines()]


@pytest.mark.parametrize("name", PAGES)
def test_the_page_works_as_it_stands(name: str, tmp_path: Path) -> None:
    page = ROOT / "docs" / name
    own_files(page, tmp_path)
    files = [block for language, block in fences(page.read_text()) if language == "python"]
    assert files
    assert all(re.match(r"# my_\w+\.py\n", block) for block in files), "a block that no test saves"
    for words in shell_lines(page):
        assert words[0] == "skyfed"
        more = [word for setting in TINY for word in ("--set", setting)] if words[1] == "run" else []
        done = skyfed(tmp_path, *words[1:], *more, *(["--plain"] if words[1] == "run" else []))
        assert done.returncode == 0, f"{' '.join(words)}\n{done.stderr}"
    uses = {words[k] for words in shell_lines(page) for k in range(len(words))}
    for block in files:  # every file that is shown is used by some command
        assert any(block[2:].split("\n")[0] in use for use in uses), block[:40]
