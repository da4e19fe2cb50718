"""Which runs a page or a table is about: folders of one run, of several seeds, or of many such."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from skyfed.config import Config
from skyfed.errors import BadInputError
from skyfed.files import storage_errors
from skyfed.report.learning_curves import RowCurves, read_curves
from skyfed.runs.folder import RunFolder
from skyfed.runs.seeds import seed_folders
from skyfed.runs.tables import Table, remembered

_ALLOWED = "allowed: a run's folder, one of seeds, a sweep's"


@dataclass(frozen=True)
class SeedGroup:
    """Runs that differ in the seed only; most often one."""

    name: str
    place: Path
    folders: list[Path]
    configs: list[Config]

    @property
    def config(self) -> Config:
        """The first seed's."""
        return self.configs[0]

    @property
    def manifest(self) -> dict[str, Any]:
        """What the first run's manifest says; empty where there is none."""
        return RunFolder(self.folders[0]).manifest()

    @property
    def classes(self) -> list[str]:
        """Names of the classes, or their numbers where none were recorded."""
        names, count = self.manifest.get("classes"), self.config.field.classes
        return [str(name) for name in (names if isinstance(names, list) and len(names) == count else range(count))]

    @cached_property
    def curves(self) -> list[RowCurves]:
        """The learning curves of every algorithm that has got somewhere."""
        return read_curves(self.folders, self.config.rows)

    def standing(self) -> list[str]:
        """Say what is missing, one line per unfinished run."""
        lines = []
        for folder, config in zip(self.folders, self.configs, strict=True):
            parts = []
            for name in config.labels:
                rounds = _rounds_done(folder, name)
                if rounds < config.rounds:
                    parts.append(f"{name} {rounds} of {config.rounds} rounds" if rounds else f"{name} not begun")
            if parts:
                lines.append(f"{self.name}, seed {config.seed}: {', '.join(parts)}")
        return lines


@remembered
def _rounds_done(folder: Path, label: str) -> int:
    return len(Table(folder / label, "rounds").rows())


def find_groups(places: Sequence[Path]) -> list[SeedGroup]:
    """Return the runs at these places, each once: a run, a folder of seeds, or a folder of runs (a sweep's)."""
    by_place: dict[Path, list[Path]] = {}
    for place in places:
        if not place.is_dir():
            raise BadInputError(f"{place}: no such folder; {_ALLOWED}")
        below = _runs(place)
        with storage_errors(place):
            inner = [] if below else sorted((path for path in place.iterdir() if path.is_dir()), key=_natural)
        groups = [(place, below)] if below else [(path, runs) for path in inner if (runs := _runs(path))]
        if not groups:
            raise BadInputError(f"{place}: no run here (no config.toml); {_ALLOWED}")
        for path, runs in groups:
            by_place.setdefault(path.resolve(), runs)
    if not by_place:
        raise BadInputError(f"no folder given; {_ALLOWED}")
    return [
        SeedGroup(name, place, runs, [RunFolder.config_of(run) for run in runs])
        for name, (place, runs) in zip(_short_names(list(by_place)), by_place.items(), strict=True)
    ]


def _runs(place: Path) -> list[Path]:
    return [place] if (place / "config.toml").is_file() else seed_folders(place)


def _natural(path: Path) -> list[tuple[int, float, str]]:
    """Order names as people do: delta=0.5 before delta=0.25 is wrong, run-9 before run-10 is right."""
    parts = re.findall(r"\d+(?:\.\d+)?|\D+", path.name)
    return [(0, float(part), "") if part[0].isdecimal() else (1, 0.0, part) for part in parts]


def _short_names(places: list[Path]) -> list[str]:
    """Name every place by as many of its last folders as tell it from the others."""
    names = []
    for place in places:
        parts = place.parts[1:] or ("run",)
        others = [other.parts for other in places if other != place]
        first = 2 if re.fullmatch(r"seed-\d+", parts[-1]) else 1  # a seed alone says little
        depth = next((n for n in range(first, len(parts)) if all(o[-n:] != parts[-n:] for o in others)), len(parts))
        names.append("/".join(parts[-depth:]))
    return names
