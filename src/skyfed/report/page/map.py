"""The data of the map: the planned flights of a fleet as small arrays, and what each row has recorded of them."""

import base64
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skyfed.flight.fleet_plan import FleetPlan, age_of_information, load_fleet_plan
from skyfed.report.groups import SeedGroup
from skyfed.report.page.series import Json, plain
from skyfed.types import IDLE, Floats, Ints
from skyfed.world import footprint_side, initial_counts, new_counts
from skyfed.world.arrivals import SensingSettings

_MOST_VEHICLES = 50  # on one map
_BUDGET = 600_000  # values of psi in one page, so that it stays a few megabytes


def flight_maps(groups: Sequence[SeedGroup]) -> list[Json]:
    """Return the flights of every group's first planned seed. Equal flights are one map with several runs."""
    maps = _distinct(groups, _BUDGET)
    return maps if len(maps) < 2 else _distinct(groups, _BUDGET // len(maps))


def planned_seed(group: SeedGroup) -> int | None:
    """Return which seed of a group is on the map: the first that has a plan; None without any."""
    return next((k for k, folder in enumerate(group.folders) if (folder / "plan.npz").is_file()), None)


def _distinct(groups: Sequence[SeedGroup], budget: int) -> list[Json]:
    maps: dict[str, Json] = {}
    for run, group in enumerate(groups):
        k = planned_seed(group)
        if k is not None:
            config, path = group.configs[k], group.folders[k] / "plan.npz"
            side = footprint_side(config.sensor.altitude, config.sensor.fov)
            text = _planned(path, path.stat().st_mtime_ns, side, config.sensing, tuple(group.classes), budget)
            entry = maps.setdefault(text, {**json.loads(text), "runs": [], "seed": config.seed})
            entry["runs"].append(run)
    return list(maps.values())


@lru_cache(maxsize=64)
def _planned(
    path: Path, changed: int, side: float, sensing: SensingSettings, classes: tuple[str, ...], budget: int
) -> str:
    """Return the flights of a plan as JSON. Whoever watches a run asks again and again; a plan hardly ever changes."""
    fleet = load_fleet_plan(path)
    step = -(-fleet.classes * fleet.rounds // budget)
    shown = int(np.clip(budget * step // (fleet.classes * fleet.rounds), 1, min(fleet.vehicles, _MOST_VEHICLES)))
    rounds = np.arange(0, fleet.rounds, step)
    peak = float(fleet.psi[:shown].max()) or 1.0
    ages = np.stack([age_of_information(fleet.association[u], fleet.classes) for u in range(shown)])
    return json.dumps({
        "vehicles": fleet.vehicles,
        "shown": shown,
        "rounds": rounds.tolist(),
        "opens": _opening(fleet.association[:shown, rounds]),
        "classes": list(classes),
        "region": plain(fleet.region),
        "footprint": plain(side, 4),
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
        "held": plain(_modelled_samples(fleet, sensing, shown)[:, rounds], 7),
        "allowed": {"side": len(fleet.allowed), "bits": pack(np.packbits(fleet.allowed), "u1")},
    })  # fmt: skip


def _opening(association: Ints) -> int:
    """Return the round at which a map opens: that with the most classes visited, of such the one nearest the middle."""
    visited = [len(set(labels[labels != IDLE].tolist())) for labels in association.T]
    middle = len(visited) / 2
    return max(range(len(visited)), key=lambda t: (visited[t], -abs(t - middle)))


def pack(values: NDArray[Any], kind: str) -> str:
    """Encode an array as base64 of small little-endian numbers."""
    return base64.b64encode(np.ascontiguousarray(values, kind).tobytes()).decode()


def _modelled_samples(fleet: FleetPlan, sensing: SensingSettings, shown: int) -> Floats:
    """Return the training samples that each vehicle holds per round by Eqs. 6 and 7, as if pools never ran dry."""
    held = np.empty((shown, fleet.rounds))
    for u in range(shown):
        discs = fleet.true_centres[u], fleet.true_radii[u]
        new = new_counts(fleet.positions[u], fleet.psi[u], *discs, sensing.n_max, sensing.decay_length)
        new[:, 0] = initial_counts(fleet.psi[u], sensing.initial)
        held[u] = np.cumsum(new.sum(axis=0))
    return np.minimum(held, sensing.keep_last or np.inf)
