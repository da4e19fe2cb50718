"""Three hosts: a station and two vehicles in network namespaces of their own, as docs/fleet.md walks through it."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from fleet_cases import SMALL, in_process, says, sets, until, weights
from skyfed.cli import run_arguments
from waiting import LONG

NAMES = ["skyfed-station", "skyfed-vehicle-0", "skyfed-vehicle-1"]
STATION = "10.87.0.1"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _possible() -> bool:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    with contextlib.suppress(subprocess.CalledProcessError):
        ip("netns", "add", "skyfed-probe")
        ip("netns", "delete", "skyfed-probe")
        return True
    return False


pytestmark = [
    pytest.mark.fleet,
    pytest.mark.skipif(not _possible(), reason="needs root and iproute2"),
]


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    """Three namespaces at one bridge, in the station's namespace."""
    _clear()
    try:
        for name in NAMES:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", NAMES[0], "link", "add", "bridge", "type", "bridge")
        ip("-n", NAMES[0], "addr", "add", f"{STATION}/24", "dev", "bridge")
        ip("-n", NAMES[0], "link", "set", "bridge", "up")
        for u, name in enumerate(NAMES[1:]):
            ip("link", "add", f"sky{u}", "netns", NAMES[0], "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("-n", NAMES[0], "link", "set", f"sky{u}", "master", "bridge", "up")
            ip("-n", name, "addr", "add", f"10.87.0.{u + 2}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
        yield NAMES
    finally:
        _clear()


def _clear() -> None:
    for name in NAMES:
        subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def on(host: str, *words: str, log: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with log.open("ab") as out:
        return subprocess.Popen(
            ["ip", "netns", "exec", host, sys.executable, "-m", "skyfed", "fleet", *words],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, process_group=0,
        )  # fmt: skip


def test_three_hosts_end_in_the_same_bits(hosts, tmp_path):
    settings = [*SMALL, "vehicles=2", 'algorithms=["2ceoafl"]', "rounds=3"]
    words = ["--address", f"{STATION}:9092", "--out", str(tmp_path / "fleet"), *sets(*settings)]
    assert run_arguments(["fleet", "keys", "smoke", *words, "--plain"]) == 0
    station = tmp_path / "fleet" / "station"
    processes = [on(hosts[0], "station", str(station), "--plain", log=tmp_path / "station.out")]
    try:
        for u in range(2):
            place = tmp_path / "fleet" / f"vehicle-{u}"
            processes.append(on(hosts[u + 1], "vehicle", str(place), log=tmp_path / f"vehicle-{u}.out"))
        until(lambda: says(station / "station.log", "the station listens"))
        door = ["curl", "-sk", "-o", "/dev/null", "-w", "%{http_code}", f"https://{STATION}:9092/v1/control/list-runs"]
        if shutil.which("curl"):
            asked = subprocess.run(["ip", "netns", "exec", hosts[1], *door], capture_output=True, check=False)
            assert asked.stdout == b"403"
            assert says(station / "station.log", "from 10.87.0.2: asks for what only the station itself may use")
        assert processes[0].wait(LONG) == 0, (tmp_path / "station.out").read_text()
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(LONG)
    here = in_process(tmp_path / "here", *settings)
    assert np.array_equal(weights(station, "2ceoafl"), weights(here, "2ceoafl"))
