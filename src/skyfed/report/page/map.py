"""The data of the map: the flights of a fleet as small arrays."""

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skyfed.config import Config
from skyfed.flight.fleet_plan import FleetPlan, age_of_information, load_fleet_plan
from skyfed.report.groups import SeedGroup
from skyfed.report.page.series import Json, plain
from skyfed.runs.tables import Table
from skyfed.types import Floats
from skyfed.world import footprint_side, initial_counts, new_counts

_MOST_VEHICLES = 50  # on one map
_BUDGET = 600_000  # values of psi in one page, so that it stays a few megabytes


def flight_maps(groups: Sequence[SeedGroup]) -> list[Json]:
    """Return the flights of every group's first planned seed. Equal flights are one map with several runs."""
    maps = _distinct(groups, _BUDGET)
    return maps if len(maps) < 2 else _distinct(groups, _BUDGET // len(maps))


def _distinct(groups: Sequence[SeedGroup], budget: int) -> list[Json]:
    maps: dict[str, Json] = {}
    for run, group in enumerate(groups):
        planned = [k for k, folder in enumerate(group.folders) if (folder / "plan.npz").is_file()]
        for k in planned[:1]:
            flights = _flights(group.folders[k], group.configs[k], group.classes, budget)
            entry = maps.setdefault(json.dumps(flights), {**flights, "runs": [], "seed": group.configs[k].seed})
            entry["runs"].append(run)
    return list(maps.values())


def _flights(folder: Path, config: Config, classes: list[str], budget: int) -> Json:
    fleet = load_fleet_plan(folder / "plan.npz")
    step = -(-fleet.classes * fleet.rounds // budget)
    shown = int(np.clip(budget * step // (fleet.classes * fleet.rounds), 1, min(fleet.vehicles, _MOST_VEHICLES)))
    rounds = np.arange(0, fleet.rounds, step)
    held, source = _held(folder, config, fleet, shown)
    peak = float(fleet.psi[:shown].max()) or 1.0
    ages = np.stack([age_of_information(fleet.association[u], fleet.classes) for u in range(shown)])
    rows = max((Table(folder / name, "rounds").rows() for name in config.labels), key=len)
    return {
        "vehicles": fleet.vehicles,
        "shown": shown,
        "rounds": rounds.tolist(),
        "classes": classes,
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
    """Encode an array as base64 of small little-endian numbers."""
    return base64.b64encode(np.ascontiguousarray(values, kind).tobytes()).decode()


def _held(folder: Path, config: Config, fleet: FleetPlan, shown: int) -> tuple[Floats, str]:
    """Return the training samples each vehicle held per round (U, T), and whether they are recorded or modelled."""
    held = np.full((shown, fleet.rounds), np.nan)
    for name in config.labels:
        for row in Table(folder / name, "uplink").rows():
            if row["vehicle"] < shown and row["round"] < fleet.rounds and row.get("samples") is not None:
                held[row["vehicle"], row["round"]] = row["samples"]
    if np.isfinite(held).any():
        return held, "recorded"
    sensing = config.sensing
    for u in range(shown):  # by Eqs. 6 and 7
        discs = fleet.true_centres[u], fleet.true_radii[u]
        new = new_counts(fleet.positions[u], fleet.psi[u], *discs, sensing.n_max, sensing.decay_length)
        new[:, 0] = initial_counts(fleet.psi[u], sensing.initial)
        held[u] = np.cumsum(new.sum(axis=0))
    return np.minimum(held, sensing.keep_last or np.inf), "modelled by Eq. 6, as if pools never ran dry"
