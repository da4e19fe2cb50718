"""Strangers at the station's door: refused, each with a line in its log that says why."""

import contextlib
import json
import os
import re
import shutil
import socket
import ssl
from base64 import b64decode, b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import numpy as np
import pytest

pytest.importorskip("flwr")

from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.proto.fleet_pb2 import ActivateNodeRequest, ActivateNodeResponse, PullMessagesRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE

from fleet_cases import SMALL, Yard, children, says, sets
from skyfed.cli import run_arguments
from skyfed.drivers.flower.credentials import make_credentials
from skyfed.drivers.flower.sessions import SESSION
from skyfed.flight.fleet_plan import load_fleet_plan
from skyfed.runs.lock import locked
from waiting import LONG, wait_until


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """Vehicle 1 speaks for itself, 2 is let in, 3 loses its key; tests run in any order, in several processes."""
    place = tmp_path_factory.mktemp("strangers") / "yard"
    with Yard(place, 4, 'algorithms=["afl"]', "fleet.deadline=500", "fleet.largest=1e6") as found:
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
        SESSION: place.name.replace("-", "").ljust(32, "0"),
    }


def public(place: Path) -> bytes:
    return public_key_to_bytes(load_ssh_private_key((place / "vehicle.key").read_bytes(), None).public_key())


def post(yard: Yard, path: str, content: bytes | Iterator[bytes], headers: dict[str, str]) -> httpx.Response:
    trusted = ssl.create_default_context(cafile=str(yard.place / "vehicle-0" / "ca.pem"))
    with httpx.Client(verify=trusted, timeout=LONG) as client:
        return client.post(f"https://127.0.0.1:{yard.port}/v1/fleet/{path}", content=content, headers=headers)


def activate(yard: Yard, place: Path, headers: dict[str, str] | None = None) -> httpx.Response:
    request = ActivateNodeRequest(public_key=public(place), heartbeat_interval=30).SerializeToString()
    return post(yard, "activate-node", request, headers or signed(place))


def logged(yard: Yard, words: str) -> bool:
    return wait_until(lambda: says(yard.log, words))


def test_a_registered_vehicle_is_let_in(yard):
    assert activate(yard, yard.place / "vehicle-2").status_code == 200


def test_plaintext_is_refused(yard):
    with socket.create_connection(("127.0.0.1", yard.port)) as line, contextlib.suppress(OSError):
        line.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200" not in line.recv(100)
    assert logged(yard, "plaintext where TLS is spoken")


def test_a_vehicle_with_another_authority_refuses_the_station(yard, tmp_path):
    make_credentials(tmp_path / "other", [], "127.0.0.1:1")
    other = ssl.create_default_context(cafile=str(tmp_path / "other" / "ca.pem"))
    with pytest.raises(httpx.ConnectError, match="certificate"), httpx.Client(verify=other, timeout=LONG) as client:
        client.get(f"https://127.0.0.1:{yard.port}/health")
    assert logged(yard, "does not trust this station's certificate")


def test_an_unknown_key_is_refused(yard, tmp_path):
    make_credentials(tmp_path / "other", [tmp_path / "stranger"], "127.0.0.1:1")
    assert activate(yard, tmp_path / "stranger").status_code == 412
    assert logged(yard, "refused '/v1/fleet/activate-node' from 127.0.0.1: an unknown or removed key")


def test_a_replayed_request_is_refused(yard):
    place = yard.place / "vehicle-0"
    headers = signed(place)
    assert activate(yard, place, headers).status_code in (200, 412)  # signed well; it may be in touch already
    assert activate(yard, place, headers).status_code == 401
    assert logged(yard, "a replayed request")
    for other in (mirrored(headers), reworded(headers)):
        assert other["flwr-signature"] != headers["flwr-signature"]
        assert activate(yard, place, other).status_code == 401


def mirrored(headers: dict[str, str]) -> dict[str, str]:
    """Return the same with the other valid signature (r, n - s) of elliptic curves."""
    r, s = decode_dss_signature(b64decode(headers["flwr-signature"]))
    order = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFC7634D81F4372DDF581A0DB248B0A77AECEC196ACCC52973
    return {**headers, "flwr-signature": b64encode(encode_dss_signature(r, order - s)).decode()}


def reworded(headers: dict[str, str]) -> dict[str, str]:
    """Return the same with other unused bits at the end of the signature's text, or a line's end in it."""
    text = headers["flwr-signature"]
    if not text.endswith("="):
        return {**headers, "flwr-signature": text + "===="}
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    last = text.rstrip("=")
    changed = last[:-1] + letters[letters.index(last[-1]) ^ 1] + text[len(last) :]
    return {**headers, "flwr-signature": changed}


def test_a_request_signed_before_the_station_started_is_refused(yard):
    place = yard.place / "vehicle-0"
    before = (yard.began - datetime.now(UTC)).total_seconds()
    assert activate(yard, place, signed(place, before)).status_code == 503
    assert logged(yard, "signed before this station started")


def test_a_false_signature_keeps_nobody_out(yard):
    """Who knows a vehicle's key and guesses its next time cannot use it up."""
    place = yard.place / "vehicle-0"
    headers = signed(place)
    false = {**headers, "flwr-signature": signed(yard.place / "vehicle-1")["flwr-signature"]}
    assert activate(yard, place, false).status_code == 401
    assert activate(yard, place, headers).status_code in (200, 412)


@pytest.mark.parametrize(("shift", "way"), [(-10_000_000, "behind"), (10_000_000, "ahead")])
def test_a_wrong_clock_is_named(yard, shift, way):
    place = yard.place / "vehicle-0"
    assert activate(yard, place, signed(place, shift)).status_code == 401
    assert logged(yard, f" s {way}, or the request is old and replayed")
    (said,) = re.findall(rf"its clock is (\d+) s {way}", yard.log.read_text(errors="replace"))
    assert abs(int(said) - abs(shift)) < LONG


def test_an_oversize_request_is_refused_unread(yard):
    assert post(yard, "push-object", b"\0" * 1_100_000, signed(yard.place / "vehicle-0")).status_code == 413
    assert logged(yard, "a request of 1100000 bytes; at most 1000000 are read")


def test_an_oversize_request_without_a_length_is_refused_too(yard):
    pieces = (b"\0" * 100_000 for _ in range(11))
    reply = post(yard, "push-object", pieces, signed(yard.place / "vehicle-0"))
    assert reply.status_code == 413
    assert logged(yard, "a request of more than 1000000 bytes")
    assert "status 500" not in yard.log.read_text(errors="replace")


def test_flower_is_started_quietly_and_with_a_home_of_its_own(yard):
    (link,) = children(yard.processes["station"], "skyfed.drivers.flower.link")
    environment = Path(f"/proc/{link}/environ").read_text().split("\0")
    home = (yard.run / "fleet" / "flower").resolve()
    assert {"FLWR_TELEMETRY_ENABLED=0", f"FLWR_HOME={home}"} <= set(environment)
    assert "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1" in environment
    assert "--disable-runtime-dependency-installation" in Path(f"/proc/{link}/cmdline").read_text()


def test_a_port_that_is_taken_is_named(yard, capsys):
    other = yard.place / "other"
    words = ["--address", f"127.0.0.1:{yard.port}", "--vehicles", "1", *sets(*SMALL)]
    assert run_arguments(["fleet", "keys", "smoke", *words, "--out", str(other), "--plain"]) == 0
    assert run_arguments(["fleet", "station", str(other / "station"), "--plain"]) == 2
    assert f"port {yard.port}: Address already in use" in capsys.readouterr().err


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


def test_a_removed_key_is_refused_at_once_until_it_is_put_back(yard):
    three = yard.place / "vehicle-3"
    listed = yard.run / "fleet" / "vehicles.json"
    assert run_arguments(["fleet", "revoke", str(yard.run), "3"]) == 0
    assert logged(yard, "the list of keys has changed: 3 vehicles")
    assert activate(yard, three).status_code == 412
    assert "3" not in json.loads(listed.read_bytes())["vehicles"]
    assert run_arguments(["fleet", "restore", str(yard.run), "3"]) == 0
    assert logged(yard, "the list of keys has changed: 4 vehicles")
    assert activate(yard, three).status_code == 200
    assert "starting it again" not in yard.log.read_text(errors="replace")


def test_folders_that_are_none_are_refused(tmp_path, capsys):
    assert run_arguments(["fleet", "station", str(tmp_path)]) == 2
    assert run_arguments(["fleet", "vehicle", str(tmp_path)]) == 2
    assert "not a" in capsys.readouterr().err


@pytest.mark.parametrize(
    "address",
    [
        "nowhere", "x:", ":9092", "x:0", "x:65536", "x:²", "stätion:9092", "http://x:9092", "a b:9092", "::1:9092",
        "[::1]:9092", "*.x:9092", "10.0.0.999:9092", "-x:9092", f"{'a' * 64}:9092", "x..y:9092",
    ],
)  # fmt: skip
def test_addresses_that_are_none_are_refused(tmp_path, capsys, address):
    assert run_arguments(["fleet", "keys", "smoke", "--out", str(tmp_path / "x"), "--address", address]) == 2
    assert "allowed: host:port" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place, before = tmp_path_factory.mktemp("credentials") / "fleet", os.umask(0o022)
    words = ["--address", "station.example:9092", "--vehicles", "2", *sets(*SMALL)]
    assert run_arguments(["fleet", "keys", "smoke", *words, "--out", str(place), "--plain"]) == 0
    assert os.umask(before) == 0o022
    return place


DAMAGE = [
    ("vehicle-1/vehicle.json", '{"vehicle": null, "station": "x:1"}', "vehicle.json: damaged"),
    ("vehicle-1/vehicle.json", '{"vehicle": 7, "station": "x:1"}', "vehicle 7; allowed: 0 to 1"),
    ("vehicle-1/vehicle.json", '{"vehicle": -1, "station": "x:1"}', "vehicle -1; allowed: 0 to 1"),
    ("vehicle-1/vehicle.json", '{"vehicle": 1, "station": "nowhere"}', "vehicle.json: station 'nowhere'"),
    ("vehicle-1/vehicle.json", "[]", "vehicle.json: damaged"),
    ("vehicle-1/vehicle.json", "{", "vehicle.json: damaged"),
    ("vehicle-1/vehicle.key", "no key", "vehicle.key: damaged"),
    ("vehicle-1/vehicle.key", "", "vehicle.key: damaged"),
    ("vehicle-1/ca.pem", None, "no ca.pem"),
    ("vehicle-1/plan.npz", "x", "plan.npz"),
    ("station/fleet/vehicles.json", '{"address": "x:1", "vehicles": {"0": "no key"}}', "vehicles.json: damaged"),
    ("station/fleet/vehicles.json", '{"address": "x:1", "vehicles": null}', "vehicles.json: damaged"),
    ("station/fleet/vehicles.json", '{"address": "nowhere", "vehicles": {}}', "address 'nowhere'"),
    ("station/fleet/key.pem", None, "no key.pem"),
    ("station/fleet/runtime.secret", None, "no runtime.secret"),
]


@pytest.mark.parametrize(("name", "text", "words"), DAMAGE)
def test_damaged_credentials_are_named_in_a_line(folders, tmp_path, capsys, name, text, words):
    place = tmp_path / "fleet"
    shutil.copytree(folders, place)
    (place / name).unlink()
    if text is not None:
        (place / name).write_text(text)
    verb = ["station", str(place / "station")] if name.startswith("station") else ["vehicle", str(place / "vehicle-1")]
    assert run_arguments(["fleet", *verb]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_a_vehicle_carries_nobody_elses_flight(folders):
    whole, own = (load_fleet_plan(folders / name / "plan.npz") for name in ("station", "vehicle-1"))
    assert not np.array_equal(whole.positions[0], whole.positions[1])
    for part in ("positions", "association", "centres", "psi"):
        assert np.array_equal(getattr(own, part)[0], getattr(whole, part)[1]), part
        assert np.array_equal(getattr(own, part)[1], getattr(whole, part)[1]), part


def test_folders_of_a_fleet_are_for_their_owner_alone(folders):
    assert not [path for path in (folders, *folders.rglob("*")) if path.stat().st_mode & 0o077]


def test_a_vehicles_folder_belongs_to_one_process(folders, capsys):
    with locked(folders / "vehicle-0"):
        assert run_arguments(["fleet", "vehicle", str(folders / "vehicle-0")]) == 3
    assert "vehicle-0" in capsys.readouterr().err


def test_a_rehearsal_and_a_station_do_not_take_each_others_folders(folders, tmp_path, capsys):
    before = (folders / "station" / "fleet" / "vehicles.json").read_bytes()
    words = ["fleet", "try", "smoke", "--vehicles", "2", *sets(*SMALL), "--out", str(folders / "station"), "--plain"]
    assert run_arguments(words) == 2
    assert "a station's folder, whose keys vehicles have" in capsys.readouterr().err
    assert (folders / "station" / "fleet" / "vehicles.json").read_bytes() == before
    shutil.copytree(folders, tmp_path / "tried")
    make_credentials(tmp_path / "tried" / "station" / "fleet", [], "127.0.0.1:9092", rehearsal=True)
    assert run_arguments(["fleet", "station", str(tmp_path / "tried" / "station")]) == 2
    assert "made by skyfed fleet try" in capsys.readouterr().err


def test_a_renewed_certificate_is_shown_at_once(yard):
    before = ssl.get_server_certificate(("127.0.0.1", yard.port))
    assert run_arguments(["fleet", "renew", str(yard.run)]) == 0
    assert wait_until(lambda: ssl.get_server_certificate(("127.0.0.1", yard.port)) != before)
    assert activate(yard, yard.place / "vehicle-2").status_code in (200, 412)  # it trusts the authority's key
