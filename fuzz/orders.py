"""Jobs that a station sends to a vehicle: orders and models, damaged, one or a few to the same vehicle.

Nothing is trained: what would be trained is noted. A foreign exception is anything but ReplyError, from `read_order` or
from `Vehicle.train`. A wrong accept is training for an order outside the vehicle's config and policy: another run,
vehicle, row, round or exchange, a share outside 0 to 1, times or means that no mission has, weights out of range or
not finite, or more models in an exchange than allowed. What is sent down is looked at for itself in downlinks.py.
"""

import random
import struct
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
from damage import NUMBERS, TEXTS, Decoder, Violation, attempt, change_bytes, junk, sealed
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from skyfed.config import load_config
from skyfed.drivers.flower.messages import Order, ReplyError, read_order, refuse
from skyfed.drivers.flower.onboard import Vehicle
from skyfed.drivers.flower.policy import Answered, Policy
from skyfed.jobs import Upload
from skyfed.runs.folder import run_identity
from skyfed.types import Arrays
from skyfed.wire import encode_content

TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1  # Flower's messages ask who writes them
CONFIG = load_config("smoke", ["rounds=3", "vehicles=3"])
RUN, VEHICLE = run_identity(CONFIG), 1
EXCHANGES = {"afl": 1, "scaffold": 2, "EDEN, 1 bit": 1}
SIZES = (40, 6)
FIELDS = ("run", "algorithm", "vehicle", "round", "share", "exchange", "brief", "arrive")
BRIEF = [30.0, 1e7, 29.6e9, 11.0, 0.4]  # seconds, bits per second, FLOPs per second, watts, watts
LATEST, LARGEST = 1e9, 1e18  # seconds of a mission, and any of a vehicle's means
POLICIES = (
    Policy(),
    Policy(algorithms=["afl", "unknown"], rounds=2, models=1, largest=0.5),
    Policy(rounds=9, models=2),
)
NEAR = {
    "algorithm": list(EXCHANGES), "run": [RUN.upper(), RUN[:-1]],
    "share": [0.0, 1.0, -0.5, 1.5, float("nan"), 1],
    "brief": [[], BRIEF[:4], [*BRIEF, 1.0], [*BRIEF[:4], -1.0], [*BRIEF[:4], float("nan")], [1e19, *BRIEF[1:]],
              [0.0] * 5, [1, 2, 3, 4, 5]],
    "arrive": [struct.pack(f"<{len(times)}d", *times) for times in (
        [], [0.0], [5.0, 5.0], [7.0, 3.0], [-1.0], [float("nan")] * 2, [float("nan"), 9.0, float("nan")],
        [float("inf")], [1e9], [1.1e9], [0.0] * 4)] + [bytes(9), bytes(800_000)],
}  # fmt: skip
Records = dict[str, Any]  # values by name of the record; another kind of record, or an error, as an object


@dataclass(frozen=True)
class Asked:
    """What one vehicle is asked, one after the other: records of an order, and what is sent down."""

    policy: int
    messages: list[Records]


class Noting(Vehicle):
    """A vehicle that notes what it would train."""

    noted: list[tuple[Order, Arrays]]

    def _train(self, order: Order, sent: Arrays, exchanges: int) -> tuple[Upload, str]:
        self.noted.append((order, sent))
        return Upload(self.vehicle, b"", {}, 0, 0.0, 0.0, 0.0, 0, 0.0, 0.0), ""


class Orders(Decoder[Asked]):
    """Messages, read by `read_order`, then by `Vehicle.train` with its policy."""

    def __init__(self) -> None:
        rows = {label: SimpleNamespace(exchanges=count, parts=dict) for label, count in EXCHANGES.items()}
        layout = SimpleNamespace(live_size=SIZES[0], buffers=SIZES[1])
        onboard: Any = SimpleNamespace(config=CONFIG, algorithms=rows, engine=SimpleNamespace(layout=layout))
        world: Any = None
        self._vehicle = Noting(onboard, world, VEHICLE)
        self._models = [_model(k) for k in range(5)]
        asked = (
            (0, "afl", 0, 0),
            (0, "EDEN, 1 bit", 2, 1),
            (0, "scaffold", 1, 3),
            (1, "afl", 1, 2),
            (2, "scaffold", 2, 4),
        )
        self.valid = [
            Asked(policy, [_records(_order(label, t), encode_content(t, self._models[k], None))])
            for policy, label, t, k in asked
        ]
        first = self._models[0], self._models[1]
        pair = [encode_content(0, first[0], None), encode_content(1, first[1], first[0])]
        self.valid.append(Asked(0, [_records(_order("afl", t), content) for t, content in enumerate(pair)]))

    def damaged(self, rand: random.Random) -> Asked:
        """Ask for up to five things, each damaged or not."""
        policy, messages, held = rand.randrange(len(POLICIES)), [], None
        label, t = rand.choice(list(EXCHANGES)), rand.randrange(3)
        for _ in range(rand.choice((1, 1, 1, 2, 3, 5))):
            if rand.random() < 0.3:
                label, t = rand.choice(list(EXCHANGES)), rand.randrange(4)
            model = rand.choice(self._models)
            arrays = _changed_model(model, rand) if rand.random() < 0.5 else model
            content = _content(t, arrays, held if rand.random() < 0.5 else None)
            held = arrays
            order = replace(_order(label, t), exchange=rand.choice((0, 0, 0, 1)))
            records = _records(order, content)
            if rand.random() < 0.6:
                _damage(records, rand)
            messages.append(records)
        return Asked(policy, messages)

    def check(self, given: Asked) -> str | None:
        """Ask the vehicle; the reason is that of the last message."""
        vehicle = self._vehicle
        policy = vehicle._policy = POLICIES[given.policy]
        vehicle._answered, vehicle._last, vehicle._held, vehicle.noted = Answered(None), None, [], []
        models: dict[tuple[Any, ...], set[bytes]] = {}
        reason: str | None = None
        for records in given.messages:
            message = _message(records)
            read, reason = attempt(lambda message=message: read_order(message), ReplyError)  # type: ignore[misc]
            if read is None:
                _check_refusal(reason, message)
                continue
            count = len(vehicle.noted)
            trained, reason = attempt(lambda read=read: vehicle.train(*read), ReplyError)  # type: ignore[misc]
            if trained is None:
                _check_refusal(reason, message)
                if len(vehicle.noted) > count:
                    raise Violation(f"trained, then refused: {reason}")
            elif len(vehicle.noted) > count:
                _check_noted(*vehicle.noted[-1], records, policy, models)
        return reason


def _check_refusal(reason: str | None, message: Message) -> None:
    said = refuse(str(reason), message).content["refusal"]["reason"]
    if len(said) > 250 or not said.isprintable():
        raise Violation(f"a refusal that is not one short line: {said[:300]!r}")


def _check_noted(
    order: Order, sent: Arrays, records: Records, policy: Policy, models: dict[tuple[Any, ...], set[bytes]]
) -> None:
    """Raise Violation if what is to be trained is outside the policy, or is not what was sent."""
    said = records["job"]
    if any(getattr(order, name) != said[name] or type(getattr(order, name)) is not type(said[name]) for name in FIELDS):
        raise Violation(f"{order} where {said} was sent")
    rows = EXCHANGES if policy.algorithms is None else set(EXCHANGES) & set(policy.algorithms)
    rounds = CONFIG.rounds if policy.rounds is None else min(CONFIG.rounds, policy.rounds)
    if order.run != RUN or order.vehicle != VEHICLE or order.algorithm not in rows or not 0 <= order.round < rounds:
        raise Violation(f"outside the policy: {order}")
    if not 0 <= order.exchange < EXCHANGES[order.algorithm] or not 0 <= order.share <= 1:
        raise Violation(f"outside the policy: {order}")
    _check_mission(order)
    for name, array in sent.items():
        exact = [abs(int(x) if array.dtype.kind in "iub" else float(x)) for x in array.reshape(-1).tolist()]
        if not all(x < float("inf") for x in exact) or (name == "weights" and max(exact, default=0) > policy.largest):
            raise Violation(f"{name} out of range")
    digest = repr([(name, sent[name].dtype.str, sent[name].shape, sent[name].tobytes()) for name in sorted(sent)])
    answered = models.setdefault((order.algorithm, order.round, order.exchange), set())
    answered.add(digest.encode())
    if len(answered) > policy.models:
        raise Violation(f"{len(answered)} models in one exchange")


def _check_mission(order: Order) -> None:
    """Raise Violation if a vehicle was told times or means that no mission has."""
    times = struct.unpack(f"<{order.round + 1}d", order.arrive)
    known = [time for time in times if time == time]
    if any(not 0 <= time <= LATEST for time in known) or any(late < early for early, late in pairwise(known)):
        raise Violation(f"arrivals that cannot be: {times}")
    means = order.brief
    if len(means) not in (0, len(BRIEF)) or any(type(x) is not float or not 0 <= x <= LARGEST for x in means):
        raise Violation(f"means that cannot be: {means}")


def _order(label: str, t: int) -> Order:
    return Order(
        RUN, label, VEHICLE, t, 0.25, 0, list(BRIEF), struct.pack(f"<{t + 1}d", *(60.0 * k for k in range(t + 1)))
    )


def _records(order: Order, content: bytes) -> Records:
    return {"job": asdict(order), "model": {"bytes": content}}


def _model(k: int) -> Arrays:
    """Return a model, from the third on with other arrays."""
    rng = np.random.default_rng(k)
    weights, buffers = ((0.05 * rng.normal(size=size)).astype(np.float32) for size in SIZES)
    more: Arrays = {"control": np.ones(40, np.float32), "table": np.arange(6).reshape(2, 3), "none": np.empty((0, 3))}
    return {"weights": weights, "buffers": buffers} | (more if k > 2 else {})


def _changed_model(model: Arrays, rand: random.Random) -> Arrays:
    """Return a model with an extreme number, an array of another type or size, or one more or less."""
    arrays = {name: array.copy() for name, array in model.items()}
    name = rand.choice(list(arrays))
    how = rand.randrange(5)
    if how < 2 and arrays[name].size and arrays[name].dtype.kind == "f":
        arrays[name].reshape(-1)[rand.randrange(arrays[name].size)] = rand.choice(
            (0.51, -0.51, 1e7, -1e38, np.inf, np.nan)
        )
    elif how == 2:
        kind = rand.choice((np.int8, np.int32, np.int64))
        lowest = rand.choice((np.iinfo(kind).min, np.iinfo(kind).max, -1, 0, 2))
        arrays[name] = np.full(rand.choice((1, SIZES[0])), lowest, kind)
    elif how == 3:
        arrays[name] = np.zeros(rand.choice(((), (0,), (3,), (40, 1), SIZES)), rand.choice((np.float32, np.float64)))
    else:
        arrays.pop(name)
    return arrays


def _content(t: int, arrays: Arrays, base: Arrays | None) -> bytes:
    with np.errstate(all="ignore"):
        return encode_content(t, arrays, base)


def _damage(records: Records, rand: random.Random) -> None:
    """Change the fields of an order, what is sent down, or which records there are."""
    how = rand.randrange(8)
    job = records["job"]
    if how < 4:
        name = rand.choice((*FIELDS, *FIELDS, "x"))
        near = NEAR.get(name, [0, 1, 2, 3, 9, -1, 0.5, True])
        job[name] = rand.choice(near) if rand.random() < 0.6 else _carried(rand)
        if name == "round" and type(job[name]) is int and 0 <= job[name] < 99:
            job["arrive"] = bytes(8 * (job[name] + 1))  # else the number of arrivals alone tells
    elif how == 4:
        job.pop(rand.choice(FIELDS))
    elif how == 5:
        changed = bytearray(records["model"]["bytes"])
        change_bytes(changed, rand)
        records["model"]["bytes"] = sealed(bytes(changed[:-8])) if rand.random() < 0.8 else bytes(changed)
    elif how == 6:
        records["model"][rand.choice(("bytes", "bytes", "x"))] = _carried(rand)
    else:
        name = rand.choice(("job", "model", "x", "error"))
        records[name] = rand.choice((MetricRecord({"bytes": 1}), ArrayRecord([np.zeros(2)]), {}, Error(1, "no")))


def _carried(rand: random.Random) -> Any:
    """Return a value of any type that Flower carries."""
    how = rand.randrange(5)
    if how == 0:
        return rand.choice(NUMBERS)
    if how == 1:
        return "x" * 2_000_000 if rand.random() < 0.01 else rand.choice(TEXTS)
    if how == 2:
        return junk(rand.randrange(100), rand)
    return rand.choice((True, False, [1, 2], [0.5], ["x"], [b"x"], []))


def _message(records: Records) -> Message:
    if isinstance(records.get("error"), Error):
        return Message(records["error"], reply_to=Message(RecordDict({}), 1, "train"))
    made = {}
    for name, values in records.items():
        if not isinstance(values, Error):
            made[name] = ConfigRecord(values) if isinstance(values, dict) else values
    return Message(RecordDict(made), 1, "train")
