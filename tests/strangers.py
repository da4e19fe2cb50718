"""Strangers in numbers, for tests: connections that are held, each for as long as the station lets it.

`python strangers.py PORT SIZE` prints, again and again, how many were opened and how many the station has closed.
"""

import asyncio
import contextlib
import resource
import ssl
import subprocess
import sys
from collections import Counter
from pathlib import Path

_AGAIN = 5.0  # seconds before a connection that was closed is opened again


class Crowd:
    """Strangers in a process of their own."""

    def __init__(self, port: int, size: int, report: Path) -> None:
        self._command, self._report = [sys.executable, __file__, str(port), str(size)], report

    def __enter__(self) -> "Crowd":
        with self._report.open("wb") as out:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=out)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def counts(self) -> tuple[int, int]:
        """Return how many connections were opened, and how many were closed by the station."""
        assert self._process.poll() is None
        whole = self._report.read_text().rpartition("\n")[0].rpartition("\n")[2]
        opened, cut = map(int, (whole or "0 0").split())
        return opened, cut


async def hold(port: int, tls: ssl.SSLContext | None, counts: Counter[str]) -> None:
    """Begin TLS and never end it, or send a header byte by byte; again and again."""
    limits = {"ssl_handshake_timeout": 600.0} if tls else {}
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, **limits)
            counts["opened"] += 1
            writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\nX: " if tls else b"\x16\x03\x01\x02\x00\x01")
            with contextlib.suppress(OSError):
                while not reader.at_eof():
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(reader.read(100), 1.0)
                    if tls:
                        writer.write(b"x")
            counts["cut"] += 1
            writer.close()
        await asyncio.sleep(_AGAIN)


async def hold_all(port: int, size: int) -> None:
    """Hold many of both kinds."""
    trusting, counts = ssl.create_default_context(), Counter[str]()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    tasks = [asyncio.create_task(hold(port, trusting if number % 2 else None, counts)) for number in range(size)]
    while tasks:
        print(counts["opened"], counts["cut"], flush=True)
        await asyncio.sleep(0.2)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    asyncio.run(hold_all(int(sys.argv[1]), int(sys.argv[2])))
