"""A run across machines from its first round to its last, through SuperLinks that die; and all of it on one machine."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from flwr.serverapp import Grid

from skyfed.config import Config
from skyfed.drivers.execute import Watcher
from skyfed.drivers.flower.credentials import LISTED, make_credentials, read_number, read_station
from skyfed.drivers.flower.server_app import KIT, make_app, run_rounds
from skyfed.drivers.flower.station import LostError, Station, end, free_port, open_station
from skyfed.errors import BadInputError, SkyfedError
from skyfed.files import write_whole
from skyfed.flight.fleet_plan import load_fleet_plan
from skyfed.runs.folder import RunFolder
from skyfed.runs.tables import Row
from skyfed.workers import PARENT

LOG = "station.log"
_TRIES = 5  # SuperLinks in a row that may be lost without a round in between
_PAUSE = 1.0


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


def run_station(folder: RunFolder, watcher: Watcher, idle: Callable[[], None] = lambda: None) -> list[str]:
    """Run what is not yet done; a SuperLink that dies is started again. Returns a line for each that diverged.

    idle: is called now and then while a round has no upload yet, and may raise.
    """
    config, log = folder.read_config(), folder.path / LOG
    kit, diverged = read_station(folder.path / KIT), list[str]()
    journal = Journal(log, watcher)

    lost, before = 0, 0
    while True:
        try:
            with open_station(kit, config.fleet.largest, log) as station:

                def register(keys: dict[int, str], station: Station = station) -> None:
                    station.register(keys, journal.say)

                def serve(grid: Grid, place: Path) -> None:
                    diverged[:] = run_rounds(grid, folder, journal, register, idle)

                register(kit.vehicles)
                journal.say(f"the station listens at {kit.address} for {len(kit.vehicles)} vehicles")
                station.run(make_app(serve), folder.path.resolve())
            return diverged
        except LostError as error:
            lost = 1 if journal.rounds > before else lost + 1
            before = journal.rounds
            if lost == _TRIES:
                raise
            journal.say(f"{error}; starting it again")
            time.sleep(_PAUSE)


@contextmanager
def rehearsal(folder: RunFolder, vehicles: int) -> Iterator[Callable[[], None]]:
    """Prepare a station in a run's folder and start its vehicles on this machine; stop those in the end.

    Gives a function that raises SkyfedError if a vehicle has ended.
    """
    kit = folder.path / KIT
    if (kit / LISTED).exists() and not read_station(kit).rehearsal:
        raise BadInputError(f"--out {folder.path}: a station's folder, whose keys vehicles have; allowed: a new folder")
    with tempfile.TemporaryDirectory(prefix="skyfed-fleet-") as name:
        places = [Path(name) / f"vehicle-{u}" for u in range(vehicles)]
        make_credentials(kit, places, f"127.0.0.1:{free_port()}", rehearsal=True)
        crafts: list[subprocess.Popen[bytes]] = []

        def check() -> None:
            for u, craft in enumerate(crafts):
                if craft.poll() is not None:
                    raise SkyfedError(f"vehicle {u} ended (exit code {craft.returncode}); see {_log(folder, u)}")

        try:
            for u, place in enumerate(places):
                equip(folder.path, place)
                crafts.append(start_vehicle(place, _log(folder, u)))
            yield check
        finally:
            for craft in crafts:
                craft.terminate()
            for craft in crafts:
                end(craft)


def _log(folder: RunFolder, vehicle: int) -> Path:
    return folder.path / KIT / f"vehicle-{vehicle}.log"


def real_station(folder: Path) -> None:
    """Raise BadInputError unless a folder has a station with vehicles of its own."""
    if read_station(folder / KIT).rehearsal:
        raise BadInputError(
            f"{folder}: made by skyfed fleet try, which goes on with it; allowed: what fleet keys makes"
        )


def equip(run: Path, place: Path) -> None:
    """Give a vehicle its config and its flights, and nobody else's."""
    shutil.copyfile(run / "config.toml", place / "config.toml")
    write_whole(place / "plan.npz", load_fleet_plan(run / "plan.npz").only(read_number(place)).to_bytes())


def start_vehicle(place: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start a vehicle as a process of its own, which ends with this one."""
    path = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": path, PARENT: str(os.getpid())}
    with log.open("ab") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "skyfed", "fleet", "vehicle", str(place)],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, process_group=0,
        )  # fmt: skip
