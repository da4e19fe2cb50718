"""Small builders for tests of whole runs: pictures, flights, configs, rows of tables, a model that waits."""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from torch import Tensor, nn

from skyfed.algorithms import Row as Algorithm
from skyfed.algorithms import check_rows
from skyfed.algorithms.twoceoafl import TwoCEOAFL
from skyfed.config import Config, load_config
from skyfed.flight.fleet_plan import FleetPlan
from skyfed.runs.columns import TABLES
from skyfed.runs.tables import Row, Table
from skyfed.tasks import Pictures

CLASSES = 4
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
    "sensing.model=eq6",
    "sensor.altitude=50",
    "vehicle.speed=10",
    "world.round_time=60",
    "flight.vmax=unlimited",
    "sensing.model=eq6",  # whose counts are worked out by hand; footprints are looked at in tests/test_footprint.py
    "sensing.initial=24",
    "sensing.n_max=20",
    "sensing.initial_test=12",
    "sensing.n_max_test=8",
    "train.batch_size=8",
    "train.kappa=3",
    "quantise.bucket=64",
)
LAW = ('world.time="law"', 'field.follows="rounds"')  # the paper's abstract units: training alone takes time


def tiny_config(*overrides: str, base: Sequence[str] = TINY) -> Config:
    """Return a config that trains in a blink; later overrides win."""
    return load_config("smoke", [*base, *overrides])


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


OF_UPLOADS = (*TwoCEOAFL.columns, *TwoCEOAFL.station_columns)  # what the paper's algorithms add to their uploads


def table_of(folder: Path, name: str) -> Table:
    """Return a table of one of the paper's algorithms."""
    return Table(folder, name, OF_UPLOADS if name == "uplink" else ())


def blank(table: str) -> Row:
    """Return a row of a table of one of the paper's algorithms that says nothing."""
    nothing = {"int": 0, "float": 0.0, "bool": False, "text": None, "floats": []}
    columns = (*TABLES[table], *(OF_UPLOADS if table == "uplink" else ()))
    return {column.name: nothing[column.kind] for column in columns}


def in_toml(value: object) -> str:
    """Return a value as TOML has it on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {in_toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(in_toml, value)) + "]"
    return json.dumps(value)


def rows_of(*specs: str | dict[str, object]) -> list[Algorithm]:
    """Return the rows of a run that lists these algorithms."""
    return check_rows(list(specs))
