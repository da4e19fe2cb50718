"""Run every algorithm of a config in its folder, or go on where an earlier start stopped."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from skyfed.algorithms import find_recipe
from skyfed.config import Config
from skyfed.drivers.inline import InlineDriver
from skyfed.drivers.pool import PoolDriver
from skyfed.errors import DivergedError
from skyfed.flight.fleet import FleetPlan
from skyfed.learning.flat import Layout
from skyfed.runs.folder import RunFolder, identity_of
from skyfed.runs.recorder import AlgorithmRecorder
from skyfed.runs.store import Row
from skyfed.sensing.datasets import Pictures
from skyfed.simulate import Driver, State, run
from skyfed.vehicle import Vehicles
from skyfed.wire import bucket_starts, quantiser

_NOISY = 45.0  # relative variance of the averaged uploads from which on training is likely to suffer


class Watcher(Protocol):
    """Sees the run go on."""

    def begin(self, algorithm: str, first: int, rows: list[Row]) -> None:
        """Announce an algorithm that starts at round `first`."""

    def round(self, algorithm: str, row: Row) -> None:
        """Show a finished round; may raise to stop the run."""

    def say(self, line: str) -> None:
        """Show a line."""


Carry = Callable[[Vehicles], AbstractContextManager[Driver]]


def execute(
    folder: RunFolder,
    config: Config,
    pictures: Pictures,
    plan: FleetPlan,
    workers: int,
    watcher: Watcher,
    carry: Carry | None = None,
) -> list[str]:
    """Train what is not yet trained; every finished round is kept. Returns a line for each algorithm that diverged.

    carry: opens the driver; by default vehicles are in this process, or in workers where there are several.
    """
    diverged: dict[str, str] = {}
    folder.keep_to(pictures.content_hash())
    folder.note(diverged=None)
    vehicles = Vehicles(config, pictures, plan)
    for part, grown in (("training", vehicles.schedule.train), ("test", vehicles.schedule.test)):
        dry = sum(int(growth.dry.sum()) for growth in grown)
        if dry:
            watcher.say(f"pools ran dry: {dry} {part} samples that flights would have brought were no longer there")
    layout = vehicles.layout
    folder.note(weights=layout.size, live_weights=layout.live_size, classes=list(pictures.names))
    if layout.live_size < layout.size:
        share = 100 * (1 - layout.live_size / layout.size)
        watcher.say(
            f"live weights: {layout.live_size:,} of {layout.size:,}; the others ({share:.1f} %) meet only padding: "
            "no gradient, not sent; they flatter delta"
        )
    noise = quantiser_warning(config, vehicles.layout)
    if noise:
        watcher.say(noise)
    start = State(*vehicles.initial())
    identity = folder.identity()
    plan_file = folder.path / "plan.npz"
    here: Carry = (lambda vehicles: PoolDriver(vehicles, config, plan_file, workers)) if workers > 1 else _Alone
    with (carry or here)(vehicles) as driver:
        for algorithm in config.algorithms:
            recorder = AlgorithmRecorder(
                folder, config, algorithm, vehicles.schedule, len(pictures.test_labels), identity,
                after=lambda row, algorithm=algorithm: watcher.round(algorithm, row),  # type: ignore[misc]
                deliver=lambda weights, algorithm=algorithm: vehicles.delivered(algorithm, weights),  # type: ignore[misc]
            )  # fmt: skip
            if recorder.done:
                watcher.begin(algorithm, config.rounds, recorder.rows())
                continue
            standing = recorder.standing(start)
            for line in standing.complaints:
                watcher.say(f"{line}; going back to what is whole")
            watcher.begin(algorithm, standing.first, recorder.rows())
            try:
                state = run(config, algorithm, driver, recorder, standing.state, standing.first)
            except DivergedError as error:
                diverged[algorithm] = str(error)
                folder.note(diverged=diverged)
                watcher.say(str(error))
                continue
            if not recorder.done:  # an earlier start was stopped between its last round and its last file
                recorder.finish(state)
    return list(diverged.values())


def quantiser_warning(config: Config, layout: Layout) -> str:
    """Return a line when the quantiser's noise, averaged over the fleet, is likely to drown the gradient.

    Measured with ResNet18 at eta 0.1 and ten vehicles: one norm for all weights (bound 700) learns nothing in the first
    rounds and ends well below one a tensor (bound 260), which learns at once (docs/reproduction.md, `norm global`).
    """
    rows = {name: find_recipe(name) for name in config.algorithms}
    setting = config.quantise.raw_probability
    quantises = [name for name, row in rows.items() if not row.central and row.raw_probability(0.5, setting) < 1]
    starts = bucket_starts(layout.live_size, config.quantise.bucket_code, layout.live_starts, None)
    bound = quantiser(config.quantise).variance_bound(starts, config.quantise.s, config.quantise.norm)
    if not quantises or bound / config.vehicles < _NOISY:
        return ""
    return (
        f"warning: the quantiser's relative variance may reach {bound:.0f} ({bound / config.vehicles:.0f} averaged "
        f"over the fleet): {', '.join(quantises)} will likely learn late and less; a smaller quantise.bucket helps"
    )


def run_identity(config: Config) -> str:
    """Return what marks the checkpoints of a new run of this config."""
    return identity_of(config.model_dump(mode="json", exclude_none=True))


class _Alone(InlineDriver):
    """The inline driver as a context manager."""

    def __enter__(self) -> InlineDriver:
        return self

    def __exit__(self, *_: object) -> None:
        pass
