"""Other users of a station's machine: they read nothing of it, and operate nothing."""

import contextlib
import json
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("flwr")

from fastapi.routing import APIRoute
from flwr.supercore.routers.runtime import create_runtime_router, responses_router
from flwr.superlink.routers.control import router as control_router

from fleet_cases import Yard, children
from skyfed.drivers.flower.headers import SECRET, SECRET_VARIABLE
from waiting import LONG, wait_until

NOBODY = 65534
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user as well")


@pytest.fixture(scope="module")
def yard() -> Iterator[Yard]:
    """A station and a vehicle in folders that anyone could read before they were started."""
    before = os.umask(0o022)
    with tempfile.TemporaryDirectory(prefix="skyfed-neighbours-") as name:
        place = Path(name)
        place.chmod(0o755)
        with Yard(place, 2, 'algorithms=["afl"]', "fleet.deadline=500") as found:
            for folder in ("station", "vehicle-0"):
                (place / folder).chmod(0o755)
                for path in (place / folder).rglob("*"):
                    path.chmod(0o755 if path.is_dir() else 0o644)
            found.station()
            found.vehicle(0)
            found.wait("vehicle 0 is in touch")
            yield found
    os.umask(before)


def as_nobody(ask: Callable[[], Any]) -> Any:
    """Call a function in a process of another user."""
    out, answer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            answered = ask()
        except BaseException as error:
            answered = f"failed as another user: {error!r}"
        os.write(answer, json.dumps(answered).encode())
        os._exit(0)
    os.close(answer)
    with os.fdopen(out, "rb") as file:
        data = file.read()
    os.waitpid(child, 0)
    return json.loads(data)


def link_of(yard: Yard) -> int:
    (link,) = children(yard.processes["station"], "skyfed.drivers.flower.link")
    return link


def secret_of(yard: Yard) -> str:
    """Return the station's secret, as root."""
    entries = Path(f"/proc/{link_of(yard)}/environ").read_text().split("\0")
    (secret,) = [entry.partition("=")[2] for entry in entries if entry.startswith(f"{SECRET_VARIABLE}=")]
    assert len(secret) >= 32
    return secret


def readable(paths: list[str]) -> list[str]:
    """Return what this process can read of these."""
    found = []
    for path in paths:
        with contextlib.suppress(OSError):
            if Path(path).is_dir():
                os.listdir(path)
            else:
                Path(path).read_bytes()
            found.append(path)
    return found


def test_nobody_else_reads_what_a_station_or_a_vehicle_keeps(yard):
    own = [yard.run, yard.place / "vehicle-0"]
    paths = [*own, *(path for folder in own for path in folder.rglob("*"))]
    names = {path.name for path in paths}
    assert {"state.db", "station.log", "key.pem", "runtime.secret", "vehicle.key", "plan.npz"} <= names
    assert as_nobody(lambda: readable([*map(str, paths), f"/proc/{link_of(yard)}/environ"])) == []
    wide = [path for path in paths if path.exists() and path.stat().st_mode & 0o077]
    assert not wide


def test_no_process_shows_a_secret_in_its_command(yard):
    """Every user can read the commands of all processes."""
    secrets = [secret_of(yard).encode(), (yard.run / "fleet" / "runtime.secret").read_bytes()]
    known = [form for secret in secrets for form in (secret, secret.hex().encode())]

    def shown() -> list[str]:
        found, seen = [], 0
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                command = path.read_bytes()
                seen += b"skyfed.drivers.flower.link" in command
                found += [str(path) for form in known if form in command]
        assert seen
        return found

    assert as_nobody(shown) == []


def routes() -> list[tuple[str, str]]:
    """Return the method and path of all that is for operators and executors."""
    routers = (control_router, create_runtime_router("SuperLink"), responses_router)
    found = [(method, route.path) for router in routers for route in router.routes if isinstance(route, APIRoute)
             for method in route.methods]  # fmt: skip
    assert len(found) > 40
    return [*found, ("GET", "/docs"), ("GET", "/openapi.json"), ("POST", "/v1/fleet/../control/list-runs")]


def asked(port: int, wanted: list[tuple[str, str]], **headers: str) -> dict[str, int]:
    """Ask for every one of them, as often as the station closes the connection because it was asked too often."""
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    answers = {}
    for method, path in wanted:

        def tried(method: str = method, path: str = path) -> bool:
            with contextlib.suppress(httpx.TransportError), httpx.Client(verify=trusting, timeout=LONG) as client:
                reply = client.request(method, f"https://127.0.0.1:{port}{path}", headers=headers)
                answers[f"{method} {path}"] = reply.status_code
            return f"{method} {path}" in answers

        assert wait_until(tried)
    return answers


def test_nobody_else_operates_a_station(yard):
    """Not from its own machine either, with a wrong secret or none."""
    # httpx imports parts of itself at its first request, which another user may have no right to read
    assert asked(yard.port, [("GET", "/docs")], **{SECRET: secret_of(yard)}) == {"GET /docs": 200}
    answers = as_nobody(lambda: asked(yard.port, routes()))
    for headers in ({SECRET: "0" * 64}, {SECRET: ""}, {"x-forwarded-for": "127.0.0.1"}):
        forged = as_nobody(lambda headers=headers: asked(yard.port, [("POST", "/v1/control/list-runs")], **headers))
        answers |= {f"{path}, {headers}": status for path, status in forged.items()}
    assert set(answers.values()) == {403}, {path: status for path, status in answers.items() if status != 403}
