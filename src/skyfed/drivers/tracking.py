"""Passes a run on to its trackers, and to whoever watches; a tracker that fails is dropped with one line."""

import json
import os
import pkgutil
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from skyfed.config import Config, leaves
from skyfed.drivers.execute import Watcher
from skyfed.runs.folder import RunFolder
from skyfed.runs.tables import Row
from skyfed.track.settings import Tracker
from skyfed.track.sink import Ledger, Point, Sink, Tracked, Value

_SCALARS = (
    "accuracy", "accuracy_full", "loss", "train_loss", "forgetting", "eta", "eta_local", "seconds", "wire_bytes",
    "downlink_bytes", "uploads", "dropped", "train_size", "test_size",
)  # fmt: skip
_FIGURES = ("accuracy", "accuracy_full", "loss", "forgetting", "megabytes_sent")  # of the last test, at the end
_ENVIRONMENT = {
    "WANDB_ERROR_REPORTING": "false",  # no network that nobody asked for
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ALLOW_FILE_STORE": "true",  # files need no data base; MLflow asks to say so
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # a server that is away must not hold up a run for minutes
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}


_SINKS = {"tensorboard": "TensorBoard", "mlflow": "Mlflow", "wandb": "WeightsAndBiases"}  # in skyfed.track


def hparams(tree: dict[str, Any]) -> dict[str, Value]:
    """Return settings as "table.key": value; lists as JSON."""
    plain = bool | int | float | str
    return {key: value if isinstance(value, plain) else json.dumps(value) for key, value in leaves(tree)}


class Tracking(AbstractContextManager["Tracking"]):
    """A watcher that hands every round to the trackers first."""

    def __init__(self, folder: RunFolder, config: Config, watcher: Watcher) -> None:
        tree = config.model_dump(mode="json", exclude_none=True, exclude={"track", "workers"})
        self._watcher, self._rounds = watcher, config.rounds
        self._ledger = Ledger(folder.path)
        self._sinks: dict[Tracker, Sink] = {}
        self._algorithm, self._sent, self._done = "", 0, 0
        self._open: list[Tracker] = []
        self._summary: dict[str, float] = {}
        run = Tracked(folder.path, config.track, hparams(tree))
        for name in config.track.to:
            with self._dropping(name):
                self._sinks[name] = open_sink(name, run, self._ledger)

    def __exit__(self, *_: object) -> None:
        self._end()

    def say(self, line: str) -> None:
        """Show a line."""
        self._watcher.say(line)

    def begin(self, algorithm: str, first: int, rows: list[Row]) -> None:
        """Open an algorithm in every tracker that does not have it whole."""
        self._end()
        self._algorithm, self._sent, self._summary, self._done = algorithm, 0, {}, first
        points = self._points(rows[:first])
        for name, sink in list(self._sinks.items()):
            if first != self._rounds or not self._ledger.get(name, algorithm, "whole"):
                self._open.append(name)
                with self._dropping(name):
                    sink.begin(algorithm)
                    sink.log(points)
        self._watcher.begin(algorithm, first, rows)

    def round(self, algorithm: str, row: Row) -> None:
        """Hand on a finished round; the watcher comes last, since it may stop the run."""
        points = self._points([row])
        self._done = row["round"] + 1
        for name in list(self._open):
            with self._dropping(name):
                self._sinks[name].log(points)
        self._watcher.round(algorithm, row)

    def _points(self, rows: list[Row]) -> list[Point]:
        """Turn rows into points; the last ends now, each earlier one ends before it by what the later ones took."""
        later, now, points = sum(row["seconds"] for row in rows), time.time(), []
        for row in rows:
            later -= row["seconds"]
            self._sent += row["wire_bytes"]
            values = {name: float(row[name]) for name in _SCALARS if row.get(name) is not None}
            points.append(Point(row["round"], now - later, {**values, "megabytes_sent": self._sent / 1e6}))
            self._summary |= {name: value for name, value in points[-1].values.items() if name in _FIGURES}
        return points

    def _end(self) -> None:
        whole = self._done == self._rounds
        for name in list(self._open):
            with self._dropping(name):
                self._sinks[name].end(self._summary, whole)
                if whole:
                    self._ledger.put("yes", name, self._algorithm, "whole")
        self._open.clear()

    @contextmanager
    def _dropping(self, name: Tracker) -> Iterator[None]:
        """Drop a tracker that fails, with one line; the run matters more."""
        try:
            yield
        except Exception as error:
            self._sinks.pop(name, None)
            self._open = [other for other in self._open if other != name]
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            self._watcher.say(f"{name} failed ({reason}); the run goes on without it")


def open_sink(name: Tracker, run: Tracked, ledger: Ledger) -> Sink:
    """Return a tracker; only this one is imported."""
    for key, value in _ENVIRONMENT.items():
        os.environ.setdefault(key, value)
    sink: Sink = pkgutil.resolve_name(f"skyfed.track.{name}:{_SINKS[name]}")(run, ledger)
    return sink
