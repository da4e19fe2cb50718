"""The card of an exported model: what it is, what it takes and gives, how well it does, and how to load each file."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from torch import Tensor, nn

from skyfed import __version__
from skyfed.algorithms import PAPER
from skyfed.config import Config, changed
from skyfed.learning.batches import tensor_of
from skyfed.learning.engine import Engine
from skyfed.learning.evaluate import Scores, place_accuracy
from skyfed.learning.models import is_known
from skyfed.runs.folder import RunFolder
from skyfed.runs.models import SavedModel
from skyfed.tasks import Task

_PACKAGES = ("torch", "numpy")
_NO_RESULT = ("workers", "track.", "fleet.", "data.dir", "algorithms", "checkpoint_every")  # settings of the machine


@dataclass(frozen=True)
class Facts:
    """What a card says, and `export.json` for programs.

    classes  names of the outputs, where outputs are classes      mean, scale  of each channel: (x - mean) * scale
    weights  numbers in the exported model, of `trained`          zero         how many of them are zero
    by_class accuracy of each class or place by name              vehicles     which the model serves; None: all
    settings that differ from skyfed's defaults                   own_model    import path of a model of one's own
    """

    title: str
    algorithm: str
    model: str
    data: str
    network: str
    own_model: str
    shape: list[int]
    dtype: str
    outputs: int
    classes: list[str] | None
    mean: list[float] | None
    scale: list[float] | None
    own_transform: bool
    samples: int
    accuracy: float
    loss: float
    metrics: dict[str, float]
    by_class: dict[str, float | None]
    weights: int
    trained: int
    zero: int
    vehicles: list[int] | None
    rounds: int
    seed: int
    settings: dict[str, Any]
    trained_with: dict[str, str]
    exported_with: dict[str, str]


def facts_of(
    folder: RunFolder, config: Config, label: str, saved: SavedModel, engine: Engine, module: nn.Module, scores: Scores
) -> Facts:
    """Collect what is known of a model that was scored as it is exported."""
    task, moments = engine.task, engine.batches.moments
    row = config.row(label)
    each = place_accuracy(scores.score, task.test.places, len(task.places))
    parameters = list(module.parameters())
    return Facts(
        title=row.title,
        algorithm=label,
        model=saved.name,
        data=_short(config.data.name),
        network=_short(config.model.name),
        own_model="" if is_known(config.model) else _short(config.model.name),
        shape=list(task.shape),
        dtype=_sample_type(task),
        outputs=task.outputs,
        classes=list(task.places) if _outputs_are_places(task) else None,
        mean=None if moments is None else _numbers(moments[0]),
        scale=None if moments is None else _numbers(moments[1]),
        own_transform=task.transform is not None,
        samples=len(task.test),
        accuracy=float(scores.score.mean()),
        loss=float(scores.loss.mean(dtype=np.float64)),
        metrics={name: float(values.mean()) for name, values in scores.metrics.items()},
        by_class={name: None if np.isnan(x) else float(x) for name, x in zip(task.places, each, strict=True)},
        weights=sum(parameter.numel() for parameter in parameters),
        trained=engine.layout.size,
        zero=sum(int((parameter == 0).sum()) for parameter in parameters),
        vehicles=None if saved.vehicles is None else list(saved.vehicles),
        rounds=config.rounds,
        seed=config.seed,
        settings=_settings(config) | {f"{label}: {key}": value for key, value in row.own.items()},
        trained_with=_recorded_versions(folder),
        exported_with={"skyfed": __version__, **{name: metadata.version(name) for name in _PACKAGES}},
    )


def card(facts: Facts, sizes: Mapping[str, int]) -> str:
    """Return the card in Markdown; `sizes` are the bytes of each file by its name."""
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters["cell"] = _cell
    source = resources.files("skyfed.export").joinpath("card.md.j2").read_text(encoding="utf-8")
    of_paper = facts.algorithm in PAPER
    return environment.from_string(source).render(asdict(facts), sizes=sizes, of_paper=of_paper)


def _sample_type(task: Task) -> str:
    """Return the type of numbers that samples have, as torch and NumPy call it."""
    return str(tensor_of(task.test.inputs[:1]).dtype).removeprefix("torch.")


def _recorded_versions(folder: RunFolder) -> dict[str, str]:
    """Return the versions that a run was begun with, as its manifest has them."""
    manifest = folder.manifest()
    packages = manifest.get("packages")
    known = {"skyfed": manifest.get("skyfed")} | (packages if isinstance(packages, dict) else {})
    return {name: str(known[name]) for name in ("skyfed", *_PACKAGES) if known.get(name)}


def _settings(config: Config) -> dict[str, Any]:
    differ = changed([Config(), config])
    return {
        key: _short(now) if isinstance(now, str) else now
        for key, (_, now) in differ.items()
        if not key.startswith(_NO_RESULT)
    }


def _outputs_are_places(task: Task) -> bool:
    """Tell whether each output is the score of a place, as for pictures, whose places are their classes."""
    targets = task.test.targets
    return task.outputs == len(task.places) and targets.ndim == 1 and np.array_equal(targets, task.test.places)


def _numbers(moment: Tensor) -> list[float]:
    return [float(value) for value in moment.flatten().tolist()]


def _short(name: str) -> str:
    """Return an import path or a folder without the place where it lies on this machine."""
    kind, colon, path = name.partition(":")
    if name.startswith("folder:"):
        return f"{kind}:{Path(path).name}"
    return f"{Path(kind).name}{colon}{path}" if kind.endswith(".py") else name


def _cell(text: Any) -> str:
    """Return words that stand in one cell of a table, whatever is in them."""
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;").replace("`", "'")
