"""What a run starts from: its world, and remarks for its user."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from skyfed.algorithms import KNOWN
from skyfed.algorithms.twoceoafl import TwoCEOAFL
from skyfed.config import Config, leaves
from skyfed.errors import BadInputError, own_code
from skyfed.flight.fleet_plan import FleetPlan
from skyfed.imports import import_path
from skyfed.onboard import Onboard, start_of
from skyfed.runs.folder import RunFolder
from skyfed.runs.trust import named_code
from skyfed.station import Station
from skyfed.tasks import Task
from skyfed.wire import bucket_starts, quantiser
from skyfed.world import World
from skyfed.world.feasible import verdict
from skyfed.world.vehicle import implausible

_NOISY = 45.0  # relative variance of the averaged uploads from which on training is likely to suffer


def world_of(config: Config, task: Task, plan: FleetPlan, planned: bool = False) -> World:
    """Return the world of a row, before its first round; raises BadInputError if it is not one.

    planned: everything goes as planned, and nobody lands; so for the central baseline
    """
    made = World
    if config.world.use != "simulated":
        made = import_path(config.world.use, "world.use")
        if not (isinstance(made, type) and issubclass(made, World)):
            raise BadInputError(f"world.use = {config.world.use!r}: allowed: a class made from skyfed.World")
    return made(plan, task, replace(config.conditions, planned=planned))


def try_rows(onboard: Onboard, world: World) -> None:
    """Call once what every row does before anything is trained: an error of the last row costs no training then."""
    for label, algorithm in onboard.algorithms.items():
        state = start_of(onboard, label)
        if algorithm.exchanges > 1 and onboard.config.world.lost == "keep":
            raise BadInputError(f"{label} talks several times in a round; allowed with it: world.lost = 'drop'")
        if not algorithm.central:
            Station(label, onboard, world, onboard).sends(0, state)
        with own_code(f"{label}: deliver"):
            algorithm.deliver(state)


def remarks(folder: RunFolder, onboard: Onboard, world: World) -> list[str]:
    """Note in the manifest what a run's model is, and return what its user should know before it starts."""
    config, layout, schedule = onboard.config, onboard.engine.layout, world.schedule
    lines = implausible(config.vehicle) if config.world.time == "mission" else []
    if config.world.use == "simulated":
        world.fly(config.rounds - 1)  # as planned, if nobody lands
        lines.append(verdict(world.flights.positions, config.conditions, np.isnan(world.flights.arrive)))
    for part, grown in (("training", schedule.train), ("test", schedule.test)):
        dry = sum(int(growth.dry.sum()) for growth in grown)
        if dry:
            lines.append(f"pools ran dry: {dry} {part} samples that flights would have brought were no longer there")
    rows = [
        {"label": label, "title": row.title, "central": algorithm.central}
        for row, (label, algorithm) in zip(onboard.config.rows, onboard.algorithms.items(), strict=True)
    ]
    code, before = own_code_files(onboard.config), folder.manifest().get("code", {})
    lines += [
        f"warning: {file} has changed since this run began; a new folder would start over"
        for file, digest in code.items()
        if before.get(file, digest) != digest
    ]
    folder.note(code=code | before)
    own, begun = own_settings(onboard), folder.manifest().get("settings", {})
    lines += [f"warning: {line} since this run began; a new folder would start over" for line in _moved(begun, own)]
    folder.note(settings=own | begun)
    folder.note(weights=layout.size, live_weights=layout.live_size, classes=list(onboard.task.places), rows=rows)
    if layout.live_size < layout.size:
        share = 100 * (1 - layout.live_size / layout.size)
        lines.append(
            f"live weights: {layout.live_size:,} of {layout.size:,}; the others ({share:.1f} %) meet only padding: "
            "no gradient, not sent; they inflate the apparent pruning ratio"
        )
    return [*lines, *quantiser_warnings(onboard)]


def own_code_files(config: Config) -> dict[str, str]:
    """Return the user's own files that a config names, with a hash of what is in each."""
    files = sorted({name.rpartition(":")[0] for name in named_code(config) if ".py:" in name})
    return {file: hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16] for file in files}


def own_settings(onboard: Onboard) -> dict[str, dict[str, Any]]:
    """Return the settings of rows of the user's own, with the defaults of their classes, which no config has."""
    own = [row.name for row in onboard.config.rows if row.use not in KNOWN]
    return {label: onboard.algorithms[label].settings.model_dump(mode="json") for label in own}


def _moved(before: dict[str, Any], now: dict[str, dict[str, Any]]) -> list[str]:
    """Return what has changed in the settings of rows that were there before."""
    pairs = [(label, dict(leaves(before[label])), dict(leaves(now[label]))) for label in now if label in before]
    return [
        f"{label}: {key} has changed from {old.get(key)} to {new.get(key)}"
        for label, old, new in pairs
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]


def quantiser_warnings(onboard: Onboard) -> list[str]:
    """Return a line for rows whose quantiser noise, averaged over the fleet, is likely to drown the gradient.

    Measured with ResNet18 at eta 0.1 and ten vehicles: one norm for all weights (bound 700) learns nothing in the first
    rounds and ends well below one norm per tensor (bound 260), which learns at once (docs/reproduction/readings.md).
    """
    layout, vehicles = onboard.engine.layout, onboard.config.vehicles
    noisy: dict[float, list[str]] = {}
    for label, algorithm in onboard.algorithms.items():
        quant = algorithm.settings.quantise
        starts = bucket_starts(layout.live_size, quant.bucket_code, layout.live_starts, None)
        bound = quantiser(quant).variance_bound(starts, quant.s, quant.norm)
        if isinstance(algorithm, TwoCEOAFL) and algorithm.raw_probability(0.5) < 1 and bound / vehicles >= _NOISY:
            noisy.setdefault(bound, []).append(label)
    return [
        f"warning: the quantiser's relative variance may reach {bound:.0f} ({bound / vehicles:.0f} averaged over the "
        f"fleet): {', '.join(labels)} will probably converge more slowly and to a lower accuracy; a smaller "
        "quantise.bucket helps"
        for bound, labels in noisy.items()
    ]
