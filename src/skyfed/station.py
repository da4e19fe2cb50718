"""The station of one row: what it sends to whom, and how it takes in what comes back."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import isnan
from typing import Any

from skyfed.blocks.aggregate import alphas
from skyfed.blocks.buffers import IGNORED
from skyfed.errors import own_code
from skyfed.jobs import Driver, Job, Jobs, Missing, Reply, Upload
from skyfed.onboard import Onboard, upload_of
from skyfed.types import Arrays, Floats, checked
from skyfed.wire import DecodeError, Expected, Message, decode_parts, encode_content
from skyfed.world import Effort, World
from skyfed.world.kept import Kept
from skyfed.world.radio import LOST, OUT_OF_RANGE

DIVERGED = "training diverged (loss or weights not finite)"
Made = tuple[int, Arrays]  # the round of an upload, and what was sent down before it
_INNOCENT = ("late by", LOST, OUT_OF_RANGE)  # reasons that say nothing about an upload itself


@dataclass(frozen=True)
class Tested:
    """Figures of the models after a round; per class, and per vehicle on its own test data."""

    accuracy: float = float("nan")
    accuracy_full: float = float("nan")
    loss: float = float("nan")
    per_class: Floats | None = None
    per_vehicle: Floats | None = None
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass
class Report:
    """What happened in a round.

    chosen          who was to take part                 notes    what the station found out about uploads
    dropped         who was left out, and why            changed  vehicles whose memory has changed
    efforts         what vehicles did on board           again    who sent an upload that was kept, and trained nothing
    mission         the columns of the clock, the world's joules and the bytes of a broadcast
    theory          the row of the diagnostics, where measured
    downlink_bytes  sent down within the round, and to bring the next round's vehicles what they start from; and the
                    same with equal messages counted once, as broadcast_bytes
    """

    round: int
    chosen: list[int] = field(default_factory=list)
    uploads: list[Upload] = field(default_factory=list)
    dropped: dict[int, str] = field(default_factory=dict)
    notes: dict[int, dict[str, Any]] = field(default_factory=dict)
    efforts: dict[int, Effort] = field(default_factory=dict)
    mission: dict[str, float] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)
    again: set[int] = field(default_factory=set)
    downlink_bytes: int = 0
    broadcast_bytes: int = 0
    train_loss: float = float("nan")
    tested: Tested = field(default_factory=Tested)
    theory: dict[str, Any] | None = None

    def useless(self) -> list[str]:
        """Return why uploads that came are of no use, late and lost ones aside."""
        came = dict.fromkeys(upload.vehicle for upload in self.uploads)
        return [self.dropped[u] for u in came if u in self.dropped and not self.dropped[u].startswith(_INNOCENT)]

    def losses(self) -> list[float]:
        """Return the training losses of those whose upload counts; an exchange without training has none."""
        return [upload.loss for upload in self.uploads if upload.vehicle not in self.dropped and not isnan(upload.loss)]


def _once_more(vehicle: int, kept: Kept) -> tuple[Upload, Made]:
    """Return an upload that is sent again: nothing is trained for it."""
    upload = Upload(vehicle, kept.data, {}, kept.samples, 0.0, 0.0, float("nan"), kept.buffer_bytes, 0.0, 0.0)
    return upload, (kept.round, kept.sent)


class Station:
    """Sends and receives for one row; vehicles' memories are here unless their vehicles keep them."""

    def __init__(
        self, label: str, onboard: Onboard, world: World, driver: Driver, memories: dict[int, Arrays] | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:  # fmt: skip
        """Tell `say` what somebody should look into."""
        self.label, self.onboard, self.world, self.driver, self._say = label, onboard, world, driver, say
        self.algorithm, self.memories = onboard.algorithms[label], memories if memories is not None else {}

    def replies(self, jobs: Jobs) -> Iterator[Reply]:
        """Yield the replies to jobs that need no vehicle, so that none can be missing."""
        for reply in self.driver.call(jobs):
            assert not isinstance(reply, Missing)
            yield reply

    def sends(self, t: int, state: Arrays) -> dict[int, Arrays]:
        """Return what every vehicle that takes part in round t is sent."""
        with own_code(f"world.use: view, round {t}"):
            view = self.world.view(t)
        with own_code(f"{self.label}: select, round {t}"):
            chosen = sorted({int(u) for u in self.algorithm.select(t, view)})
            absent = sorted(set(chosen) - set(view.present))
            if absent:
                raise ValueError(f"chose vehicle {absent[0]}, which is not there; allowed: {view.present}")
        with own_code(f"{self.label}: send, round {t}"):
            return {u: checked(self.algorithm.send(state, u, t), "what it sends") for u in chosen}

    def exchange(self, t: int, exchange: int, sent: dict[int, Arrays], report: Report) -> Iterator[Message]:
        """Yield the uploads that come back, in vehicle order; those of no use are noted and left out."""
        weights = alphas(self.algorithm.settings.server, self.world.samples(t))
        again = {u: self.world.kept.pop(u) for u in sent if u in self.world.kept}
        report.again |= set(again)
        jobs = [self._job(t, exchange, u, sent[u], float(weights[u] / weights.sum())) for u in sent if u not in again]
        for upload, made in self._uploads(t, jobs, sent, again, report):
            message = self._receive(t, upload, made, weights, report)
            if message is not None:
                yield message

    def _uploads(
        self, t: int, jobs: Jobs, sent: dict[int, Arrays], again: dict[int, Kept], report: Report
    ) -> Iterator[tuple[Upload, Made]]:
        """Yield uploads in vehicle order with what they were made from: new ones, and those that are sent again."""
        awaited, waiting = {job.vehicle for job in jobs}, sorted(again)
        for reply in self.driver.call(jobs):
            if isinstance(reply, Missing):
                report.dropped[reply.vehicle] = reply.reason
                continue
            upload = upload_of(reply)
            if upload.vehicle not in awaited:
                continue  # a second upload of a vehicle, or one of a vehicle that was not asked, does not count
            awaited.remove(upload.vehicle)
            if reply.memory is not None:
                self.memories[upload.vehicle] = reply.memory
                report.changed.add(upload.vehicle)
            while waiting and waiting[0] < upload.vehicle:
                yield _once_more(u := waiting.pop(0), again[u])
            yield upload, (t, sent[upload.vehicle])
        for u in waiting:
            yield _once_more(u, again[u])

    def _receive(self, t: int, upload: Upload, made: Made, weights: Floats, report: Report) -> Message | None:
        """Return the message of an upload, or note why it is of no use."""
        u, settings, (begun, sent) = upload.vehicle, self.algorithm.settings, made
        report.uploads.append(upload)
        effort = Effort(upload.work, upload.flops, len(upload.data)).after(report.efforts.get(u))
        report.efforts[u] = effort
        missed = self.world.send(u, t, effort)
        if not upload.data or missed:
            report.dropped[u] = missed if upload.data else DIVERGED
            if upload.data and self.world.conditions.world.lost == "keep":
                self.world.kept[u] = Kept(begun, upload.data, sent, upload.samples, upload.buffer_bytes)
                report.dropped[u] += "; kept for the next round"
            return None
        reference = self.onboard.reference_of(self.label, sent)
        expected = Expected(begun, u, reference, settings.train.eta_local_at(begun))
        try:
            parts = decode_parts(upload.data, self.algorithm.parts(), expected)
        except DecodeError as error:
            report.dropped[u] = str(error)
            return None
        weight = float(upload.samples if settings.server.alpha == "data" else weights[u])
        message = Message(u, begun, parts, reference, weight, upload.samples)
        report.notes[u] = message.notes
        report.dropped.pop(u, None)  # an earlier exchange of the round may have failed
        return message

    def _job(self, t: int, exchange: int, vehicle: int, content: Arrays, share: float) -> Job:
        words = {"share": share, "exchange": exchange, **self.world.brief(vehicle, t)}
        data, memory = self.world.data(vehicle, t), self.memories.get(vehicle, {})
        data["arrive"] = self.world.flights.arrive[vehicle, : t + 1]  # a vehicle far away senses by itself
        return Job("local", content, self.label, t, vehicle, data, memory, words)

    def tell(self, report: Report) -> None:
        """Say whose batch-norm buffers did not count."""
        for u in [u for u, notes in report.notes.items() if notes.get(IGNORED)]:
            line = f"the batch-norm buffers of vehicle {u} are left out: too far from all others'"
            self._say(f"{self.label} round {report.round}: {line}")

    def reach(self, t: int, sent: dict[int, Arrays], report: Report) -> dict[int, Arrays]:
        """Return what arrives of what is sent in round t; who is out of reach is noted."""
        with own_code(f"{self.label}: radio, round {t}"):
            self.world.radios.tune(list(sent), self.algorithm.radio(t, self.world.view(t), list(sent)))
        missed = self.world.receive(t, list(sent))
        report.dropped |= {u: f"the model is {reason}" for u, reason in missed.items()}
        return {u: content for u, content in sent.items() if u not in missed}

    def measure(self, tested: Tested) -> None:
        """Note how often the model errs on each class."""
        if tested.per_class is not None:
            self.world.measure(1.0 - tested.per_class)

    def announce(self, t: int, sent: dict[int, Arrays], had: dict[int, Arrays], report: Report) -> None:
        """Encode what everybody is sent in round t, and count it; who had the last gets the difference.

        Who has a kept upload to send will not train, and is sent nothing.
        """
        sizes: dict[object, tuple[int, int]] = {}
        difference, due = self.algorithm.settings.server.downlink == "difference", {}
        for u, content in sent.items():
            if u in self.world.kept:
                continue
            base = had.get(u) if difference else None
            key = tuple(tuple((name, id(array)) for name, array in part.items()) for part in (content, base or {}))
            if key not in sizes:
                sizes[key] = (len(encode_content(t, content, base)), len(sizes))
            due[u] = sizes[key]
        values = self.world.tell(t, due)  # of the classes, for vehicles that plan again
        if values:
            due = {u: (size + values, key) for u, (size, key) in due.items()}
            sizes = {key: (size + values, number) for key, (size, number) in sizes.items()}
        self.world.radios.announce(due)
        report.downlink_bytes += sum(size for size, _ in due.values())
        report.broadcast_bytes += sum(size for size, _ in sizes.values())
