"""Accuracy of saved models, on the full test set or on a user's own pictures."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from rich.table import Table

from skyfed.errors import BadInputError
from skyfed.learning.engine import Engine
from skyfed.learning.evaluate import place_accuracy
from skyfed.report.terminal_tables import fits, show, table_of, title_of
from skyfed.runs.checkpoint import unpack_model
from skyfed.runs.folder import RunFolder
from skyfed.tasks import Samples, Task, load_task
from skyfed.tasks.folder import read_class_folders
from skyfed.types import Model


@dataclass(frozen=True)
class ModelScore:
    """One saved model's accuracy 0..1, mean loss, and accuracy of each place by name; of pictures these are classes."""

    algorithm: str
    pictures: int
    accuracy: float
    loss: float
    classes: dict[str, float | None]


def score_models(folder: Path, algorithm: str | None, own: Path | None, trust: bool = False) -> list[ModelScore]:
    """Score the finished models of a run; `trust` runs code that its config names, whoever made it."""
    config = RunFolder.trusted_config(folder, trust)
    if algorithm is not None and algorithm not in config.labels:
        raise BadInputError(f"--algorithm {algorithm!r}: allowed in this run: {', '.join(config.labels)}")
    names = [algorithm] if algorithm else config.labels
    finished = [name for name in names if (folder / name / "model.safetensors").exists()]
    if not finished:
        raise BadInputError(f"{folder}: no finished model of {', '.join(names)}; go on with: skyfed resume {folder}")
    task = load_task(config.data)
    if own is not None:
        task = _with_own(task, own)
    engine = Engine(task, config.model, config.seed, "cpu")
    scores = []
    for name in finished:
        weights, buffers, _ = unpack_model(folder / name / "model.safetensors")
        if (len(weights), len(buffers)) != (engine.layout.size, engine.layout.buffers):
            raise BadInputError(f"{folder / name / 'model.safetensors'}: holds a model of another size")
        tested = engine.score(Model(engine.layout.of_live(weights), buffers), 0, len(task.test))
        each = place_accuracy(tested.score, task.test.places, len(task.places))
        by_name = {label: None if np.isnan(x) else float(x) for label, x in zip(task.places, each, strict=True)}
        loss = float(tested.loss.mean(dtype=np.float64))
        scores.append(ModelScore(name, len(task.test), float(tested.score.mean()), loss, by_name))
    return scores


def print_scores(scores: list[ModelScore], as_json: bool) -> None:
    """Print scores as a table or as JSON."""
    if as_json:
        print(json.dumps([asdict(score) for score in scores], indent=2))
        return
    lines = [("algorithm", "all", *scores[0].classes)]
    for score in scores:
        each = ["-" if x is None else f"{100 * x:.1f}" for x in score.classes.values()]
        lines.append((title_of(score.algorithm), f"{100 * score.accuracy:.2f}", *each))
    wide = _table(scores[0].pictures, lines)
    (_, *titles), *by_class = zip(*lines, strict=True)
    show(wide if fits(wide) else _table(scores[0].pictures, [("place", *titles), *by_class]))


def _table(pictures: int, lines: Sequence[tuple[str, ...]]) -> Table:
    """Return a table; the first line is its head."""
    table = table_of(f"Accuracy on {pictures} samples (%)", lines[0], left=lines[0][:1])
    for line in lines[1:]:
        table.add_row(*line)
    return table


def _with_own(task: Task, own: Path) -> Task:
    """Return a task of pictures that is tested on a user's own."""
    if len(task.shape) != 3 or task.shape[0] != 3:
        raise BadInputError(f"--pictures {own}: this run does not learn from pictures")
    images, labels = read_class_folders(own, task.places, task.shape[-1])
    return replace(task, test=Samples(images, labels, labels))
