"""Vehicles in worker processes, one thread each; they read the global weights from a file in memory."""

import contextlib
import fcntl
import json
import os
import shutil
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from skyfed.config import Config, config_from_tree
from skyfed.cost import Spending
from skyfed.files import storage_errors
from skyfed.flight.fleet import load_fleet_plan
from skyfed.learning.evaluate import Scores
from skyfed.records import Probe, Singles
from skyfed.sensing.datasets import load_data
from skyfed.simulate import State
from skyfed.vehicle import Upload, Vehicles, chunks, joined
from skyfed.workers import Crew

_HEAD = struct.Struct("<I")  # length of the JSON head of a message


class PoolDriver:
    """Spreads vehicles and test pictures over worker processes; use as a context manager.

    Order and number of workers change nothing: every job is a pure function of its message, and uploads are handed
    on in vehicle order.
    """

    def __init__(self, vehicles: Vehicles, config: Config, plan_file: Path, workers: int) -> None:
        self.layout, self.schedule, self.pictures = vehicles.layout, vehicles.schedule, vehicles.pictures
        self.delivered = vehicles.delivered
        hello = _pack({"config": config.model_dump(mode="json"), "plan": str(plan_file.resolve())})
        self._crew = Crew("skyfed.drivers.pool:handle", workers, hello)
        self._place = Memory()
        self._shared: tuple[State, Path] | None = None
        self._count = 0

    def __enter__(self) -> "PoolDriver":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._crew.__exit__(kind, value, trace)
        self._place.cleanup()

    def train(self, algorithm: str, t: int, state: State, vehicles: list[int]) -> Iterator[Upload]:
        """Yield the uploads in order."""
        jobs = [self._job(state, do="train", algorithm=algorithm, vehicle=u, t=t) for u in vehicles]
        for answer in self._crew.run_in_order(jobs):
            head, data = _unpack(answer)
            yield Upload(**{**head, "spent": Spending(**head["spent"])}, data=data)

    def genie(self, t: int, state: State) -> tuple[Singles, Singles, float]:
        """Train centrally for one round, in one worker."""
        (answer,) = self._crew.run_in_order([self._job(state, do="genie", t=t)])
        head, data = _unpack(answer)
        both = np.frombuffer(data, np.float32)
        return both[: self.layout.size].copy(), both[self.layout.size :].copy(), head["loss"]

    def probe(self, t: int, state: State, after: State, vehicles: list[int]) -> Iterator[Probe]:
        """Measure the vehicles' losses in order."""
        before = str(self._write(state))
        jobs = [self._job(after, do="probe", vehicle=u, t=t, before=before) for u in vehicles]
        for answer in self._crew.run_in_order(jobs):
            head, data = _unpack(answer)
            yield Probe(**head, gradient=np.frombuffer(data, np.float32))
        Path(before).unlink()

    def score(self, state: State) -> Scores:
        """Score every test picture."""
        parts = chunks(len(self.pictures.test_labels))
        answers = self._crew.run_in_order([self._job(state, do="score", start=a, stop=b) for a, b in parts])
        return joined([_scores(answer) for answer in answers])

    def _job(self, state: State, **what: Any) -> bytes:
        return _pack({**what, "weights": str(self._share(state))})

    def _share(self, state: State) -> Path:
        if self._shared is None or self._shared[0] is not state:
            if self._shared is not None:
                self._shared[1].unlink()
            self._shared = (state, self._write(state))
        return self._shared[1]

    def _write(self, state: State) -> Path:
        self._count += 1
        path = self._place.path / f"{self._count}.f32"
        with storage_errors(path), path.open("wb") as file:
            state.weights.tofile(file)
            state.buffers.tofile(file)
        return path


class Memory:
    """A folder in memory, held by a lock; the next one removes what killed processes left, where no lock is held."""

    def __init__(self) -> None:
        root = Path("/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir())
        for old in root.glob("skyfed-*/lock"):
            with contextlib.suppress(OSError), old.open() as file:  # another user's, or another process was faster
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(old.parent)
        with storage_errors(root):
            self.path = Path(tempfile.mkdtemp(prefix="skyfed-", dir=root))
            self._lock = os.open(self.path / "new", os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            (self.path / "new").rename(self.path / "lock")  # only now, so that nobody finds it unlocked

    def cleanup(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _pack(head: dict[str, Any], data: bytes = b"") -> bytes:
    text = json.dumps(head).encode()
    return _HEAD.pack(len(text)) + text + data


def _unpack(message: bytes) -> tuple[dict[str, Any], bytes]:
    (length,) = _HEAD.unpack_from(message)
    start = _HEAD.size + length
    return json.loads(message[_HEAD.size : start]), message[start:]


def _scores(answer: bytes) -> Scores:
    head, data = _unpack(answer)
    count = head["count"]
    return Scores(np.frombuffer(data[:count], bool).copy(), np.frombuffer(data[count:], np.float32).copy())


_here: list[Vehicles] = []  # the worker's own vehicles, from its hello on


def handle(message: bytes) -> bytes:
    """Do one job in a worker process."""
    job, _ = _unpack(message)
    if "config" in job:
        config = config_from_tree(job["config"])
        _here[:] = [Vehicles(config, load_data(config.data), load_fleet_plan(Path(job["plan"])))]
        return b""
    (vehicles,) = _here
    return _JOBS[job["do"]](vehicles, job, *_model(job["weights"], vehicles.layout.size))


_last: list[
    tuple[str, Singles, Singles]
] = []  # the global model this worker saw last: what follows from it can be kept


def _model(path: str, size: int) -> tuple[Singles, Singles]:
    if not _last or _last[0][0] != path:
        _last[:] = [(path, *_map(path, size))]
    return _last[0][1:]


def _map(path: str, size: int) -> tuple[Singles, Singles]:
    both = np.memmap(path, np.float32, mode="c")
    return np.asarray(both[:size]), np.asarray(both[size:])


def _train(vehicles: Vehicles, job: dict[str, Any], weights: Singles, buffers: Singles) -> bytes:
    upload = vehicles.train(job["algorithm"], job["vehicle"], job["t"], weights, buffers)
    head = asdict(replace(upload, data=b""))
    del head["data"]
    return _pack(head, upload.data)


def _genie(vehicles: Vehicles, job: dict[str, Any], weights: Singles, buffers: Singles) -> bytes:
    trained, moved, loss = vehicles.genie(job["t"], weights, buffers)
    return _pack({"loss": loss}, trained.tobytes() + moved.tobytes())


def _probe(vehicles: Vehicles, job: dict[str, Any], weights: Singles, buffers: Singles) -> bytes:
    before = _map(job["before"], vehicles.layout.size)
    probe = vehicles.probe(job["vehicle"], job["t"], before, (weights, buffers))
    head = asdict(replace(probe, gradient=np.empty(0, np.float32)))
    del head["gradient"]
    return _pack(head, probe.gradient.tobytes())


def _score(vehicles: Vehicles, job: dict[str, Any], weights: Singles, buffers: Singles) -> bytes:
    scores = vehicles.score(job["start"], job["stop"], weights, buffers)
    return _pack({"count": len(scores.correct)}, scores.correct.tobytes() + scores.loss.tobytes())


_JOBS = {"train": _train, "genie": _genie, "score": _score, "probe": _probe}
