"""What a vehicle that waits costs the SuperLink: looks for work over TLS, signed as Flower's SuperNode signs them."""

import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from flwr.proto.fleet_pb2 import ActivateNodeRequest, PullMessagesRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from skyfed.drivers.flower.credentials import VehicleCredentials, make_credentials, own_key, read_station
from skyfed.drivers.flower.station import free_port, open_station
from skyfed.drivers.flower.vehicle_process import connect

_LARGEST = 256e6
_IDLE = 5.0  # seconds of watching what the SuperLink does when nobody asks


def measure_looks(count: int = 400) -> dict[str, float]:
    """Start a SuperLink, be a vehicle that looks for work as fast as it can, and return the SuperLink's CPU seconds.

    "kept": of a look over a connection that stays open; "fresh": with a new one; "idle": of a second in which nobody
    asks; and "memory": its bytes at rest.
    """
    with tempfile.TemporaryDirectory(prefix="skyfed-looks-") as name:
        place, vehicle = Path(name) / "station", Path(name) / "vehicle-0"
        make_credentials(place, [vehicle], f"127.0.0.1:{free_port()}")
        credentials = read_station(place)
        own = VehicleCredentials(vehicle, 0, credentials.address)
        with open_station(credentials, _LARGEST, Path(name) / "log") as station:
            station.register(credentials.vehicles)
            link = find_link(os.getpid())
            with connect(own) as client:
                public = public_key_to_bytes(own_key(own).public_key())
                node = client.ActivateNode(ActivateNodeRequest(public_key=public, heartbeat_interval=60)).node_id
                look = PullMessagesRequest(node=Node(node_id=node))
                before = cpu_seconds(link)
                time.sleep(_IDLE)
                idle = (cpu_seconds(link) - before) / _IDLE
                memory = resident(link)
                client.PullMessages(look)
                before, start = cpu_seconds(link), time.monotonic()
                for _ in range(count):
                    client.PullMessages(look)
                kept = (cpu_seconds(link) - before - idle * (time.monotonic() - start)) / count
            before, start = cpu_seconds(link), time.monotonic()
            for _ in range(count // 4):
                with connect(own) as client:
                    client.PullMessages(look)
            fresh = (cpu_seconds(link) - before - idle * (time.monotonic() - start)) / (count // 4)
    return {"kept": kept, "fresh": fresh, "idle": idle, "memory": memory}


def find_link(parent: int) -> int:
    """Return the process of the SuperLink that a process has started; 0 if there is none."""
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            own = int((path / "stat").read_text().rpartition(")")[2].split()[1]) == parent
            if own and b"skyfed.drivers.flower.link" in (path / "cmdline").read_bytes():
                return int(path.name)
    return 0


def cpu_seconds(process: int) -> float:
    """Return the CPU seconds of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(process: int) -> float:
    """Return the bytes of memory that a process holds."""
    return float(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
