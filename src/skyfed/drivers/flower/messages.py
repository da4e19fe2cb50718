"""What travels between station and vehicles: opaque bytes in Flower's ConfigRecords, with small values beside them."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict

from skyfed.columns import Column
from skyfed.errors import SkyfedError, one_line
from skyfed.jobs import Upload
from skyfed.onboard import report_of

TRAIN = "train"  # Flower's message type
NO_BASE = "the model that this difference starts from is not here"  # a vehicle that came back asks for the whole model
BRIEF = ("elapsed", "rate", "flops", "watts", "radio")  # as in World.brief
_LONGEST_MISSION = 1e9  # seconds
_LARGEST = 1e18  # of a figure that an algorithm notes
_MOST = 10_000  # numbers in a list that it notes
_LONGEST = 1_000_000  # letters of a report; as objects they take up to thirty times as many bytes
_REPORTED = {  # what a vehicle reports about every upload: its kind, and the largest value that is believed
    "vehicle": ("int", 2**31), "samples": ("int", 2**40), "buffer_bytes": ("int", 2**40), "loss": ("float", 1e18),
    "work": ("float", 1e9), "flops": ("float", 1e21), "seconds": ("float", 1e7), "cpu": ("float", 1e9),
}  # fmt: skip


class ReplyError(SkyfedError):
    """A reply cannot be read, or says that the vehicle could not do the work."""


@dataclass(frozen=True)
class Order:
    """What a vehicle is asked to do in a round.

    run       identity of the settings, so that a vehicle prepared for another run says so
    share     of the vehicle in the aggregate if all take part; it depends on data that other vehicles hold
    exchange  which exchange of the round it is, from 0
    brief     what it has for the round's budgets, in the order of `BRIEF`; empty where no mission time is modelled
    arrive    mission seconds at which it reached its place in every round so far, as bytes of float64
    """

    run: str
    algorithm: str
    vehicle: int
    round: int
    share: float
    exchange: int
    brief: list[float]
    arrive: bytes


def ask(node: int, order: Order, content: bytes, seconds: float, attempt: int) -> Message:
    """Return the message that brings an order and what is sent down to a node; it expires with the round."""
    records = RecordDict({"job": ConfigRecord(asdict(order)), "model": ConfigRecord({"bytes": content})})
    group = f"{order.algorithm} {order.round} {order.exchange} {attempt}"
    return Message(records, node, TRAIN, ttl=seconds, group_id=group)


def read_order(message: Message) -> tuple[Order, bytes]:
    """Return what a message asks for."""
    try:
        record, content = message.content["job"], message.content["model"]["bytes"]
        order = Order(*(record[field.name] for field in fields(Order)))
    except (KeyError, TypeError, ValueError) as error:  # the last where there is no content
        raise ReplyError(f"not a job: {error}") from None
    whole = all(type(number) is int and number >= 0 for number in (order.round, order.vehicle, order.exchange))
    named = isinstance(order.run, str) and isinstance(order.algorithm, str)
    share = isinstance(order.share, float) and 0 <= order.share <= 1
    if not (isinstance(content, bytes) and whole and named and share and _mission_is_sound(order)):
        raise ReplyError("not a job")
    return order, content


def _mission_is_sound(order: Order) -> bool:
    """Tell whether an order's times and means are numbers that a mission can have."""
    if not isinstance(order.arrive, bytes) or len(order.arrive) != 8 * (order.round + 1):
        return False
    times = np.frombuffer(order.arrive, "<f8")
    times = times[~np.isnan(times)]
    brief = isinstance(order.brief, list) and len(order.brief) in (0, len(BRIEF))
    numbers = brief and all(isinstance(value, float) and 0 <= value <= _LARGEST for value in order.brief)
    return bool(numbers and (times >= 0).all() and (times <= _LONGEST_MISSION).all() and (np.diff(times) >= 0).all())


def answer(upload: Upload, to: Message, remark: str = "") -> Message:
    """Return a vehicle's reply: its upload, what is recorded about it, and a remark for the station's log."""
    record = {"bytes": upload.data, "about": json.dumps(report_of(upload)), "remark": remark}
    return Message(RecordDict({"upload": ConfigRecord(record)}), reply_to=to)


def refuse(reason: str, to: Message) -> Message:
    """Return a vehicle's reply that it cannot do the work."""
    return Message(RecordDict({"refusal": ConfigRecord({"reason": one_line(reason)})}), reply_to=to)


def read_reply(message: Message, columns: Mapping[str, Column]) -> tuple[Upload, str]:
    """Return the upload of a reply and a remark, or raise ReplyError with what stands in its place.

    columns: of the facts that the algorithm reports; the bytes of the upload are not looked at.
    """
    if message.has_error():
        raise ReplyError(one_line(message.error.reason or f"error {message.error.code}"))
    try:
        if "refusal" in message.content:
            raise ReplyError(one_line(str(message.content["refusal"]["reason"])))
        record = message.content["upload"]
        if len(record["about"]) > _LONGEST:
            raise ValueError
        data, about = record["bytes"], json.loads(record["about"], object_pairs_hook=_each_once)
        if (
            not isinstance(data, bytes)
            or set(about) != {*_REPORTED, "facts"}
            or not set(about["facts"]) <= set(columns)
        ):
            raise TypeError
        known = {name: _checked(about[name], kind, most) for name, (kind, most) in _REPORTED.items()}
        if any(known[name] < 0 or math.isnan(known[name]) for name in known if name != "loss"):
            raise ValueError
        facts = {
            name: None if value is None else _checked(value, columns[name].kind, _LARGEST)
            for name, value in about["facts"].items()
        }
        return Upload(data=data, facts=facts, **known), one_line(str(record.get("remark", "")))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError):
        raise ReplyError("not a reply to a job") from None


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a table of a report; raises ValueError if a name stands there twice."""
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError
    return table


def _checked(value: Any, kind: str, most: float) -> Any:
    """Return a value that a vehicle reports if it is of its kind; raises ValueError or OverflowError otherwise."""
    if kind == "floats" and isinstance(value, list) and len(value) <= _MOST:
        return [_checked(each, "float", most) for each in value]
    if kind == "text" and isinstance(value, str):
        return one_line(value)
    if kind in ("int", "bool") and type(value).__name__ == kind and 0 <= value <= most:
        return value
    if kind == "float" and type(value) in (int, float):
        number = float(value)  # an integer of very many digits raises OverflowError
        if abs(number) <= most or math.isnan(number):
            return number
    raise ValueError
