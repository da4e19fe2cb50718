"""The station of one row: what it sends to whom, and how it takes in what comes back."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from math import isnan
from typing import Any

from skyfed.blocks.aggregate import alphas
from skyfed.blocks.buffers import IGNORED
from skyfed.errors import own_code
from skyfed.jobs import Driver, Job, Jobs, Missing, Reply, Upload
from skyfed.onboard import Onboard, upload_of
from skyfed.types import Arrays, Floats, checked
from skyfed.wire import DecodeError, Expected, Message, decode_parts, encode_content
from skyfed.world import Effort, Spending, World

DIVERGED = "training diverged (loss or weights not finite)"
_LATE = "late by"


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
    spent, costs    modelled seconds and joules, and the columns made of them at the end of the round
    theory          the row of the diagnostics, where measured
    downlink_bytes  sent down within the round, and to bring the next round's vehicles what they start from
    """

    round: int
    chosen: list[int] = field(default_factory=list)
    uploads: list[Upload] = field(default_factory=list)
    dropped: dict[int, str] = field(default_factory=dict)
    notes: dict[int, dict[str, Any]] = field(default_factory=dict)
    efforts: dict[int, Effort] = field(default_factory=dict)
    spent: dict[int, Spending] = field(default_factory=dict)
    costs: dict[int, dict[str, float | None]] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)
    downlink_bytes: int = 0
    train_loss: float = float("nan")
    tested: Tested = field(default_factory=Tested)
    theory: dict[str, Any] | None = None

    def useless(self) -> list[str]:
        """Return why uploads that came are of no use, late ones aside."""
        came = dict.fromkeys(upload.vehicle for upload in self.uploads)
        return [self.dropped[u] for u in came if u in self.dropped and not self.dropped[u].startswith(_LATE)]

    def losses(self) -> list[float]:
        """Return the training losses of those whose upload counts; an exchange without training has none."""
        return [upload.loss for upload in self.uploads if upload.vehicle not in self.dropped and not isnan(upload.loss)]


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
        jobs = [self._job(t, exchange, u, sent[u], float(weights[u] / weights.sum())) for u in sent]
        awaited = set(sent)
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
            message = self._receive(t, upload, sent[upload.vehicle], weights, report)
            if message is not None:
                yield message

    def _receive(self, t: int, upload: Upload, sent: Arrays, weights: Floats, report: Report) -> Message | None:
        """Return the message of an upload, or note why it is of no use."""
        u, settings = upload.vehicle, self.algorithm.settings
        report.uploads.append(upload)
        effort = Effort(upload.work, upload.flops, len(upload.data)).after(report.efforts.get(u))
        report.efforts[u], report.spent[u] = effort, self.world.spent(u, t, effort)
        late = self.world.lateness(report.spent[u])
        if not upload.data or late:
            report.dropped[u] = f"{_LATE} {late:.1f} s (modelled)" if upload.data else DIVERGED
            return None
        reference = self.onboard.reference_of(self.label, sent)
        expected = Expected(t, u, reference, settings.train.eta_local_at(t))
        try:
            parts = decode_parts(upload.data, self.algorithm.parts(), expected)
        except DecodeError as error:
            report.dropped[u] = str(error)
            return None
        weight = float(upload.samples if settings.server.alpha == "data" else weights[u])
        message = Message(u, t, parts, reference, weight, upload.samples)
        report.notes[u] = message.notes
        report.dropped.pop(u, None)  # an earlier exchange of the round may have failed
        return message

    def _job(self, t: int, exchange: int, vehicle: int, content: Arrays, share: float) -> Job:
        words = {"share": share, "exchange": exchange, **asdict(self.world.where(vehicle, t))}
        data, memory = self.world.data(vehicle, t), self.memories.get(vehicle, {})
        return Job("local", content, self.label, t, vehicle, data, memory, words)

    def tell(self, report: Report) -> None:
        """Say whose batch-norm buffers did not count."""
        for u in [u for u, notes in report.notes.items() if notes.get(IGNORED)]:
            line = f"the batch-norm buffers of vehicle {u} are left out: too far from all others'"
            self._say(f"{self.label} round {report.round}: {line}")

    def downlink_bytes(self, t: int, sent: dict[int, Arrays], had: dict[int, Arrays]) -> int:
        """Return the bytes that bring everybody what it is sent in round t; who had the last gets the difference."""
        sizes: dict[object, int] = {}
        difference, total = self.algorithm.settings.server.downlink == "difference", 0
        for u, content in sent.items():
            base = had.get(u) if difference else None
            key = tuple(tuple((name, id(array)) for name, array in part.items()) for part in (content, base or {}))
            if key not in sizes:
                sizes[key] = len(encode_content(t, content, base))
            total += sizes[key]
        return total
