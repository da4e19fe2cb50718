"""Verbs of a fleet across machines, on Flower."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skyfed.cli.app import Out, Overrides, Plain, Source, Trust, fleet
from skyfed.cli.execution import end_with, plan_flights, resumable, show_run
from skyfed.cli.stop import stop
from skyfed.errors import BadInputError
from skyfed.pipeline import import_training, load_data, new_folder, prepare, watching
from skyfed.report.draw import write_report

if TYPE_CHECKING:
    from skyfed.config import Config
    from skyfed.runs.folder import RunFolder

StationFolder = Annotated[Path, typer.Argument(metavar="DIR", help="The station's folder.")]
Vehicles = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="How many vehicles; the config's number if not given.")
]


Whose = Annotated[int, typer.Argument(metavar="VEHICLE", help="Whose key.")]


@fleet.callback()
def _private(context: typer.Context) -> None:
    """Let nobody else read what these verbs write: keys, uploads, logs."""
    before = os.umask(0o077)
    context.call_on_close(lambda: os.umask(before))


@fleet.command("try")
def fleet_try(
    source: Source = "smoke",
    vehicles: Vehicles = None,
    overrides: Overrides = None,
    out: Out = None,
    plain: Plain = False,
) -> None:
    """Run a whole fleet on this machine.

    A station, and every vehicle in processes of its own; the bytes go through Flower over TLS, as they would between
    machines. Ctrl-C stops after the round; the same command goes on.

    \b
    skyfed fleet try smoke --vehicles 3
    """
    from skyfed.drivers.flower.run import rehearsal
    from skyfed.runs.folder import RunFolder

    config = _config(source, overrides or [], vehicles)
    mission = prepare(config)
    load_data(config, plain)
    place = out or new_folder(source)
    with RunFolder.claim(place, config, sys.argv[1:]) as folder:
        plan_flights(folder, config, mission, plain, f"skyfed fleet try {source} --out {place}")
        with rehearsal(folder, config.vehicles) as check:
            _run_station(folder, config, plain, f"skyfed {' '.join(sys.argv[1:])}", check)


@fleet.command("keys")
def fleet_keys(
    source: Source = "smoke",
    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where vehicles will reach the station; needed.")
    ] = "",
    out: Annotated[Path | None, typer.Option(help="Folder for the folders; needed.")] = None,
    vehicles: Vehicles = None,
    overrides: Overrides = None,
    plain: Plain = False,
) -> None:
    """Plan, and prepare folders with certificates and keys.

    One folder is the station's, one each vehicle's: carry it to its machine; its key is nowhere else.

    \b
    skyfed fleet keys quick --vehicles 3 --address 192.0.2.1:9092 --out fleet
    """
    from skyfed.drivers.flower.credentials import CREDENTIALS, make_credentials, split_address
    from skyfed.drivers.flower.fleet_keys import equip
    from skyfed.runs.folder import RunFolder

    if not address or out is None:
        raise BadInputError("fleet keys: --address HOST:PORT and --out DIR are needed")
    split_address(address)
    config = _config(source, overrides or [], vehicles)
    mission = prepare(config)
    station, places = out / "station", [out / f"vehicle-{u}" for u in range(config.vehicles)]
    if (station / CREDENTIALS / "vehicles.json").exists():
        raise BadInputError(f"--out {out}: has keys already; allowed: a new folder")
    with RunFolder.claim(station, config, sys.argv[1:]) as folder:
        plan_flights(folder, config, mission, plain, f"skyfed fleet keys {source} --address {address} --out {out}")
        make_credentials(station / CREDENTIALS, places, address)
        for place in places:
            equip(station, place)
    print(f"written to {out}: station/, vehicle-0/ … vehicle-{config.vehicles - 1}/")
    print(f"on the station: skyfed fleet station {station}")
    print("on each vehicle's machine, with its own folder: skyfed fleet vehicle DIR")


@fleet.command("key")
def fleet_key(
    folder: StationFolder,
    vehicle: Whose,
    out: Annotated[Path | None, typer.Option(help="The vehicle's new folder; needed.")] = None,
) -> None:
    """Give a vehicle a new key.

    Copy the new folder to the vehicle's machine. The old key is refused within a second.

    \b
    skyfed fleet key fleet/station 1 --out fleet/vehicle-1-new
    """
    from skyfed.drivers.flower.fleet_keys import new_key

    if out is None:
        raise BadInputError("fleet key: --out DIR is needed")
    replaced = new_key(folder, vehicle, out)
    print(f"written to {out}: a key of vehicle {vehicle}{', which replaces its last one' if replaced else ''}")


@fleet.command("revoke")
def fleet_revoke(folder: StationFolder, vehicle: Whose) -> None:
    """Take a vehicle's key off the station's list.

    A station that runs notices within a second and refuses the vehicle from then on.
    """
    from skyfed.drivers.flower.fleet_keys import revoke

    revoke(folder, vehicle)
    print(f"vehicle {vehicle} is no longer known to {folder}; fleet restore undoes that")


@fleet.command("restore")
def fleet_restore(folder: StationFolder, vehicle: Whose) -> None:
    """Let a vehicle in again: undo fleet revoke, or end a quarantine."""
    from skyfed.drivers.flower.fleet_keys import restore

    restore(folder, vehicle)
    print(f"vehicle {vehicle} is known to {folder} again")


@fleet.command("renew")
def fleet_renew(folder: StationFolder) -> None:
    """Make the certificate of the fleet's authority last another year.

    The station renews its own certificate by itself. Vehicles need the new ca.pem before the old one ends.
    """
    from skyfed.drivers.flower.credentials import CREDENTIALS, read_station, renew_authority

    ends = renew_authority(read_station(folder / CREDENTIALS))
    print(f"written to {folder / CREDENTIALS / 'ca.pem'}: valid until {ends:%Y-%m-%d}; copy it to every vehicle")


@fleet.command("station")
def fleet_station(folder: StationFolder, plain: Plain = False, trust: Trust = False) -> None:
    """Run the station.

    It waits for vehicles, runs every round, and goes on where an earlier start stood.
    """
    from skyfed.drivers.flower.run import real_station
    from skyfed.runs.folder import RunFolder

    config = RunFolder.trusted_config(folder, trust)
    real_station(folder)
    load_data(config, plain)
    with RunFolder.claim(folder, config, sys.argv[1:]) as claimed:
        _run_station(claimed, config, plain, f"skyfed fleet station {folder}")


@fleet.command("vehicle")
def fleet_vehicle(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The vehicle's folder.")], trust: Trust = False
) -> None:
    """Run a vehicle until a signal ends it.

    It loads its data once and trains whenever the station asks.
    """
    from skyfed.drivers.flower.credentials import read_vehicle
    from skyfed.drivers.flower.vehicle_process import fly
    from skyfed.runs.folder import RunFolder

    RunFolder.trusted_config(folder, trust)
    fly(read_vehicle(folder), lambda line: print(line, file=sys.stderr, flush=True))


def _config(source: str, overrides: list[str], vehicles: int | None) -> "Config":
    from skyfed.config import load_config
    from skyfed.drivers.flower.run import for_fleet

    count = [f"vehicles={vehicles}"] if vehicles is not None else []
    config, line = for_fleet(load_config(source, [*overrides, *count]))
    if line:
        print(line, file=sys.stderr)
    return config


def _run_station(
    folder: "RunFolder", config: "Config", plain: bool, again: str, check: Callable[[], None] = lambda: None
) -> None:
    """Run the station with a live view; a signal stops after the present round, or now if it has no upload yet.

    check: raises if there is no use in going on.
    """
    from skyfed.drivers.flower.run import run_station

    def idle() -> None:
        stop.check()
        check()

    import_training()
    with resumable(folder.path, again):
        with stop.after_round(), watching(folder, config, plain, stop.check) as watcher:
            diverged = run_station(folder, watcher, idle)
        stop.check()  # a signal after the last round
        show_run(folder, config)
        write_report([folder.path], folder.path / "report.html")
    end_with(diverged)
