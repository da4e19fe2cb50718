"""What the map shows: the flights of a fleet as small arrays."""

import base64
import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skyfed.config import Config
from skyfed.flight.fleet_plan import FleetPlan, age_of_information, load_fleet_plan
from skyfed.report.page.places import SeedGroup
from skyfed.report.page.series import Json, plain
from skyfed.runs.tables import Row, Table
from skyfed.types import Floats
from skyfed.world import footprint_side, initial_counts, new_counts

_MOST_VEHICLES = 50  # on one map
_BUDGET = 600_000  # values of psi in one page, so that it stays a few megabytes


def flight_maps(groups: Sequence[SeedGroup]) -> list[Json]:
    """Return the flights of every group's first seed that is planned; equal ones once, with all their names."""
    found = _distinct(groups, _BUDGET)
    return found if len(found) < 2 else _distinct(groups, _BUDGET // len(found))


def _distinct(groups: Sequence[SeedGroup], budget: int) -> list[Json]:
    found: dict[str, Json] = {}
    for run, group in enumerate(groups):
        planned = [k for k, folder in enumerate(group.folders) if (folder / "plan.npz").is_file()]
        for k in planned[:1]:
            flights = _flights(group, k, budget)
            key = hashlib.sha256(json.dumps(flights).encode()).hexdigest()
            found.setdefault(key, {**flights, "runs": [], "seed": group.configs[k].seed})["runs"].append(run)
    return list(found.values())


def _flights(group: SeedGroup, k: int, budget: int) -> Json:
    fleet, config = load_fleet_plan(group.folders[k] / "plan.npz"), group.configs[k]
    step = -(-fleet.classes * fleet.rounds // budget)
    shown = int(np.clip(budget * step // (fleet.classes * fleet.rounds), 1, min(fleet.vehicles, _MOST_VEHICLES)))
    rounds = np.arange(0, fleet.rounds, step)
    held, source = _held(group, k, fleet, shown)
    peak = float(fleet.psi[:shown].max()) or 1.0
    ages = np.stack([age_of_information(fleet.association[u], fleet.classes) for u in range(shown)])
    rows = max(
        (Table(group.folders[k] / name, "rounds").rows() for name in config.labels), key=len, default=list[Row]()
    )
    return {
        "vehicles": fleet.vehicles,
        "shown": shown,
        "rounds": rounds.tolist(),
        "classes": group.classes,
        "region": plain(fleet.region),
        "footprint": plain(footprint_side(config.sensor.altitude, config.sensor.fov), 4),
        "method": str(fleet.method),
        "centres": plain(fleet.centres[:shown], 4),
        "radii": plain(fleet.radii[:shown], 3),
        "true_centres": plain(fleet.true_centres[:shown], 4),
        "true_radii": plain(fleet.true_radii[:shown], 3),
        "positions": pack(np.round(10 * fleet.positions[:shown, rounds]), "<i4"),  # decimetres
        "association": pack(fleet.association[:shown, rounds], "<i2"),
        "psi": pack(np.round(255 * fleet.psi[:shown][:, :, rounds] / peak), "u1"),
        "peak": plain(peak),
        "age": pack(np.minimum(ages[:, :, rounds], 65535), "<u2"),
        "held": plain(held[:, rounds], 7),
        "source": source,
        "train": {row["round"]: row["train_size"] for row in rows},
        "test": {row["round"]: row["test_size"] for row in rows},
    }


def pack(values: NDArray[Any], kind: str) -> str:
    """Write an array as base64 of little numbers."""
    return base64.b64encode(np.ascontiguousarray(values, kind).tobytes()).decode()


def _held(group: SeedGroup, k: int, fleet: FleetPlan, shown: int) -> tuple[Floats, str]:
    """Return how many training samples vehicles held in every round (U, T): recorded, or else by Eqs. 6 and 7."""
    held = np.full((shown, fleet.rounds), np.nan)
    for name in group.configs[k].labels:
        for row in Table(group.folders[k] / name, "uplink").rows():
            if row["vehicle"] < shown and row["round"] < fleet.rounds and row.get("samples") is not None:
                held[row["vehicle"], row["round"]] = row["samples"]
    if np.isfinite(held).any():
        return held, "recorded"
    return _expected(fleet, shown, group.configs[k]), "modelled by Eq. 6, as if pools never ran dry"


def _expected(fleet: FleetPlan, shown: int, config: Config) -> Floats:
    held, sensing = np.empty((shown, fleet.rounds)), config.sensing
    for u in range(shown):
        where = (fleet.true_centres[u], fleet.true_radii[u])
        new = new_counts(fleet.positions[u], fleet.psi[u], *where, sensing.n_max, sensing.decay_length)
        new[:, 0] = initial_counts(fleet.psi[u], sensing.initial)
        held[u] = np.cumsum(new.sum(axis=0))
    return np.minimum(held, sensing.keep_last) if sensing.keep_last else held
