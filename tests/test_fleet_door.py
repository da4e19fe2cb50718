"""The station's door, guard and log by themselves: limits of number, time, size and rate."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr")

import uvicorn

from skyfed.drivers.flower import door as doors
from skyfed.drivers.flower import log_file
from skyfed.drivers.flower.door import HEAD, Door, Visitor
from skyfed.drivers.flower.guard import Guard
from skyfed.drivers.flower.headers import SECRET
from skyfed.drivers.flower.log_file import Calm, LogFile, quoted, say_refused


async def nothing(scope: Any, receive: Any, send: Any) -> None:
    """Do nothing, as an app."""


def opened(files: int = 1024) -> Door:
    door = Door(uvicorn.Config(nothing, log_config=None, ws="none", h11_max_incomplete_event_size=HEAD), Calm(), files)
    door.lifespan = SimpleNamespace(state={})
    door.config.load()
    return door


class Line:
    """Stands in for a connection's transport."""

    closed = False

    def abort(self) -> None:
        """Close."""
        self.closed = True


def arrive(door: Door, address: str) -> Visitor | None:
    """Let somebody come in, as far as there is a place."""
    if not door._admits(address):
        return None
    visitor = Visitor(door, address)
    visitor.transport = Line()
    door._strangers.setdefault(address, {})[visitor] = None
    return visitor


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    asyncio.set_event_loop(made)
    yield made
    asyncio.set_event_loop(None)
    made.close()


def test_strangers_do_not_keep_others_out(loop):
    """Who comes last gets the place of the one that has waited longest where most are; the known keep theirs."""
    door = opened(files=doors._RESERVE + 100)
    known = arrive(door, "10.0.0.1")
    door.welcome(known)
    crowd = [arrive(door, "10.0.0.2") for _ in range(50)]
    vehicle = arrive(door, "10.0.0.3")
    assert [visitor.transport.closed for visitor in crowd] == [True] + [False] * 49
    assert [arrive(door, "10.0.0.2") is not None for _ in range(90)] == [True] * 90
    assert not vehicle.transport.closed
    assert not known.transport.closed
    assert len(door._all_strangers()) == 50


def test_an_address_that_is_refused_too_often_is_closed_at_once_unless_vehicles_are_there(loop):
    door = opened()
    assert [door.spend("10.0.0.2") for _ in range(100)] == [True] * 100
    assert not door.spend("10.0.0.2")
    assert arrive(door, "10.0.0.2") is None
    door.welcome(arrive(door, "10.0.0.1"))
    while door.spend("10.0.0.1"):
        pass
    assert arrive(door, "10.0.0.1") is not None


def test_one_address_has_places_for_64_vehicles(loop):
    door = opened(files=4096)
    crowd = [arrive(door, "10.0.0.2") for _ in range(640)]
    assert not any(visitor.transport.closed for visitor in crowd)
    for visitor in crowd:
        door.welcome(visitor)
    assert arrive(door, "10.0.0.2") is not None


def test_all_places_may_be_taken_by_vehicles(loop):
    door = opened(files=doors._RESERVE + 20)
    for u in range(20):
        door.welcome(arrive(door, f"10.0.0.{u}"))
    assert arrive(door, "10.0.0.1") is None
    door.forget(next(iter(door._known)))
    assert arrive(door, "10.0.0.1") is not None


def test_a_connection_has_limited_time(loop):
    visitor = arrive(opened(), "10.0.0.2")
    start = visitor._since
    assert visitor.fault(start + 9) == ""
    assert visitor.fault(start + 11) == "no signed request within 10 s"
    visitor.known = True
    assert visitor.fault(start + 11) == "headers that take more than 10 s"
    visitor._begun = None
    assert visitor.fault(start + 1000) == ""
    visitor.cycle, visitor.flow = SimpleNamespace(more_body=True, response_complete=False), SimpleNamespace()
    visitor.flow.read_paused = False
    assert visitor.fault(start + 29) == ""
    assert visitor.fault(start + 31) == "a body without progress for 30 s"
    visitor._heard = start + 1000  # a slow link that goes on
    assert visitor.fault(start + 1001) == ""
    visitor.flow.read_paused = True  # it is the station that does not read
    assert visitor.fault(start + 5000) == ""


Headers = list[tuple[bytes, bytes]]


def asked(path: str, headers: Headers, query: bytes = b"", inside_says: int = 200) -> int:
    """Return the status of a request to a guard whose inside answers so; 0 if the connection was closed."""
    sent: list[dict[str, Any]] = []

    async def inside(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": inside_says, "headers": []})

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    async def ask() -> None:
        visitor = arrive(opened(), "10.0.0.2")
        scope = {
            "type": "http", "path": path, "raw_path": path.encode(), "query_string": query, "headers": headers,
            "visitor": visitor,
        }  # fmt: skip
        await Guard(inside, 1e6, Path("/"), Path("/vehicles.json"), "s3cret")(scope, receive, send)

    asyncio.run(ask())
    return int(sent[0]["status"]) if sent else 0


OWN = (SECRET.encode(), b"s3cret")


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/v1/control/register-node", [], 403),
        ("/v1/control/register-node", [(SECRET.encode(), b"other")], 403),
        ("/v1/control/register-node", [(SECRET.encode(), "ä".encode("latin-1"))], 403),
        ("/v1/control/register-node", [OWN], 200),
        ("/v1/runtime/acquire-task", [], 403),
        ("/openapi.json", [], 403),
        ("/health", [], 200),
        ("/v1/control/list-runs", [OWN, OWN], 400),
        ("/v1/control/list-runs", [OWN, (b"flwr-token", b"a"), (b"flwr-token", b"b")], 400),
        ("/v1/control/list-runs", [OWN, (b"content-length", b"1"), (b"content-length", b"2")], 400),
        ("/v1/fleet/pull-messages", [(b"flwr-signature", b"a"), (b"flwr-signature", b"b")], 400),
        ("/v1/control/list-runs", [OWN, (b"x", b"x" * HEAD)], 431),
        ("/v1/control/list-runs", [OWN, *[(b"x", b"y")] * 4000], 431),
        ("/v1/control/" + "x" * HEAD, [OWN], 431),
    ],
)
def test_who_has_the_secret_operates_the_station(path, headers, status):
    assert asked(path, headers) == status


@pytest.mark.parametrize("length", ["x", "-1", "+5", "1_0", " 7", "1e3", "²", "9" * 5000])
def test_a_length_that_is_no_number_is_refused(length):
    assert asked("/health", [(b"content-length", length.encode("latin-1"))]) == 400
    assert asked("/health", [(b"content-length", b"")]) == asked("/health", [(b"content-length", b"12")]) == 200


def test_a_key_that_cannot_be_read_does_not_matter_where_none_is_needed():
    assert asked("/v1/control/list-runs", [OWN, (b"flwr-public-key", b"!")], inside_says=401) == 401


def test_a_long_query_counts_as_headers_do():
    assert asked("/health", [], b"x" * HEAD) == 431


@pytest.mark.parametrize(
    "text", ["/a\nb", "/\x1b[31mred", "/x" * 5000, "/\u2028ü\U0001f600" * 90, "/a' from 10.0.0.1: b"]
)
def test_a_strangers_word_is_quoted_and_short(text):
    word = quoted(text)
    assert word.isascii()
    assert word.isprintable()
    assert len(word) <= 102
    assert word[0] in "'\""


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Calm]]:
    """A log of its own, whose files are small and all kept."""
    monkeypatch.setattr(log_file, "_SIZE", 2000)
    monkeypatch.setattr(log_file, "_KEPT", 1000)
    monkeypatch.setattr(log_file.os, "dup2", lambda *_: None)
    calm, path = Calm(), tmp_path / "station.log"
    handler = LogFile(path, calm)
    root = logging.getLogger()
    root.addHandler(handler)
    yield path, calm
    root.removeHandler(handler)
    handler.close()


def test_a_flood_of_refusals_is_a_few_lines(journal):
    path, calm = journal
    for number in range(1000):
        say_refused(quoted("/x\n2026 forged"), "10.0.0.2", f"a clock {number} s behind")
    say_refused("a connection", "10.0.0.3", "no signature")
    calm._since -= 5
    calm.turn()
    lines = path.read_text().splitlines()
    assert [line.partition(" refused ")[2] for line in lines[:4]] == [
        *(rf"'/x\n2026 forged' from 10.0.0.2: a clock {number} s behind" for number in range(3)),
        "a connection from 10.0.0.3: no signature",
    ]
    assert lines[4].endswith(" 997 lines were left out, most of them like this: 10.0.0.2: a clock  s behind")
    assert len(lines) == 5
    assert calm._pause == 2.0


def test_many_addresses_are_few_lines_too(journal):
    path, _ = journal
    for number in range(1000):
        say_refused("a connection", f"10.0.{number // 250}.{number % 250}", "no signature")
    assert len("".join(file.read_text() for file in path.parent.iterdir()).splitlines()) == 60


def test_a_traceback_forges_no_line(journal):
    path, _ = journal
    try:
        raise ValueError("x\n2026-01-01 00:00:00,000 afl round 9: forged \x1b[31m")
    except ValueError:
        logging.getLogger("uvicorn.error").exception("it failed")
    first, *rest = path.read_text().splitlines()
    assert first.endswith("it failed")
    assert all(line.startswith("    ") and line.isprintable() for line in rest)


def test_no_line_is_lost_when_the_log_is_rotated(journal):
    """Neither of those that are written through it nor of those that are appended by its name."""
    path, _ = journal
    done = threading.Event()

    def append() -> None:
        for number in range(2000):
            with path.open("a") as file:
                file.write(f"round {number}\n")
        done.set()

    writer = threading.Thread(target=append)
    writer.start()
    written = 0
    while not done.is_set() or written < 500:
        logging.getLogger("skyfed.guard").warning("line %d", written, extra={"like": written})
        written += 1
        journal[1]._shown = 0
    writer.join()
    files = list(path.parent.iterdir())
    lines = "".join(file.read_text() for file in files).splitlines()
    assert sum(line.startswith("round ") for line in lines) == 2000
    assert sum(" line " in line for line in lines) == written
    assert len(files) > 5


def test_the_limit_of_descriptors_is_raised_as_far_as_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    infinite = doors.resource.RLIM_INFINITY
    for limits, files, made in [
        ((1024, infinite), 4096, (4096, infinite)),
        ((1024, 2048), 2048, (2048, 2048)),
        ((256, 1_000_000), 4096, (4096, 1_000_000)),
        ((20000, 20000), 4096, None),
        ((infinite, infinite), 4096, None),
    ]:
        calls: list[Any] = []
        record: Callable[..., None] = lambda *words, calls=calls: calls.append(words[1])  # noqa: E731
        monkeypatch.setattr(doors.resource, "getrlimit", lambda _, limits=limits: limits)
        monkeypatch.setattr(doors.resource, "setrlimit", record)
        assert doors._descriptors() == files
        assert calls == ([made] if made else [])


def test_a_head_in_small_pieces_is_closed_at_its_limit(loop):
    """h11 stops reading; it gets no answer."""
    visitor = arrive(opened(), "10.0.0.2")
    sent = 0
    while not visitor.transport.closed and sent < 10 * HEAD:
        visitor.data_received(b"GET / HTTP/1.1\r\nx: " if not sent else b"x" * 1000)
        sent += 1000
    assert HEAD <= sent < 2 * HEAD
