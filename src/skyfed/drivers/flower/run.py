"""A run across machines from its first round to its last, through SuperLinks that die; and all of it on one machine."""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from subprocess import Popen

from flwr.serverapp import Grid

from skyfed.config import Config
from skyfed.drivers.execute import Watcher, execute
from skyfed.drivers.flower.credentials import (
    CREDENTIALS,
    LISTED,
    StationCredentials,
    make_credentials,
    read_station,
    renew_station,
)
from skyfed.drivers.flower.driver import FlowerDriver, Idle, Node, RollCall
from skyfed.drivers.flower.fleet_keys import equip
from skyfed.drivers.flower.station import LostError, Station, end, free_port, open_station, start
from skyfed.errors import BadInputError, SkyfedError
from skyfed.flight.fleet_plan import load_fleet_plan
from skyfed.runs.folder import RunFolder
from skyfed.runs.tables import Row
from skyfed.workers import child_environment

LOG = "station.log"
_TRIES = 5  # SuperLinks in a row that may be lost without a round in between
_PAUSE = 1.0
_HOUR = 3600.0


class Journal:
    """A watcher that also writes every line to the station's log, beside the SuperLink's own."""

    def __init__(self, path: Path, watcher: Watcher) -> None:
        self._path, self._watcher = path, watcher
        self.rounds = 0

    def begin(self, algorithm: str, first: int, rows: list[Row]) -> None:
        """Announce an algorithm."""
        self._write(f"{algorithm} begins at round {first}")
        self._watcher.begin(algorithm, first, rows)

    def round(self, algorithm: str, row: Row) -> None:
        """Note a finished round."""
        self.rounds += 1
        self._write(
            f"{algorithm} round {row['round']}: {row['uploads']} in, {row['dropped']} left out, "
            f"{row['wire_bytes']} bytes up, {row['seconds']:.1f} s"
        )
        self._watcher.round(algorithm, row)

    def say(self, line: str) -> None:
        """Note and show a line."""
        self._write(line)
        self._watcher.say(line)

    def _write(self, line: str) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{datetime.now(UTC).isoformat(timespec='milliseconds')} {line}\n")


def for_fleet(config: Config) -> tuple[Config, str]:
    """Return a config without what needs all data in one place, and a line on what was left out."""
    central = [row.name for row in config.rows if row.central]
    rest = [spec for spec, row in zip(config.algorithms, config.rows, strict=True) if not row.central]
    if not rest:
        raise BadInputError(f"algorithms = {central}: train on the union of all data, which stays on the vehicles")
    if any(config.settings_of(row).theory.every for row in config.rows if not row.central):
        raise BadInputError("theory.every: measured where all data is, in a simulation; allowed here: 0")
    line = f"{', '.join(central)} is left out: it trains on the union of all data, which stays on the vehicles"
    return config.model_copy(update={"algorithms": rest}), line if central else ""


def run_station(folder: RunFolder, watcher: Watcher, idle: Idle) -> list[str]:
    """Run what is not yet done; a SuperLink that dies is started again. Returns a line for each that diverged."""
    config, log = folder.read_config(), folder.path / LOG
    journal, lost, before = Journal(log, watcher), 0, 0
    while True:
        credentials = read_station(folder.path / CREDENTIALS)  # anew: keys may have been removed since the last start
        if line := renew_station(credentials):
            journal.say(line)
        try:
            with open_station(credentials, config.fleet.largest, log) as station:
                station.register(credentials.admitted)
                journal.say(f"the station listens at {credentials.address} for {len(credentials.admitted)} vehicles")

                def serve(grid: Grid, station: Station = station, start: StationCredentials = credentials) -> list[str]:
                    roll_call = _roll_call(grid, station, start, journal.say)
                    task, plan = config.load_task(), load_fleet_plan(folder.path / "plan.npz")
                    return execute(
                        folder, config, task, plan, journal,
                        lambda onboard: nullcontext(FlowerDriver(onboard, grid, roll_call, journal.say, idle)),
                    )  # fmt: skip

                return station.run(serve, folder.path.resolve())
        except LostError as error:
            lost = 1 if journal.rounds > before else lost + 1
            before = journal.rounds
            if lost == _TRIES:
                raise
            journal.say(f"{error}; starting it again")
            time.sleep(_PAUSE)


def _roll_call(grid: Grid, station: Station, start: StationCredentials, say: Callable[[str], None]) -> RollCall:
    """Return what tells who is in touch, and meanwhile looks after keys and certificates."""
    listed, kept_out, renewed = start.admitted, start.quarantined, time.monotonic()

    def look() -> dict[int, Node | None]:
        nonlocal listed, kept_out, renewed
        now = read_station(start.place)
        for u, reason in now.quarantined.items():
            if u not in kept_out:
                say(f"vehicle {u} is quarantined: {reason}; it needs a new key (fleet key), or fleet restore")
        before, listed, kept_out = listed, now.admitted, now.quarantined
        if listed != before:
            say(f"the list of keys has changed: {len(listed)} vehicles")
            station.register(listed)
        if time.monotonic() - renewed > _HOUR:
            renewed = time.monotonic()
            if line := renew_station(now):
                say(line)
        nodes = {node.public_key: Node(node.node_id, node.last_activated_at) for node in grid.get_nodes()}
        return {u: nodes.get(key.encode()) for u, key in listed.items()}

    return look


@contextmanager
def rehearsal(folder: RunFolder, vehicles: int) -> Iterator[Callable[[], None]]:
    """Prepare a station in a run's folder and start its vehicles on this machine; stop those in the end.

    Gives a function that raises SkyfedError if a vehicle has ended.
    """
    own = folder.path / CREDENTIALS
    if (own / LISTED).exists() and not read_station(own).rehearsal:
        raise BadInputError(f"--out {folder.path}: a station's folder, whose keys vehicles have; allowed: a new folder")
    logs = [own / f"vehicle-{u}.log" for u in range(vehicles)]
    processes: list[Popen[bytes]] = []

    def check() -> None:
        for u, process in enumerate(processes):
            if process.poll() is not None:
                raise SkyfedError(f"vehicle {u} ended (exit code {process.returncode}); see {logs[u]}")

    with tempfile.TemporaryDirectory(prefix="skyfed-fleet-") as name:
        places = [Path(name) / f"vehicle-{u}" for u in range(vehicles)]
        make_credentials(own, places, f"127.0.0.1:{free_port()}", rehearsal=True)
        try:
            for place, log in zip(places, logs, strict=True):
                equip(folder.path, place)
                command = ("fleet", "vehicle", str(place), "--trust")  # this user's own code
                processes.append(start("skyfed", *command, environment=child_environment(), log=log))
            yield check
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                end(process)


def real_station(folder: Path) -> None:
    """Raise BadInputError unless a folder has a station with vehicles of its own."""
    if read_station(folder / CREDENTIALS).rehearsal:
        raise BadInputError(
            f"{folder}: made by skyfed fleet try, which goes on with it; allowed: what fleet keys makes"
        )
