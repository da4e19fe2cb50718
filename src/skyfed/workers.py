"""Worker processes that turn bytes into bytes; nothing is pickled on the way.

A worker runs `python -m skyfed.workers package.module:function` and answers framed requests on its standard input until
that closes, so it never outlives its parent. A worker that dies is replaced and its job repeated, three times at most.
"""

import contextlib
import importlib
import json
import os
import selectors
import signal
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import IO

from skyfed import errors

_LENGTH = struct.Struct("<BQ")  # 1 if the answer is an error, then the number of bytes that follow
_TRIES = 3
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

Handler = Callable[[bytes], bytes]


class WorkerDiedError(errors.SkyfedError):
    """A job ended its worker process every time it was tried."""


class Crew:
    """A fixed number of worker processes for one handler; use as a context manager."""

    def __init__(self, handler: str, workers: int) -> None:
        """Name the handler "package.module:function"; with one worker the jobs run in this process."""
        self._handler, self._workers = handler, workers
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Crew":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill() if kind else _stdin(process).close()
        for process in self._processes:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe:
                    with contextlib.suppress(OSError):
                        pipe.close()
        self._processes.clear()

    def run(self, jobs: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
        """Yield (index of the job, answer) as answers come; an error of a job is raised here as its own class."""
        if self._workers == 1 or len(jobs) == 1:
            handler = load_handler(self._handler)
            for index, job in enumerate(jobs):
                yield index, handler(job)
            return
        waiting = deque((index, 1) for index in range(len(jobs)))
        busy: dict[int, tuple[subprocess.Popen[bytes], int, int]] = {}
        with selectors.DefaultSelector() as selector:
            while waiting or busy:
                while waiting and len(busy) < self._workers:
                    process = self._idle({entry[0].pid for entry in busy.values()})
                    index, attempt = waiting.popleft()
                    out = _stdout(process)
                    busy[out.fileno()] = (process, index, attempt)
                    selector.register(out, selectors.EVENT_READ)
                    with contextlib.suppress(BrokenPipeError):  # its death shows as an end of file below
                        _write_frame(_stdin(process), jobs[index])
                for key, _ in selector.select():
                    process, index, attempt = busy.pop(key.fd)
                    selector.unregister(key.fileobj)
                    answer = _read_frame(_stdout(process))
                    if answer is not None:
                        yield index, _opened(answer)
                        continue
                    code = process.wait()
                    self._processes.remove(process)
                    if attempt == _TRIES:
                        raise WorkerDiedError(
                            f"a worker process ended {_TRIES} times on job {index} (last exit code {code})"
                        )
                    waiting.appendleft((index, attempt + 1))

    def _idle(self, busy: set[int]) -> subprocess.Popen[bytes]:
        for process in self._processes:
            if process.pid not in busy:
                return process
        process = subprocess.Popen(
            [sys.executable, "-m", "skyfed.workers", self._handler],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **ONE_THREAD},
        )
        self._processes.append(process)
        return process


def load_handler(name: str) -> Handler:
    """Import "package.module:function"."""
    module, function = name.split(":")
    handler: Handler = getattr(importlib.import_module(module), function)
    return handler


def _stdin(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stdin
    return process.stdin


def _stdout(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stdout
    return process.stdout


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


def _opened(answer: tuple[bool, bytes]) -> bytes:
    failed, payload = answer
    if not failed:
        return payload
    kind, message = json.loads(payload)
    raise getattr(errors, kind, errors.SkyfedError)(message)


def _serve(name: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not reach the answers
    handler = load_handler(name)
    while (request := _read_frame(requests)) is not None:
        try:
            answer, failed = handler(request[1]), False
        except errors.SkyfedError as error:
            answer, failed = json.dumps([type(error).__name__, str(error)]).encode(), True
        except Exception as error:  # reported to the parent, which ends the work with it
            answer, failed = json.dumps(["SkyfedError", f"{type(error).__name__}: {error}"]).encode(), True
        _write_frame(answers, answer, failed)


if __name__ == "__main__":
    _serve(sys.argv[1])
