"""Replies of vehicles: Flower's messages with damaged records.

A foreign exception is anything but ReplyError. A wrong accept is an upload that is not what the reply says: a figure of
another kind or out of its bounds, a name that is not declared or stands there twice, a text that is not one short line,
or an upload that reads otherwise once it is sent again.
"""

import json
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from damage import NUMBERS, TEXTS, Decoder, Violation, attempt, junk, odd_value
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from skyfed.columns import Column
from skyfed.drivers.flower.messages import ReplyError, answer, read_reply
from skyfed.jobs import Upload

TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1  # Flower's messages ask who writes them
QUESTION = Message(RecordDict({}), 7, "train")
QUESTION.metadata.__dict__["_message_id"] = "question"
KINDS = {"count": "int", "delta": "float", "raw": "bool", "word": "text", "list": "floats"}
COLUMNS = {name: Column(name, kind, "for fuzzing") for name, kind in KINDS.items()}  # type: ignore[arg-type]
BOUNDS = {
    "vehicle": 2**31, "samples": 2**40, "buffer_bytes": 2**40, "loss": 1e18, "work": 1e9, "flops": 1e21, "seconds": 1e7,
    "cpu": 1e9,
}  # fmt: skip
WHOLE = ("vehicle", "samples", "buffer_bytes")
_LONG = 2_000_000  # letters of what a hostile vehicle may write


@dataclass
class Said:
    """A reply before it is a message: its records by name, as a kind and values; or an error."""

    records: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    error: tuple[int, str] | None = None

    def message(self) -> Message:
        """Return the message; values that Flower does not carry go as text."""
        if self.error is not None:
            return Message(Error(*self.error), reply_to=QUESTION)
        return Message(RecordDict({name: _record(*part) for name, part in self.records.items()}), reply_to=QUESTION)


def uploads() -> list[Upload]:
    """Return what honest vehicles send."""
    facts: list[dict[str, Any]] = [
        {}, {"count": 3, "delta": 0.25, "raw": True, "word": "a word", "list": [1.0, 2.5, -3e7]},
        {"delta": None, "list": []}, {"delta": float("nan"), "count": 0, "raw": False},
    ]  # fmt: skip
    return [
        Upload(k, junk(20 * k, random.Random(k)), dict(some), 40, 1.0, 2e9, loss, 16, 0.25, 0.5)
        for k, some in enumerate(facts) for loss in (0.7, float("nan"))
    ]  # fmt: skip


class Replies(Decoder[Said]):
    """Messages, read by `skyfed.drivers.flower.messages.read_reply`."""

    def __init__(self) -> None:
        self.valid = [_said(upload, remark) for upload in uploads() for remark in ("", "its memory is lost")]

    def damaged(self, rand: random.Random) -> Said:
        """Damage the records of a message, and what stands in them."""
        said = rand.choice(self.valid)
        records = {name: (kind, dict(values)) for name, (kind, values) in said.records.items()}
        if rand.random() < 0.04:
            return Said(error=(rand.choice((0, 1, 8, -1, 2**31)), _text(rand)))
        for _ in range(rand.choice((1, 1, 1, 2))):
            _, values = records.setdefault("upload", ("config", {}))
            how = rand.randrange(10)
            if how < 6:
                values["about"] = damaged_report(values.get("about", "{}"), rand)
            elif how == 6:
                values[rand.choice(("bytes", "about", "remark", rand.choice(TEXTS)))] = _carried(rand)
            elif how == 7:
                values["remark"] = _text(rand)
            elif how == 8:
                values.pop(rand.choice(("bytes", "about", "remark")), None)
            else:
                _other_records(records, rand)
        return Said(records)

    def check(self, given: Said) -> str | None:
        """Read a message."""
        message = given.message()
        return check_reply(message, given.records.get("upload", ("", {}))[1])


def check_reply(message: Message, record: Mapping[str, Any]) -> str | None:
    """Read a message whose upload is this record; returns why it is refused."""
    read, reason = attempt(lambda: read_reply(message, COLUMNS), ReplyError)
    if read is None:
        if len(reason or "") > 250:
            raise Violation(f"a reason of {len(reason or '')} letters")
        return reason
    upload, remark = read
    about = json.loads(record["about"], object_pairs_hook=_once)
    if upload.data != record["bytes"] or type(upload.data) is not bytes or set(about) != {*BOUNDS, "facts"}:
        raise Violation("an upload that is not what the reply says")
    for name, most in BOUNDS.items():
        _check_figure(name, getattr(upload, name), about[name], "int" if name in WHOLE else "float", most)
        if name != "loss" and not getattr(upload, name) >= 0:
            raise Violation(f"{name} is {getattr(upload, name)}")
    if set(upload.facts) != set(about["facts"]) or not set(upload.facts) <= set(KINDS):
        raise Violation("facts that are not what the reply says")
    for name, value in upload.facts.items():
        if value is None and about["facts"][name] is None:
            continue
        _check_figure(name, value, about["facts"][name], KINDS[name], 1e18)
    _check_line(remark)
    again, other = attempt(lambda: read_reply(answer(upload, QUESTION, remark), COLUMNS), ReplyError)
    if repr(again) != repr(read):
        raise Violation(f"sent again it reads otherwise: {again!r} {other}")
    return None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise Violation("a name that stands there twice is accepted")
    return dict(pairs)


def _check_figure(name: str, value: Any, said: Any, kind: str, most: float) -> None:
    """Raise Violation unless a value that was read is the one that was said, of its kind and within its bounds."""
    if kind == "text":
        _check_line(value)
        good = type(said) is str
    elif kind == "floats":
        good = type(said) is list and len(value) == len(said) <= 10_000
        for each, other in zip(value, said, strict=True):
            _check_figure(name, each, other, "float", most)
    elif kind == "float":
        good = type(value) is float and type(said) in (int, float)
        good = good and (repr(value) == repr(float(said))) and (math.isnan(value) or abs(value) <= most)
    else:
        good = type(value).__name__ == type(said).__name__ == kind and value == said and 0 <= value <= most
    if not good:
        raise Violation(f"{name} is {value!r} where {said!r} was said")


def _check_line(text: Any) -> None:
    if not (type(text) is str and len(text) <= 200 and text.isprintable()):
        raise Violation(f"not one short line: {text!r}")


def _said(upload: Upload, remark: str) -> Said:
    record = answer(upload, QUESTION, remark).content["upload"]
    return Said({"upload": ("config", dict(record))})


def _record(kind: str, values: dict[str, Any]) -> Any:
    made = {"config": ConfigRecord, "metric": MetricRecord}
    if kind == "array":
        return ArrayRecord([np.zeros(3, np.float32)])
    try:
        return made[kind](values)
    except TypeError:
        return ConfigRecord(
            {name: value if type(value) in (bytes, str) else repr(value) for name, value in values.items()}
        )


def _text(rand: random.Random) -> str:
    """Return an odd text; now and then a very long one."""
    if rand.random() < 0.01:
        return rand.choice(("x", " ", "\n", "\ud800", "a\t")) * _LONG
    return "".join(rand.choices(TEXTS, k=rand.randrange(4)))


def _carried(rand: random.Random) -> Any:
    """Return a value of any type that Flower carries."""
    how = rand.randrange(6)
    if how == 0:
        return rand.choice(NUMBERS)
    if how == 1:
        return _text(rand)
    if how == 2:
        return junk(rand.randrange(40), rand)
    if how == 3:
        return [rand.choice(TEXTS) for _ in range(rand.randrange(3))]
    if how == 4:
        return [junk(3, rand)] * rand.randrange(3)
    return rand.choice((True, False, [1, 2], [0.5], [True]))


def damaged_report(text: Any, rand: random.Random) -> Any:
    """Damage what a vehicle reports: its values, its names, or its text."""
    try:
        about = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        about = None
    how = rand.randrange(12)
    if how < 6 and isinstance(about, dict):
        inner = about["facts"] if isinstance(about.get("facts"), dict) and rand.random() < 0.5 else about
        name = rand.choice([*inner, *KINDS] or ["x"]) if inner is not about else rand.choice([*about, "x"])
        if how < 4:
            inner[name] = odd_value(rand)
        elif how == 4:
            inner.pop(name, None)
        else:
            inner[rand.choice((*TEXTS, *KINDS, *BOUNDS))] = inner.get(name, 0)
        return json.dumps(about)
    return _damaged_text(text if isinstance(text, str) else "{}", rand)


def _damaged_text(text: str, rand: random.Random) -> Any:
    how = rand.randrange(9)
    at = rand.randrange(len(text) + 1)
    if how == 0:  # a name twice
        name, value = rand.choice(("work", "facts", "vehicle", "delta")), rand.choice(("1", "{}"))
        return text.replace("{", f'{{"{name}": {value}, ', 1)
    if how == 1:
        inside = rand.choice(('"delta": 1, "delta": 2, ', '"delta": [', '"count": 1, "count": 1, '))
        return text.replace('"facts": {', '"facts": {' + inside, 1)
    if how == 2:  # deep, or many
        if rand.random() < 0.02:
            piece = rand.choice(("[", "[],{},", "1,", '{"a":', "1e5,"))
            return "[" + piece * (rand.choice((990_000, _LONG)) // len(piece))
        depth = rand.choice((10, 900, 1100, 20_000))
        return text.replace(": ", ": " + rand.choice(("[", '{"a":')) * depth, 1)
    if how == 3:
        return text.replace("1", "9" * rand.choice((20, 400, 5000)), 1)
    if how == 4:
        return text[:at] + rand.choice(("\0", "\n", "\\u0000", "\\ud800", "NaN", "-", "e", '"', "}", ",")) + text[at:]
    if how == 5:
        return text[:at]
    if how == 6:
        return text.encode(rand.choice(("utf-8", "utf-16", "utf-32", "utf-8-sig")), "surrogatepass")
    if how == 7:
        names = json.dumps([*BOUNDS, "facts"])
        return rand.choice(("", "null", "[]", "1", '"x"', "{}", text + text, text + " ", names))
    return text.replace("0.", rand.choice(("1e400", "-0.", "1e308", "Infinity", "-Infinity", "00.")), 1)


def _other_records(records: dict[str, tuple[str, dict[str, Any]]], rand: random.Random) -> None:
    """Add, leave out or exchange records."""
    how = rand.randrange(5)
    if how == 0:
        records["refusal"] = ("config", {rand.choice(("reason", "reason", "x")): _carried(rand)})
    elif how == 1:
        records["upload"] = (rand.choice(("metric", "array", "config")), {"bytes": 1, "about": 0.5})
    elif how == 2:
        records.pop("upload", None)
    elif how == 3:
        records[rand.choice(TEXTS)] = ("config", {"x": _carried(rand)})
    else:
        records["refusal"] = (rand.choice(("metric", "array")), {})
