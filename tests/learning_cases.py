"""Small builders that the learning tests share: pictures, flights, configs, stations, updates."""

import os
import time
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from skyfed.blocks.aggregate import alphas
from skyfed.config import Config, load_config
from skyfed.drivers.inline import InlineDriver
from skyfed.flight.fleet_plan import FleetPlan
from skyfed.jobs import Driver, Job
from skyfed.learning.local import Trained
from skyfed.onboard import Onboard
from skyfed.runs.columns import TABLES
from skyfed.runs.start import world_of
from skyfed.runs.tables import Row
from skyfed.simulate import run
from skyfed.station import Report, Station
from skyfed.tasks import Pictures, Task
from skyfed.types import Arrays, Raw, Update
from skyfed.wire import Message, Reference

CLASSES = 4
_vehicles = count()
ALGORITHMS = ("sgd", "afl", "afl-prune", "afl-quant", "2ceoafl")


def pictures(train: int = 60, test: int = 15, classes: int = CLASSES, side: int = 8, seed: int = 0) -> Pictures:
    """Return noisy pictures with a level of its own for each class and channel; `train` and `test` are per class."""
    rng = np.random.default_rng(seed)
    levels = rng.uniform(60, 190, (classes, 3, 1, 1))

    def part(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = np.repeat(np.arange(classes), count)[rng.permutation(classes * count)]
        images = levels[labels] + rng.normal(0, 40, (len(labels), 3, side, side))
        return np.clip(images, 0, 255).astype(np.uint8), labels.astype(np.uint8)

    return Pictures(*part(train), *part(test), tuple(f"class {c}" for c in range(classes)))


def write_picture_folder(root: Path, found: Pictures) -> Path:
    """Write pictures as PNG files in train/ and test/ with class folders."""
    for part in ("train", "test"):
        images, labels = getattr(found, f"{part}_images"), getattr(found, f"{part}_labels")
        for k, (image, label) in enumerate(zip(images, labels, strict=True)):
            place = root / part / f"c{label}"
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image.transpose(1, 2, 0)).save(place / f"{k:04d}.png")
    return root


def fleet_plan(vehicles: int = 3, rounds: int = 3, classes: int = CLASSES) -> FleetPlan:
    """Return flights that visit the discs in turn, each vehicle 10 m off the centre of the disc it is over."""
    psi = np.random.default_rng(7).dirichlet(np.ones(classes), (vehicles, rounds)).transpose(0, 2, 1)
    centres = np.zeros((vehicles, classes, 2))
    centres[..., 0] = 200.0 * np.arange(classes)
    association = (np.arange(rounds)[None] + np.arange(vehicles)[:, None]) % classes
    positions = np.take_along_axis(centres, association[..., None], axis=1) + np.array([0.0, 10.0])
    radii = np.full((vehicles, classes), 50.0)
    each = np.zeros(vehicles)
    return FleetPlan(
        positions=positions,
        association=association,
        centres=centres,
        radii=radii,
        true_centres=centres,
        true_radii=radii,
        psi=psi,
        imax=np.full((vehicles, classes, 1), rounds),
        dmin=np.asarray(5.0),
        vmax=np.asarray(np.inf),
        epsilon=np.asarray(1e-6),
        region=np.asarray([1000.0, 1000.0]),
        windows=np.asarray("paper"),
        method=np.asarray("greedy"),
        objective=each,
        bound=each,
        seconds=each,
        note=np.array([""] * vehicles),
    )


TINY = (
    "vehicles=3",
    "rounds=3",
    "eval_every=2",
    "field.classes=4",
    "model.name=cnn",
    "model.width=4",
    "sensing.initial=24",
    "sensing.n_max=20",
    "sensing.initial_test=12",
    "sensing.n_max_test=8",
    "train.batch_size=8",
    "train.kappa=3",
    "quantise.bucket=64",
)


def tiny_config(*overrides: str, base: Sequence[str] = TINY) -> Config:
    """Return a config that trains in a blink; later overrides win."""
    return load_config("smoke", [*base, *overrides])


def raw_update(
    values: np.ndarray, mask: np.ndarray | None = None, buffers: Sequence[float] = (), **about: int
) -> Update:
    """Return an upload of raw values; `about` may set round and vehicle, which else is a new one."""
    size = len(values) if mask is None else len(mask)
    body = Raw(np.asarray(values, np.float32))
    return Update(
        about.get("round", 0), about.get("vehicle", next(_vehicles)), size, mask, body, np.asarray(buffers, np.float32)
    )  # fmt: skip


def reference(size: int, buffers: int = 0, starts: Sequence[int] = ()) -> Reference:
    """Return what both sides know of a model of zeros."""
    zeros = np.zeros(size, np.float32), np.zeros(buffers, np.float32)
    return Reference(*zeros, np.array(starts or [0, size]))


def message_of(update: Update, known: Reference, weight: float = 1.0) -> Message:
    """Return an upload of one vector as the station sees it."""
    return Message(update.vehicle, update.round, {"update": update}, known, weight)


class Memory:
    """A recorder that keeps everything."""

    def __init__(self) -> None:
        self.states: list[Arrays] = []
        self.memories: list[dict[int, Arrays]] = []
        self.reports: list[Report] = []

    def record(self, state: Arrays, memories: dict[int, Arrays], report: Report) -> None:
        self.states.append(state)
        self.memories.append(dict(memories))
        self.reports.append(report)


def onboard_of(config: Config, task: Task | Pictures | None = None, dtype: torch.dtype = torch.float32) -> Onboard:
    """Return a process's engine and algorithms; on small pictures unless a task is given."""
    task = pictures() if task is None else task
    return Onboard(config, task.task() if isinstance(task, Pictures) else task, dtype)


def station_of(
    config: Config,
    label: str,
    driver: Driver | None = None,
    onboard: Onboard | None = None,
    plan: FleetPlan | None = None,
    memories: dict[int, Arrays] | None = None,
) -> Station:
    """Return the station of a row before round 0; jobs are done in this process unless a driver is given."""
    onboard = onboard or onboard_of(config)
    plan = plan or fleet_plan(config.vehicles, config.rounds)
    world = world_of(config, onboard.task, plan)
    return Station(label, onboard, world, driver or InlineDriver(onboard), memories)


def start_of(station: Station) -> Arrays:
    """Return the state before round 0."""
    return station.algorithm.start(station.onboard.engine.initial())


def run_row(station: Station, state: Arrays | None = None, first: int = 0) -> Memory:
    """Run a row to its end and return everything that was recorded."""
    memory = Memory()
    final = run(station, memory, start_of(station) if state is None else state, first)
    assert final is memory.states[-1]
    return memory


def job_of(station: Station, vehicle: int, t: int, state: Arrays | None = None) -> Job:
    """Return the job of a vehicle's round."""
    state = start_of(station) if state is None else state
    weights = alphas(station.algorithm.settings.server, station.world.samples(t))
    sent = station.algorithm.send(state, vehicle, t)
    return station._job(t, 0, vehicle, sent, float(weights[vehicle] / weights.sum()))


def retrained(station: Station, vehicle: int, t: int, state: Arrays, delta: float) -> Trained:
    """Return what a vehicle of the paper's algorithms trains in round t, once more."""
    kit = station.onboard.kit(job_of(station, vehicle, t, state))
    ticket = kit.winning_ticket(state, delta) if station.algorithm.prunes(delta) else None
    return kit.descend(state, ticket, delta=delta)


def exchanged(
    station: Station, t: int, state: Arrays | None = None, vehicles: Iterable[int] | None = None
) -> tuple[list[Message], Report]:
    """Let some vehicles, or all, train in round t; returns what was decoded and what happened."""
    state, report = start_of(station) if state is None else state, Report(t)
    who = range(station.world.vehicles) if vehicles is None else vehicles
    sent = {u: station.algorithm.send(state, u, t) for u in who}
    return list(station.exchange(t, 0, sent, report)), report


class Gated(nn.Module):
    """A small CNN that pauses in training while the file SKYFED_TEST_HOLD is there and a table has enough rows.

    SKYFED_TEST_HOLD names the file, SKYFED_TEST_TABLE the table (JSON lines), SKYFED_TEST_ROWS how many rows are
    enough; so a test can stop a run in a round of its choice. While it pauses, a file of that name and .waits is there.
    """

    def __init__(self, classes: int, side: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
            nn.Linear(16, classes),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layers, in training as soon as the gate is open."""
        hold = os.environ.get("SKYFED_TEST_HOLD")
        if self.training and hold and os.path.exists(hold):
            table = Path(os.environ["SKYFED_TEST_TABLE"])
            if table.exists() and table.read_bytes().count(b"\n") >= int(os.environ["SKYFED_TEST_ROWS"]):
                Path(f"{hold}.waits").touch()
                while os.path.exists(hold):
                    time.sleep(0.01)
        return self.layers(x)


def blank(table: str) -> Row:
    """Return a row of a run's table that says nothing."""
    nothing = {"int": 0, "float": 0.0, "bool": False, "text": None, "floats": []}
    return {column.name: nothing[column.kind] for column in TABLES[table]}
