"""The station's door: which connections are taken, how many, and how long each may keep the station waiting.

A connection is a stranger's until a request on it brings a vehicle's signature or the station's secret. Strangers have
a limited number of places and of seconds. Who comes when all are taken gets the place of the one that has waited
longest at the address that holds most, so that strangers cannot keep vehicles out by holding connections. Connections
that are known lose their place to nobody.
"""

import asyncio
import logging
import os
import resource
import socket
import ssl
import time
from collections import Counter
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from skyfed.drivers.flower.log_file import Calm, say_refused

HEAD = 16 * 1024  # bytes of a request line and its headers; Flower's vehicles send 1 KiB
_IN_TIME = 10.0  # seconds for TLS and the first signed request, and for the headers of every request
_STALLED = 30.0  # seconds in which a body may make no progress
_IDLE = 15  # seconds for which an unused connection stays open; vehicles close theirs after 5
_GOODBYE = 5.0  # seconds for the end of TLS
_FILES = 4096  # descriptors that the process asks for
_RESERVE = 192  # descriptors for the database, the log and the rest of the process
_STRANGERS = 1024  # connections that are not known yet, at most half of all
_SAME = 640  # of these from one address: 64 vehicles with 10 connections each, behind one router
_BURST, _RATE = 100.0, 20.0  # refusals of one address that are answered at once, and per second
_NOT_TLS = {
    "HTTP_REQUEST": "plaintext where TLS is spoken",
    "WRONG_VERSION_NUMBER": "plaintext where TLS is spoken",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust this station's certificate (another authority)",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not trust this station's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not trust this station's certificate",
}


class Visitor(H11Protocol):
    """One connection."""

    def __init__(self, door: "Door", address: str) -> None:
        super().__init__(door.config, door.server_state, door.lifespan.state)
        self.door, self.address, self.known = door, address, False
        self.greeting: asyncio.Task[None] | None = None
        self._inside, self.app = self.app, self._announced
        self._since = self._heard = self.loop.time()
        self._begun: float | None = self._since  # when a request began whose headers are not complete

    async def _announced(self, scope: Any, receive: Any, send: Any) -> None:
        scope["visitor"] = self
        await self._inside(scope, receive, send)

    def data_received(self, data: bytes) -> None:
        """Note when a request begins and goes on."""
        before, self._heard = self.cycle, self.loop.time()
        if self._begun is None and (before is None or before.response_complete):
            self._begun = self._heard
        super().data_received(data)
        if self.cycle is not before:
            self._begun = None

    def send_400_response(self, msg: str) -> None:
        """Close; who speaks no HTTP, or has too much to say, gets no answer."""
        self.door.cut(self, f"not HTTP, or headers of more than {HEAD} bytes")

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        super().connection_lost(exc)
        self.door.forget(self)

    def fault(self, now: float) -> str:
        """Return why the connection is to be closed, or nothing."""
        if not self.known and now - self._since > _IN_TIME:
            return f"no signed request within {_IN_TIME:g} s"
        if self._begun is not None and now - self._begun > _IN_TIME:
            return f"headers that take more than {_IN_TIME:g} s"
        if self.cycle and self.cycle.more_body and not self.cycle.response_complete:
            if self.flow.read_paused:  # it is the station that keeps it waiting
                self._heard = now
            elif now - self._heard > _STALLED:
                return f"a body without progress for {_STALLED:g} s"
        return ""


class Door(uvicorn.Server):
    """A server that takes its connections itself."""

    def __init__(self, config: uvicorn.Config, calm: Calm, files: int) -> None:
        super().__init__(config)
        self._calm, self._most = calm, max(16, files - _RESERVE)
        self._strangers: dict[str, dict[Visitor, None]] = {}  # by address, oldest first
        self._known: set[Visitor] = set()
        self._friends: Counter[str] = Counter()  # known connections by address
        self._credit: dict[str, tuple[float, float]] = {}  # what is left of the burst, and since when
        self._certificate = 0  # when the file was written that is in use

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets=[])
        if not self.should_exit:
            self._listener = socket.create_server((self.config.host, self.config.port), backlog=self.config.backlog)
            self._listener.setblocking(False)
            self._taking = asyncio.create_task(self._take())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, then end."""
        self._taking.cancel()
        self._listener.close()
        for visitor in self._all_strangers():
            self._close(visitor)
        await super().shutdown(sockets=[])

    async def on_tick(self, counter: int) -> bool:
        """Once a second, close what takes too long."""
        if counter % 10 == 0:
            now = asyncio.get_running_loop().time()
            for visitor in [*self._all_strangers(), *self._known]:
                if reason := visitor.fault(now):
                    self.cut(visitor, reason)
            self._credit = {address: kept for address, kept in self._credit.items() if self._left(address) < _BURST}
            self._calm.turn()
            self._renew()
        return await super().on_tick(counter)

    def _renew(self) -> None:
        """Take the certificate that the station has renewed; connections that are open keep the old one."""
        file, context = self.config.ssl_certfile, self.config.ssl
        if file is None or context is None or os.stat(file).st_mtime_ns == self._certificate:
            return
        self._certificate = os.stat(file).st_mtime_ns
        context.load_cert_chain(file, self.config.ssl_keyfile)

    async def _take(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                line, (address, *_) = await loop.sock_accept(self._listener)
            except OSError:  # it has gone already, or there is no descriptor left
                await asyncio.sleep(0.1)
                continue
            if self._admits(address):
                visitor = Visitor(self, address)
                self._strangers.setdefault(address, {})[visitor] = None
                visitor.greeting = loop.create_task(self._greet(visitor, line))
            else:
                line.close()
            await asyncio.sleep(0)  # others' turn

    def _admits(self, address: str) -> bool:
        """Tell whether there is a place for one more; who has waited longest may lose it."""
        if self._left(address) < 1 and not self._friends[address]:
            say_refused("a connection", address, "too many refusals")
            return False
        count = sum(map(len, self._strangers.values()))
        full = count >= min(_STRANGERS, self._most // 2) or count + len(self._known) >= self._most
        same = self._strangers.get(address, {})
        if len(same) >= _SAME or full:
            crowd = same if len(same) >= _SAME else max(self._strangers.values(), key=len, default={})
            oldest = next(iter(crowd), None)
            if oldest is None:
                say_refused("a connection", address, "no place left")
                return False
            self.cut(oldest, "its place was needed before it sent a signed request")
        return True

    async def _greet(self, visitor: Visitor, line: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: visitor, line, ssl=self.config.ssl,
                ssl_handshake_timeout=_IN_TIME, ssl_shutdown_timeout=_GOODBYE,
            )  # fmt: skip
        except OSError as error:
            reason = error.reason if isinstance(error, ssl.SSLError) else "it left, or was too slow, before TLS began"
            self.refuse(visitor, "a connection", _NOT_TLS.get(reason or "", reason or str(error)))
        finally:
            if visitor.transport is None:
                self.forget(visitor)

    def welcome(self, visitor: Visitor) -> None:
        """Count a connection as known from now on."""
        if not visitor.known and visitor in self._strangers.get(visitor.address, {}):
            self.forget(visitor)
            visitor.known = True
            self._known.add(visitor)
            self._friends[visitor.address] += 1

    def forget(self, visitor: Visitor) -> None:
        """Free a connection's place."""
        if visitor in self._known:
            self._known.discard(visitor)
            self._friends -= Counter([visitor.address])
        elif same := self._strangers.get(visitor.address):
            same.pop(visitor, None)
            if not same:
                del self._strangers[visitor.address]

    def refuse(self, visitor: Visitor, what: str, reason: str) -> bool:
        """Log a refusal and tell whether its address has not had too many of them."""
        say_refused(what, visitor.address, reason)
        return self.spend(visitor.address)

    def spend(self, address: str) -> bool:
        """Take note of something that an address costs; tells whether it has not had too much."""
        left = self._left(address)
        self._credit[address] = (max(0.0, left - 1), time.monotonic())
        return left >= 1

    def cut(self, visitor: Visitor, reason: str) -> None:
        """Close a connection without an answer."""
        self.refuse(visitor, "a connection", reason)
        self._close(visitor)

    def _close(self, visitor: Visitor) -> None:
        self.forget(visitor)
        if visitor.transport is not None:
            visitor.transport.abort()
        elif visitor.greeting:
            visitor.greeting.cancel()

    def _all_strangers(self) -> list[Visitor]:
        return [visitor for same in self._strangers.values() for visitor in same]

    def _left(self, address: str) -> float:
        left, since = self._credit.get(address, (_BURST, 0.0))
        return min(_BURST, left + (time.monotonic() - since) * _RATE)


def serve(app: Any, calm: Calm, **settings: Any) -> None:
    """Stand in for `uvicorn.run` with one worker: the same server, behind this door.

    The parser is h11, which stops reading at a number of bytes. Flower's choice of logs is not taken: every line goes
    through the root logger.
    """
    settings |= {"log_config": None, "access_log": False, "proxy_headers": False, "http": "h11", "ws": "none"}
    config = uvicorn.Config(app, **settings, h11_max_incomplete_event_size=HEAD, timeout_keep_alive=_IDLE)
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    config.load()
    if config.ssl:
        config.ssl.minimum_version = ssl.TLSVersion.TLSv1_2
    Door(config, calm, _descriptors()).run()


def _descriptors() -> int:
    """Raise the soft limit of descriptors if it is below what is needed, and return how many there are."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = (_FILES if limit == resource.RLIM_INFINITY else min(_FILES, limit) for limit in limits)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, limits[1]))
    return hard
