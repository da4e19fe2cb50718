"""Carries rounds to real vehicles: asks who is there, waits until the deadline, asks again, drops nonsense."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from types import TracebackType

from flwr.app import Message
from flwr.serverapp import Grid

from skyfed.drivers.flower.messages import NO_BASE, Order, ReplyError, ask, read_reply
from skyfed.errors import BadInputError, SkyfedError
from skyfed.jobs import Job, Jobs, Missing, Reply, Upload
from skyfed.onboard import Onboard, report_of
from skyfed.runs.columns import named
from skyfed.runs.folder import run_identity
from skyfed.types import Arrays
from skyfed.wire import DecodeError, Expected, decode_parts, encode_content

_POLL = 0.2  # seconds between two looks for replies; a look costs the SuperLink some milliseconds
_ROLL_CALL = 1.0  # seconds between two looks at who is there
_PATIENT = 5.0  # seconds before it is said who is waited for
_SLACK = 60.0  # seconds that a message outlives its round, since Flower refuses to take one that has expired
_AWAY, _UNLISTED = "out of touch", "its key was removed"


class AloneError(SkyfedError):
    """Too few vehicles for too long; what was done is kept."""


@dataclass(frozen=True)
class Node:
    """A vehicle that is in touch: its Flower node, and since when; who came back has lost what it was asked."""

    id: int
    since: str


RollCall = Callable[[], dict[int, Node | None]]  # every vehicle on the list of keys; None: out of touch


@dataclass
class _Round:
    """What is known of a round while it goes on."""

    jobs: dict[int, Job]
    closes: float
    asked: dict[str, int] = field(default_factory=dict)  # message → vehicle
    nodes: dict[int, Node] = field(default_factory=dict)  # vehicle → where it was asked
    tries: dict[int, int] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    uploads: dict[int, Upload] = field(default_factory=dict)
    closed: set[int] = field(default_factory=set)  # from whom nothing is expected any more
    whole: set[int] = field(default_factory=set)  # who must be sent the model, not a difference

    def open(self, most: int) -> list[int]:
        """Return the vehicles that may still answer: asked and awaited, or asked less than so often."""
        awaited = set(self.asked.values())
        rest = [u for u in self.jobs if u not in self.uploads and u not in self.closed]
        return [u for u in rest if u in awaited or self.tries.get(u, 0) < most]

    def close(self, u: int, reason: str) -> None:
        """Expect nothing more of a vehicle."""
        self.closed.add(u)
        self.reasons[u] = reason
        self.asked = {key: vehicle for key, vehicle in self.asked.items() if vehicle != u}


class FlowerDriver:
    """A driver over Flower's grid; use as a context manager.

    The station has the model and the test samples: it tests here, and never trains. Vehicles keep their memory.
    """

    keeps_memory, central = True, False

    def __init__(
        self,
        onboard: Onboard,
        grid: Grid,
        roll_call: RollCall,
        say: Callable[[str], None],
        idle: Callable[[], None] = lambda: None,
    ) -> None:
        """Take what is needed.

        idle: is called now and then while a round has no upload yet; may raise, since nothing would be lost.
        """
        self._onboard, self._config = onboard, onboard.config
        self._grid, self._roll_call, self._say, self._idle = grid, roll_call, say, idle
        self._run = run_identity(self._config)
        self._last: dict[int, Arrays] = {}  # what each vehicle was sent last and has
        self._present: dict[int, Node] = {}
        self._listed: set[int] | None = None  # nobody has looked yet
        self._first = True

    def __enter__(self) -> "FlowerDriver":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def call(self, jobs: Jobs) -> Iterator[Reply | Missing]:
        """Yield the replies in order: vehicles' work once the round is closed, tests done here."""
        if jobs and jobs[0].do == "local":
            return self._round(jobs)
        if any(job.do != "score" for job in jobs):
            raise BadInputError(
                "the central baseline and theory.every need the data of all vehicles, which stays on them; allowed "
                "on a fleet: algorithms with vehicles, theory.every = 0"
            )
        return map(self._onboard.do, jobs)

    def _round(self, jobs: Jobs) -> Iterator[Reply | Missing]:
        fleet, label, t = self._config.fleet, jobs[0].label, jobs[0].round
        for attempt in range(fleet.patience):
            current = _Round({job.vehicle or 0: job for job in jobs}, time.monotonic() + fleet.deadline)
            self._gather(current)
            if len(current.uploads) >= min(fleet.least, len(jobs)):
                break
            self._say(
                f"{label} round {t}: {len(current.uploads)} of at least {fleet.least} uploads after "
                f"{fleet.deadline:g} s; trying again ({attempt + 1} of {fleet.patience})"
            )
        else:
            raise AloneError(f"{label} stops at round {t}: fewer than {fleet.least} vehicles for too long")
        self._first = False
        self._last = {u: current.jobs[u].sent for u in current.uploads}
        for u in current.jobs:
            if u in current.uploads:
                upload = current.uploads[u]
                yield Reply(report_of(upload), upload.data)
            else:
                reason = current.reasons.get(u, _AWAY)
                self._say(f"{label} round {t}: vehicle {u} is left out: {reason}")
                yield Missing(u, reason)

    def _gather(self, round: _Round) -> None:
        """Ask everyone who is or comes there, until all have answered or the round closes."""
        fleet, looked, quiet = self._config.fleet, 0.0, time.monotonic()
        named = not self._first
        while (waiting := round.open(fleet.tries)) and (now := time.monotonic()) < round.closes:
            if now - looked > _ROLL_CALL:
                self._look()
                looked = now
                for u in [u for u in waiting if u not in (self._listed or ())]:
                    round.close(u, _UNLISTED)
            if not round.uploads:
                self._idle()
            away = [u for u in waiting if u in (self._listed or ()) and u not in self._present]
            if away and not named and now - quiet > _PATIENT:
                names = ", ".join(map(str, away))
                self._say(f"waiting for vehicles {names}, {round.closes - now:.0f} s at most (fleet.deadline)")
                named = True
            reached = [u for u in waiting if u in self._present and u in (self._listed or ())]
            fresh = [u for u in reached if round.nodes.get(u) != self._present[u]]
            self._ask(round, [u for u in fresh if round.tries.get(u, 0) < fleet.tries])
            replies = self._replies(round)
            if replies or any(u in round.asked.values() for u in reached):
                quiet = time.monotonic()
            elif not self._first and not reached and time.monotonic() - quiet > fleet.grace:
                return  # whoever is in touch has answered
            if not replies:
                time.sleep(_POLL)

    def _look(self) -> None:
        called = self._roll_call()
        self._listed = set(called)
        present = {u: node for u, node in called.items() if node is not None}
        for u in sorted(set(present) - set(self._present)):
            self._say(f"vehicle {u} is in touch")
        for u in sorted(set(self._present) - set(present)):
            self._say(f"vehicle {u} is {_AWAY}")
        self._present = present

    def _ask(self, round: _Round, vehicles: Iterable[int]) -> None:
        messages: list[Message] = []
        packed: dict[object, bytes] = {}
        for u in vehicles:
            job = round.jobs[u]
            difference = self._onboard.algorithms[job.label].settings.server.downlink == "difference"
            base = self._last.get(u) if difference and u not in round.whole else None
            key = tuple(tuple((name, id(array)) for name, array in part.items()) for part in (job.sent, base or {}))
            if key not in packed:
                packed[key] = encode_content(job.round, job.sent, base)
            round.tries[u] = round.tries.get(u, 0) + 1
            round.nodes[u] = self._present[u]
            for old in [key for key, vehicle in round.asked.items() if vehicle == u]:
                del round.asked[old]
            left = max(0.0, round.closes - time.monotonic()) + _SLACK
            share, exchange = float(job.words["share"]), int(job.words["exchange"])
            order = Order(self._run, job.label, u, job.round, share, exchange)
            messages.append(ask(self._present[u].id, order, packed[key], left, round.tries[u]))
        if messages:
            keys = list(self._grid.push_messages(messages))
            for message, key in zip_longest(messages, keys[: len(messages)]):
                u = int(message.content["job"]["vehicle"])
                if key:
                    round.asked[key] = u
                else:  # Flower did not take it
                    round.nodes.pop(u)
                    round.reasons[u] = "the SuperLink does not take messages for it"

    def _replies(self, round: _Round) -> int:
        """Take in what has come; returns how many replies."""
        if not round.asked:
            return 0
        count = 0
        for reply in self._grid.pull_messages(list(round.asked)):
            u = round.asked.pop(reply.metadata.reply_to_message_id, None)
            if u is None:
                continue
            count += 1
            try:
                round.uploads[u] = self._checked(round.jobs[u], u, reply)
                continue
            except (ReplyError, DecodeError) as error:
                round.reasons[u] = str(error)
            round.nodes.pop(u, None)  # to be asked again
            if round.reasons[u] == NO_BASE and u not in round.whole:
                round.whole.add(u)
                round.tries[u] -= 1
        return count

    def _checked(self, job: Job, u: int, reply: Message) -> Upload:
        """Return a vehicle's upload if it is one of this round; raises ReplyError or DecodeError."""
        algorithm = self._onboard.algorithms[job.label]
        upload, remark = read_reply(reply, named(algorithm.columns))
        if upload.vehicle != u:
            raise ReplyError(f"poses as vehicle {upload.vehicle}")
        if upload.samples > len(self._onboard.task.train):
            raise ReplyError(f"reports {upload.samples} samples, of {len(self._onboard.task.train)} that there are")
        if upload.data:  # else its training diverged, which the round will say
            reference, rate = (
                self._onboard.reference_of(job.label, job.sent),
                algorithm.settings.train.eta_local_at(job.round),
            )
            decode_parts(upload.data, algorithm.parts(), Expected(job.round, u, reference, rate))
        if remark:
            self._say(f"{job.label} round {job.round}: vehicle {u}: {remark}")
        return upload
