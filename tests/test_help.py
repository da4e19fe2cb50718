"""Words: every verb's help reads well on 80 columns, comes fast, and shells complete what is known."""

import os
import resource
import subprocess
import sys
import warnings
from collections.abc import Iterator

import pytest

from waiting import LONG

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # typer takes names from click that click has deprecated
    import typer.main

    from skyfed.cli import app, run_arguments

TOP = typer.main.get_command(app)


def verbs(command: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from verbs(inner, (*path, name))


@pytest.mark.parametrize("path", [*verbs(TOP)], ids=" ".join)
def test_help_fits_80_columns_and_nothing_is_cut(path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert run_arguments([*path, "--help"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "..." not in out.replace("[ARGS]...", "").replace("DIR...", "")
    assert "RANGE" not in out


def test_every_argument_and_option_says_what_it_is():
    def parameters(command: object) -> Iterator[object]:
        yield from getattr(command, "params", [])
        for inner in getattr(command, "commands", {}).values():
            yield from parameters(inner)

    assert [one.name for one in parameters(TOP) if not getattr(one, "help", "")] == []


def completed(*words: str, **options: object) -> list[str]:
    """Ask as bash does after the last of the words."""
    environment = {
        **os.environ, "_SKYFED_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(("skyfed", *words)),
        "COMP_CWORD": str(len(words)),
    }  # fmt: skip
    command = [sys.executable, "-m", "skyfed"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=LONG, **options)
    assert done.stderr == ""
    return done.stdout.split()


def test_shells_complete_verbs_presets_files_and_algorithms(tmp_path):
    (tmp_path / "plain.toml").touch()
    (tmp_path / "plans.txt").touch()
    (tmp_path / "places").mkdir()
    assert completed("ru") == ["run", "runs"]
    assert completed("run", "pa") == ["paper", "paper-25", "paper-cifar-stem"]
    assert sorted(completed("plan", "pla", cwd=tmp_path)) == ["places/", "plain.toml"]
    assert completed("evaluate", "x", "--algorithm", "afl") == ["afl", "afl-prune", "afl-quant"]
    assert completed("data", "get", "") == ["cifar10"]
    assert completed("table", "x", "--measure", "late") == ["late_accuracy", "late_accuracy_full"]
    assert completed("table", "x", "--columns", "joules,fly_s") == ["joules,fly_seconds"]


def test_help_comes_fast():
    """CPU seconds of the fastest of three: a busy machine takes longer, not more."""
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "skyfed", "--help"], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(spent) <= 0.4
