"""Serves a run's page on this machine while the run goes on.

Only 127.0.0.1 is listened on, and only who knows the address's token is answered: other users and the pages of other
sites can reach the port too. A request never names a file. There are two routes, the page and its data.
"""

import hmac
import io
import json
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from skyfed.errors import BadInputError, SkyfedError, one_line
from skyfed.report.page.live import LivePage
from skyfed.report.page.write import policy

_HOST = "127.0.0.1"
_MOST_HEAD = 16_384  # bytes of a request's head
_MOST_CONNECTIONS = 16  # at a time; further ones are closed at once
_PATIENCE = 5.0  # s for a whole head, and for every piece of an answer
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",  # the address holds the token
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@contextmanager
def serving(places: Sequence[Path], port: int = 0) -> Iterator[str]:
    """Serve the page of the runs at these places from a thread; gives its address."""
    page = LivePage(places)
    try:
        server = _Server(page, port)
    except OSError as error:
        raise BadInputError(f"--port {port}: {error.strerror or error}; allowed: a free port, or 0 for any") from None
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="watch", daemon=True)
    thread.start()
    try:
        yield server.address
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    """Answers a bounded number of connections, each with one request."""

    daemon_threads = True  # a slow reader does not keep the program from ending
    block_on_close = False

    def __init__(self, page: LivePage, port: int) -> None:
        self.page, self.token = page, secrets.token_urlsafe(24)
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        super().__init__((_HOST, port), _Reply)
        self.hosts = [[f"{name}:{self.server_address[1]}"] for name in (_HOST, "localhost")]
        self.address = f"http://{_HOST}:{self.server_address[1]}/{self.token}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own while there are few of them."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, then make room for another."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a reader went away, and what cannot be read of the run is told to its readers."""


class _Reply(BaseHTTPRequestHandler):
    """One request: its head is read whole, within limits of size and time, before anything is made of it."""

    server: _Server
    server_version, sys_version = "skyfed", ""

    def setup(self) -> None:
        """Read the head."""
        super().setup()
        self.rfile = io.BytesIO(_head(self.request))
        self.request.settimeout(_PATIENCE)

    def do_GET(self) -> None:
        """Answer with the page or its data; with 404 whoever does not know the token."""
        if self.headers.get_all("Host") not in self.server.hosts:  # a name that leads here by DNS: another site asks
            self.send_error(403)
            return
        path, _, query = self.path.partition("?")
        token, _, route = path.removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(), self.server.token.encode()) or route not in ("", "data"):
            self.send_error(404)
        elif route == "data":
            self._answer("application/json", self._data(query))
        else:
            self._answer("text/html; charset=utf-8", self._page())

    do_HEAD = do_GET  # noqa: N815 - the name that http.server looks for

    def _page(self) -> str:
        with suppress(SkyfedError):  # then the last good one
            self.server.page.look()
        return self.server.page.page()

    def _data(self, query: str) -> str:
        """Return what is new since a version, or why the run cannot be read now."""
        since = parse_qs(query).get("since", [""])[0]
        try:
            self.server.page.look()
        except SkyfedError as error:  # a file may be half gone for a moment
            return json.dumps({"trouble": one_line(str(error))})
        return json.dumps(self.server.page.since(int(since) if since.isdecimal() and len(since) < 10 else -1))

    def _answer(self, kind: str, content: str) -> None:
        body = content.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", f"{policy(live=True)}; frame-ancestors 'none'")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def end_headers(self) -> None:
        """Add what every answer has."""
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer with a number and nothing of the request; of methods only GET and HEAD are known."""
        code = 405 if code == 501 else code
        self.send_response_only(code)
        if code == 405:
            self.send_header("Allow", "GET, HEAD")
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the address holds the token."""


def _head(connection: socket.socket) -> bytes:
    """Read a request's head; empty if it is too long or takes too long."""
    head, end = b"", time.monotonic() + _PATIENCE
    while b"\r\n\r\n" not in head:
        connection.settimeout(max(0.01, end - time.monotonic()))
        try:
            piece = connection.recv(4096)
        except OSError:
            return b""
        head += piece
        if not piece or len(head) > _MOST_HEAD or time.monotonic() > end:
            return b""
    return head


def wait_for(places: Sequence[Path], pause: float = 0.5) -> None:
    """Wait until there is a run at every one of these places."""
    from skyfed.report.groups import find_groups

    while True:
        with suppress(BadInputError):
            find_groups(places)
            return
        time.sleep(pause)
