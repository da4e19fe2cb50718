"""Strangers at the station's door: refused, each with a line in its log that says why."""

import asyncio
import contextlib
import json
import socket
import ssl
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("flwr")

from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.proto.fleet_pb2 import ActivateNodeRequest, ActivateNodeResponse, PullMessagesRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE

from fleet_cases import Yard, says, until
from skyfed.cli import run_arguments
from skyfed.drivers.flower.guard import Guard
from skyfed.drivers.flower.kits import make_kits

pytestmark = [pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    place = tmp_path_factory.mktemp("strangers") / "yard"
    with Yard(place, 2, 'algorithms=["afl"]', "fleet.deadline=500", "fleet.largest=1e6") as found:
        found.station()
        found.wait("the station listens")
        yield found


def signed(place: Path, shift: float = 0.0) -> dict[str, str]:
    """Return the headers with which a vehicle signs, as of now or of another time."""
    key = load_ssh_private_key((place / "vehicle.key").read_bytes(), None)
    stamp = (datetime.now(UTC) + timedelta(seconds=shift)).isoformat()
    return {
        "content-type": PROTOBUF_MEDIA_TYPE,
        "flwr-public-key": b64encode(public_key_to_bytes(key.public_key())).decode(),
        "flwr-timestamp": stamp,
        "flwr-signature": b64encode(sign_message(key, stamp.encode())).decode(),
    }


def public(place: Path) -> bytes:
    return public_key_to_bytes(load_ssh_private_key((place / "vehicle.key").read_bytes(), None).public_key())


def post(yard: Yard, path: str, content: bytes, headers: dict[str, str]) -> httpx.Response:
    trusted = ssl.create_default_context(cafile=str(yard.place / "vehicle-0" / "ca.pem"))
    with httpx.Client(verify=trusted) as client:
        return client.post(f"https://127.0.0.1:{yard.port}/v1/fleet/{path}", content=content, headers=headers)


def activate(yard: Yard, place: Path, headers: dict[str, str] | None = None) -> httpx.Response:
    request = ActivateNodeRequest(public_key=public(place), heartbeat_interval=30).SerializeToString()
    return post(yard, "activate-node", request, headers or signed(place))


def logged(yard: Yard, words: str) -> bool:
    with contextlib.suppress(AssertionError):
        until(lambda: says(yard.log, words), 5)
    return says(yard.log, words)


def test_a_registered_vehicle_is_let_in(yard):
    assert activate(yard, yard.place / "vehicle-0").status_code == 200


def test_plaintext_is_refused(yard):
    with socket.create_connection(("127.0.0.1", yard.port)) as line, contextlib.suppress(OSError):
        line.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200" not in line.recv(100)
    assert logged(yard, "plaintext where TLS is spoken")


def test_a_vehicle_with_another_authority_refuses_the_station(yard, tmp_path):
    make_kits(tmp_path / "other", [], "127.0.0.1:1")
    other = ssl.create_default_context(cafile=str(tmp_path / "other" / "ca.pem"))
    with pytest.raises(httpx.ConnectError, match="certificate"), httpx.Client(verify=other) as client:
        client.get(f"https://127.0.0.1:{yard.port}/health")
    assert logged(yard, "does not trust this station's certificate")


def test_an_unknown_key_is_refused(yard, tmp_path):
    make_kits(tmp_path / "other", [tmp_path / "stranger"], "127.0.0.1:1")
    assert activate(yard, tmp_path / "stranger").status_code == 412
    assert logged(yard, "activate-node from 127.0.0.1: an unknown or removed key")


def test_a_replayed_request_is_refused(yard):
    place = yard.place / "vehicle-0"
    headers = signed(place)
    assert activate(yard, place, headers).status_code in (200, 412)  # signed well; it may be in touch already
    assert activate(yard, place, headers).status_code == 401
    assert logged(yard, "a replayed request")


@pytest.mark.parametrize(("shift", "words"), [(-3600, "3600 s behind"), (3600, "3600 s ahead")])
def test_a_wrong_clock_is_named(yard, shift, words):
    place = yard.place / "vehicle-0"
    assert activate(yard, place, signed(place, shift)).status_code == 401
    assert logged(yard, f"its clock is {words}")


def test_an_oversize_request_is_refused_unread(yard):
    assert post(yard, "push-object", b"\0" * 1_100_000, signed(yard.place / "vehicle-0")).status_code == 413
    assert logged(yard, "a request of 1100000 bytes; at most 1000000 are read")


def test_a_vehicle_cannot_speak_for_another(yard):
    zero, one = (yard.place / f"vehicle-{u}" for u in range(2))
    reply = activate(yard, one)
    assert reply.status_code == 200
    node = ActivateNodeResponse.FromString(reply.content).node_id
    request = PullMessagesRequest(node=Node(node_id=node)).SerializeToString()
    assert post(yard, "pull-messages", request, signed(zero)).status_code == 401
    assert logged(yard, "speaks for another")


def test_unsigned_requests_are_refused(yard):
    assert post(yard, "pull-messages", b"", {"content-type": PROTOBUF_MEDIA_TYPE}).status_code == 401
    assert logged(yard, "no signature")


def test_a_removed_key_is_refused_at_once(yard):
    one = yard.place / "vehicle-1"
    listed = yard.run / "fleet" / "vehicles.json"
    before = listed.read_bytes()
    assert run_arguments(["fleet", "revoke", str(yard.run), "1"]) == 0
    assert logged(yard, "the list of keys has changed: 1 vehicles")
    until(lambda: activate(yard, one).status_code == 412, 20)
    assert "1" not in json.loads(listed.read_bytes())["vehicles"]
    listed.write_bytes(before)


def test_only_the_station_itself_may_operate_it():
    """From another machine, the doors of operators and executors are shut."""
    sent: list[dict[str, Any]] = []

    async def inside(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "path": "/v1/control/register-node", "headers": [],
        "client": ("192.0.2.7", 5), "server": ("192.0.2.1", 9092),
    }  # fmt: skip
    guard = Guard(inside, 1e6, Path("/"))
    asyncio.run(guard(scope, None, send))
    assert sent[0]["status"] == 403


def test_folders_that_are_none_are_refused(tmp_path, capsys):
    assert run_arguments(["fleet", "station", str(tmp_path)]) == 2
    assert run_arguments(["fleet", "vehicle", str(tmp_path)]) == 2
    assert run_arguments(["fleet", "keys", "smoke", "--out", str(tmp_path / "x"), "--address", "nowhere"]) == 2
    assert "host:port" in capsys.readouterr().err
