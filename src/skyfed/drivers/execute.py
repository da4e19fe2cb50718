"""Run every row of a config in its folder, or go on where an earlier start stopped."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from skyfed.algorithms.twoceoafl import TwoCEOAFL
from skyfed.config import Config
from skyfed.drivers.inline import InlineDriver
from skyfed.drivers.pool import PoolDriver
from skyfed.errors import BadInputError, DivergedError
from skyfed.flight.fleet_plan import FleetPlan
from skyfed.imports import import_path
from skyfed.jobs import Driver
from skyfed.onboard import Onboard
from skyfed.runs.folder import RunFolder, identity_of
from skyfed.runs.recorder import RowRecorder
from skyfed.runs.tables import Row
from skyfed.simulate import run
from skyfed.station import Station
from skyfed.tasks import Task
from skyfed.wire import bucket_starts, quantiser
from skyfed.world import World

_NOISY = 45.0  # relative variance of the averaged uploads from which on training is likely to suffer


class Watcher(Protocol):
    """Sees the run go on."""

    def begin(self, algorithm: str, first: int, rows: list[Row]) -> None:
        """Announce a row that starts at round `first`."""

    def round(self, algorithm: str, row: Row) -> None:
        """Show a finished round; may raise to stop the run."""

    def say(self, line: str) -> None:
        """Show a line."""


Open = Callable[[Onboard], AbstractContextManager[Driver]]


def execute(
    folder: RunFolder,
    config: Config,
    task: Task,
    plan: FleetPlan,
    workers: int,
    watcher: Watcher,
    open_driver: Open | None = None,
) -> list[str]:
    """Train what is not yet trained; every finished round is kept. Returns a line for each row that diverged.

    open_driver: by default jobs are done in this process, or in workers where there are several.
    """
    diverged: dict[str, str] = {}
    folder.keep_to(task.content_hash())
    folder.note(diverged=None)
    onboard = Onboard(config, task)
    for line in _remarks(folder, onboard, world_of(config, task, plan)):
        watcher.say(line)
    identity = folder.identity()
    here: Open = (lambda onboard: PoolDriver(config, workers)) if workers > 1 else InlineDriver
    with (open_driver or here)(onboard) as driver:
        for label in config.labels:
            world = world_of(config, task, plan)
            recorder = RowRecorder(
                folder, onboard, label, world, identity,
                after=lambda row, label=label: watcher.round(label, row),  # type: ignore[misc]
            )  # fmt: skip
            if recorder.done:
                watcher.begin(label, config.rounds, recorder.rows())
                continue
            standing = recorder.standing()
            for line in standing.complaints:
                watcher.say(f"{line}; going back to what is intact")
            watcher.begin(label, standing.first, recorder.rows())
            station = Station(label, onboard, world, driver, standing.memories)
            try:
                state = run(station, recorder, standing.state, standing.first)
            except DivergedError as error:
                diverged[label] = str(error)
                folder.note(diverged=diverged)
                watcher.say(str(error))
                continue
            if not recorder.done:  # an earlier start was stopped between its last round and its last file
                recorder.finish(state)
    return list(diverged.values())


def world_of(config: Config, task: Task, plan: FleetPlan) -> World:
    """Return the world of a row, before its first round; raises BadInputError if it is not one."""
    made = World
    if config.world.use != "simulated":
        made = import_path(config.world.use, "world.use")
        if not (isinstance(made, type) and issubclass(made, World)):
            raise BadInputError(f"world.use = {config.world.use!r}: allowed: a class made from skyfed.World")
    return made(
        plan, task, config.sensing, config.cost, config.faults, config.sensor.altitude, config.seed,
        config.data.dirichlet,
    )  # fmt: skip


def _remarks(folder: RunFolder, onboard: Onboard, world: World) -> list[str]:
    """Note what a run's model is, and return what its user should know before it starts."""
    lines, layout, schedule = [], onboard.engine.layout, world.schedule
    for part, grown in (("training", schedule.train), ("test", schedule.test)):
        dry = sum(int(growth.dry.sum()) for growth in grown)
        if dry:
            lines.append(f"pools ran dry: {dry} {part} samples that flights would have brought were no longer there")
    rows = [
        {
            "label": label,
            "title": row.title,
            "central": algorithm.central,
        }
        for row, (label, algorithm) in zip(onboard.config.rows, onboard.algorithms.items(), strict=True)
    ]
    folder.note(weights=layout.size, live_weights=layout.live_size, classes=list(onboard.task.places), rows=rows)
    if layout.live_size < layout.size:
        share = 100 * (1 - layout.live_size / layout.size)
        lines.append(
            f"live weights: {layout.live_size:,} of {layout.size:,}; the others ({share:.1f} %) meet only padding: "
            "no gradient, not sent; they inflate the apparent pruning ratio"
        )
    return [*lines, *quantiser_warnings(onboard)]


def quantiser_warnings(onboard: Onboard) -> list[str]:
    """Return a line for rows whose quantiser noise, averaged over the fleet, is likely to drown the gradient.

    Measured with ResNet18 at eta 0.1 and ten vehicles: one norm for all weights (bound 700) learns nothing in the first
    rounds and ends well below one norm per tensor (bound 260), which learns at once (docs/reproduction.md).
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


def run_identity(config: Config) -> str:
    """Return what marks the checkpoints of a new run of this config."""
    return identity_of(config.model_dump(mode="json", exclude_none=True))
