"""Lists what skyfed installs with its licence, from the installed packages' own metadata: docs/licences.md."""

import re
import tomllib
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
_HEAD = """# Licences of what is installed

Written by `make audit` from the metadata of the packages installed there; versions are those of `constraints.txt` where
it names them. skyfed itself is Apache-2.0. Only the first table is needed to run it.
"""


def licence(about: metadata.PackageMetadata) -> str:
    """Return a package's licence as it states it: an SPDX expression, a classifier, or the first line of its text."""
    if "License-Expression" in about:
        return about["License-Expression"]
    classes = [line.split(" :: ")[-1] for line in about.get_all("Classifier") or [] if line.startswith("License ::")]
    named = sorted(set(classes) - {"OSI Approved"})
    first = "".join(about.get_all("License") or []).strip().splitlines()
    return ", ".join(named) or (first[0][:60] if first else "not stated")


def closure(lines: Iterable[str]) -> set[str]:
    """Return the packages of these requirements, with their extras, and all that they need here."""
    found: dict[str, set[str]] = {}  # package: extras that were asked for
    waiting = [Requirement(line) for line in lines]
    while waiting:
        wanted = waiting.pop()
        name = _plain(wanted.name)
        if name == "skyfed" or (name in found and wanted.extras <= found[name]):
            continue
        try:
            needed = [Requirement(line) for line in metadata.requires(name) or []]
        except metadata.PackageNotFoundError:
            continue
        extras = found.setdefault(name, set())
        extras |= wanted.extras
        environments = [{"extra": extra} for extra in ("", *extras)]
        waiting += [each for each in needed if each.marker is None or any(map(each.marker.evaluate, environments))]
    return set(found)


def page() -> str:
    """Return the page."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    base = closure(project["dependencies"])
    optional = project["optional-dependencies"]
    extra = {name: closure(lines) - base for name, lines in optional.items()}
    parts = [_HEAD, "## To run skyfed\n", *_table(base)]
    for name, packages in extra.items():
        parts += [f"\n## With `skyfed[{name}]`, besides\n", *(_table(packages) or ["Nothing of it is installed."])]
    return "\n".join(parts) + "\n"


def _table(names: set[str]) -> list[str]:
    rows = list(_rows(names))
    return ["| package | version | licence |", "|---|---|---|", *rows] if rows else []


def _rows(names: set[str]) -> Iterator[str]:
    for name in sorted(names):
        found = metadata.distribution(name)
        yield f"| {found.metadata['Name']} | {found.version} | {licence(found.metadata).replace('|', '/')} |"


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    print(page(), end="")
