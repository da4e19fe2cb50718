"""Who belongs to a fleet: a vehicle's folder, a key that is replaced, added, taken off the list or put back."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

from skyfed.drivers.flower.credentials import (
    CREDENTIALS,
    QUARANTINE,
    StationCredentials,
    give_key,
    read_identity,
    read_station,
    write_vehicles,
)
from skyfed.drivers.flower.policy import POLICY, Policy
from skyfed.errors import BadInputError
from skyfed.files import read_json_table, write_whole
from skyfed.flight.fleet_plan import load_fleet_plan
from skyfed.runs.folder import RunFolder


def equip(run: Path, place: Path) -> None:
    """Give a vehicle its config, its flights and nobody else's, and a policy unless it has one."""
    if not (place / POLICY).exists():
        Policy.write(place, RunFolder(run).read_config())
    shutil.copyfile(run / "config.toml", place / "config.toml")
    own = load_fleet_plan(run / "plan.npz").only(read_identity(place).vehicle)
    write_whole(place / "plan.npz", own.to_bytes())


def new_key(run: Path, vehicle: int, place: Path) -> bool:
    """Make a new key for a vehicle, in a folder that is carried to it; tells whether it replaces another one."""
    credentials, config = read_station(run / CREDENTIALS), RunFolder.config_of(run)
    if not 0 <= vehicle < config.vehicles:
        raise BadInputError(f"vehicle {vehicle}: allowed: 0 to {config.vehicles - 1}, as many as the run has flights")
    if (place / "vehicle.key").exists():
        raise BadInputError(f"--out {place}: has a key already; allowed: a new folder")
    public = give_key(credentials, vehicle, place)
    equip(run, place)
    others = without(credentials, vehicle)
    write_vehicles(replace(others, vehicles={**others.vehicles, vehicle: public}))
    return vehicle in credentials.vehicles


def revoke(run: Path, vehicle: int) -> None:
    """Take a vehicle's key off the list; it is remembered, so that it can be put back."""
    credentials = read_station(run / CREDENTIALS)
    if vehicle not in credentials.vehicles:
        known = ", ".join(map(str, credentials.vehicles))
        raise BadInputError(f"vehicle {vehicle}: no key of it here; known: {known}")
    write_vehicles(without(credentials, vehicle))


def restore(run: Path, vehicle: int) -> None:
    """Put the key back that was last taken off the list, or let a key in again that was quarantined."""
    credentials = read_station(run / CREDENTIALS)
    if vehicle in credentials.quarantined:
        path = credentials.place / QUARANTINE
        known = read_json_table(path) or {}
        write_whole(path, json.dumps({k: v for k, v in known.items() if k != credentials.vehicles[vehicle]}).encode())
        return
    if vehicle in credentials.vehicles or vehicle not in credentials.removed:
        raise BadInputError(f"vehicle {vehicle}: no key of it was removed or quarantined")
    removed = {u: key for u, key in credentials.removed.items() if u != vehicle}
    keys = {**credentials.vehicles, vehicle: credentials.removed[vehicle]}
    write_vehicles(replace(credentials, vehicles=keys, removed=removed))


def without(credentials: StationCredentials, vehicle: int) -> StationCredentials:
    """Return a station's credentials without a vehicle's key."""
    kept = {u: key for u, key in credentials.vehicles.items() if u != vehicle}
    removed = {**credentials.removed, **{u: key for u, key in credentials.vehicles.items() if u == vehicle}}
    return replace(credentials, vehicles=kept, removed=removed)
