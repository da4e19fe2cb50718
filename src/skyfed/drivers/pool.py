"""Jobs in worker processes, one thread each; what jobs share is in files in memory."""

import fcntl
import json
import os
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import lru_cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from skyfed.arrays import map_arrays, pack_arrays, view_arrays, write_arrays
from skyfed.config import config_from_tree
from skyfed.errors import BadInputError
from skyfed.files import storage_errors
from skyfed.jobs import Driver, Job, Jobs, Reply
from skyfed.onboard import Onboard
from skyfed.types import Arrays
from skyfed.workers import Crew

Open = Callable[[Onboard], AbstractContextManager[Driver]]

_HEAD = struct.Struct("<4I")  # lengths of the words and of two sets of arrays, and whether the second is there
_FIELDS = ("do", "label", "round", "vehicle", "words")  # of a job, besides its arrays
_KEPT = 2  # files in memory that are kept for the next call


class PoolDriver(ExitStack):
    """Spreads jobs over worker processes; use as a context manager.

    Order and number of workers change nothing: every reply follows from its job, and replies are handed on in order.
    """

    def __init__(self, onboard: Onboard, workers: int) -> None:
        super().__init__()
        config = onboard.config
        digest = onboard.task.content_hash() if config.data.own else ""  # skyfed's own data is the same everywhere
        hello = _pack({"config": config.model_dump(mode="json"), "data": digest}, {})
        self._place = self.enter_context(folder_in_memory())
        self._crew = self.enter_context(Crew("skyfed.drivers.pool:handle", workers, hello))
        self._shared: dict[tuple[tuple[str, int], ...], tuple[Arrays, Path]] = {}
        self._count = 0

    def call(self, jobs: Jobs) -> Iterator[Reply]:
        """Yield the replies in order."""
        paths = [self._share(job.sent) for job in jobs]
        packed = [
            _pack({name: getattr(job, name) for name in _FIELDS} | {"sent": str(path)}, job.data, job.memory)
            for job, path in zip(jobs, paths, strict=True)
        ]
        for answer in self._crew.run_in_order(packed):
            words, arrays, memory, data = _unpack(answer)
            yield Reply(words, data, _owned(arrays), None if memory is None else _owned(memory))
        self._forget(set(paths))

    def _share(self, arrays: Arrays) -> Path:
        """Write arrays into a file in memory, once for all jobs that have the same ones."""
        key = tuple((name, id(array)) for name, array in arrays.items())
        if key not in self._shared:
            self._count += 1
            path = self._place / f"{self._count}.safetensors"
            with storage_errors(path):
                write_arrays(path, arrays)
            self._shared[key] = (arrays, path)
        return self._shared[key][1]

    def _forget(self, used: set[Path]) -> None:
        """Remove files that no job of late has used."""
        old = [key for key, (_, path) in self._shared.items() if path not in used][:-_KEPT]
        for key in old:
            self._shared.pop(key)[1].unlink()


@contextmanager
def folder_in_memory() -> Iterator[Path]:
    """Give a folder in memory, held by a lock; the next one removes what killed processes left, where none is held."""
    root = Path("/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir())
    for old in root.glob("skyfed-*/lock"):
        with suppress(OSError), old.open() as file:  # another user's, or another process was faster
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(old.parent)
    with storage_errors(root):
        path = Path(tempfile.mkdtemp(prefix="skyfed-", dir=root))
        lock = os.open(path / "new", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        (path / "new").rename(path / "lock")  # only now, so that nobody finds it unlocked
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _pack(words: dict[str, Any], arrays: Arrays, memory: Arrays | None = None, data: bytes = b"") -> bytes:
    parts = [json.dumps(words).encode(), pack_arrays(arrays), pack_arrays(memory or {})]
    return b"".join([_HEAD.pack(*map(len, parts), memory is not None), *parts, data])


def _unpack(message: bytes) -> tuple[dict[str, Any], Arrays, Arrays | None, bytes]:
    view, (*lengths, remembers) = memoryview(message), _HEAD.unpack_from(message)
    edges = list(accumulate(lengths, initial=_HEAD.size))
    words, arrays, memory = (view[start:stop] for start, stop in pairwise(edges))
    kept = view_arrays(memory)[0] if remembers else None
    return json.loads(bytes(words)), view_arrays(arrays)[0], kept, bytes(view[edges[-1] :])


def _owned(arrays: Arrays) -> Arrays:
    """Return copies, which do not hold the whole answer in memory."""
    return {name: array.copy() for name, array in arrays.items()}


_here: list[Onboard] = []  # the worker's own, from its hello on


def handle(message: bytes) -> bytes:
    """Do one job in a worker process."""
    words, data, memory, _ = _unpack(message)
    if "config" in words:
        config = config_from_tree(words["config"])
        task = config.load_task()
        if config.data.own and task.content_hash() != words["data"]:
            raise BadInputError(
                f"data.name = {config.data.name!r}: gave other samples in a worker process than in the main one; "
                "allowed: the same at every call, as from np.random.default_rng(0); or workers = 1"
            )
        _here[:] = [Onboard(config, task)]
        return b""
    job = Job(sent=_sent(words.pop("sent")), data=data, memory=memory or {}, **words)
    reply = _here[0].do(job)
    return _pack(reply.words, reply.arrays, reply.memory, reply.data)


@lru_cache(maxsize=1)
def _sent(path: str) -> Arrays:
    """Return what was sent down; the same object for jobs in a row, so that what follows from it can be kept."""
    return map_arrays(Path(path))
