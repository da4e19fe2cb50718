"""Replies as they arrive: the tree of a message's objects, and each object as bytes.

Every exception is foreign: a reply that cannot be read comes as an error. A wrong accept is a reply to another question
than its sender was asked, one that is too large, or one that `read_reply` would wrongly accept (replies.py).
"""

import random
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
from damage import TEXTS, Decoder, Violation, attempt, change_bytes
from flwr.app import ArrayRecord, Error, Message, MetricRecord, RecordDict
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import ObjectTree, PullObjectResponse
from flwr.proto.recorddict_pb2 import ConfigRecord as Fields
from flwr.proto.runtime_pb2 import PullAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from replies import QUESTION, check_reply, damaged_report, uploads

from skyfed.drivers.flower.grid import VehicleGrid
from skyfed.drivers.flower.messages import ReplyError, answer, refuse

LARGEST = 4_000_000  # bytes that the grid takes of one reply


@dataclass
class Arrival:
    """A SuperLink's runtime that has one reply, in parts."""

    head: Any
    tree: ObjectTree
    parts: dict[str, bytes]
    late: frozenset[str] = frozenset()
    status: int = 0

    def PullMessages(self, request: Any) -> PullAppMessagesResponse:  # noqa: N802
        """Give the reply."""
        return PullAppMessagesResponse(messages_list=[self.head], message_object_trees=[self.tree])

    def PullObject(self, request: Any) -> PullObjectResponse:  # noqa: N802
        """Give a part."""
        if self.status:
            response = httpx.Response(self.status, request=httpx.Request("POST", "https://x"))
            raise httpx.HTTPStatusError("refused", request=response.request, response=response)
        content = self.parts.get(request.object_id)
        here = request.object_id not in self.late
        return PullObjectResponse(
            object_found=content is not None, object_available=here, object_content=content or b""
        )

    def ConfirmMessageReceived(self, request: Any) -> None:  # noqa: N802
        """Take note."""


class Objects(Decoder[Arrival]):
    """Object trees and objects, read by `skyfed.drivers.flower.grid.VehicleGrid`."""

    def __init__(self) -> None:
        messages = [answer(upload, QUESTION, "a remark") for upload in uploads()]
        self.valid = [_arrival(message) for message in messages]
        more = RecordDict({"metrics": MetricRecord({"x": 1.5}), "arrays": ArrayRecord([np.zeros(3, np.float32)])})
        others = [refuse("no", QUESTION), Message(Error(8, "x"), reply_to=QUESTION), Message(more, reply_to=QUESTION)]
        self._all = [*self.valid, *map(_arrival, others)]
        self._grid = VehicleGrid("127.0.0.1:1", b"", "token", LARGEST)
        self._grid._run = SimpleNamespace(run_id=1)

    def damaged(self, rand: random.Random) -> Arrival:
        """Damage the tree, the parts, or what the message says of itself."""
        from_ = rand.choice(self._all)
        head, tree = type(from_.head)(), ObjectTree()
        head.CopyFrom(from_.head)
        tree.CopyFrom(from_.tree)
        arrival = Arrival(head, tree, dict(from_.parts))
        for _ in range(rand.choice((1, 1, 1, 2, 3))):
            how = rand.randrange(12)
            if how < 4:
                _damage_part(arrival, rand)
            elif how < 7:
                _damage_fields(arrival, rand)
            elif how == 7:
                _damage_object_head(arrival, rand)
            elif how == 8:
                _damage_tree(arrival, rand)
            elif how == 9:
                _damage_metadata(head.metadata, arrival, rand)
            elif how == 10:
                arrival.parts.update(rand.choice(self._all).parts)
                if rand.random() < 0.5:
                    arrival.parts.pop(rand.choice(list(arrival.parts)))
            else:
                arrival.late = frozenset([*arrival.parts][:1] if rand.random() < 0.3 else [])
                arrival.status = rand.choice((0, 400, 404, 413))
        return arrival

    def check(self, given: Arrival) -> str | None:
        """Let the reply arrive."""
        self._grid._client, self._grid._arriving = given, {}
        pulled, _ = attempt(lambda: self._grid.pull_messages(["question"]), ReplyError)
        if not pulled:
            if not given.late:
                raise Violation("a reply that is there does not arrive")
            return "not there yet"
        (reply,) = pulled
        if not isinstance(reply, Message) or reply.metadata.reply_to_message_id != "question" or self._grid._arriving:
            raise Violation("a reply to another question")
        if reply.has_content() and sum(map(len, given.parts.values())) > 2 * LARGEST:
            raise Violation("a reply that is too large")
        record = reply.content.get("upload", {}) if reply.has_content() else {}
        reason = check_reply(reply, record)
        if reason is None and not any(record["bytes"] in part for part in given.parts.values()):
            raise Violation("an upload that is in no part")
        return reason


def _arrival(message: Message) -> Arrival:
    message.metadata.__dict__["_message_id"] = message.object_id
    parts = {key: part.deflate() for key, part in get_all_nested_objects(message).items()}
    return Arrival(message_to_proto(message), get_object_tree(message), parts)


def _damage_part(arrival: Arrival, rand: random.Random) -> None:
    if not arrival.parts:
        return
    key = rand.choice(list(arrival.parts))
    if rand.random() < 0.01:
        arrival.parts[key] += bytes(rand.choice((LARGEST // 2, 2 * LARGEST)))
        return
    part = bytearray(arrival.parts[key])
    change_bytes(part, rand)
    arrival.parts[key] = bytes(part)


def _damage_fields(arrival: Arrival, rand: random.Random) -> None:
    """Change the values of a record in Flower's own terms: types, names twice, values that are not there."""
    key = next((key for key, part in arrival.parts.items() if part.startswith(b"ConfigRecord")), None)
    if key is None:
        return
    head, _, body = arrival.parts[key].partition(b"\0")
    fields = Fields()
    try:
        fields.ParseFromString(body)
    except Exception:  # it is damaged already
        return
    item = rand.choice(fields.items) if fields.items else fields.items.add(key="about")
    how = rand.randrange(6)
    if how == 0:
        fields.items.add(key=item.key).value.string = rand.choice(TEXTS).replace("\ud800", "")
    elif how == 1:
        item.value.Clear()
    elif how == 2:
        item.value.uint64 = rand.choice((0, 1, 2**63, 2**64 - 1))
    elif how == 3:
        item.key = rand.choice(("bytes", "about", "remark", "x"))
    elif how == 4 and item.value.string:
        text = damaged_report(item.value.string, rand)
        if isinstance(text, bytes):
            item.value.bytes = text
        else:
            item.value.string = text.encode("utf-8", "replace").decode()
    else:
        item.value.double_list.vals.extend([0.5, float("nan")])
    arrival.parts[key] = head + b"\0" + fields.SerializeToString()


def _damage_object_head(arrival: Arrival, rand: random.Random) -> None:
    """Change what an object says of itself: its class, its children, the length of its body."""
    if not arrival.parts:
        return
    key = rand.choice(list(arrival.parts))
    head, _, body = arrival.parts[key].partition(b"\0")
    words = (head.split(b" ") + [b""] * 3)[:3]
    how = rand.randrange(4)
    if how == 0:
        words[0] = rand.choice(
            (b"Message", b"RecordDict", b"ConfigRecord", b"ArrayRecord", b"Array", b"ArrayChunk", b"x", b"")
        )
    elif how == 1:
        words[1] = b",".join(
            name.encode() for name in rand.choices([*arrival.parts, "0" * 64, ""], k=rand.randrange(4))
        )
    elif how == 2:
        words[2] = rand.choice((b"", b"-1", b"9" * 30, b"9" * 5000, "\u0661".encode(), b"1.5", b"\xff"))
    else:
        words.insert(1, b"x")
    arrival.parts[key] = b" ".join(words) + b"\0" + body


def _damage_tree(arrival: Arrival, rand: random.Random) -> None:
    how, node = rand.randrange(5), arrival.tree
    if how == 0:
        for _ in range(rand.choice((1, 15, 40, 2000))):
            node.children.add(object_id=rand.choice((*arrival.parts, "0" * 64, "")))
    elif how == 1:
        for _ in range(rand.choice((3, 20, 90))):
            node = node.children.add(object_id="0" * 64)
    elif how == 2:
        node.object_id = rand.choice((*arrival.parts, "", "\0", "0" * 64))
    elif how == 3:
        del node.children[:]
    else:
        whole = ObjectTree()
        whole.CopyFrom(node)
        node.children.append(whole)


def _damage_metadata(metadata: Any, arrival: Arrival, rand: random.Random) -> None:
    """Change what the sender says of its message; the SuperLink knows by itself what it answers."""
    metadata.message_id = rand.choice((metadata.message_id, "", "x", *arrival.parts))
    metadata.group_id = rand.choice(TEXTS).replace("\ud800", "")
    metadata.message_type = rand.choice(("train", "", "train.x", "query", "\n"))
    metadata.ttl = rand.choice((0.0, -1.0, 1e308, float("nan"), float("inf")))
    metadata.created_at = rand.choice((0.0, -1.0, 1e308, float("nan"), float("inf")))
    metadata.src_node_id, metadata.dst_node_id = (rand.choice((0, 1, 7, 2**64 - 1)) for _ in range(2))
