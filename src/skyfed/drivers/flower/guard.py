"""What stands at the station's door: strangers are refused before Flower reads them, each with a line that says why.

Flower's SuperLink serves vehicles, its own executor and its operators at one port; the latter two are let in with a
secret that only the station has. Flower signs the time of a request, so one of the same key and time as before is a
replay, whatever its signature looks like: there is more than one valid signature of a time, and more than one text for
each. Flower looks at a signature once it has read the body; the first one on a connection is looked at here, before.
"""

import hmac
import json
import time
from base64 import b64decode
from collections import deque
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from skyfed.drivers.flower.credentials import QUARANTINE, read_keys
from skyfed.drivers.flower.door import HEAD, Visitor
from skyfed.drivers.flower.headers import SECRET
from skyfed.drivers.flower.log_file import log, quoted, say_refused
from skyfed.drivers.flower.sessions import SESSION, Sessions

Sign = tuple[bytes, str]  # a public key and the time that was signed
_EARLY, _LATE = 5.0, 305.0  # seconds that a vehicle's clock may be ahead, or a request old: Flower's own limits
_FLEET = "/v1/fleet/"
_DIGITS = 20  # of a request's length
_ONCE = (b"content-length", SECRET.encode(), SESSION.encode())  # Flower reads the first of two headers, others the last


class Guard:
    """ASGI middleware around a SuperLink."""

    def __init__(self, app: ASGIApp, largest: float, ready: Path, listed: Path, secret: str) -> None:
        """Read at most `largest` bytes of a request, of vehicles whose keys are in the file `listed`.

        They wait until the file `ready` is there. Who has the secret may do everything else.
        """
        self._app, self._largest, self._ready, self._listed = app, largest, ready, listed
        self._secret, self._sessions = secret.encode(), Sessions(listed.parent / QUARANTINE)
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
        visitor: Visitor = scope["visitor"]
        status, reason = self._look(scope, headers, visitor)
        if reason:
            within = visitor.door.refuse(visitor, quoted(scope["path"]), reason)
        else:
            within = visitor.known or visitor.door.spend(visitor.address)  # /health is for anyone, now and then
        if not within:
            visitor.transport.abort()
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        if reason:
            await _refusal(status, reason)(scope, receive, send)
            return
        taken, answered = 0, False
        largest = self._largest if visitor.known else 0.0  # of a stranger who asks for /health, nothing

        async def counted() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            return message if taken <= largest else {"type": "http.disconnect"}

        async def watched(message: Message) -> None:
            nonlocal answered
            if taken > largest:
                return  # it is refused below
            answered = True
            if message["type"] == "http.response.start":
                # not signed by that key: it may still send what it signs
                if message["status"] == 401 and scope["path"].startswith(_FLEET):
                    self._seen.discard(_sign(headers))
                if message["status"] >= 400:
                    say_refused(quoted(scope["path"]), visitor.address, _why(scope, headers, message["status"]))
            await send(message)

        try:
            await self._app(scope, counted, watched)
        except Exception:
            if taken <= largest:
                raise
        if taken > largest and not answered:
            reason = f"a request of more than {largest:.0f} bytes"
            visitor.door.refuse(visitor, quoted(scope["path"]), reason)
            await _refusal(413, reason)(scope, receive, send)

    def _look(self, scope: Scope, headers: dict[str, str], visitor: Visitor) -> tuple[int, str]:
        """Return status and reason of a refusal, or nothing; a connection that brings proof is known from then on."""
        path, sent = scope["path"], scope["headers"]
        if len(scope["raw_path"] + scope["query_string"]) + sum(len(name + value) + 4 for name, value in sent) > HEAD:
            return 431, f"headers of more than {HEAD} bytes"
        once = [name for name, _ in sent if name.startswith(b"flwr-") or name in _ONCE]
        if len(once) > len(set(once)):
            return 400, "a header that is there twice"
        if hmac.compare_digest(headers.get(SECRET, "").encode(), self._secret):
            visitor.door.welcome(visitor)
        elif not path.startswith(_FLEET) and path != "/health":
            return 403, "asks for what only the station itself may use"
        length = headers.get("content-length", "") or "0"
        if not (length.isascii() and length.isdecimal() and len(length) <= _DIGITS):
            return 400, "a length that cannot be read"
        if int(length) > self._largest:
            return 413, f"a request of {length} bytes; at most {self._largest:.0f} are read"
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
        if key in self._sessions.quarantined():
            return 403, "a key that is quarantined"
        verified = partial(_verified, key, stamp, headers["flwr-signature"])
        if not visitor.known and not verified():
            return 401, "a false signature"
        if reason := self._sessions.check(key, headers.get(SESSION, ""), visitor.address, verified):
            return 403, reason
        if self._again((key, stamp)):
            return 401, "a replayed request"
        visitor.door.welcome(visitor)
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


def _verified(key: bytes, stamp: str, signature: str) -> bool:
    try:
        signed = b64decode(signature, validate=True)
        return bool(verify_signature(bytes_to_public_key(key), stamp.encode("ascii"), signed))
    except ValueError:
        return False


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


def _refusal(status: int, reason: str) -> Response:
    return Response(reason, status, {"content-type": "text/plain"})
