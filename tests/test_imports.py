"""Import paths: dotted and files, with spaces too; whatever a module does when it is imported, one line comes of it."""

import sys
from pathlib import Path

import pytest

from skyfed.errors import BadInputError
from skyfed.imports import absolute_path, check_path, import_path


def write(place: Path, name: str, text: str) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    path = place / name
    path.write_text(text)
    return path


def refusal(name: str) -> str:
    with pytest.raises(BadInputError) as caught:
        import_path(name, "a.setting")
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"a.setting = {name!r}: ")
    return message


# what a path may be


@pytest.mark.parametrize(
    "name",
    ["package:name", "package.module:Name", "a.b.c:d_1", "_a:_b", "file.py:Name", "/some/where/file.py:Name",
     "../up/file.py:Name", "a place/with spaces/my file.py:Name", "~/file.py:f", "C:/file.py:f", "ü.py:f"],
)  # fmt: skip
def test_paths_that_may_be(name):
    assert check_path(name) == name


@pytest.mark.parametrize(
    "name",
    ["", ":", "a", "a.b", "a:", ":a", "a:b.c", "a b:c", "a..b:c", ".a:b", "a.:b", "1a:b", "a:1b", "a/b:c", "file.py",
     "file.py:a b", "file.py:", "fi\0le.py:a", "a:b\n", "a\n:b", "a:b()"],
)  # fmt: skip
def test_paths_that_cannot_be_are_refused(name):
    with pytest.raises(ValueError, match=r"allowed: package\.module:name or file\.py:name"):
        check_path(name)
    refusal(name)


def test_checking_imports_nothing(tmp_path):
    path = write(tmp_path, "bad.py", "raise SystemExit('imported')")
    before = set(sys.modules)
    check_path(f"{path}:f")
    check_path("this_module_is_not_there:f")
    check_path("antigravity:f")
    assert set(sys.modules) == before


# importing


def test_a_dotted_path():
    assert import_path("skyfed.imports:import_path", "x") is import_path


def test_a_file_with_spaces_in_its_path_and_in_its_name(tmp_path):
    path = write(tmp_path / "a place", "my file.py", "class Thing:\n    def __init__(self): self.name = __name__\n")
    found = import_path(f"{path}:Thing", "x")
    assert found().name == found.__module__
    assert sys.modules[found.__module__].Thing is found  # as pickle and dataclasses need it


def test_a_file_is_imported_once(tmp_path):
    path = write(
        tmp_path, "counted.py", "import sys\nsys.counted = getattr(sys, 'counted', 0) + 1\na, b = object(), 2\n"
    )
    try:
        assert import_path(f"{path}:a", "x") is import_path(f"{path}:a", "x")
        assert import_path(f"{path.parent / '.' / path.name}:b", "x") == 2
        assert sys.counted == 1
    finally:
        del sys.counted


def test_two_files_of_one_name_are_two_modules(tmp_path):
    one, other = (write(tmp_path / name, "same.py", f"value = {name!r}") for name in ("a", "b"))
    assert (import_path(f"{one}:value", "x"), import_path(f"{other}:value", "x")) == ("a", "b")


def test_a_file_may_define_dataclasses_and_import_what_is_installed(tmp_path):
    text = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass P:\n    x: int = 3\n"
    )
    assert import_path(f"{write(tmp_path, 'p.py', text)}:P", "x")().x == 3


def test_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path, "mine.py", "value = 4")
    assert import_path("~/mine.py:value", "x") == 4


# going wrong


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("raise RuntimeError('two\\nlines')", "RuntimeError: two lines"),
        ("import sys\nsys.exit(3)", "SystemExit"),
        ("raise SystemExit", "SystemExit"),
        ("quit()", ""),
        ("def f(:\n", "SyntaxError"),
        ("import no_such_module_at_all", "No module named"),
        ("1 / 0", "ZeroDivisionError"),
        ("from . import other", "ImportError"),
        ("a" * 5, "NameError"),
        ("def f(): f()\nf()", "RecursionError"),
    ],
)
def test_a_module_that_goes_wrong_gives_one_line(tmp_path, text, expected):
    path = write(tmp_path, "wrong.py", text)
    before = set(sys.modules)
    assert expected in refusal(f"{path}:value")
    assert not [name for name in set(sys.modules) - before if "wrong" in name]


def test_after_it_is_mended_it_can_be_imported(tmp_path):
    path = write(tmp_path, "mended.py", "raise ValueError('not yet')")
    refusal(f"{path}:value")
    write(tmp_path, "mended.py", "value = 'this one is fine'")
    assert import_path(f"{path}:value", "x") == "this one is fine"


def test_what_is_not_there(tmp_path):
    assert "no such file" in refusal(f"{tmp_path}/nowhere.py:value")
    (tmp_path / "folder.py").mkdir()
    assert "no such file" in refusal(f"{tmp_path}/folder.py:value")
    assert "no 'value' there; it defines nothing" in refusal(f"{write(tmp_path, 'empty.py', '')}:value")
    assert "No module named" in refusal("skyfed.nowhere:value")
    write(tmp_path, "bytes.py", "").write_bytes(b"\0\xff")
    refusal(f"{tmp_path}/bytes.py:value")


def test_an_interrupt_is_no_error_of_the_module(tmp_path):
    path = write(tmp_path, "stopped.py", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        import_path(f"{path}:value", "x")


# absolute paths


def test_files_become_absolute_and_the_rest_stays(tmp_path):
    assert absolute_path("a b/file.py:Name", tmp_path) == f"{tmp_path.resolve()}/a b/file.py:Name"
    assert absolute_path("/else/where.py:Name", tmp_path) == "/else/where.py:Name"
    for name in ("package.module:Name", "afl", "nonsense", "", "file.py", "x\0.py:a"):
        assert absolute_path(name, tmp_path) == name
