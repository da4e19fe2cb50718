"""Worker processes that turn bytes into bytes; nothing is pickled on the way.

A worker runs `python -m skyfed.workers package.module:function` and answers framed requests on its standard input until
that closes, so it never outlives its parent. A worker that dies, or runs out of memory, is replaced and its job
repeated, three times at most.
"""

import contextlib
import importlib
import json
import math
import os
import selectors
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from pathlib import Path
from typing import IO

from skyfed import errors

_LENGTH = struct.Struct("<BQ")  # 1 if the answer is an error, then the number of bytes that follow
_TRIES = 3
_NO_MEMORY = 12  # exit code of a worker that ran out of memory: its number in errno
PARENT = "SKYFED_PARENT"  # names the process that a run of a sweep ends with, so that none holds a folder for nobody
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_CGROUPS, _OWN_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")

Handler = Callable[[bytes], bytes]


class WorkerDiedError(errors.SkyfedError):
    """A job ended its worker process every time it was tried."""


def usable_cores() -> int:
    """Return how many cores this process may use: by its CPU affinity and its cgroups' CPU quotas, at least one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min([cores, *_quotas()])))


def _quotas() -> Iterator[float]:
    """Yield the CPU quotas, in cores, of the cgroups that this process is in, of version 2 and 1."""
    try:
        lines = _OWN_CGROUPS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = _CGROUPS / "cpu" if controllers else _CGROUPS
        group = top / path.lstrip("/")
        # a quota limits all that is below it; in a container the path may be the host's, and only its top is there
        for folder in [group, *group.parents]:
            if not folder.is_relative_to(top):
                break
            with contextlib.suppress(OSError, ValueError):
                if controllers:
                    quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
                else:
                    quota, period = (folder / "cpu.max").read_text().split()
                if quota != "max" and int(quota) > 0:  # without a quota it is "max" in version 2 and -1 in version 1
                    yield int(quota) / int(period)


class Crew(contextlib.AbstractContextManager["Crew"]):
    """A fixed number of worker processes for one handler; use as a context manager."""

    def __init__(self, handler: str, workers: int, hello: bytes | None = None) -> None:
        """Name the handler "package.module:function"; `hello` is the first job of every new process.

        With one worker and no hello the jobs run in this process.
        """
        self._handler, self._size, self._hello = handler, workers, hello
        self._workers: list[_Worker] = []

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for worker in self._workers:
            if kind:
                worker.kill()
            with contextlib.suppress(OSError):
                worker.stdin.close()
        for worker in list(self._workers):
            self._bury(worker)

    def run_in_order(self, jobs: Sequence[bytes]) -> Iterator[bytes]:
        """Yield the answers in the order of the jobs; workers run ahead of the reader by a few jobs only."""
        early: dict[int, bytes] = {}
        done = 0
        for index, answer in self.run(jobs, 2 * self._size):
            early[index] = answer
            while done in early:
                yield early.pop(done)
                done += 1

    def run(self, jobs: Sequence[bytes], ahead: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Yield (index of the job, answer) as answers come; an error of a job is raised here as its own class.

        ahead: a job is started only if fewer than `ahead` jobs lie between it and the first one without an answer.
        """
        if self._hello is None and (self._size == 1 or len(jobs) == 1):
            handler = load_handler(self._handler)
            yield from ((index, _handled(handler, job)) for index, job in enumerate(jobs))
            return
        waiting = [(index, 1) for index in range(len(jobs))]  # a heap: the first job is at its front
        with selectors.DefaultSelector() as selector:
            busy = selector.get_map()
            while waiting or busy:
                first = min(index for index, *_ in [*waiting[:1], *(key.data for key in busy.values())])
                while waiting and len(busy) < self._size and (ahead is None or waiting[0][0] < first + ahead):
                    worker = self._idle([key.data[-1] for key in busy.values()])
                    index, attempt = heappop(waiting)
                    selector.register(worker.stdout, selectors.EVENT_READ, (index, attempt, worker))
                    worker.ask(jobs[index])
                for key, _ in selector.select():
                    index, attempt, worker = key.data
                    selector.unregister(key.fileobj)
                    answer = worker.answer()
                    if answer is not None:
                        yield index, answer
                        continue
                    cause = self._bury(worker)
                    if attempt == _TRIES:
                        raise WorkerDiedError(f"a worker process ended {_TRIES} times on job {index} ({cause})")
                    heappush(waiting, (index, attempt + 1))

    def _idle(self, busy: Sequence["_Worker"]) -> "_Worker":
        """Return a worker that has nothing to do, or a new one that lived through its first job."""
        for worker in self._workers:
            if worker not in busy:
                return worker
        cause = ""
        for _ in range(_TRIES):
            worker = _Worker(self._handler)
            self._workers.append(worker)
            if self._hello is not None:
                worker.ask(self._hello)
            if self._hello is None or worker.answer() is not None:
                return worker
            cause = self._bury(worker)
        raise WorkerDiedError(f"a worker process ended {_TRIES} times at its start ({cause})")

    def _bury(self, worker: "_Worker") -> str:
        """Wait for a worker that ends and close its pipes; returns how it ended."""
        for pipe in (worker.stdin, worker.stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        code = worker.wait()
        self._workers.remove(worker)
        if code == _NO_MEMORY:
            return "out of memory; fewer workers need less"
        if code == -signal.SIGKILL:
            return "killed, maybe for want of memory; fewer workers need less"
        return f"last exit code {code}"


class _Worker(subprocess.Popen[bytes]):
    """A process that reads jobs from its standard input and writes answers to its standard output."""

    stdin: IO[bytes]
    stdout: IO[bytes]

    def __init__(self, handler: str) -> None:
        command = [sys.executable, "-m", "skyfed.workers", handler]
        environment, pipe = {**os.environ, **ONE_THREAD}, subprocess.PIPE
        # Ctrl-C in a terminal shall reach the parent alone: until a worker is in a group of its own, it is held back
        held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            super().__init__(command, stdin=pipe, stdout=pipe, env=environment, process_group=0)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)

    def ask(self, job: bytes) -> None:
        """Send a job; if the process has died, `answer` says so."""
        with contextlib.suppress(BrokenPipeError):
            _write_frame(self.stdin, job)

    def answer(self) -> bytes | None:
        """Return the answer to a job, None if the process died; an error of the job is raised as its own class."""
        failed, payload = _read_frame(self.stdout) or (False, None)
        if not failed or payload is None:
            return payload
        kind, message, trace = json.loads(payload)
        error: errors.SkyfedError = getattr(errors, kind, errors.SkyfedError)(message)
        error.trace = trace
        raise error


def load_handler(name: str) -> Handler:
    """Import "package.module:function"."""
    module, function = name.split(":")
    handler: Handler = getattr(importlib.import_module(module), function)
    return handler


def _handled(handler: Handler, job: bytes) -> bytes:
    """Do a job; an error that is not skyfed's own becomes a SkyfedError that names it."""
    try:
        return handler(job)
    except errors.SkyfedError:
        raise
    except Exception as error:
        raise errors.SkyfedError(f"{type(error).__name__}: {error}") from error


def _write_frame(pipe: IO[bytes], payload: bytes, failed: bool = False) -> None:
    pipe.write(_LENGTH.pack(failed, len(payload)))
    pipe.write(payload)
    pipe.flush()


def _read_frame(pipe: IO[bytes]) -> tuple[bool, bytes] | None:
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    failed, length = _LENGTH.unpack(head)
    payload = pipe.read(length)
    return (bool(failed), payload) if len(payload) == length else None


def end_with(parent: int, grace: float = 0.0) -> None:
    """End this process, in the middle of a job too, once its parent has gone; asked first where there is grace."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        if grace:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(grace)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def child_environment() -> dict[str, str]:
    """Return the environment of a skyfed command that imports what this process imports and ends with it."""
    paths = os.pathsep.join(path for path in sys.path if path)
    return {**os.environ, "PYTHONPATH": paths, PARENT: str(os.getpid())}


def _starved(error: BaseException | None) -> bool:
    """Tell whether an error means that memory ran out; torch, oneDNN and C++ each have words of their own for it."""
    words = ("allocate memory", "out of memory", "bad_alloc", "could not create a")
    return isinstance(error, Exception) and (
        isinstance(error, MemoryError) or any(some in str(error) for some in words)
    )


def _serve(name: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the parent decides what they mean; a service
        signal.signal(number, signal.SIG_IGN)  # manager or a terminal may signal all processes, not the parent alone
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    end_with(os.getppid())
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not reach the answers
    handler = load_handler(name)
    while (request := _read_frame(requests)) is not None:
        try:
            answer, failed = _handled(handler, request[1]), False
        except errors.SkyfedError as error:  # reported to the parent, which ends the work with it
            if _starved(error.__cause__):
                os._exit(_NO_MEMORY)  # a new process has all its memory back
            answer, failed = json.dumps([type(error).__name__, str(error), error.trace]).encode(), True
        _write_frame(answers, answer, failed)


if __name__ == "__main__":
    _serve(sys.argv[1])
