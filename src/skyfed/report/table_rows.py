"""The rows of a table of results: runs that differ in the seed only stand together, named by what they differ in."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skyfed.config import Config, changed
from skyfed.errors import BadInputError, one_line
from skyfed.report.groups import SeedGroup, find_groups
from skyfed.report.summary import Summary, summarise
from skyfed.runs.folder import RunFolder
from skyfed.runs.tables import is_done

_FREE = ("seed", "workers", "track", "fleet", "algorithms")  # settings that tell no variants apart
_MOST = 3  # differing settings that make a name; beyond, the folder does


@dataclass
class TableRow:
    """An algorithm of one variant, with its summaries by seed."""

    label: str
    title: str
    central: bool
    config: Config
    folder: str
    name: str = ""
    by_seed: dict[int, Summary] = field(default_factory=dict)


@dataclass(frozen=True)
class TableRows:
    """Rows in the order of the folders, and one line for each training that is left out."""

    rows: list[TableRow]
    left_out: list[str]


def read_rows(places: Sequence[Path]) -> TableRows:
    """Read finished runs at these places; raises BadInputError if they cannot stand side by side."""
    groups = find_groups(places)
    _refuse_others(groups)
    rows: dict[str, TableRow] = {}
    seen: dict[tuple[str, int], Path] = {}
    left_out = []
    for group in groups:
        for config, folder in zip(group.configs, group.folders, strict=True):
            specs = config.model_dump(mode="json")["algorithms"]
            for spec, row in zip(specs, config.rows, strict=True):
                key = json.dumps([_settings(config), spec], sort_keys=True)
                if (other := seen.setdefault((key, config.seed), folder.resolve())) != folder.resolve():
                    raise BadInputError(f"{folder}: the same run as {other}: {row.name}, seed {config.seed}")
                kept = rows.setdefault(key, TableRow(row.name, row.title, row.central, config, group.name))
                if missing := _missing(folder, row.name, config):
                    left_out.append(f"{one_line(row.title)} of {one_line(group.name)}, seed {config.seed}: {missing}")
                elif summary := summarise(folder, row.name):
                    kept.by_seed[config.seed] = summary
    finished = [row for row in rows.values() if row.by_seed]
    if not finished:
        raise BadInputError(f"{places[0]}: nothing is finished here ({left_out[0]}); go on with: skyfed resume")
    _name(finished)
    return TableRows(finished, left_out)


def _refuse_others(groups: list[SeedGroup]) -> None:
    """Refuse runs whose figures do not compare: other data, other numbers of rounds."""
    differing = changed([group.config for group in groups])
    for key, values in differing.items():
        if key == "rounds" or key.partition(".")[0] == "data":
            other = next(k for k, value in enumerate(values) if value != values[0])
            raise BadInputError(
                f"{groups[other].place}: {key} is {values[other]!r}, in {groups[0].place} {values[0]!r}; "
                "allowed in one table: runs of the same data and rounds"
            )


def _settings(config: Config) -> dict[str, Any]:
    return {key: value for key, value in config.model_dump(mode="json").items() if key not in _FREE}


def _missing(folder: Path, label: str, config: Config) -> str:
    """Say what a training lacks; empty if it is finished."""
    if is_done(folder / label):
        return ""
    diverged = RunFolder(folder).manifest().get("diverged")
    if isinstance(diverged, dict) and label in diverged:
        return "diverged"
    summary = summarise(folder, label)
    return f"{summary.rounds if summary else 0} of {config.rounds} rounds"


def _name(rows: list[TableRow]) -> None:
    """Name every row by its algorithm, where there are several, and by the settings that differ."""
    several = len({row.title for row in rows}) > 1
    differing = {
        key: values
        for key, values in changed([row.config for row in rows]).items()
        if key.partition(".")[0] not in _FREE
    }
    for k, row in enumerate(rows):
        settings = {key: values[k] for key, values in differing.items()}
        variant = _variant(settings) if len(settings) <= _MOST else row.folder
        parts = [row.title] if several or not variant else []
        row.name = one_line(", ".join([*parts, *([variant] if variant else [])]))
    names = [row.name for row in rows]
    for row in rows:
        if names.count(row.name) > 1:  # rows of one label with settings of their own
            row.name = one_line(f"{row.name} ({row.folder})")


def _variant(settings: dict[str, Any]) -> str:
    """Return settings as they are written, by the last part of the key where that is enough."""
    ends = [key.rpartition(".")[2] for key in settings]
    names = [end if ends.count(end) == 1 else key for key, end in zip(settings, ends, strict=True)]
    values = [
        "off" if value is None else value if isinstance(value, str) else json.dumps(value)
        for value in settings.values()
    ]
    return " ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))
