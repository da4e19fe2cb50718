"""Where settings come from: presets, TOML files and overrides, as trees of plain values that nobody has checked yet."""

import tomllib
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

from skyfed.errors import BadInputError
from skyfed.files import from_home
from skyfed.imports import absolute_path
from skyfed.presets import describe


def read_source(source: str | Path) -> dict[str, Any]:
    """Return the tree of a preset or of a TOML file; paths in a file count from where it is."""
    names, path = describe(), Path(source)
    own = isinstance(source, Path) and path.is_file()  # a path is the user's file, even where a preset has its name
    source = str(source)
    try:
        if source in names and not own:
            text = resources.files("skyfed.presets").joinpath(f"{source}.toml").read_text(encoding="utf-8")
        elif path.is_file():
            text, own = path.read_text(encoding="utf-8"), True
        else:
            raise BadInputError(f"{source!r} is neither a preset nor a file; presets: {', '.join(names)}")
        tree = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInputError(f"{source}: not valid TOML: {error}") from None
    except (RecursionError, ValueError) as error:  # nested too deeply, or thousands of digits
        raise BadInputError(f"{source}: {error}") from None
    except OSError as error:
        raise BadInputError(f"{source}: {error.strerror or error}") from None
    if own:
        resolve_files(tree, path.parent)
    return tree


def resolve_files(tree: dict[str, Any], base: Path) -> None:
    """Make paths of files absolute: beside their config, or where the command is."""

    def table(name: str) -> dict[str, Any]:
        inner = tree.get(name)
        return inner if isinstance(inner, dict) else {}

    def change(values: dict[str, Any], key: str, how: Callable[[str], str]) -> None:
        if isinstance(values.get(key), str):
            values[key] = how(values[key])

    def file(name: str) -> str:
        return name if "\0" in name else str((base / name).resolve())

    def folder(name: str) -> str:
        return file(str(from_home(name))) if name else name

    def own(name: str) -> str:
        return absolute_path(name, base)

    field = table("field")
    change(field, "file", file)
    if isinstance(field.get("file"), list):
        field["file"] = [file(name) if isinstance(name, str) else name for name in field["file"]]
    change(table("track"), "dir", folder)
    kind = "folder:"
    change(table("data"), "name", lambda name: kind + folder(name[len(kind) :]) if name.startswith(kind) else name)
    for owner, key in (("data", "name"), ("model", "name"), ("flight", "method"), ("world", "use")):
        change(table(owner), key, own)
    lists: list[Any] = [tree.get("algorithms"), table("flight").get("constraints")]
    for entries in lists:
        for k, entry in enumerate(entries if isinstance(entries, list) else []):
            if isinstance(entry, str):
                entries[k] = own(entry)
            elif isinstance(entry, dict):
                change(entry, "use", own)


def apply_override(tree: dict[str, Any], override: str) -> None:
    """Set what "a.b=value" says, with a TOML value; raises BadInputError for anything else."""
    key, equals, text = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts) or len(parts) > 8:
        raise BadInputError(f"--set {override!r}: allowed: key=value, as in flight.dmin=5")
    if "\n" in text or "\r" in text:
        raise BadInputError(f"--set {override!r}: allowed: one line")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        if any(mark in text for mark in "[]{}\"'"):
            raise BadInputError(f"--set {override!r}: {text!r} is not a TOML value") from None
        value = text.strip()  # a bare word is a string: flight.method=sca
    except (RecursionError, ValueError) as error:  # nested too deeply, or thousands of digits
        raise BadInputError(f"--set {key}: {error}") from None
    for part in parts[:-1]:
        tree = tree.setdefault(part, {})
        if not isinstance(tree, dict):
            raise BadInputError(f"--set {override!r}: {part!r} is a value, not a table")
    tree[parts[-1]] = value
