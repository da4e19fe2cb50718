"""A page whose run goes on: what is new since a reader last asked."""

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from skyfed.report.groups import SeedGroup, find_groups
from skyfed.report.page.content import RECORDS, page_data, page_words
from skyfed.report.page.series import Json
from skyfed.report.page.write import blocks, page_text, refusing_strangers
from skyfed.runs.lock import in_use
from skyfed.runs.tables import stamp

_PAUSE = 1.0  # s between two looks at the disk, however many readers ask
_SETTLED = ("config.toml", "manifest.json", "plan.npz")  # of a run's folder: they change seldom


class LivePage:
    """The page of runs that go on. It only reads what is on the disk, and only when somebody asks."""

    def __init__(self, places: Sequence[Path]) -> None:
        """Look once; raises SkyfedError if the places hold no run, or a damaged one."""
        self._places, self._lock = list(places), threading.Lock()
        self._news, self._seen, self._looked = News(), object(), -_PAUSE
        self._groups: list[SeedGroup] = []
        self._settled: object = None
        self.look()

    def look(self) -> None:
        """Read what has changed on the disk since the last look."""
        with self._lock:
            if time.monotonic() - self._looked < _PAUSE:
                return
            self._find()
            seen = self._settled, [stamp(folder / label) for folder, label in self._rows()], self._running()
            if seen != self._seen:
                with refusing_strangers(self._groups):
                    data = page_data(self._groups)
                    words = page_words(self._groups, data, live=True) | {"running": self._running()}
                    self._news.note(data | {"running": words["running"]} | blocks(words))
                self._seen, self._latest = seen, (data, words)
            self._looked = time.monotonic()

    def page(self) -> str:
        """Return the page as of the last look."""
        with self._lock:
            data, words = self._latest
            return page_text(data | {"version": self._news.version, "running": words["running"]}, words)

    def since(self, version: int) -> Json:
        """Return what a reader who has a version lacks."""
        with self._lock:
            return self._news.since(version)

    def _find(self) -> None:
        """Find the runs again if one has come, or is no longer as it began."""
        settled = [self._mark(path) for place in self._places for path in (place, *place.glob("*"), *place.glob("*/*"))]
        if settled != self._settled:
            self._groups = find_groups(self._places)
            self._settled = settled
        self._groups = [replace(group) for group in self._groups]  # forgets the curves that it has read

    @staticmethod
    def _mark(path: Path) -> list[tuple[str, int]]:
        files = [path / name for name in _SETTLED]
        return [(str(file), file.stat().st_mtime_ns) for file in files if file.is_file()]

    def _rows(self) -> list[tuple[Path, str]]:
        return [
            (folder, label)
            for group in self._groups
            for folder, config in zip(group.folders, group.configs, strict=True)
            for label in config.labels
        ]

    def _running(self) -> bool:
        return any(in_use(folder) for group in self._groups for folder in (group.place, *group.folders))


class News:
    """Pieces of a page, each with the version in which it last changed, so that only what is new is sent."""

    def __init__(self) -> None:
        self.version = 0
        self._pieces: dict[tuple[str, ...], tuple[int, str]] = {}
        self._begun = 0  # a reader with an older version needs all

    def note(self, content: Json) -> None:
        """Take the page's content as it is now."""
        pieces = {key: json.dumps(value, allow_nan=False) for key, value in _pieces(content)}
        self.version += 1
        if self._pieces.keys() - pieces.keys():  # a row that starts over takes its records back
            self._pieces, self._begun = {}, self.version
        for key, text in pieces.items():
            if self._pieces.get(key, (0, ""))[1] != text:
                self._pieces[key] = self.version, text

    def since(self, version: int) -> Json:
        """Return the pieces that a reader with this version lacks; `whole` if they replace all that it has."""
        whole = not self._begun <= version <= self.version
        lists: Json = {name: [] for name in RECORDS} if whole else {}
        for (name, *record), (changed, text) in self._pieces.items():
            if whole or changed > version:
                value = json.loads(text)
                if record:
                    lists.setdefault(name, []).append(value)
                else:
                    lists[name] = value
        return {"version": self.version, "whole": whole, "content": lists}


def _pieces(content: Json) -> list[tuple[tuple[str, ...], object]]:
    """Return the content piece by piece: records one by one, all else by name."""
    pieces: list[tuple[tuple[str, ...], object]] = []
    for name, value in content.items():
        if name in RECORDS:
            pieces += [((name, str(record["run"]), record["algorithm"]), record) for record in value]
        else:
            pieces.append(((name,), value))
    return pieces
