"""The round loop of online aerial federated learning, in the order of the paper.

Every round the station broadcasts w^t; each vehicle has sensed new data along its flight, prunes the model to a winning
ticket, trains it, and uploads its accumulated gradient, raw or quantised, as bytes; the station decodes the bytes and
takes a step. The genie trains on the union of all data instead. Who carries the bytes is the driver's business, who
keeps the records is the recorder's.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from skyfed.algorithms import find_recipe
from skyfed.cost import lateness
from skyfed.errors import DivergedError
from skyfed.faults import present
from skyfed.learning.evaluate import Scores, class_accuracy
from skyfed.learning.flat import Layout
from skyfed.records import Floats, Probe, Singles
from skyfed.robust import no_agreement
from skyfed.sensing import Schedule
from skyfed.sensing.datasets import Pictures
from skyfed.sensing.datasets.cache import Bytes
from skyfed.server import Aggregate, alphas, broadcast_bytes
from skyfed.theory.estimate import Gathering, histogram_distance
from skyfed.vehicle import Experiment, Upload, common_of
from skyfed.wire import DecodeError, Expected, decode

DIVERGED = "training diverged (loss or weights not finite)"


@dataclass(frozen=True)
class State:
    """The global model after some round.

    agreement  who has agreed with whom so far, where aggregation asks for it (server.aggregate = "consensus")
    """

    weights: Singles
    buffers: Singles
    agreement: Floats | None = None


@dataclass(frozen=True)
class Report:
    """What happened in a round: the uploads, who was left out and why, and the scores where the model was tested.

    turned          vehicles whose uploads counted with the opposite sign (server.aggregate = "consensus")
    downlink_bytes  of the new model on its way to the vehicles of the next round, all together
    """

    round: int
    uploads: list[Upload] = field(default_factory=list)
    dropped: dict[int, str] = field(default_factory=dict)
    turned: list[int] = field(default_factory=list)
    downlink_bytes: int = 0
    train_loss: float = float("nan")
    accuracy: float = float("nan")
    accuracy_full: float = float("nan")
    loss: float = float("nan")
    per_class: Floats | None = None
    theory: dict[str, Any] | None = None


@dataclass(frozen=True)
class Missing:
    """A vehicle that gave nothing of use in a round, and why; real fleets have such."""

    vehicle: int
    reason: str


class Driver(Protocol):
    """Carries work to the vehicles and bytes back."""

    layout: Layout
    schedule: Schedule
    pictures: Pictures

    @property
    def delivered(self) -> Callable[[str, Singles], Singles]:
        """What makes an algorithm's weights those that are tested and used."""

    def train(self, algorithm: str, t: int, state: State, vehicles: list[int]) -> Iterator[Upload | Missing]:
        """Yield the uploads of these vehicles in this order, or why there is none."""

    def genie(self, t: int, state: State) -> tuple[Singles, Singles, float]:
        """Train centrally for one round."""

    def score(self, state: State) -> Scores:
        """Score every test picture."""

    def probe(self, t: int, state: State, after: State, vehicles: list[int]) -> Iterator[Probe]:
        """Measure the losses of these vehicles, in this order, around the models before and after round t."""


class Recorder(Protocol):
    """Keeps what a run gives."""

    def record(self, state: State, report: Report) -> None:
        """Keep a finished round; may raise to stop the run after it."""


def run(
    settings: Experiment, algorithm: str, driver: Driver, recorder: Recorder, state: State, first: int = 0
) -> State:
    """Run one algorithm from round `first` to the end; returns the final model."""
    for t in range(first, settings.rounds):
        if find_recipe(algorithm).central:
            state, report = genie_round(t, driver, state)
        else:
            state, report = federated_round(settings, algorithm, t, driver, state)
        if (t + 1) % settings.eval_every == 0 or t == settings.rounds - 1:
            report = tested(algorithm, t, driver, state, report)
        recorder.record(state, report)
    return state


def federated_round(settings: Experiment, algorithm: str, t: int, driver: Driver, state: State) -> tuple[State, Report]:
    """Let the vehicles train, gather their bytes, aggregate, step (Eqs. 8-13)."""
    report = Report(t)
    sizes = np.array([len(driver.schedule.train_set(u, t)) for u in range(settings.vehicles)])
    weights = alphas(settings.server, settings.vehicles, sizes)
    layout = driver.layout
    common = common_of(settings, layout, state.weights, state.buffers)
    server = settings.server
    agreement = state.agreement
    if server.aggregate == "consensus" and agreement is None:
        agreement = no_agreement(settings.vehicles)
    aggregate = Aggregate(common, server.clip, layout.live, server.aggregate, server.trim, agreement)
    there, following = (present(settings.faults, settings.seed, k, settings.vehicles) for k in (t, t + 1))
    masks: dict[int, Bytes | None] = {}
    for upload in driver.train(algorithm, t, state, there):
        if isinstance(upload, Missing):
            report.dropped[upload.vehicle] = upload.reason
            continue
        report.uploads.append(upload)
        if not upload.data:
            report.dropped[upload.vehicle] = DIVERGED
            continue
        late = lateness(settings.cost, upload.spent)
        if late and settings.cost.late == "drop":
            report.dropped[upload.vehicle] = f"late by {late:.1f} s (modelled)"
            continue
        try:
            update = decode(upload.data, Expected(t, upload.vehicle, common, settings.train.eta_local_at(t)))
            aggregate.add(update, float(weights[upload.vehicle]))
            if settings.theory.due(t):
                masks[upload.vehicle] = None if update.mask is None else np.packbits(update.mask)
        except DecodeError as error:
            report.dropped[upload.vehicle] = str(error)
    came = [upload.vehicle for upload in report.uploads]
    useless = [report.dropped[u] for u in came if u in report.dropped and not report.dropped[u].startswith("late")]
    if there and len(useless) == len(there):
        raise DivergedError(
            f"{algorithm} stops at round {t}: no vehicle's upload is of use ({useless[0]}); a smaller "
            "train.eta or eta_local or smaller quantisation buckets are the likely remedies"
        )
    before = state
    if aggregate.total > 0:  # somebody with a weight took part
        state = State(*aggregate.step(state.weights, settings.train.eta_at(t)), aggregate.agreement)
    losses = [upload.loss for upload in report.uploads if upload.vehicle not in report.dropped]
    sent = 0
    if t + 1 < settings.rounds:
        model = common_of(settings, layout, state.weights, state.buffers)
        sent = broadcast_bytes(settings.server, t + 1, model, common, came, following)
    measured = masks and aggregate.total > 0
    theory = diagnosed(settings, t, driver, before, state, report, masks, weights) if measured else None
    loss = float(np.mean(losses)) if losses else float("nan")
    return state, replace(report, train_loss=loss, turned=aggregate.turned, downlink_bytes=sent, theory=theory)


def diagnosed(
    settings: Experiment,
    t: int,
    driver: Driver,
    before: State,
    after: State,
    report: Report,
    masks: dict[int, Bytes | None],
    weights: Floats,
) -> dict[str, Any]:
    """Measure the constants of Theorem 1 in this round; masks are packed, eight entries a byte."""
    layout, train = driver.layout, settings.train
    labels, classes = driver.pictures.train_labels, driver.pictures.classes
    fleet = np.bincount(labels[driver.schedule.union(t)], minlength=classes)
    uploads = {upload.vehicle: upload for upload in report.uploads}
    found = Gathering(layout.of_live(before.weights))
    total = sum(float(weights[u]) for u in masks)
    for probe in driver.probe(t, before, after, sorted(masks)):
        upload, packed = uploads[probe.vehicle], masks[probe.vehicle]
        mask = None if packed is None else np.unpackbits(packed, count=layout.live_size).astype(bool)
        own = np.bincount(labels[driver.schedule.train_set(probe.vehicle, t)], minlength=classes)
        found.add(
            probe, mask, float(weights[probe.vehicle]) / total,
            epsilon=histogram_distance(own, fleet), delta=upload.delta, raw=upload.raw_probability, q=upload.bound,
            variance=float("nan") if upload.variance is None else upload.variance,
        )  # fmt: skip
    return found.row(t, train.kappa * train.batches_per_round, train.eta_at(t), train.eta_local_at(t))


def genie_round(t: int, driver: Driver, state: State) -> tuple[State, Report]:
    """Train on the union of all vehicles' data: the baseline that no real fleet could run."""
    weights, buffers, loss = driver.genie(t, state)
    if not np.isfinite(weights).all():
        raise DivergedError(f"sgd stops at round {t}: training diverged; a smaller train.eta is the likely remedy")
    return State(weights, buffers), Report(t, train_loss=loss)


def tested(algorithm: str, t: int, driver: Driver, state: State, report: Report) -> Report:
    """Score the model on the test set as it has grown so far, and on the whole fixed one."""
    weights = driver.delivered(algorithm, state.weights)
    scores = driver.score(state if weights is state.weights else State(weights, state.buffers))
    labels = driver.pictures.test_labels
    inside = driver.schedule.test_members(t, len(labels))
    return replace(
        report,
        accuracy=float(scores.correct[inside].mean()) if inside.any() else float("nan"),
        accuracy_full=float(scores.correct.mean()),
        loss=float(scores.loss[inside].astype(np.float64).mean()) if inside.any() else float("nan"),
        per_class=class_accuracy(scores.correct, labels, driver.pictures.classes),
    )
