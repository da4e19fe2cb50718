"""The models that a run has saved, by row and name, and what is needed to use them."""

from dataclasses import dataclass
from pathlib import Path

from skyfed.config import Config
from skyfed.errors import BadInputError
from skyfed.learning.engine import Engine
from skyfed.runs.checkpoint import unpack_model
from skyfed.runs.tables import Table
from skyfed.tasks import Task
from skyfed.types import Model

ONLY = "model"  # name of a delivered model where a row delivers one


@dataclass(frozen=True)
class SavedModel:
    """A model as it was saved: its name, its weights and buffers, and the vehicles it serves; None if not recorded."""

    name: str
    model: Model
    vehicles: tuple[int, ...] | None = None


def finished_rows(folder: Path, config: Config, algorithm: str | None) -> list[str]:
    """Return the labels of the rows whose models are saved, or the one asked for; raises BadInputError else."""
    if algorithm is not None and algorithm not in config.labels:
        raise BadInputError(f"--algorithm {algorithm!r}: allowed in this run: {', '.join(config.labels)}")
    names = [algorithm] if algorithm else config.labels
    finished = [name for name in names if (folder / name / f"{ONLY}.safetensors").exists()]
    if not finished:
        raise BadInputError(f"{folder}: no finished model of {', '.join(names)}; go on with: skyfed resume {folder}")
    return finished


def engine_of(config: Config, task: Task) -> Engine:
    """Return what a run's models are used with, on this machine's CPU."""
    return Engine(task, config.model, config.seed, "cpu")


def saved_models(folder: Path, label: str, engine: Engine) -> list[SavedModel]:
    """Return the models that a row delivered; raises BadInputError where a file is damaged or of another model."""
    several = sorted((folder / label / "models").glob("*.safetensors"))
    return [_read(path, engine) for path in several or [folder / label / f"{ONLY}.safetensors"]]


def tested_at(folder: Path, label: str) -> float | None:
    """Return the mission second of a row's last test, where appearance drifts: saved models are scored as of then."""
    known = [row.get("tested_at") for row in Table(folder / label, "rounds").rows()]
    return next((second for second in reversed(known) if second is not None), None)


def chosen(models: list[SavedModel], name: str | None) -> list[SavedModel]:
    """Return the model of this name, or all where none is given; raises BadInputError if there is no such."""
    names = [saved.name for saved in models]
    if name is not None and name not in names:
        raise BadInputError(f"--model {name!r}: allowed in this row: {', '.join(names)}")
    return [saved for saved in models if name in (None, saved.name)]


def _read(path: Path, engine: Engine) -> SavedModel:
    weights, buffers, about = unpack_model(path)
    if (len(weights), len(buffers)) != (engine.layout.size, engine.layout.buffers):
        raise BadInputError(f"{path}: holds a model of another size")
    served = about.get("vehicles")
    vehicles = None if not isinstance(served, str) else tuple(int(u) for u in served.split() if u.isdecimal())
    return SavedModel(path.stem, Model(engine.layout.of_live(weights), buffers), vehicles)
