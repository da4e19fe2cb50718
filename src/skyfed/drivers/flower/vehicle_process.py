"""A vehicle: a SuperNode that speaks with the station, and this process, which has data and model loaded and trains."""

import os
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from subprocess import Popen

import httpx
from flwr.proto.fleet_pb2 import DeactivateNodeRequest
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from skyfed.drivers.flower.credentials import VehicleCredentials, own_key, write_secret
from skyfed.drivers.flower.headers import Shown
from skyfed.drivers.flower.sessions import SESSION, SESSION_VARIABLE
from skyfed.drivers.flower.station import end, flower_environment, free_port, start
from skyfed.errors import BadInputError
from skyfed.files import make_private, write_whole
from skyfed.runs.folder import RunFolder
from skyfed.runs.lock import locked

_OWN_SESSION = secrets.token_hex(16)  # of this process; it is kept nowhere
_AGAIN = 2.0  # seconds before a SuperNode that ended is started again


def fly(credentials: VehicleCredentials, say: Callable[[str], None]) -> None:
    """Load everything, then train whenever the station asks, until a signal comes."""
    config, vehicle = RunFolder.config_of(credentials.place), credentials.vehicle
    if not 0 <= vehicle < config.vehicles:
        file = credentials.place / "vehicle.json"
        raise BadInputError(f"{file}: vehicle {vehicle}; allowed: 0 to {config.vehicles - 1}")
    place = credentials.place.resolve()
    make_private(place)
    with locked(place):
        _fly(credentials, place, config.fleet.poll, say)


def _fly(credentials: VehicleCredentials, place: Path, poll: float, say: Callable[[str], None]) -> None:
    from skyfed.drivers.flower.client_app import board
    from skyfed.drivers.flower.tasks import serve_vehicle

    vehicle, home = credentials.vehicle, place / "flower"
    board(place, vehicle)
    say(f"vehicle {vehicle} is ready for {credentials.station}")
    home.mkdir(exist_ok=True)
    while True:
        _sign_off(credentials, home / "node")
        secret, port = os.urandom(32), free_port()
        process = _start(credentials, place, poll, secret, port)
        try:
            _wait(process, port)
            serve_vehicle(f"127.0.0.1:{port}", secret, process, partial(_note, home / "node"))
        except (Exception, SystemExit) as error:  # whatever it was, a new SuperNode starts from a known state
            say(f"vehicle {vehicle}: {type(error).__name__}: {error}")
        finally:
            end(process, 3.0)
        say(f"vehicle {vehicle}: the SuperNode ended (exit code {process.returncode}); starting it again")
        say("if the station refused it, the station's log says why")
        time.sleep(_AGAIN)


def connect(credentials: VehicleCredentials) -> FleetHttpClient:
    """Return a connection to the station that signs as the vehicle's SuperNode does."""
    key, authority = own_key(credentials), (credentials.place / "ca.pem").read_bytes()
    signing = [
        RuntimeVersionHttpInterceptor(component_name="SuperNode"),
        NodeAuthHttpInterceptor(key, key.public_key()),
        Shown(SESSION, _OWN_SESSION),
    ]
    return FleetHttpClient.from_server_address(credentials.station, False, authority, signing)


def _note(path: Path, node: int) -> None:
    if not path.exists() or path.read_text() != str(node):
        write_whole(path, str(node).encode())


def _sign_off(credentials: VehicleCredentials, known: Path) -> None:
    """Tell the station that a SuperNode that was killed has gone, or it keeps the new one out for a minute."""
    if not known.is_file() or not known.read_text().isdecimal():
        return
    with suppress(httpx.HTTPError), connect(credentials) as link:
        link.DeactivateNode(DeactivateNodeRequest(node_id=int(known.read_text())))


def _start(credentials: VehicleCredentials, place: Path, poll: float, secret: bytes, port: int) -> Popen[bytes]:
    home = place / "flower"
    write_secret(home / "runtime.secret", secret)
    return start(
        "skyfed.drivers.flower.node", str(os.getpid()), str(poll),
        "--superlink", credentials.station, "--root-certificates", str(place / "ca.pem"),
        "--auth-supernode-private-key", str(place / "vehicle.key"), "--isolation", "process",
        "--superexec-auth-secret-file", str(home / "runtime.secret"), "--host", "127.0.0.1", "--port", str(port),
        "--node-config", f'partition-id={credentials.vehicle} folder="{place}"',
        environment={**flower_environment(home), SESSION_VARIABLE: _OWN_SESSION},
    )  # fmt: skip


def _wait(process: Popen[bytes], port: int) -> None:
    """Wait until a SuperNode's own runtime listens, or the SuperNode has ended."""
    while process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
