"""A vehicle: a SuperNode that speaks with the station, and this process, which has data and model loaded and trains."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import httpx
from flwr.proto.fleet_pb2 import DeactivateNodeRequest
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from skyfed.drivers.flower.credentials import VehicleCredentials, own_key
from skyfed.drivers.flower.station import QUIET, end, free_port
from skyfed.errors import BadInputError
from skyfed.files import write_whole
from skyfed.runs.folder import RunFolder, locked

_AGAIN = 2.0  # seconds before a SuperNode that ended is started again


def fly(kit: VehicleCredentials, say: Callable[[str], None]) -> None:
    """Load everything, then train whenever the station asks, until a signal comes."""
    place, config = kit.place.resolve(), RunFolder.config_of(kit.place)
    if not 0 <= kit.vehicle < config.vehicles:
        raise BadInputError(f"{kit.place / 'vehicle.json'}: vehicle {kit.vehicle}; allowed: 0 to {config.vehicles - 1}")
    with locked(place):
        _fly(kit, place, config.fleet.poll, say)


def _fly(kit: VehicleCredentials, place: Path, poll: float, say: Callable[[str], None]) -> None:
    from skyfed.drivers.flower.client_app import board
    from skyfed.drivers.flower.tasks import serve_vehicle

    board(place, kit.vehicle)
    say(f"vehicle {kit.vehicle} is ready for {kit.station}")
    home = place / "flower"
    home.mkdir(exist_ok=True)
    while True:
        _sign_off(kit, home / "node")
        secret, port = os.urandom(32), free_port()
        process = _start(kit, place, poll, secret, port)
        try:
            _wait(process, port)
            alive = partial(_alive, process)
            serve_vehicle(f"127.0.0.1:{port}", secret, alive, lambda node: _note(home / "node", node))
        except Exception as error:  # whatever it was, a new SuperNode starts from a known state
            say(f"vehicle {kit.vehicle}: {type(error).__name__}: {error}")
        finally:
            end(process, 3.0)
        say(f"vehicle {kit.vehicle}: the SuperNode ended (exit code {process.returncode}); starting it again")
        say("if the station refused it, the station's log says why")
        time.sleep(_AGAIN)


def connect(kit: VehicleCredentials) -> FleetHttpClient:
    """Return a connection to the station that signs as the vehicle's SuperNode does."""
    key = own_key(kit)
    signing = [
        RuntimeVersionHttpInterceptor(component_name="SuperNode"),
        NodeAuthHttpInterceptor(key, key.public_key()),
    ]
    return FleetHttpClient.from_server_address(kit.station, False, (kit.place / "ca.pem").read_bytes(), signing)


def _alive(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is None


def _note(path: Path, node: int) -> None:
    if not path.exists() or path.read_text() != str(node):
        write_whole(path, str(node).encode())


def _sign_off(kit: VehicleCredentials, known: Path) -> None:
    """Tell the station that a SuperNode that was killed has gone, or it keeps the new one out for a minute."""
    if not known.is_file() or not known.read_text().isdigit():
        return
    with suppress(httpx.HTTPError), connect(kit) as link:
        link.DeactivateNode(DeactivateNodeRequest(node_id=int(known.read_text())))


def _start(kit: VehicleCredentials, place: Path, poll: float, secret: bytes, port: int) -> subprocess.Popen[bytes]:
    home = place / "flower"
    file = home / "runtime.secret"
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        out.write(secret)
    command = [
        sys.executable, "-m", "skyfed.drivers.flower.node", str(os.getpid()), str(poll),
        "--superlink", kit.station, "--root-certificates", str(place / "ca.pem"),
        "--auth-supernode-private-key", str(place / "vehicle.key"), "--isolation", "process",
        "--superexec-auth-secret-file", str(file), "--host", "127.0.0.1", "--port", str(port),
        "--node-config", f'partition-id={kit.vehicle} folder="{place}"',
    ]  # fmt: skip
    environment = {**os.environ, **QUIET, "FLWR_HOME": str(home)}
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment, process_group=0)


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    """Wait until a SuperNode's own runtime listens, or the SuperNode has ended."""
    while process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
