"""A vehicle: a SuperNode that speaks with the station, and this process, which has data and model loaded and trains."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from skyfed.drivers.flower.kits import VehicleKit
from skyfed.drivers.flower.station import QUIET, end
from skyfed.errors import BadInputError

_AGAIN = 2.0  # seconds before a SuperNode that ended is started again


def fly(kit: VehicleKit, say: Callable[[str], None]) -> None:
    """Load everything, then train whenever the station asks, until a signal comes."""
    from skyfed.drivers.flower.client_app import board
    from skyfed.drivers.flower.tasks import serve_vehicle

    for name in ("config.toml", "plan.npz", "ca.pem", "vehicle.key"):
        if not (kit.place / name).is_file():
            raise BadInputError(f"{kit.place}: not a vehicle's folder (no {name})")
    place = kit.place.resolve()
    poll = board(place, kit.vehicle).config.fleet.poll
    say(f"vehicle {kit.vehicle} is ready for {kit.station}")
    while True:
        secret, port = os.urandom(32), _free_port()
        process = _start(kit, place, poll, secret, port)
        try:
            _wait(process, port)
            serve_vehicle(f"127.0.0.1:{port}", secret, lambda process=process: process.poll() is None)  # type: ignore[misc]
        except httpx.HTTPError as error:
            say(f"vehicle {kit.vehicle}: the SuperNode does not answer ({type(error).__name__})")
        finally:
            end(process, 3.0)
        say(f"vehicle {kit.vehicle}: the SuperNode ended (exit code {process.returncode}); starting it again")
        time.sleep(_AGAIN)


def _start(kit: VehicleKit, place: Path, poll: float, secret: bytes, port: int) -> subprocess.Popen[bytes]:
    home = place / "flower"
    home.mkdir(exist_ok=True)
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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
