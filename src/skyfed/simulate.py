"""The round loop of online aerial federated learning: the page to read first.

Every round the vehicles fly on and sense (`world`), the station sends each what it needs, the vehicles train on board
and reply with bytes, and the station decodes these as they come and steps. What a method sends, does on board and makes
of the replies is written in `algorithms/`. Who carries the bytes is the driver's business (`drivers/`), who keeps the
records is the recorder's (`runs/`).
"""

from collections.abc import Iterator
from itertools import chain
from typing import Protocol

import numpy as np

from skyfed.diagnostics import Diagnosis
from skyfed.errors import DivergedError, own_code
from skyfed.evaluation import test_models
from skyfed.jobs import Job
from skyfed.station import Report, Station
from skyfed.types import Arrays, checked
from skyfed.wire import Message
from skyfed.world import data_of


class Recorder(Protocol):
    """Keeps what a run gives."""

    def record(self, state: Arrays, memories: dict[int, Arrays], report: Report) -> None:
        """Keep a finished round; may raise to stop the run after it."""


def run(station: Station, recorder: Recorder, state: Arrays, first: int = 0) -> Arrays:
    """Run one row from round `first` to the end; returns the station's final state."""
    config = station.onboard.config
    play = central_round if station.algorithm.central else federated_round
    for t in range(first, config.rounds):
        state, report = play(station, t, state)
        if (t + 1) % config.eval_every == 0 or t == config.rounds - 1:
            report.tested = test_models(station, t, state)
            station.measure(report.tested)
        recorder.record(state, station.memories, report)
    return state


def federated_round(station: Station, t: int, state: Arrays) -> tuple[Arrays, Report]:
    """Send, let the vehicles train, gather their bytes, step (Eqs. 8-13), and close the round on the clock."""
    report = Report(t)
    sent = station.sends(t, state)
    report.chosen = list(sent)
    sent = station.reach(t, sent, report)
    state, sent = converse(station, t, state, sent, report)

    diagnosis = Diagnosis(station, t)
    messages = diagnosis.watch(station.exchange(t, station.algorithm.exchanges - 1, sent, report))
    after = step(station, state, messages, t)
    station.tell(report)
    refuse_useless(station, report)
    report.train_loss = float(np.mean(losses)) if (losses := report.losses()) else float("nan")

    report.mission = station.world.close(t)
    if t + 1 < station.onboard.config.rounds:  # the next round's vehicles are sent what they start from
        trained = {upload.vehicle for upload in report.uploads} - report.again
        had = {u: content for u, content in sent.items() if u in trained}
        station.announce(t + 1, station.sends(t + 1, after), had, report)
    report.theory = diagnosis.measure(state, after, report.uploads)
    return after, report


def converse(
    station: Station, t: int, state: Arrays, sent: dict[int, Arrays], report: Report
) -> tuple[Arrays, dict[int, Arrays]]:
    """Let station and vehicles exchange messages before the last one of a round, where a method needs several."""
    for exchange in range(station.algorithm.exchanges - 1):
        messages = list(station.exchange(t, exchange, sent, report))
        had = sent
        with own_code(f"{station.label}: answer, round {t}"):
            state, sent = station.algorithm.answer(state, messages, t, exchange)
        station.announce(t, sent, had, report)
        sent = station.reach(t, sent, report)
    return state, sent


def step(station: Station, state: Arrays, messages: Iterator[Message], t: int) -> Arrays:
    """Let the station step by the uploads that came; without any, it stays as it is."""
    first = next(messages, None)
    if first is None:
        return state
    with own_code(f"{station.label}: step, round {t}"):
        after = checked(station.algorithm.step(state, Once(chain([first], messages)), t), "its state")
    for _ in messages:
        pass  # a step need not look at every upload, but every upload is recorded
    return after


class Once:
    """Uploads that can be read once: each is decoded when its turn comes, and not kept."""

    def __init__(self, messages: Iterator[Message]) -> None:
        self._messages, self._read = messages, False

    def __iter__(self) -> Iterator[Message]:
        if self._read:
            raise ValueError("`messages` can be read only once; to read it twice, write messages = list(messages)")
        self._read = True
        return self._messages


def refuse_useless(station: Station, report: Report) -> None:
    """Raise if no vehicle's upload is of use and none was merely late."""
    useless = report.useless()
    if report.chosen and len(useless) == len(report.chosen):
        raise DivergedError(
            f"{station.label} stops at round {report.round}: no vehicle's upload is of use ({useless[0]}); a smaller "
            "train.eta or eta_local or smaller quantisation buckets are the likely remedies"
        )


def central_round(station: Station, t: int, state: Arrays) -> tuple[Arrays, Report]:
    """Train on the union of all vehicles' data: the baseline that no real fleet could run."""
    data = data_of(station.world.union(t))
    (reply,) = station.replies([Job("central", state, station.label, t, None, data)])
    if not np.isfinite(reply.arrays["weights"]).all():
        raise DivergedError(
            f"{station.label} stops at round {t}: training diverged; a smaller train.eta is the likely remedy"
        )
    return reply.arrays, Report(t, train_loss=reply.words["loss"])
