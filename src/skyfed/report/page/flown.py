"""What rows have recorded of their vehicles, round by round: clock, samples, battery, places, and who went home."""

import base64
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from skyfed.config import Config
from skyfed.report.groups import SeedGroup
from skyfed.report.page.map import pack, planned_seed
from skyfed.report.page.series import Json, plain
from skyfed.runs.tables import Table, remembered
from skyfed.types import Floats

_COLUMNS = ("vehicle", "round", "samples", "battery_left", "x", "y")
_STATUS = {"flying": 0, "going home": 1, "on the ground": 2}  # as the page's script knows them
_Round = tuple[int, int, float | None]  # training samples, test samples, mission seconds
_OFF_PLAN = 1.0  # m: a vehicle that is farther from its planned place does not fly by the plan


def flown_rows(groups: Sequence[SeedGroup], maps: Sequence[Json]) -> list[Json]:
    """Return one record per run and row that has got somewhere, at the rounds and for the vehicles of its map."""
    records = []
    for flights in maps:
        for run in flights["runs"]:
            k = planned_seed(groups[run]) or 0
            folder, config = groups[run].folders[k], groups[run].configs[k]
            for row in config.rows:
                sizes = _sizes(folder, row.name)
                if sizes:
                    record = {"run": run, "algorithm": row.name, "done": len(sizes)}
                    own = _of_vehicles(folder, row.name, flights, len(sizes), config)
                    records.append({**record, **_growth(flights, sizes, config.world.time == "law"), **own})
    return sorted(records, key=lambda record: int(record["run"]))


def _growth(flights: Json, sizes: dict[int, _Round], law: bool) -> Json:
    """Return the sizes of the fleet's training and test sets at the end of a map's rounds, and mission minutes."""
    there = [sizes[t] for t in flights["rounds"] if t in sizes]
    clocks = [clock for _, _, clock in there]
    minutes = None if law or None in clocks else plain([clock / 60 for clock in clocks if clock is not None])
    return {"train": [train for train, *_ in there], "test": [test for _, test, _ in there], "minutes": minutes}


def _of_vehicles(folder: Path, label: str, flights: Json, done: int, config: Config) -> Json:
    """Return what the vehicles of a row had; empty for one without vehicles."""
    rounds = np.array([t for t in flights["rounds"] if t < done], np.int64)
    table = _recorded(folder, label)
    step = flights["rounds"][1] if len(flights["rounds"]) > 1 else 1
    here = (table[0] < flights["shown"]) & (table[1] < done) & (table[1] % step == 0)
    if not here.any():
        return {}
    u, t = table[:2, here].astype(np.int64)
    values = np.full((5, flights["shown"], len(rounds)), np.nan)
    values[:, u, t // step] = table[2:, here]
    samples, left, x, y, status = values
    share = plain(left / config.vehicle.battery, 3) if np.isfinite(left).any() else None
    reserve = config.vehicle.reserve if config.world.battery == "enforce" else None
    recorded: Json = {"held": plain(samples, 7), "battery": share, "reserve": reserve}
    recorded["status"] = pack(np.nan_to_num(status), "u1") if np.nan_to_num(status).any() else None
    off = _off_plan(np.stack([x, y], axis=2), flights)
    return recorded if off is None else {**recorded, "positions": pack(np.round(10 * off), "<i4")}


def _off_plan(places: Floats, flights: Json) -> Floats | None:
    """Return where vehicles were, if that is not where they were planned to be; a world may fly as it likes."""
    planned = _unpacked(flights["positions"]).reshape(flights["shown"], -1, 2)[:, : places.shape[1]] / 10
    known = np.isfinite(places)
    if not known.any() or np.abs(places - planned)[known].max() <= _OFF_PLAN:
        return None
    return np.where(known, places, planned)


def _unpacked(text: str) -> NDArray[np.int32]:
    return np.frombuffer(base64.b64decode(text), "<i4")


@remembered
def _recorded(folder: Path, label: str) -> Floats:
    """Return vehicle, round, samples, battery, place and status, (7, n); NaN for what is not known (format 0.1.0)."""
    rows = Table(folder / label, "vehicles").rows() or Table(folder / label, "uplink").rows()
    values = [[*(row.get(name) for name in _COLUMNS), _STATUS.get(row.get("status") or "")] for row in rows]
    table = np.array(values, np.float64).reshape(-1, len(_COLUMNS) + 1).T
    return np.where(table[:2].min(axis=0) < 0, np.nan, table) if table.size else table


@remembered
def _sizes(folder: Path, label: str) -> dict[int, _Round]:
    """Return the sizes of the training and the test set by round, and the mission clock."""
    rows = Table(folder / label, "rounds").rows()
    return {row["round"]: (row["train_size"], row["test_size"], row.get("clock")) for row in rows}
