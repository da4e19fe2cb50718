"""Jobs in worker processes, one thread each; what jobs share is in files in memory."""

import contextlib
import fcntl
import json
import os
import shutil
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from skyfed.arrays import map_arrays, pack_arrays, view_arrays, write_arrays
from skyfed.config import Config, config_from_tree
from skyfed.files import storage_errors
from skyfed.jobs import Job, Jobs, Reply
from skyfed.onboard import Onboard
from skyfed.tasks import load_task
from skyfed.types import Arrays
from skyfed.workers import Crew

_HEAD = struct.Struct("<4I")  # lengths of the words and of two sets of arrays, and whether the second is there
_KEPT = 2  # files in memory that are kept for the next call


class PoolDriver:
    """Spreads jobs over worker processes; use as a context manager.

    Order and number of workers change nothing: every reply follows from its job, and replies are handed on in order.
    """

    keeps_memory, central = False, True

    def __init__(self, config: Config, workers: int) -> None:
        hello = _pack({"config": config.model_dump(mode="json")})
        self._crew = Crew("skyfed.drivers.pool:handle", workers, hello)
        self._place = Memory()
        self._shared: dict[tuple[tuple[str, int], ...], tuple[Arrays, Path]] = {}
        self._count = 0

    def __enter__(self) -> "PoolDriver":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._crew.__exit__(kind, value, trace)
        self._place.cleanup()

    def call(self, jobs: Jobs) -> Iterator[Reply]:
        """Yield the replies in order."""
        paths = [self._share(job.sent) for job in jobs]
        packed = [
            _pack(
                {"do": job.do, "label": job.label, "round": job.round, "vehicle": job.vehicle, "words": job.words,
                 "sent": str(path)},
                job.data, job.memory,
            )
            for job, path in zip(jobs, paths, strict=True)
        ]  # fmt: skip
        for answer in self._crew.run_in_order(packed):
            head, arrays, memory, rest = _unpack(answer)
            yield Reply(head["words"], rest, _owned(arrays), None if memory is None else _owned(memory))
        self._forget(set(paths))

    def _share(self, arrays: Arrays) -> Path:
        """Write arrays into a file in memory, once for all jobs that have the same ones."""
        key = tuple((name, id(array)) for name, array in arrays.items())
        if key not in self._shared:
            self._count += 1
            path = self._place.path / f"{self._count}.safetensors"
            with storage_errors(path):
                write_arrays(path, arrays)
            self._shared[key] = (arrays, path)
        return self._shared[key][1]

    def _forget(self, used: set[Path]) -> None:
        """Remove files that no job of late has used."""
        old = [key for key, (_, path) in self._shared.items() if path not in used][:-_KEPT]
        for key in old:
            self._shared.pop(key)[1].unlink()


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


def _pack(
    words: dict[str, Any], arrays: Arrays | None = None, memory: Arrays | None = None, data: bytes = b""
) -> bytes:
    text = json.dumps(words).encode()
    first = pack_arrays(arrays) if arrays else b""
    second = pack_arrays(memory) if memory else b""
    return b"".join([_HEAD.pack(len(text), len(first), len(second), memory is not None), text, first, second, data])


def _unpack(message: bytes) -> tuple[dict[str, Any], Arrays, Arrays | None, bytes]:
    words, first, second, there = _HEAD.unpack_from(message)
    view, at = memoryview(message), _HEAD.size
    text, at = bytes(view[at : at + words]), at + words
    arrays = view_arrays(view[at : at + first])[0] if first else {}
    at += first
    memory = (view_arrays(view[at : at + second])[0] if second else {}) if there else None
    return json.loads(text), arrays, memory, bytes(view[at + second :])


def _owned(arrays: Arrays) -> Arrays:
    """Return copies, which do not hold the whole answer in memory."""
    return {name: array.copy() for name, array in arrays.items()}


_here: list[Onboard] = []  # the worker's own, from its hello on
_last: list[tuple[str, Arrays]] = []  # what this worker was sent last: what follows from it can be kept


def handle(message: bytes) -> bytes:
    """Do one job in a worker process."""
    head, data, memory, _ = _unpack(message)
    if "config" in head:
        config = config_from_tree(head["config"])
        _here[:] = [Onboard(config, load_task(config.data))]
        return b""
    job = Job(
        head["do"], _sent(head["sent"]), head["label"], head["round"], head["vehicle"], data, memory or {},
        head["words"],
    )  # fmt: skip
    reply = _here[0].do(job)
    return _pack({"words": reply.words}, reply.arrays, reply.memory, reply.data)


def _sent(path: str) -> Arrays:
    if not _last or _last[0][0] != path:
        _last[:] = [(path, map_arrays(Path(path)))]
    return _last[0][1]
