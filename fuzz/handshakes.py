"""Requests at the station's door: damaged keys, times, signatures, sessions, headers and paths, one or a few in a row.

The guard is real and new for every input; Flower behind it, the connection and the clock are stand-ins. Every exception
is foreign. A wrong accept is a request that gets to Flower although it neither has the station's secret, nor asks for
/health, nor is a vehicle's. A vehicle's has a listed key that is not quarantined, a time that is fresh and was not used
before, a session, and on a connection that is not known yet a signature that verifies. It is also a wrong accept if a
header is there twice that may be there once, if headers are too long, or if more bytes are read than allowed.
"""

import json
import random
import re
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from damage import TEXTS, Decoder, Violation, change_bytes, junk

from skyfed.drivers.flower import guard as guard_module
from skyfed.drivers.flower.credentials import LISTED, QUARANTINE
from skyfed.drivers.flower.door import HEAD
from skyfed.drivers.flower.guard import Guard
from skyfed.drivers.flower.headers import SECRET
from skyfed.drivers.flower.sessions import SESSION

LARGEST, OWN = 1000, b"s3cret"  # bytes that are read of a request, and the station's secret
START = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)  # when the guard is made; the first request comes a minute later
KEYS = [ec.derive_private_key(10**30 + k, ec.SECP384R1()) for k in range(4)]  # 0 and 1 are listed, 2 is quarantined
PUBLIC = [
    key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    for key in KEYS
]
FLEET = "/v1/fleet/pull-messages"
PATHS = (
    FLEET, "/v1/fleet/", "/v1/fleet", "/v1/fleet/../control/x", "//v1/fleet/x", "/V1/FLEET/x", "/v1/control/list-runs",
    "/v1/runtime/x", "/health", "/health/", "/health?x", "/", "", "*", "/v1/fleet/\0", "/v1/fleet/\n\x1b[31m",
    "/\ud800", "/openapi.json", "/v1/fleet/%2e%2e/control", "http://x/v1/fleet/x",
)  # fmt: skip
LENGTHS = (
    b"", b"0", b"10", b"1000", b"1001", b"-1", b"+5", b"1_0", b" 7", b"1e3", b"9" * 20, b"9" * 5000, b"\xb2", b"0x10",
    b"10, 10", b"\xd9\xa1",
)  # fmt: skip
ONCE = (b"content-length", SECRET.encode(), SESSION.encode())
PROVING = (b"flwr-public-key", b"flwr-timestamp", b"flwr-signature", SESSION.encode())
Headers = list[tuple[bytes, bytes]]


@dataclass
class Request:
    """A request, on a connection of its own or on that of the request before; `after` seconds later."""

    path: str
    headers: Headers
    query: bytes = b""
    body: tuple[int, ...] = ()
    same: bool = False
    after: float = 1.0
    status: int = 200  # that Flower answers


class _Clock(datetime):
    """Stands in for `datetime` in the guard."""

    present = START

    @classmethod
    def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
        """Return the fuzzer's time."""
        return cls.present


class _Visitor:
    """Stands in for a connection and for the door."""

    address = "192.0.2.1"

    def __init__(self) -> None:
        self.known, self.door, self.transport, self.lines = False, self, self, list[str]()

    def welcome(self, visitor: Any) -> None:
        """Count a connection as known."""
        self.known = True

    def refuse(self, visitor: Any, what: str, reason: str) -> bool:
        """Note a refusal."""
        self.lines += [what, reason]
        return True

    def spend(self, address: str) -> bool:
        """Let everything pass."""
        return True

    def abort(self) -> None:
        """Close."""


@dataclass
class _Flower:
    """Stands in for the SuperLink: reads the body, and verifies signatures."""

    reached: bool = False
    taken: int = 0
    status: int = 200

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.reached = True
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise RuntimeError("the client has gone")
            self.taken += len(message["body"])
            if not message["more_body"]:
                break
        if scope["path"].startswith("/v1/fleet/") and not _signed(scope["headers"]):
            self.status = 401
        await send({"type": "http.response.start", "status": self.status, "headers": []})


class Handshakes(Decoder[list[Request]]):
    """Requests, looked at by `skyfed.drivers.flower.guard.Guard`."""

    def __init__(self) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="skyfed-fuzz-")
        place = Path(self._place.name)
        self._listed, self._quarantine = place / LISTED, place / QUARANTINE
        listed = {str(k): PUBLIC[k].decode() for k in range(3)}
        self._listed.write_text(json.dumps({"address": "127.0.0.1:1", "vehicles": listed}))
        self._reset()
        own = (SECRET.encode(), OWN)
        fleet = Request(FLEET, _headers(0, 0.0), body=(10, 20))
        self.valid = [
            [fleet], [Request(FLEET, _headers(1, -50.0, "b" * 16))], [Request("/health", [])],
            [Request("/v1/control/x", [own], body=(1000,))], [fleet, Request(FLEET, _headers(0, 1.0), same=True)],
            [fleet, Request(FLEET, _headers(0, 2.0, "c" * 64)), Request(FLEET, _headers(0, 3.0, "a" * 32))],
        ]  # fmt: skip

    def close(self) -> None:
        """Remove the files of the list."""
        self._place.cleanup()

    def _reset(self) -> None:
        self._quarantine.write_text(json.dumps({PUBLIC[2].decode(): "used twice"}))

    def damaged(self, rand: random.Random) -> list[Request]:
        """Make up to four requests, each damaged or not."""
        requests: list[Request] = []
        for _ in range(rand.choice((1, 1, 1, 1, 2, 2, 4))):
            who = rand.choice((0, 0, 0, 1, 1, 2, 3))
            session = rand.choice(("a" * 32, "a" * 32, "b" * 16, "c" * 64))
            shift = rand.choice((0.0, 0.0, 1.0, 2.0, 4.0, -50.0, -200.0, 6.0, -61.0, -400.0, 1e6, -1e6))
            request = Request(FLEET, _headers(who, shift, session))
            if requests and rand.random() < 0.3:  # a replay, or a part of one
                request.headers = list(rand.choice(requests).headers)
            for _ in range(rand.choice((0, 1, 1, 1, 2, 3))):
                _damage(request, rand)
            request.same = rand.random() < 0.5
            request.after = rand.choice((0.0, 1.0, 1.0, 20.0))
            request.status = rand.choice((200, 200, 200, 401, 404, 500))
            requests.append(request)
        return requests

    def check(self, given: list[Request]) -> str | None:
        """Send the requests to a new guard; the reason is that of the last one."""
        return _run(self._check(given))

    async def _check(self, given: list[Request]) -> str | None:
        real = guard_module.datetime, guard_module.say_refused
        guard_module.datetime = _Clock  # type: ignore[misc]
        guard_module.say_refused = lambda *line: visitor.lines.extend(line)
        _Clock.present = START
        flower, visitor, seconds = _Flower(), _Visitor(), 60.0
        try:
            guard = Guard(flower, LARGEST, self._listed, self._listed, OWN.decode())
            guard._sessions._clock = lambda: seconds
            used: set[tuple[bytes, bytes]] = set()
            reason = None
            for request in given:
                seconds += request.after
                _Clock.present = START + timedelta(seconds=seconds)
                if not request.same:
                    visitor = _Visitor()
                flower.reached, flower.taken, flower.status = False, 0, request.status
                reason = await self._ask(guard, flower, visitor, request, used)
            return reason
        finally:
            guard_module.datetime, guard_module.say_refused = real  # type: ignore[misc]
            if self._quarantine.read_bytes().count(b"BEGIN") != 1:
                self._reset()

    async def _ask(
        self, guard: Guard, flower: _Flower, visitor: _Visitor, request: Request, used: set[tuple[bytes, bytes]]
    ) -> str | None:
        """Return why a request is refused; raises Violation where it should have been, and was not."""
        sent: list[dict[str, Any]] = []
        body = [b"x" * size for size in request.body] or [b""]
        known, visitor.lines = visitor.known, []

        async def receive() -> Any:
            if not body:
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": body.pop(0), "more_body": bool(body)}

        async def send(message: Any) -> None:
            sent.append(message)

        raw = request.path.encode("utf-8", "surrogatepass")
        scope = {"type": "http", "path": request.path, "raw_path": raw, "query_string": request.query,
                 "headers": request.headers, "visitor": visitor}  # fmt: skip
        try:
            await guard(scope, receive, send)
        except Exception as error:
            if not (flower.reached and isinstance(error, RuntimeError)):  # Flower's own: the client has gone
                raise Violation(f"a foreign exception: {type(error).__name__}: {error}") from error
        if any(not line.isprintable() or not line.isascii() or len(line) > 300 for line in visitor.lines):
            raise Violation(f"a line that is not one short line: {visitor.lines}")
        if flower.reached:
            self._check_reached(flower, request, known, used)
            return None
        if not sent or sent[0]["status"] < 400:
            raise Violation(f"a refusal without an answer: {sent}")
        return visitor.lines[-1] if visitor.lines else "not ready"

    def _check_reached(self, flower: _Flower, request: Request, known: bool, used: set[tuple[bytes, bytes]]) -> None:
        names = [name for name, _ in request.headers if name.startswith(b"flwr-") or name in ONCE]
        values = dict(request.headers)
        secret = values.get(SECRET.encode()) == OWN
        if len(names) > len(set(names)) or sum(len(name + value) for name, value in request.headers) > HEAD:
            raise Violation("a header twice, or headers that are too long")
        if flower.taken > (LARGEST if known or secret or request.path.startswith("/v1/fleet/") else 0):
            raise Violation(f"{flower.taken} bytes are read")
        length = values.get(b"content-length", b"0")
        if not re.fullmatch(rb"[0-9]{0,20}", length) or int(length or 0) > LARGEST:
            raise Violation(f"a length of {length!r}")
        if request.path.startswith("/v1/fleet/"):
            self._check_vehicle(values, known or secret, used)
            if flower.status == 401:  # it may still send what it signs
                used.discard((b64decode(values[PROVING[0]]), values[PROVING[1]]))
        elif not secret and request.path != "/health":
            raise Violation(f"a stranger reaches {request.path!r}")

    def _check_vehicle(self, values: dict[bytes, bytes], known: bool, used: set[tuple[bytes, bytes]]) -> None:
        if any(name not in values for name in PROVING):
            raise Violation("a vehicle that proves nothing")
        kept_out = self._quarantine.read_text()
        public = b64decode(values[PROVING[0]])
        if public not in PUBLIC[:3] or json.dumps(public.decode()) in kept_out:
            raise Violation("a key that is not listed, or is quarantined")
        stamp = values[PROVING[1]].decode("ascii")
        age = (_Clock.present - datetime.fromisoformat(stamp)).total_seconds()
        if not -5 < age < 305 or datetime.fromisoformat(stamp) < START:
            raise Violation(f"a time {age} s ago")
        if not re.fullmatch(rb"[0-9A-Za-z]{16,64}", values[PROVING[3]]):
            raise Violation(f"a session {values[PROVING[3]]!r}")
        if (public, values[PROVING[1]]) in used:
            raise Violation("a replayed request")
        used.add((public, values[PROVING[1]]))
        if not known and not _signed(list(values.items())):
            raise Violation("a stranger without a signature")


def _run(coroutine: Coroutine[Any, Any, str | None]) -> str | None:
    """Run what never waits, without a loop."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        value: str | None = end.value
        return value
    raise Violation("the guard waits")


@cache
def _stamped(who: int, shift: float) -> tuple[bytes, bytes]:
    """Return a time, relative to that of the first request, and its signature; the same in every run."""
    stamp = (START + timedelta(seconds=61 + shift)).isoformat().encode()
    how = ec.ECDSA(hashes.SHA256(), deterministic_signing=True)
    return stamp, b64encode(KEYS[who].sign(stamp, how))


def _headers(who: int, shift: float, session: str = "a" * 32) -> Headers:
    stamp, signature = _stamped(who, shift)
    shown = b64encode(PUBLIC[who]), stamp, signature, session.encode()
    return [(b"host", b"station"), (b"content-type", b"application/x-protobuf"), *zip(PROVING, shown, strict=True)]


@cache
def _verified(public: bytes, stamp: bytes, signature: bytes) -> bool:
    try:
        PUBLIC_KEYS[public].verify(b64decode(signature, validate=True), stamp, ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, ValueError, KeyError):
        return False
    return True


PUBLIC_KEYS = {b64encode(text): key.public_key() for text, key in zip(PUBLIC, KEYS, strict=True)}


def _signed(headers: Headers) -> bool:
    values = dict(headers)
    return _verified(*(values.get(name, b"") for name in PROVING[:3]))


def _damage(request: Request, rand: random.Random) -> None:
    how = rand.randrange(12)
    at = rand.randrange(len(request.headers)) if request.headers else 0
    names = [rand.choice((*PROVING, *ONCE)), b"flwr-token", b"x", b"host", b"transfer-encoding"]
    if how == 0:
        request.path = rand.choice(PATHS)
    elif how == 1 and request.headers:
        del request.headers[at]
    elif how == 2 and request.headers:  # the same header twice
        name, value = request.headers[at]
        request.headers.append((name, value if rand.random() < 0.5 else _value(rand)))
    elif how < 6:
        _set(request.headers, rand.choice(PROVING), rand)
    elif how == 6:
        request.headers.append((rand.choice(names), _value(rand)))
    elif how == 7:
        request.headers.append((b"content-length", rand.choice(LENGTHS)))
    elif how == 8:
        request.body = tuple(rand.choice((0, 1, 500, 999, 1000, 1001, 5000)) for _ in range(rand.randrange(4)))
    elif how == 9:
        request.headers.append(
            (SECRET.encode(), rand.choice((OWN, OWN, b"", b"s3cre", b"S3CRET", b"s3cret ", b"\xff")))
        )
        request.path = rand.choice(PATHS)
    elif how == 10:
        request.query = rand.choice((b"", b"x=1", b"x" * HEAD, b"\0"))
    else:
        request.headers += [(rand.choice((b"x", b"x", b"flwr-x")), b"y")] * rand.choice((1, 2, 400, 4000))


def _value(rand: random.Random) -> bytes:
    how = rand.randrange(5)
    if how == 0:
        return rand.choice(TEXTS).encode("utf-8", "surrogatepass")
    if how == 1:
        return junk(rand.randrange(40), rand)
    if how == 2:
        return b"x" * rand.choice((16, 64, 65, HEAD - 1, HEAD, 3 * HEAD))
    return b64encode(junk(rand.randrange(80), rand))


def _set(headers: Headers, name: bytes, rand: random.Random) -> None:
    """Change one of the headers that prove who asks."""
    for k, (known, value) in enumerate(headers):
        if known != name:
            continue
        changed = bytearray(value)
        how = rand.randrange(6)
        if how == 0:
            changed[:] = _value(rand)
        elif how == 1:
            changed[:] = dict(_headers(rand.randrange(4), rand.choice((0.0, 1.0, -50.0))))[name]
        elif how == 2 and name == b"flwr-timestamp":
            changed[:] = _odd_time(value, rand)
        elif how == 3 and name == b"flwr-public-key":
            changed[:] = _odd_key(value, rand)
        elif how == 4:
            changed[:] = rand.choice(
                (value + b"=", value + b"\n", b" " + value, value.upper(), value + value, value[:-1])
            )
        elif name == SESSION.encode():
            changed[:] = rand.choice(
                (b"", b"a" * 15, b"a" * 65, b"\xe4" * 32, b"\xb2" * 20, b"a-" * 16, b"a" * 31 + b"\n")
            )
        else:
            change_bytes(changed, rand)
        headers[k] = (known, bytes(changed))


def _odd_time(value: bytes, rand: random.Random) -> bytes:
    """Return times in other forms, without a zone, at the ends of the calendar, or none."""
    text = value.decode("latin-1")
    return rand.choice((
        text.replace("+00:00", "Z"), text.replace("+00:00", ""), text.replace("T", " "), "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59", "2026-W18-5T12:01:00Z", "20260501T120100Z", "2026-05-01", "nan", "1e9", "",
        text.replace("+00:00", "+00:00:00.000001"), text.replace("2026", "\xb2026"), "2026-05-01T24:00:00+00:00",
        text.replace("+00:00", "+14:00"), "9" * 400,
    )).encode("latin-1")  # fmt: skip


def _odd_key(value: bytes, rand: random.Random) -> bytes:
    """Return keys in other texts: with blanks, other line ends, another curve, or no key at all."""
    try:
        text = b64decode(value)
    except ValueError:
        text = b""
    return b64encode(rand.choice((
        text + b"\n", text.replace(b"\n", b"\r\n"), text.strip(), b" " + text, text + text, b"",
        text.replace(b"PUBLIC", b"PRIVATE"), b"-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----\n",
    )))  # fmt: skip
