"""The commands and programs on the pages work."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from in_process import Said, program, skyfed
from skyfed.cli.app import app
from skyfed.config import load_config
from skyfed.presets import describe

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TINY = ["rounds=3", "vehicles=2", "workers=1", "sensing.initial=60", "sensing.initial_test=20", "eval_every=3"]


def fences(text: str) -> list[tuple[str, str]]:
    """Return the language and the text of every block of code."""
    return re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def commands(page: Path) -> list[list[str]]:
    """Return the words of every skyfed command in blocks of shell lines and in tables."""
    text = page.read_text().replace("\\\n", " ")
    shell = [block for language, block in fences(text) if language in ("", "sh")]
    lines = [
        part
        for block in [*shell, *re.findall(r"`(skyfed [^`\n]+)`", text)]
        for line in block.splitlines()
        for part in line.split("&&")
    ]
    words = [shlex.split(line, comments=True) for line in lines if re.match(r"\s*(\.venv/bin/)?skyfed ", line)]
    return [found[1:] for found in words if not any("…" in word for word in found)]


def settings_of(words: list[str]) -> list[str]:
    return [words[k + 1] for k, word in enumerate(words) if word == "--set" and not words[k + 1].startswith("…")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_name_verbs_and_settings_that_exist(page: Path) -> None:
    import typer

    verbs = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for words in commands(page):
        if words[0].startswith("-"):
            continue
        assert words[0] in verbs, words
        if words[0] in ("run", "plan") and len(words) > 1 and words[1] in describe():
            own = [setting for setting in settings_of(words) if ":Mine" not in setting and "AFL_COIN" not in setting]
            load_config(words[1], own)


def blocks(page: Path, language: str) -> list[str]:
    return [block for found, block in fences(page.read_text()) if found == language]


def own_files(page: Path, place: Path) -> None:
    """Write the blocks that begin with a file's name."""
    for block in blocks(page, "python"):
        named = re.match(r"# (my_\w+\.py)\n", block)
        if named:
            (place / named.group(1)).write_text(block)


def ended(done: Said) -> str:
    """Return what a command said that ended well."""
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("page", ["README.md", "docs/recipes.md"])
def test_ones_own_things_work_as_shown(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them in one run: own data, model, algorithm and planner."""
    monkeypatch.setenv("SKYFED_DATA", str(tmp_path / "data"))
    rng = np.random.default_rng(0)
    for label in "abcdef":
        (tmp_path / "my-pictures" / label).mkdir(parents=True)
        for k in range(30):
            picture = Image.fromarray(rng.integers(0, 256, (20, 20, 3), np.uint8))
            picture.save(tmp_path / "my-pictures" / label / f"{k}.png")
    own_files(ROOT / page, tmp_path)
    shown = [setting for words in commands(ROOT / page) for setting in settings_of(words)]
    kinds = ("data.name=folder:", "field.classes=6", "model.name=my_", "flight.method=my_", "flight.vmax=unlimited")
    mine = [setting for setting in shown if setting.startswith(kinds) or "my_algorithm:Mine" in setting]
    assert len(mine) == 6
    words = ["run", "smoke", "--plain", "--out", "run"]
    for setting in [*mine, *TINY]:
        words += ["--set", setting]
    said = ended(skyfed(tmp_path, *words))
    assert "Flights: my_planner:solve" in said
    assert "fallback" not in said
    assert "Mine" in said
    assert (tmp_path / "run" / "Mine" / "model.safetensors").exists()


def test_the_readmes_python_runs(tmp_path: Path) -> None:
    found = [block for block in blocks(ROOT / "README.md", "python") if not block.startswith("# my_")]
    assert found
    for block in found:
        (tmp_path / "block.py").write_text(block)
        assert "accuracy" in program(tmp_path, tmp_path / "block.py", draws=True)
    assert (tmp_path / "runs" / "python" / "figures" / "fig3-accuracy.png").exists()


def test_the_recipes_python_reads_a_runs_tables(tmp_path: Path) -> None:
    pytest.importorskip("polars")
    words = ["run", "smoke", "--plain", "--out", "runs/mine", "--set", 'algorithms=["2ceoafl"]']
    for setting in TINY:
        words += ["--set", setting]
    ended(skyfed(tmp_path, *words))
    found = [block for block in blocks(ROOT / "docs/recipes.md", "python") if "parquet" in block]
    assert len(found) == 2
    for block in found:
        (tmp_path / "block.py").write_text(block)
        assert program(tmp_path, tmp_path / "block.py")


def test_the_recipes_field_is_planned(tmp_path: Path) -> None:
    (config,) = [block for block in blocks(ROOT / "docs/recipes.md", "toml") if "my-survey.toml" in block]
    (tmp_path / "my-survey.toml").write_text(config)
    (tmp_path / "clusters.csv").write_text("class,x,y,deviation\n0,-200,0,40\n1,200,0,50\n2,0,250,45\n")
    shares = [f"{t},{c},{1 + (t + c) % 3}\n" for t in range(60) for c in range(3)]
    (tmp_path / "psi.csv").write_text("round,class,psi\n" + "".join(shares))
    ended(skyfed(tmp_path, "plan", "my-survey.toml", "--plain", "--out", "survey", draws=True))
    assert list((tmp_path / "survey" / "waypoints").iterdir())
