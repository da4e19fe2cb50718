"""Small fleets for tests: quick settings, runs in this process to compare with, vehicles that misbehave."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Message
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents, pull_objects
from flwr.supernode import fleet_http_connection
from flwr.supernode.fleet_http_connection import http_request_response

from in_process import undrawn
from skyfed.cli import run_arguments
from skyfed.drivers.flower.credentials import read_vehicle
from skyfed.drivers.flower.messages import Order, ReplyError, answer, read_order, refuse
from skyfed.drivers.flower.node import Signing
from skyfed.drivers.flower.onboard import Vehicle
from skyfed.drivers.flower.station import free_port
from skyfed.runs.checkpoint import unpack_model
from skyfed.runs.folder import RunFolder
from skyfed.runs.tables import Table
from waiting import LONG, wait_until

fleet_http_connection.NodeAuthHttpInterceptor = partial(Signing, "f" * 32)  # vehicles of this process show a session
SMALL = ["rounds=4", "eval_every=4", "flight.method=greedy", "train.kappa=1", "fleet.poll=0.2", "fleet.grace=1"]
ALGORITHMS = ["afl", "afl-prune", "afl-quant", "2ceoafl", "swift"]


def sets(*settings: str) -> list[str]:
    """Return command line arguments for settings."""
    return [word for setting in settings for word in ("--set", setting)]


def in_process(place: Path, *settings: str, workers: int = 1) -> Path:
    """Run smoke in this process, or in a pool; nothing is drawn."""
    arguments = ["run", "smoke", *sets(*SMALL, *settings, f"workers={workers}"), "--out", str(place), "--plain"]
    with pytest.MonkeyPatch.context() as patch:
        undrawn(patch)
        assert run_arguments(arguments) == 0
    return place


def start(*words: str, log: Path, files: int = 0) -> subprocess.Popen[bytes]:
    """Start a verb as a process of its own; it may be left with a number of descriptors."""
    limited = ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh"] if files else []
    with log.open("ab") as out:
        return subprocess.Popen(
            [*limited, sys.executable, "-m", "skyfed", "fleet", *words],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment(), process_group=0,
        )  # fmt: skip


def environment() -> dict[str, str]:
    """Return the environment of a process that tests this checkout."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def weights(place: Path, algorithm: str) -> np.ndarray:
    """Return the final weights and buffers of a run."""
    found = unpack_model(place / algorithm / "model.safetensors")
    return np.concatenate(found[:2])


def until(said: Callable[[], bool]) -> None:
    """Wait for something to be so."""
    assert wait_until(said, pause=0.05), "waited in vain"


def says(path: Path, words: str) -> bool:
    """Tell whether a log has these words."""
    return path.exists() and words in path.read_text(errors="replace")


class Yard:
    """A fleet's folders, with a station and vehicles as processes; ends what it started."""

    def __init__(self, place: Path, vehicles: int, *settings: str) -> None:
        # a vehicle that stays silent had its share of the band, one that is absent had none: the clocks differ
        clockless = ["field.follows=rounds", "sensing.model=eq6"]
        self.place, self.settings = place, [*SMALL, *clockless, *settings, f"vehicles={vehicles}"]
        self.port = free_port()
        address = f"127.0.0.1:{self.port}"
        words = ["fleet", "keys", "smoke", "--address", address, "--out", str(place), *sets(*self.settings)]
        assert run_arguments([*words, "--plain"]) == 0
        self.run, self.log = place / "station", place / "station" / "station.log"
        self.began = datetime.now(UTC)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "Yard":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
        for process in self.processes.values():
            process.wait()

    def station(self, files: int = 0) -> subprocess.Popen[bytes]:
        """Start the station."""
        return self._start("station", "station", str(self.run), "--plain", files=files)

    def vehicle(self, u: int) -> subprocess.Popen[bytes]:
        """Start a vehicle."""
        return self._start(f"vehicle-{u}", "vehicle", str(self.place / f"vehicle-{u}"))

    def closed(self) -> int:
        """Return how many rounds the station has closed."""
        return self.log.read_text(errors="replace").count(" bytes up, ") if self.log.exists() else 0

    def wait(self, words: str) -> None:
        """Wait for words in the station's log."""
        until(lambda: says(self.log, words) or self.processes["station"].poll() is not None)
        assert says(self.log, words), (self.place / "station.out").read_text()

    def end(self) -> None:
        """Wait for the station to finish."""
        assert self.processes["station"].wait(LONG) == 0, (self.place / "station.out").read_text()

    def same_as_absent(self, tmp_path: Path, algorithm: str = "2ceoafl") -> list[tuple[int, int]]:
        """Check the final bits against a run in one process where who was left out is absent; returns those."""
        config = RunFolder.config_of(self.run)
        rows = Table(self.run / algorithm, "uplink").rows()
        there = {(row["vehicle"], row["round"]) for row in rows if not row["dropped"]}
        everybody = {(u, t) for u in range(config.vehicles) for t in range(config.rounds)}
        missed = sorted(everybody - there)
        pairs = json.dumps([list(pair) for pair in missed])
        cleared = ["faults.spoil=[]", f"faults.absent={pairs}"]
        here = in_process(tmp_path / "here", *self.settings, *cleared)
        assert np.isfinite(weights(self.run, algorithm)).all()
        assert np.array_equal(weights(self.run, algorithm), weights(here, algorithm)), missed
        return missed

    def _start(self, name: str, *words: str, files: int = 0) -> subprocess.Popen[bytes]:
        self.processes[name] = start(*words, log=self.place / f"{name}.out", files=files)
        return self.processes[name]


def honest(place: Path) -> Callable[[Order, bytes, Message], Message]:
    """Return what an honest vehicle replies."""
    board = Vehicle.load(place, int(place.name.removeprefix("vehicle-")))

    def reply(order: Order, content: bytes, message: Message) -> Message:
        try:
            upload, remark = board.train(order, content)
            return answer(upload, message, remark)
        except ReplyError as error:
            return refuse(str(error), message)

    return reply


def children(process: subprocess.Popen[bytes], name: str) -> list[int]:
    """Return the process ids of children whose command names a module."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                stat = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                if int(stat[1]) == process.pid and name in (entry / "cmdline").read_text():
                    found.append(int(entry.name))
    return found


def family(process: int) -> list[int]:
    """Return the process ids of all descendants."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
    found, new = set(), {process}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new}
        found |= new
    return sorted(found)


def runs(process: int) -> bool:
    """Tell whether a process is there; one that has ended may stay in the table if nobody waits for it."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


class Rogue:
    """A vehicle in this process that speaks Flower's fleet API and answers as `reply` says; None is no answer.

    It may send every answer twice; `again` counts what the station said to the second one. How a reply is sent is
    `deliver`'s business.
    """

    def __init__(
        self,
        place: Path,
        reply: Callable[[Order, bytes, Message], Message | None],
        twice: bool = False,
        deliver: Callable[..., None] | None = None,
    ) -> None:
        self._credentials, self._reply, self._twice = read_vehicle(place), reply, twice
        self._deliver = deliver or deliver_reply
        self.again = 0
        self.done = threading.Event()
        self.problem: BaseException | None = None
        self._thread = threading.Thread(target=self._go, daemon=True)

    def __enter__(self) -> "Rogue":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self._thread.join(30)

    def connect(self) -> AbstractContextManager[Any]:
        """Return Flower's own connection of a SuperNode."""
        place = self._credentials.place
        key = load_ssh_private_key((place / "vehicle.key").read_bytes(), None)
        return http_request_response(
            self._credentials.station, False, (place / "ca.pem").read_bytes(), (key, key.public_key()), max_wait_time=60
        )

    def _go(self) -> None:
        try:
            with self.connect() as connection:
                while not self.done.is_set():
                    if not self.step(connection):
                        time.sleep(0.1)
        except Exception as error:
            self.problem = error
            traceback.print_exc()

    def step(self, connection: Any) -> bool:
        """Take a message if there is one and answer it."""
        _, receive, send, _, _, pull, push, confirm = connection
        found = receive()
        if found is None:
            return False
        head, tree = found
        run, key = head.metadata.run_id, head.metadata.message_id
        contents = pull_objects([part.object_id for part in iterate_object_tree(tree)], lambda part: pull(run, part))
        message = inflate_object_from_contents(key, contents)
        message.metadata.__dict__["_message_id"] = key
        confirm(run, key)
        reply = self._reply(*read_order(message), message)
        if reply is not None:
            self._deliver(reply, run, send, push)
            if self._twice:
                with contextlib.suppress(Exception):  # the station may refuse it
                    self._deliver(reply, run, send, push)
                self.again += 1
        return True


def deliver_reply(reply: Message, run: int, send: Any, push: Any) -> None:
    """Send a reply as a SuperNode does."""
    reply.metadata.__dict__["_message_id"] = reply.object_id
    parts = get_all_nested_objects(reply)
    wanted, session = send(reply, get_object_tree(reply), 0.0)
    for key, part in parts.items():
        if key in wanted:
            push(run, session, key, part.deflate())
