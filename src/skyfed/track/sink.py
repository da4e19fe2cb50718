"""What a tracker receives: the run, its settings as flat values, one point per round, a summary at the end."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from skyfed.files import from_home, read_json_table, write_whole
from skyfed.track.settings import TrackSettings

Value = bool | int | float | str
_NAME = re.compile(r"\w[\w .-]{0,200}")  # what a tracker calls a run; part of paths, so that it leads nowhere else


@dataclass(frozen=True)
class Point:
    """A round's figures; `time` is when it ended, seconds since 1970."""

    step: int
    time: float
    values: dict[str, float]


class Sink(Protocol):
    """A tracker: one run of its own for each algorithm, one after the other."""

    def begin(self, algorithm: str) -> None:
        """Open the algorithm's run, new or again."""

    def log(self, points: list[Point]) -> None:
        """Add rounds: those that were done before, then each as it ends."""

    def end(self, summary: dict[str, float], whole: bool) -> None:
        """Close the algorithm's run; `whole` if it was trained to the end."""


@dataclass(frozen=True)
class Tracked:
    """A run as trackers see it."""

    folder: Path
    settings: TrackSettings
    hparams: dict[str, Value]

    @property
    def name(self) -> str:
        """The folder's name, with those above it where it is only a seed's."""
        parts = self.folder.resolve().parts
        return " ".join(parts[-3:]).strip("/ ") if parts[-1].startswith("seed-") else parts[-1]

    @property
    def place(self) -> Path:
        """Where trackers write."""
        return from_home(self.settings.dir) if self.settings.dir else self.folder


class Ledger:
    """Remembers beside a run which tracker's run is which algorithm's, so that a resumed run goes on in them."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "track.json"
        known = read_json_table(self._path) or {}
        self._known = {key: value for key, value in known.items() if isinstance(value, str) and _NAME.fullmatch(value)}

    def get(self, *key: str) -> str | None:
        """Return what is known."""
        return self._known.get(" ".join(key))

    def put(self, value: str, *key: str) -> None:
        """Remember; it is on the disk when this returns."""
        if self.get(*key) != value:
            self._known[" ".join(key)] = value
            write_whole(self._path, json.dumps(self._known, indent=2).encode())
