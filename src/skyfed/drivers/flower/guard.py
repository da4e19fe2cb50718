"""What stands at the station's door: strangers are refused before Flower reads them, each with a line that says why.

Flower's SuperLink serves vehicles, its own executor and its operators at one port; the latter two are let in from this
machine alone. Flower signs the time of a request, so a request that was seen before is a replay.
"""

import logging
import ssl
import time
from base64 import b64decode
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_EARLY, _LATE = 5.0, 305.0  # seconds that a vehicle's clock may be ahead, or a request old: Flower's own limits
_FLEET = "/v1/fleet/"

log = logging.getLogger("skyfed.guard")


class Guard:
    """ASGI middleware around a SuperLink."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], largest: float, ready: Path) -> None:
        """Read at most `largest` bytes of a request; vehicles wait until the file `ready` is there."""
        self._app, self._largest, self._ready = app, largest, ready
        self._seen: set[str] = set()
        self._times: deque[tuple[float, str]] = deque()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer it with a refusal."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if scope["path"].startswith(_FLEET) and not self._ready.exists():  # the keys are not registered yet
            await _refuse(send, 503, "not ready")
            return
        status, reason = self._look(scope, headers)
        if reason:
            _say(scope, reason)
            await _refuse(send, status, reason)
            return
        taken = 0

        async def counted() -> MutableMapping[str, Any]:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > self._largest:
                _say(scope, f"a request of more than {self._largest:.0f} bytes")
                return {"type": "http.disconnect"}
            return message

        async def watched(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start" and message["status"] >= 400:
                _say(scope, _why(scope, headers, message["status"]))
            await send(message)

        await self._app(scope, counted, watched)

    def _look(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str]:
        """Return status and reason of a refusal, or nothing."""
        path = scope["path"]
        if not path.startswith(_FLEET) and path != "/health" and not _local(scope):
            return 403, "asks for what only the station itself may use"
        if int(headers.get("content-length", "0") or 0) > self._largest:
            return 413, f"a request of {headers['content-length']} bytes; at most {self._largest:.0f} are read"
        if not path.startswith(_FLEET):
            return 0, ""
        signature, stamp = headers.get("flwr-signature", ""), headers.get("flwr-timestamp", "")
        if not signature or not stamp:
            return 401, "no signature"
        try:
            age = (datetime.now(UTC) - datetime.fromisoformat(stamp)).total_seconds()
        except (ValueError, TypeError):
            return 401, "a time that cannot be read"
        if not -_EARLY < age < _LATE:
            way = "behind" if age > 0 else "ahead"
            return 401, f"its clock is {abs(age):.0f} s {way}, or the request is old and replayed"
        if self._known(signature):
            return 401, "a replayed request"
        return 0, ""

    def _known(self, signature: str) -> bool:
        """Tell whether a signature was seen while it is valid, and remember it."""
        now = time.monotonic()
        while self._times and now - self._times[0][0] > _EARLY + _LATE:
            self._seen.discard(self._times.popleft()[1])
        if signature in self._seen:
            return True
        self._seen.add(signature)
        self._times.append((now, signature))
        return False


def _local(scope: Scope) -> bool:
    """Tell whether the other end is on this machine."""
    client, server = scope.get("client"), scope.get("server")
    if not client or not server:
        return False
    return ip_address(client[0]).is_loopback or client[0] == server[0]


def _why(scope: Scope, headers: dict[str, str], status: int) -> str:
    """Return why Flower refused a request."""
    if scope["path"].startswith(_FLEET) and status in (400, 401, 403, 404, 409, 412):
        try:
            key = b64decode(headers.get("flwr-public-key", ""), validate=True)
            node = scope["app"].state.linkstate_factory.state().get_node_id_by_public_key(key)
        except Exception:
            return "a key that cannot be read"
        if node is None:
            return "an unknown or removed key"
        if status == 401:
            return f"signed by node {node}, but speaks for another (or the signature is false)"
    return f"status {status}"


def _say(scope: Scope, reason: str) -> None:
    client = scope.get("client") or ("?", 0)
    log.warning("refused %s from %s: %s", scope["path"], client[0], reason)


async def _refuse(send: Send, status: int, reason: str) -> None:
    body = reason.encode()
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Handshake(ssl.SSLObject):
    """A TLS connection whose failure to begin leaves a line."""

    def do_handshake(self) -> None:
        """Begin, or say why not."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            reasons = {
                "HTTP_REQUEST": "plaintext where TLS is spoken",
                "WRONG_VERSION_NUMBER": "plaintext where TLS is spoken",
                "TLSV1_ALERT_UNKNOWN_CA": "it does not trust this station's certificate (another authority)",
                "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not trust this station's certificate",
                "SSLV3_ALERT_BAD_CERTIFICATE": "it does not trust this station's certificate",
            }
            log.warning("refused a connection: %s", reasons.get(error.reason or "", error.reason or str(error)))
            raise
