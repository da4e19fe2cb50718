"""A station: a SuperLink behind a guard, the vehicles' keys, and the run, which goes on where it stood."""

import hashlib
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from subprocess import DEVNULL, Popen, TimeoutExpired

import httpx
from flwr.cli.build import build_fab_from_files
from flwr.common.constant import Status, SubStatus
from flwr.common.serde import fab_to_proto, run_from_proto, user_config_to_proto
from flwr.proto import control_pb2
from flwr.proto.runtime_pb2 import PullTaskInputRequest, PushTaskOutputRequest
from flwr.supercore.constant import NodeStatus, TaskType
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.task_identity import TaskIdentity

from skyfed import __version__
from skyfed.drivers.flower.credentials import LISTED, StationCredentials, split_address
from skyfed.drivers.flower.grid import VehicleGrid
from skyfed.drivers.flower.headers import SECRET, SECRET_VARIABLE, Shown
from skyfed.drivers.flower.patch_backoff import patch_backoff
from skyfed.drivers.flower.tasks import beating, open_runtime, patient, take
from skyfed.errors import BadInputError, SkyfedError
from skyfed.files import make_private

_START = 60.0  # seconds for a SuperLink to come up
# what Flower asks a run to bring; the station and the vehicles load their own code
_APP = """[project]
name = "skyfed"
version = "{version}"
description = "Online federated learning on aerial vehicles"
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "skyfed"
[tool.flwr.app.components]
serverapp = "skyfed.drivers.flower.client_app:app"
clientapp = "skyfed.drivers.flower.client_app:app"
[tool.flwr.app.config]
folder = ""
"""


class LostError(SkyfedError):
    """The SuperLink went away in the middle of the work."""


class Station:
    """A running SuperLink; use `open_station`."""

    def __init__(self, credentials: StationCredentials, ready: Path, address: str, own: str, largest: float) -> None:
        self._ready, self._address, self._authority, self._own = ready, address, credentials.authority, own
        self._largest = largest
        self._secret = (credentials.place / "runtime.secret").read_bytes()

    def register(self, vehicles: dict[int, str]) -> None:
        """Make the SuperLink know these keys, then let vehicles in.

        Keys that are no longer listed stay known to the SuperLink, which would take none of them again later; the guard
        refuses them.
        """
        with self._control() as control:
            nodes = control.ListNodes(control_pb2.ListNodesRequest()).nodes_info
            known = {bytes(node.public_key) for node in nodes if node.status != NodeStatus.UNREGISTERED}
            for u, key in vehicles.items():
                if key.encode() not in known:
                    name = f"vehicle-{u}"
                    control.RegisterNode(control_pb2.RegisterNodeRequest(public_key=key.encode(), name=name))
        self._ready.touch()

    def run(self, serve: Callable[[VehicleGrid], list[str]], folder: Path) -> list[str]:
        """Start a Flower run and be its server app, in this process; returns what `serve` returns."""
        content, _ = build_fab_from_files({"pyproject.toml": _APP.format(version=__version__).encode()})
        fab = fab_to_proto(Fab(hashlib.sha256(content).hexdigest(), content, {}))
        settings = user_config_to_proto({"folder": str(folder)})
        with self._control() as control:
            for run in control.ListRuns(control_pb2.ListRunsRequest()).run_dict.values():
                if run.status.status != Status.FINISHED:  # of a station that was killed: vehicles would wait for it
                    control.StopRun(control_pb2.StopRunRequest(run_id=run.run_id))
            control.StartRun(control_pb2.StartRunRequest(fab=fab, override_config=settings, federation=""))
        grid = self._grid()
        done, details = SubStatus.FAILED, "stopped"
        try:
            given = grid._runtime_client.PullTaskInput(PullTaskInputRequest())
            TaskIdentity.task_id, TaskIdentity.run_id = given.task_id, given.run.run_id
            TaskIdentity.node_id = given.context.node_id
            grid.set_run(run_from_proto(given.run))
            with beating(grid._runtime_client):
                lines = serve(grid)
            done, details = SubStatus.COMPLETED, ""
            return lines
        except httpx.HTTPError as error:
            raise LostError(f"the SuperLink does not answer ({type(error).__name__}: {error})") from error
        finally:
            with suppress(httpx.HTTPError):
                grid._retry_invoker.max_tries = 1
                grid._runtime_client.PushTaskOutput(PushTaskOutputRequest(sub_status=done, details=details))
            grid.close()

    def _grid(self) -> VehicleGrid:
        """Claim the task of the run that was started, and return the grid that goes with it."""
        desk = open_runtime(self._address, "SuperExec", self._authority, secret=self._secret, own=self._own)
        until = time.monotonic() + _START
        while not (token := take(desk, TaskType.SERVER_APP)):
            if time.monotonic() > until:
                raise LostError("the SuperLink started no run")
            time.sleep(0.1)
        desk.close()
        grid = VehicleGrid(self._address, self._authority, token, self._largest)
        grid._client = open_runtime(self._address, "flwr-serverapp", self._authority, token=token, own=self._own)
        grid._client._retry_invoker = grid._retry_invoker = patient()
        patch_backoff()
        return grid

    @contextmanager
    def _control(self) -> Iterator[ControlHttpClient]:
        try:
            with ControlHttpClient.from_server_address(
                self._address, False, self._authority, [Shown(SECRET, self._own)]
            ) as client:
                yield client
        except httpx.HTTPStatusError as error:
            raise LostError(f"the SuperLink refuses: {' '.join(error.response.text.split())[:200]}") from error
        except httpx.HTTPError as error:
            raise LostError(f"the SuperLink does not answer ({error})") from error


@contextmanager
def open_station(credentials: StationCredentials, largest: float, log: Path) -> Iterator[Station]:
    """Start a SuperLink at the port of its credentials, and stop it in the end."""
    _, port = split_address(credentials.address)
    _require_free(port)
    place, address = credentials.place.resolve(), f"127.0.0.1:{port}"
    home = place / "flower"
    home.mkdir(exist_ok=True)
    make_private(log.parent)
    make_private(place)
    own = secrets.token_hex(32)  # for this start alone
    ready = home / "ready"
    ready.unlink(missing_ok=True)
    process = start(
        "skyfed.drivers.flower.link", str(largest), str(ready), str(place / LISTED), str(log), str(os.getpid()),
        "--host", "0.0.0.0", "--port", str(port), "--isolation", "process",
        "--superexec-auth-secret-file", str(place / "runtime.secret"), "--enable-supernode-auth",
        "--ssl-certfile", str(place / "cert.pem"), "--ssl-keyfile", str(place / "key.pem"),
        "--ssl-ca-certfile", str(place / "ca.pem"), "--database", str(home / "state.db"),
        "--disable-runtime-dependency-installation",
        environment={**flower_environment(home), SECRET_VARIABLE: own}, log=log,
    )  # fmt: skip
    try:
        _wait(process, address, credentials.authority, log)
        yield Station(credentials, ready, address, own, largest)
    finally:
        end(process)


def flower_environment(home: Path) -> dict[str, str]:
    """Return the environment of a Flower process that keeps its files in `home` and asks nobody on the network."""
    return {
        **os.environ,
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    }


def start(module: str, *arguments: str, environment: dict[str, str], log: Path | None = None) -> Popen[bytes]:
    """Start a Python module in a process group of its own; its output goes to the log, or where ours goes.

    What it writes is for its owner alone.
    """
    command = [sys.executable, "-m", module, *arguments]
    with log.open("ab") if log else nullcontext() as out:
        return Popen(command, stdin=DEVNULL, stdout=out, stderr=out, env=environment, process_group=0, umask=0o077)


def end(process: Popen[bytes], patience: float = 8.0) -> None:
    """Ask a process of ours to stop, and insist after a while."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(patience)
        except TimeoutExpired:
            process.kill()
    process.wait()


def _require_free(port: int) -> None:
    """Raise BadInputError if somebody listens at a port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError as error:
            raise BadInputError(f"port {port}: {error.strerror}; free it, or make keys for another --address") from None


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _wait(process: Popen[bytes], address: str, authority: bytes, log: Path) -> None:
    until = time.monotonic() + _START
    with ControlHttpClient.from_server_address(address, False, authority, []) as client:
        while time.monotonic() < until:
            if process.poll() is not None:
                raise LostError(f"the SuperLink ended at its start (exit code {process.returncode}); see {log}")
            with suppress(httpx.HTTPError):
                client._client.get(f"https://{address}/health", timeout=2).raise_for_status()
                return
            time.sleep(0.1)
    raise LostError(f"the SuperLink did not come up; see {log}")
