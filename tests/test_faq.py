"""Every message that the page of questions shows is what the command says."""

import importlib.util
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from skyfed.cli.entry import run_arguments
from skyfed.config import load_config
from skyfed.runs.folder import RunFolder
from skyfed.runs.lock import locked

PAGE = Path(__file__).parents[1] / "docs" / "faq.md"
CASES = re.findall(r"```console\n\$ skyfed (.*)\n(skyfed: .*)\n```", PAGE.read_text())


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what goes wrong in it; no CIFAR-10, no W&B."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SKYFED_DATA", str(tmp_path / "data"))
    real = importlib.util.find_spec

    def find(name: str, package: str | None = None) -> Any:
        return None if name == "wandb" else real(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find)
    for folder in ("documents", "damaged", "pictures/cat", "pictures/dog"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "documents" / "letter.txt").touch()
    (tmp_path / "damaged" / "cifar10.safetensors").write_bytes(b"cut")
    with RunFolder.claim(tmp_path / "runs" / "mine", load_config("smoke"), []):
        pass
    (tmp_path / "runs" / "busy").mkdir()
    return tmp_path


def test_there_are_messages() -> None:
    assert len(CASES) > 20


@pytest.mark.parametrize(("command", "message"), CASES, ids=[command for command, _ in CASES])
def test_the_message_is_what_the_command_says(
    place: Path, command: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with locked(place / "runs" / "busy"):
        code = run_arguments(shlex.split(command))
    said = capfd.readouterr().err.splitlines()[-1]
    assert said.replace(str(place), "…") == message
    assert code == (3 if "in use" in message else 1 if "diverged" in message else 2)
