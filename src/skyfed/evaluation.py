"""Testing: every delivered model on the test set, and the figures that follow for the fleet."""

from collections.abc import Sequence

import numpy as np

from skyfed.errors import own_code
from skyfed.jobs import Job
from skyfed.learning.evaluate import Scores, chunks, joined, place_accuracy
from skyfed.station import Station, Tested
from skyfed.tasks import Task
from skyfed.types import Arrays, Floats, Ints, Model
from skyfed.world.fairness import vehicle_accuracy


def test_models(station: Station, t: int, state: Arrays) -> Tested:
    """Score what an algorithm delivers on the test set as it has grown so far, and on the whole fixed one.

    Where there are several models, a test sample of a vehicle is judged by the model that serves this vehicle, and the
    whole test set by the mean over all vehicles.
    """
    task, algorithm, world = station.onboard.task, station.algorithm, station.world
    with own_code(f"{station.label}: deliver, round {t}"):
        models = algorithm.deliver(state)
    now = None if task.appearance is None else world.now(t)
    scores = {name: score_model(station, model, now) for name, model in models.items()}
    first = next(iter(scores.values()))
    inside, score, loss = world.tested(t), first.score, first.loss
    whole, metrics = first.score, first.metrics
    mine = [first] * world.vehicles
    used = [next(iter(scores))] * world.vehicles
    if len(scores) > 1:
        with own_code(f"{station.label}: serves, round {t}"):
            used = [algorithm.serves(state, u) for u in range(world.vehicles)]
            mine = [scores[name] for name in used]
        score, loss = score.copy(), loss.copy()
        for growth, own in zip(world.schedule.test, mine, strict=True):
            held = growth.at(t)
            score[held], loss[held] = own.score[held], own.loss[held]
        mean = mean_scores(mine)
        whole, metrics = mean.score, mean.metrics
    online = {}
    if now is not None:
        old = {name: score_model(station, model, 0.0) for name, model in models.items()}
        online = {"tested_at": now, "accuracy_start": float(mean_scores([old[name] for name in used]).score.mean())}
    return Tested(
        accuracy=float(score[inside].mean()) if inside.any() else float("nan"),
        accuracy_full=float(whole.mean()),
        loss=float(loss[inside].astype(np.float64).mean()) if inside.any() else float("nan"),
        per_class=place_accuracy(whole, task.test.places, len(task.places)),
        per_vehicle=own_accuracy(task, mine, world.sensed(t)),
        metrics={name: float(values.mean()) for name, values in metrics.items()},
        **online,
    )


def mean_scores(mine: Sequence[Scores]) -> Scores:
    """Return every test sample's mean over vehicles, each judged by the model that it uses."""
    if all(own is mine[0] for own in mine):
        return mine[0]
    metrics = {name: np.mean([own.metrics[name] for own in mine], axis=0) for name in mine[0].metrics}
    return Scores(np.mean([own.score for own in mine], axis=0), np.mean([own.loss for own in mine], axis=0), metrics)


def own_accuracy(task: Task, mine: Sequence[Scores], sensed: Ints) -> Floats:
    """Return each vehicle's accuracy on its own test data by the scores of the model that it uses."""
    by_model = {id(own): place_accuracy(own.score, task.test.places, len(task.places)) for own in mine}
    return vehicle_accuracy(np.stack([by_model[id(own)] for own in mine]), sensed)


def score_model(station: Station, model: Model, now: float | None = None) -> Scores:
    """Score every test sample by one model, as it looks at mission second `now` where appearance drifts."""
    sent, spans = {"weights": model.weights, "buffers": model.buffers}, chunks(len(station.onboard.task.test))
    when = {} if now is None else {"now": now}
    jobs = [Job("score", sent, station.label, words={"start": a, "stop": b, **when}) for a, b in spans]
    parts = []
    for reply in station.replies(jobs):
        arrays = dict(reply.arrays)
        score, loss = arrays.pop("score"), arrays.pop("loss")
        parts.append(Scores(score, loss, {name.removeprefix("metric "): values for name, values in arrays.items()}))
    return joined(parts)
