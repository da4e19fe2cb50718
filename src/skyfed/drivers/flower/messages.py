"""What travels between station and vehicles: opaque bytes in Flower's ConfigRecords, with a few words beside them."""

import json
import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict

from skyfed.cost import Spending
from skyfed.errors import SkyfedError
from skyfed.vehicle import Upload

TRAIN = "train"  # Flower's message type
NO_BASE = "the model that this difference starts from is not here"  # a vehicle that came back asks for the whole model


class ReplyError(SkyfedError):
    """A reply cannot be read, or says that the vehicle could not do the work."""


@dataclass(frozen=True)
class Job:
    """What a vehicle is asked to do in a round.

    run    identity of the settings, so that a vehicle prepared for another run says so
    share  of the vehicle in the aggregate if all take part; it depends on data that other vehicles hold
    """

    run: str
    algorithm: str
    vehicle: int
    round: int
    share: float


def ask(node: int, job: Job, model: bytes, seconds: float, attempt: int) -> Message:
    """Return the message that brings job and model to a node; it expires with the round."""
    words = ConfigRecord(asdict(job))
    content = RecordDict({"job": words, "model": ConfigRecord({"bytes": model})})
    return Message(content, node, TRAIN, ttl=seconds, group_id=f"{job.algorithm} {job.round} {attempt}")


def read_job(message: Message) -> tuple[Job, bytes]:
    """Return what a message asks for."""
    try:
        words, model = message.content["job"], message.content["model"]["bytes"]
        job = Job(*(words[field.name] for field in fields(Job)))
    except (KeyError, TypeError) as error:
        raise ReplyError(f"not a job: {error}") from None
    whole = isinstance(job.round, int) and isinstance(job.vehicle, int)
    if not (isinstance(model, bytes) and whole and isinstance(job.share, float) and 0 <= job.share <= 1):
        raise ReplyError("not a job")
    return job, model


def answer(upload: Upload, to: Message) -> Message:
    """Return a vehicle's reply: its upload, and what is recorded about it."""
    about = asdict(replace(upload, data=b""))
    del about["data"]
    content = RecordDict({"upload": ConfigRecord({"bytes": upload.data, "about": json.dumps(about)})})
    return Message(content, reply_to=to)


def refuse(reason: str, to: Message) -> Message:
    """Return a vehicle's reply that it cannot do the work."""
    return Message(RecordDict({"refusal": ConfigRecord({"reason": reason})}), reply_to=to)


def read_reply(message: Message) -> Upload:
    """Return the upload of a reply, or raise ReplyError with what stands in its place; the bytes are not looked at."""
    if message.has_error():
        raise ReplyError(_one_line(message.error.reason or f"error {message.error.code}"))
    try:
        if "refusal" in message.content:
            raise ReplyError(_one_line(str(message.content["refusal"]["reason"])))
        record = message.content["upload"]
        data, about = record["bytes"], json.loads(record["about"])
        if not isinstance(data, bytes):
            raise TypeError
        return Upload(data=data, **_checked(about))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise ReplyError("not a reply to a job") from None


def _checked(about: dict[str, Any]) -> dict[str, Any]:
    """Return what a vehicle says about its upload if every word is of the right kind; raises ValueError else."""
    kinds = {field.name: field.type for field in fields(Upload) if field.name not in ("data", "spent")}
    if set(about) != {*kinds, "spent"} or set(about["spent"]) != {field.name for field in fields(Spending)}:
        raise ValueError
    words = {name: _word(about[name], kind, name == "loss") for name, kind in kinds.items()}
    return {**words, "spent": Spending(**{name: _word(value, float) for name, value in about["spent"].items()})}


def _word(value: Any, kind: Any, may_be_nan: bool = False) -> Any:
    if kind == float | None and value is None:
        return None
    if kind in (int, bool):
        if type(value) is not kind or not 0 <= value < 2**62:
            raise ValueError
        return value
    if type(value) not in (int, float) or not (math.isfinite(value) or (may_be_nan and math.isnan(value))):
        raise ValueError
    return float(value)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200]
