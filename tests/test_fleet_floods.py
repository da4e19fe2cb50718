"""Strangers in numbers at a station whose fleet is at work: its log and memory stay small, and its rounds go on."""

import contextlib
import os
import re
import resource
import socket
import ssl
import threading
import time
from collections.abc import Iterator

import pytest

pytest.importorskip("flwr")

from fleet_cases import Yard, children, says, until
from skyfed.drivers.flower.looks import resident
from strangers import Crowd

SIZE = 2000
NEEDED = SIZE + 500  # descriptors of the strangers' process

pytestmark = pytest.mark.fleet


@pytest.fixture(scope="module", params=[0, 1024], ids=["", "1024 descriptors"])
def yard(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """A station with two vehicles at work for longer than the tests take."""
    place = tmp_path_factory.mktemp("floods") / "yard"
    with Yard(place, 2, 'algorithms=["afl"]', "rounds=3000", "eval_every=3000") as found:
        found.station(files=request.param)
        found.vehicle(0)
        found.vehicle(1)
        until(lambda: found.closed() >= 2)
        yield found
        assert "starting it again" not in found.log.read_text(errors="replace")


def link_of(yard: Yard) -> int:
    (link,) = children(yard.processes["station"], "skyfed.drivers.flower.link")
    return link


def trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def connected(yard: Yard) -> ssl.SSLSocket:
    return trusting().wrap_socket(socket.create_connection(("127.0.0.1", yard.port), timeout=60))


def test_a_flood_of_bad_requests_leaves_a_small_log_without_forged_lines(yard):
    forged = "2026-01-01T00:00:00.000+00:00 afl round 9: forged"
    path = "/v1/fleet/%0a" + forged.replace(" ", "%20") + "%0a%1b[31m" + "x" * 4000
    request = f"POST {path} HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: a\r\nContent-Length: 0\r\n\r\n".encode()
    before, ends, sent = yard.log.stat().st_size, time.monotonic() + 5, []

    def flood() -> None:
        while time.monotonic() < ends:
            with contextlib.suppress(OSError), connected(yard) as line:
                while time.monotonic() < ends:
                    line.sendall(request)
                    sent.append(1)
                    if not line.recv(1000):
                        break
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", yard.port)) as plain:
                plain.sendall(request)

    threads = [threading.Thread(target=flood) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until(lambda: says(yard.log, "lines were left out, most of them like this: 127.0.0.1: "))
    text = yard.log.read_text(errors="replace")
    print(f"{len(sent)} requests, {len(text) - before} bytes of log")
    assert len(sent) > 50
    assert len(text) - before < 64 * 1024
    assert not re.search(f"^{re.escape(forged)}", text, re.MULTILINE)
    assert all(line.isprintable() for line in text.split("\n"))


def test_headers_of_megabytes_cost_no_memory(yard):
    link = link_of(yard)
    before = resident(link)
    lines = [connected(yard) for _ in range(16)]
    for name, line in enumerate(lines):
        with contextlib.suppress(OSError):
            line.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n")
            for number in range(2000):  # one header, or many
                line.sendall((b"" if name % 2 else b"\r\nX-%d: " % number) + b"x" * 4000)
    after = resident(link)
    for line in lines:
        line.close()
    print(f"{(after - before) / 1e6:.1f} MB")
    assert after - before < 24e6


def test_rounds_go_on_while_strangers_hold_all_they_can_get(yard, tmp_path):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < NEEDED:
        pytest.skip(f"needs {NEEDED} descriptors")
    link, most, before = link_of(yard), 0, resident(link_of(yard))
    with Crowd(yard.port, SIZE, tmp_path / "crowd") as crowd:
        until(lambda: crowd.counts()[0] > SIZE / 2)
        rounds = yard.closed()

        def over() -> bool:
            nonlocal most
            most = max(most, len(os.listdir(f"/proc/{link}/fd")))
            return crowd.counts()[1] >= SIZE and yard.closed() >= rounds + 3

        until(over)
        opened, cut = crowd.counts()
        print(f"{opened} opened, {cut} cut, {most} descriptors, {(resident(link) - before) / 1e6:.0f} MB more")
    assert most < 900
    until(lambda: len(os.listdir(f"/proc/{link}/fd")) < 200)
