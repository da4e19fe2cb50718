"""Accuracy of saved models, on the full test set or on a user's own pictures."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from rich.table import Table

from skyfed.algorithms import find_recipe
from skyfed.errors import BadInputError
from skyfed.learning.evaluate import class_accuracy, evaluate
from skyfed.learning.flat import FlatModel
from skyfed.learning.infer import forward_of
from skyfed.learning.local import Batches
from skyfed.learning.models import build_model, is_known
from skyfed.report.tables import fits, show
from skyfed.runs.checkpoint import unpack_model
from skyfed.runs.folder import RunFolder
from skyfed.sensing.datasets import Pictures, load_data
from skyfed.sensing.datasets.cache import Bytes
from skyfed.sensing.datasets.folder import read_class_folders


@dataclass(frozen=True)
class ModelScore:
    """One saved model's accuracy 0..1, mean loss, and accuracy of each class by name."""

    algorithm: str
    pictures: int
    accuracy: float
    loss: float
    classes: dict[str, float | None]


def score_models(folder: Path, algorithm: str | None, own: Path | None) -> list[ModelScore]:
    """Score the finished models of a run."""
    config = RunFolder.config_of(folder)
    if algorithm is not None and algorithm not in config.algorithms:
        raise BadInputError(f"--algorithm {algorithm!r}: allowed in this run: {', '.join(config.algorithms)}")
    names = [algorithm] if algorithm else config.algorithms
    finished = [name for name in names if (folder / name / "model.safetensors").exists()]
    if not finished:
        raise BadInputError(f"{folder}: no finished model of {', '.join(names)}; go on with: skyfed resume {folder}")
    pictures = load_data(config.data)
    images, labels = _test_set(pictures, own)
    side = pictures.train_images.shape[-1]
    module = build_model(config.model, pictures.classes, side, config.seed)
    known = is_known(config.model)
    model = FlatModel(module, side=side, wide=known, probe=not known)
    batches = Batches(pictures, wide=model.wide)
    found = []
    for name in finished:
        weights, buffers, _ = unpack_model(folder / name / "model.safetensors")
        if (len(weights), len(buffers)) != (model.layout.size, model.layout.buffers):
            raise BadInputError(f"{folder / name / 'model.safetensors'}: holds a model of another size")
        model.load(torch.from_numpy(weights), torch.from_numpy(buffers))
        scores = evaluate(forward_of(model), batches, images, labels)
        each = class_accuracy(scores.correct, labels, pictures.classes)
        by_name = {label: None if np.isnan(x) else float(x) for label, x in zip(pictures.names, each, strict=True)}
        found.append(
            ModelScore(
                name, len(labels), float(scores.correct.mean()), float(scores.loss.mean(dtype=np.float64)), by_name
            )
        )
    return found


def print_scores(scores: list[ModelScore], as_json: bool) -> None:
    """Print scores as a table or as JSON."""
    if as_json:
        print(json.dumps([asdict(score) for score in scores], indent=2))
        return
    title = f"Accuracy on {scores[0].pictures} pictures (%)"
    lines = [["algorithm", "all", *scores[0].classes]]
    for score in scores:
        each = ["-" if x is None else f"{100 * x:.1f}" for x in score.classes.values()]
        lines.append([find_recipe(score.algorithm).title, f"{100 * score.accuracy:.2f}", *each])
    wide = _table(title, lines)
    tall = _table(
        title, [["class", *(line[0] for line in lines[1:])], *zip(*(line[1:] for line in lines), strict=True)]
    )
    show(wide if fits(wide) else tall)


def _table(title: str, lines: Sequence[Sequence[str]]) -> Table:
    """Return a table; the first line is its head."""
    table = Table(title=title)
    for name in lines[0]:
        table.add_column(name, justify="left" if name == lines[0][0] else "right")
    for line in lines[1:]:
        table.add_row(*line)
    return table


def _test_set(pictures: Pictures, own: Path | None) -> tuple[Bytes, Bytes]:
    if own is None:
        return pictures.test_images, pictures.test_labels
    return read_class_folders(own, pictures.names, pictures.train_images.shape[-1])
