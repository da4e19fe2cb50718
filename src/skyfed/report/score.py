"""Accuracy of saved models, on the full test set or on a user's own pictures."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
from rich.table import Table

from skyfed.arrays import read_npz
from skyfed.config import Config
from skyfed.errors import BadInputError
from skyfed.evaluation import mean_scores, own_accuracy
from skyfed.flight.fleet_plan import load_fleet_plan
from skyfed.learning.evaluate import Scores, place_accuracy
from skyfed.report.terminal_tables import fits, show, table_of, title_of
from skyfed.runs.folder import RunFolder
from skyfed.runs.models import SavedModel, engine_of, finished_rows, saved_models, tested_at
from skyfed.runs.start import world_of
from skyfed.runs.tables import Table as Stored
from skyfed.tasks import Samples, Task
from skyfed.tasks.folder import read_class_folders
from skyfed.types import Floats, Ints
from skyfed.world.fairness import Fairness, fairness_of, recorded_accuracies


@dataclass(frozen=True)
class ModelScore:
    """A row's figures: accuracy 0..1, mean loss, accuracy of each class by name, the task's own metrics.

    vehicles     accuracy of each vehicle on its own test data, and how it is spread (`fairness`)
    not_defined  why these two are not there; empty where they are
    """

    algorithm: str
    samples: int
    accuracy: float
    loss: float
    classes: dict[str, float | None]
    metrics: dict[str, float] = field(default_factory=dict)
    vehicles: list[float | None] | None = None
    fairness: Fairness | None = None
    not_defined: str = ""


def score_models(folder: Path, algorithm: str | None, own: Path | None, trust: bool = False) -> list[ModelScore]:
    """Score the finished rows of a run; `trust` runs code that its config names, whoever made it.

    Of a row with several models, a vehicle is judged by the one that serves it, and the row by the mean over vehicles.
    """
    config = RunFolder.trusted_config(folder, trust)
    finished = finished_rows(folder, config, algorithm)
    sensed_from = config.load_task()
    task = sensed_from if own is None else _with_own(sensed_from, own)
    engine, scores = engine_of(config, task), []
    for label in finished:
        sensed = _sensed(folder, label, config, sensed_from)
        models = saved_models(folder, label, engine)
        now = tested_at(folder, label) if own is None else None  # a user's own pictures look as they look
        by_model = [engine.score(saved.model, 0, len(task.test), now) for saved in models]
        mine = _mine(models, by_model, config.vehicles)
        row = _row_score(label, task, mine or by_model[:1])
        if sensed is not None and mine:
            row = _with_vehicles(row, own_accuracy(task, mine, sensed))
        elif own is None and (recorded := recorded_accuracies(Stored(folder / label, "rounds").rows())):
            row = replace(row, vehicles=recorded, fairness=fairness_of(recorded))
        else:
            row = replace(row, not_defined="this run does not say what each vehicle sensed, or which model it uses")
        scores.append(row)
    return scores


def _mine(models: Sequence[SavedModel], by_model: Sequence[Scores], vehicles: int) -> list[Scores]:
    """Return for every vehicle the scores of the model that it uses; nothing where that is not recorded."""
    if len(models) == 1:
        return [by_model[0]] * vehicles
    serving = {u: scores for saved, scores in zip(models, by_model, strict=True) for u in saved.vehicles or ()}
    return [serving[u] for u in range(vehicles)] if serving.keys() == set(range(vehicles)) else []


def _row_score(label: str, task: Task, mine: Sequence[Scores]) -> ModelScore:
    scores = mean_scores(mine)
    each = place_accuracy(scores.score, task.test.places, len(task.places))
    by_name = {name: None if np.isnan(x) else float(x) for name, x in zip(task.places, each, strict=True)}
    metrics = {name: float(values.mean()) for name, values in scores.metrics.items()}
    loss = float(scores.loss.mean(dtype=np.float64))
    return ModelScore(label, len(task.test), float(scores.score.mean()), loss, by_name, metrics)


def _with_vehicles(row: ModelScore, accuracy: Floats) -> ModelScore:
    vehicles = [None if np.isnan(x) else float(x) for x in accuracy]
    fairness = fairness_of(vehicles)
    if fairness is None:
        return replace(row, not_defined="the data has one class, so no vehicle's data differ from another's")
    return replace(row, vehicles=vehicles, fairness=fairness)


def _sensed(folder: Path, label: str, config: Config, task: Task) -> Ints | None:
    """Return what every vehicle of a row sensed; None where its flights are not there or the world is not ours."""
    path, flown = folder / "plan.npz", folder / label / "flown.npz"
    if config.world.use != "simulated" or not path.exists():
        return None
    world = world_of(config, task, load_fleet_plan(path))
    if flown.exists():  # not for the central baseline, nor for runs of version 0.1: they follow the plan
        world.refly(read_npz(flown.read_bytes()))
    return world.sensed(config.rounds - 1)


def print_scores(scores: list[ModelScore], as_json: bool) -> None:
    """Print scores as tables or as JSON."""
    if as_json:
        print(json.dumps([asdict(score) for score in scores], indent=2))
        return
    lines = [("algorithm", "all", *scores[0].classes)]
    for score in scores:
        each = ["-" if x is None else f"{100 * x:.1f}" for x in score.classes.values()]
        lines.append((title_of(score.algorithm), f"{100 * score.accuracy:.2f}", *each))
    title = f"Accuracy on {scores[0].samples} samples (%)"
    wide = _table(title, lines)
    (_, *titles), *by_class = zip(*lines, strict=True)
    show(wide if fits(wide) else _table(title, [("place", *titles), *by_class]))
    if scores[0].metrics:
        figures: list[tuple[str, ...]] = [("algorithm", "loss", *scores[0].metrics)]
        for score in scores:
            shown = [f"{value:.4g}" for value in (score.loss, *score.metrics.values())]
            figures.append((title_of(score.algorithm), *shown))
        show(_table("Loss, and the task's own metrics", figures))
    _print_vehicles(scores)


def _print_vehicles(scores: list[ModelScore]) -> None:
    """Print how accuracy is spread over vehicles, or why that is not defined."""
    lines: list[tuple[str, ...]] = [("algorithm", "mean", "worst 10 %", "worst", "median", "best")]
    for score in scores:
        if score.fairness is not None:
            lines.append((title_of(score.algorithm), *(f"{100 * x:.1f}" for x in asdict(score.fairness).values())))
    if len(lines) > 1:
        vehicles = max(len(score.vehicles or ()) for score in scores)
        show(_table(f"Accuracy of {vehicles} vehicles, each on its own test data (%)", lines))
    for why in dict.fromkeys(score.not_defined for score in scores if score.not_defined):
        rows = ", ".join(title_of(score.algorithm) for score in scores if score.not_defined == why)
        print(f"accuracy per vehicle is not defined for {rows}: {why}")


def _table(title: str, lines: Sequence[tuple[str, ...]]) -> Table:
    """Return a table; the first line is its head."""
    table = table_of(title, lines[0], left=lines[0][:1])
    for line in lines[1:]:
        table.add_row(*line)
    return table


def _with_own(task: Task, own: Path) -> Task:
    """Return a task of pictures that is tested on a user's own."""
    if len(task.shape) != 3 or task.shape[0] != 3:
        raise BadInputError(f"--pictures {own}: this run does not learn from pictures")
    images, labels = read_class_folders(own, task.places, task.shape[-1])
    return replace(task, test=Samples(images, labels, labels))
