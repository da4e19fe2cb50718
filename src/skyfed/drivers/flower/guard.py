"""What stands at the station's door: strangers are refused before Flower reads them, each with a line that says why.

Flower's SuperLink serves vehicles, its own executor and its operators at one port; the latter two are let in from this
machine alone. Flower signs the time of a request, so one of the same key and time as before is a replay, whatever its
signature looks like: there is more than one valid signature of a time, and more than one text for each.
"""

import json
import logging
import ssl
import time
from base64 import b64decode
from collections import deque
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from skyfed.drivers.flower.credentials import read_keys

Sign = tuple[bytes, str]  # a public key and the time that was signed
_EARLY, _LATE = 5.0, 305.0  # seconds that a vehicle's clock may be ahead, or a request old: Flower's own limits
_FLEET = "/v1/fleet/"

log = logging.getLogger("skyfed.guard")


class Guard:
    """ASGI middleware around a SuperLink."""

    def __init__(self, app: ASGIApp, largest: float, ready: Path, listed: Path) -> None:
        """Read at most `largest` bytes of a request, of vehicles whose keys are in the file `listed`.

        They wait until the file `ready` is there.
        """
        self._app, self._largest, self._ready, self._listed = app, largest, ready, listed
        self._since = datetime.now(UTC)
        self._keys: tuple[tuple[int, int], set[bytes]] = ((0, 0), set())
        self._seen: set[Sign] = set()
        self._times: deque[tuple[float, Sign]] = deque()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer it with a refusal."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if scope["path"].startswith(_FLEET) and not self._ready.exists():  # the keys are not registered yet
            await _refusal(503, "not ready")(scope, receive, send)
            return
        status, reason = self._look(scope, headers)
        if reason:
            _say(scope, reason)
            await _refusal(status, reason)(scope, receive, send)
            return
        taken, answered = 0, False

        async def counted() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            return message if taken <= self._largest else {"type": "http.disconnect"}

        async def watched(message: Message) -> None:
            nonlocal answered
            if taken > self._largest:
                return  # it is refused below
            answered = True
            if message["type"] == "http.response.start":
                if message["status"] == 401:  # not signed by that key: it may still send what it signs
                    self._seen.discard(_sign(headers))
                if message["status"] >= 400:
                    _say(scope, _why(scope, headers, message["status"]))
            await send(message)

        try:
            await self._app(scope, counted, watched)
        except Exception:
            if taken <= self._largest:
                raise
        if taken > self._largest and not answered:
            reason = f"a request of more than {self._largest:.0f} bytes"
            _say(scope, reason)
            await _refusal(413, reason)(scope, receive, send)

    def _look(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str]:
        """Return status and reason of a refusal, or nothing."""
        path = scope["path"]
        if not path.startswith(_FLEET) and path != "/health" and not _local(scope):
            return 403, "asks for what only the station itself may use"
        if int(headers.get("content-length", "0") or 0) > self._largest:
            return 413, f"a request of {headers['content-length']} bytes; at most {self._largest:.0f} are read"
        if not path.startswith(_FLEET):
            return 0, ""
        if not headers.get("flwr-signature") or not headers.get("flwr-timestamp"):
            return 401, "no signature"
        try:
            key, stamp = _sign(headers)
            signed = datetime.fromisoformat(stamp)
            age = (datetime.now(UTC) - signed).total_seconds()
        except (ValueError, TypeError):
            return 401, "a key or a time that cannot be read"
        if not -_EARLY < age < _LATE:
            way = "behind" if age > 0 else "ahead"
            return 401, f"its clock is {abs(age):.0f} s {way}, or the request is old and replayed"
        if signed < self._since:  # what was seen before this start is forgotten; who is honest signs anew
            return 503, "signed before this station started: old and replayed, or its clock is behind"
        if key not in self._known():
            return 412, "an unknown or removed key"
        if self._again((key, stamp)):
            return 401, "a replayed request"
        return 0, ""

    def _known(self) -> set[bytes]:
        """Return the keys that are on the list now."""
        try:
            status = self._listed.stat()
            version = (status.st_mtime_ns, status.st_ino)
            if version != self._keys[0]:
                keys = read_keys(json.loads(self._listed.read_bytes()))
                self._keys = (version, {key.encode() for key in keys.values()})
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("%s cannot be read: %s", self._listed, error)
            self._keys = ((0, 0), set())
        return self._keys[1]

    def _again(self, sign: Sign) -> bool:
        """Tell whether a key has signed this time before, and remember it while it is valid."""
        now = time.monotonic()
        while self._times and now - self._times[0][0] > _EARLY + _LATE:
            self._seen.discard(self._times.popleft()[1])
        if sign in self._seen:
            return True
        self._seen.add(sign)
        self._times.append((now, sign))
        return False


def _sign(headers: dict[str, str]) -> Sign:
    """Return whose key a request names, and the time it signs; raises ValueError for no key."""
    return b64decode(headers.get("flwr-public-key", ""), validate=True), headers.get("flwr-timestamp", "")


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
            key, _ = _sign(headers)
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


def _refusal(status: int, reason: str) -> Response:
    return Response(reason, status, {"content-type": "text/plain"})


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
