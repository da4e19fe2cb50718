"""Carries rounds to real vehicles: asks those in touch, waits until the deadline, asks again, drops bad replies."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest

from flwr.app import Message
from flwr.serverapp import Grid

from skyfed.drivers.flower.messages import BRIEF, NO_BASE, Order, ReplyError, ask, read_reply
from skyfed.errors import BadInputError, SkyfedError
from skyfed.jobs import Job, Jobs, Missing, Reply, Upload
from skyfed.onboard import Onboard, report_of
from skyfed.runs.columns import named
from skyfed.runs.folder import run_identity
from skyfed.types import Arrays
from skyfed.wire import DecodeError, Expected, decode_parts, encode_content
from skyfed.world import round_flops

_POLL = 0.2  # seconds between two looks for replies; a look costs the SuperLink some milliseconds
_ROLL_CALL = 1.0  # seconds between two looks at who is there
_PATIENT = 5.0  # seconds before the station says which vehicles it waits for
_SLACK = 60.0  # seconds that a message outlives its round, since Flower refuses to take one that has expired
_MOST_WORK = 20  # times the local rounds of the settings; what a vehicle reports moves the mission clock
_AWAY, _UNLISTED = "out of touch", "its key was removed"


class AloneError(SkyfedError):
    """Too few vehicles for too long; what was done is kept."""


@dataclass(frozen=True)
class Node:
    """A vehicle that is in touch: its Flower node, and since when; one that came back has lost its message."""

    id: int
    since: str


Idle = Callable[[], None]  # is called now and then while a round has no upload yet; may raise: nothing would be lost
RollCall = Callable[[], dict[int, Node | None]]  # every vehicle on the list of keys; None: out of touch


@dataclass
class _Call:
    """What is known of one vehicle while a round goes on."""

    job: Job
    message: str = ""  # the one that it has yet to answer
    node: Node | None = None  # where it was asked
    tries: int = 0
    reason: str = _AWAY  # why it is left out, unless its upload comes
    upload: Upload | None = None
    closed: bool = False  # nothing is expected from it any more
    whole: bool = False  # it must be sent the model, not a difference

    def open(self, most: int) -> bool:
        """Tell whether it may still answer: it was asked and is awaited, or was asked fewer than `most` times."""
        return not (self.upload or self.closed) and (bool(self.message) or self.tries < most)

    def close(self, reason: str) -> None:
        """Expect nothing more from it."""
        self.closed, self.reason, self.message = True, reason, ""


class FlowerDriver:
    """A driver over Flower's grid.

    The station has the model and the test samples: it tests here, and never trains. Vehicles keep their memory.
    """

    def __init__(
        self, onboard: Onboard, grid: Grid, roll_call: RollCall, say: Callable[[str], None], idle: Idle
    ) -> None:
        self._onboard, self._config = onboard, onboard.config
        self._grid, self._roll_call, self._say, self._idle = grid, roll_call, say, idle
        self._run = run_identity(self._config)
        self._last: dict[int, Arrays] = {}  # what each vehicle was sent last and has
        self._present: dict[int, Node] = {}
        self._listed: set[int] = set()
        self._first = True

    def call(self, jobs: Jobs) -> Iterator[Reply | Missing]:
        """Yield the replies in order: vehicles' work once the round is closed, tests done here."""
        if jobs and jobs[0].do == "local":
            return self._round(jobs)
        if any(job.do != "score" for job in jobs):
            raise BadInputError(
                "the central baseline and theory.every need the data of all vehicles, which stays on them; allowed "
                "on a fleet: algorithms with vehicles, theory.every = 0"
            )
        return self._onboard.call(jobs)

    def _round(self, jobs: Jobs) -> Iterator[Reply | Missing]:
        fleet, label, t = self._config.fleet, jobs[0].label, jobs[0].round
        for attempt in range(fleet.patience):
            calls = {job.vehicle or 0: _Call(job) for job in jobs}
            self._gather(calls, time.monotonic() + fleet.deadline)
            count = sum(call.upload is not None for call in calls.values())
            if count >= min(fleet.least, len(jobs)):
                break
            self._say(
                f"{label} round {t}: {count} of at least {fleet.least} uploads after "
                f"{fleet.deadline:g} s; trying again ({attempt + 1} of {fleet.patience})"
            )
        else:
            raise AloneError(f"{label} stops at round {t}: fewer than {fleet.least} vehicles for too long")
        self._first = False
        self._last = {u: call.job.sent for u, call in calls.items() if call.upload}
        for u, call in calls.items():
            if call.upload:
                yield Reply(report_of(call.upload), call.upload.data)
            else:
                self._say(f"{label} round {t}: vehicle {u} is left out: {call.reason}")
                yield Missing(u, call.reason)

    def _gather(self, calls: dict[int, _Call], closes: float) -> None:
        """Ask every vehicle that is or comes in touch, until all have answered or the round closes."""
        fleet, looked, quiet = self._config.fleet, 0.0, time.monotonic()
        named = not self._first
        while (waiting := [u for u in calls if calls[u].open(fleet.tries)]) and (now := time.monotonic()) < closes:
            if now - looked > _ROLL_CALL:
                self._look()
                looked = now
                for u in set(waiting) - self._listed:
                    calls[u].close(_UNLISTED)
            if not any(call.upload for call in calls.values()):
                self._idle()
            away = [u for u in waiting if u in self._listed and u not in self._present]
            if away and not named and now - quiet > _PATIENT:
                names = ", ".join(map(str, away))
                self._say(f"waiting for vehicles {names}, {closes - now:.0f} s at most (fleet.deadline)")
                named = True
            reached = [u for u in waiting if u in self._present]
            fresh = [u for u in reached if calls[u].node != self._present[u] and calls[u].tries < fleet.tries]
            if fresh:
                self._ask({u: calls[u] for u in fresh}, closes)
            replies = self._replies(calls)
            if replies or any(calls[u].message for u in reached):
                quiet = time.monotonic()
            elif not self._first and not reached and time.monotonic() - quiet > fleet.grace:
                return  # whoever is in touch has answered
            if not replies:
                time.sleep(_POLL)

    def _look(self) -> None:
        called = self._roll_call()
        present = {u: node for u, node in called.items() if node is not None}
        for u in sorted(set(present) - set(self._present)):
            self._say(f"vehicle {u} is in touch")
        for u in sorted(set(self._present) - set(present)):
            self._say(f"vehicle {u} is {_AWAY}")
        self._listed, self._present = set(called), present

    def _ask(self, calls: dict[int, _Call], closes: float) -> None:
        messages: list[Message] = []
        packed: dict[object, bytes] = {}
        for u, call in calls.items():
            job, node = call.job, self._present[u]
            difference = self._onboard.algorithms[job.label].settings.server.downlink == "difference"
            base = self._last.get(u) if difference and not call.whole else None
            key = tuple(tuple((name, id(array)) for name, array in part.items()) for part in (job.sent, base or {}))
            if key not in packed:
                packed[key] = encode_content(job.round, job.sent, base)
            content = packed[key] if call.whole or not job.changes else job.changes
            call.tries, call.node, call.message = call.tries + 1, node, ""
            left = max(0.0, closes - time.monotonic()) + _SLACK
            share, exchange = float(job.words["share"]), int(job.words["exchange"])
            brief = [float(job.words[name]) for name in BRIEF if name in job.words]
            arrive = job.data["arrive"].astype("<f8").tobytes()
            order = Order(self._run, job.label, u, job.round, share, exchange, brief, arrive)
            messages.append(ask(node.id, order, content, left, call.tries))
        keys = list(self._grid.push_messages(messages))
        for call, key in zip_longest(calls.values(), keys[: len(messages)]):
            call.message = key or ""
            if not key:  # Flower did not take it
                call.node, call.reason = None, "the SuperLink does not take messages for it"

    def _replies(self, calls: dict[int, _Call]) -> int:
        """Take in the replies that have come; returns their number."""
        awaited = {call.message: u for u, call in calls.items() if call.message}
        count = 0
        for reply in self._grid.pull_messages(list(awaited)) if awaited else ():
            u = awaited.pop(reply.metadata.reply_to_message_id, None)
            if u is None:
                continue
            count += 1
            call = calls[u]
            call.message = ""
            try:
                call.upload = self._checked(call.job, u, reply)
                continue
            except (ReplyError, DecodeError) as error:
                call.reason = str(error)
            except Exception as error:  # whatever one vehicle sends costs nobody else
                call.reason = f"a reply that cannot be read ({type(error).__name__})"
            call.node = None  # to be asked again
            if call.reason == NO_BASE and not call.whole:
                call.whole = True
                call.tries -= 1
        return count

    def _checked(self, job: Job, u: int, reply: Message) -> Upload:
        """Return a vehicle's upload if it is one of this round; raises ReplyError or DecodeError."""
        algorithm = self._onboard.algorithms[job.label]
        upload, remark = read_reply(reply, named(algorithm.columns))
        if upload.vehicle != u:
            raise ReplyError(f"poses as vehicle {upload.vehicle}")
        if upload.samples > len(self._onboard.task.train):
            raise ReplyError(f"reports {upload.samples} samples, of {len(self._onboard.task.train)} that there are")
        train = algorithm.settings.train
        if upload.work > _MOST_WORK * (train.rho + train.kappa):
            raise ReplyError(f"reports {upload.work:g} local rounds of work, far more than were asked for")
        # the clock follows from it: worked out here, not believed
        upload = replace(upload, flops=round_flops(train, self._onboard.engine.multiplications, upload.samples))
        if upload.data:  # else its training diverged, which the round will say
            reference = self._onboard.reference_of(job.label, job.sent)
            expected = Expected(job.round, u, reference, algorithm.settings.train.eta_local_at(job.round))
            decode_parts(upload.data, algorithm.parts(), expected)
        if remark:
            self._say(f"{job.label} round {job.round}: vehicle {u}: {remark}")
        return upload
