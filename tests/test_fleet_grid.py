"""The station's grid against replies that never come in full, cannot be read, or claim to answer somebody else."""

from types import SimpleNamespace
from typing import Any

import httpx
import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import PullObjectResponse
from flwr.proto.runtime_pb2 import PullAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.task_identity import TaskIdentity

from skyfed.drivers.flower.grid import VehicleGrid

TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1  # Flower's messages ask who writes them


class Link:
    """A SuperLink's runtime that has one reply to a message."""

    def __init__(self, asked: str, size: int = 10) -> None:
        question = Message(RecordDict({}), 7, "train")
        question.metadata.__dict__["_message_id"] = asked
        reply = Message(RecordDict({"upload": ConfigRecord({"bytes": b"x" * size})}), reply_to=question)
        reply.metadata.__dict__["_message_id"] = reply.object_id
        self.head, self.tree = message_to_proto(reply), get_object_tree(reply)
        self.parts = {key: part.deflate() for key, part in get_all_nested_objects(reply).items()}
        self.late: set[str] = set()
        self.given = self.confirmed = 0
        self.status = 0

    def PullMessages(self, request: Any) -> PullAppMessagesResponse:  # noqa: N802
        wanted = self.head.metadata.reply_to_message_id in request.message_ids and not self.given
        self.given += wanted
        return PullAppMessagesResponse(messages_list=[self.head][:wanted], message_object_trees=[self.tree][:wanted])

    def PullObject(self, request: Any) -> PullObjectResponse:  # noqa: N802
        if self.status:
            response = httpx.Response(self.status, request=httpx.Request("POST", "https://x"))
            raise httpx.HTTPStatusError("refused", request=response.request, response=response)
        content = self.parts.get(request.object_id, b"")
        here = request.object_id not in self.late
        return PullObjectResponse(object_found=bool(content), object_available=here, object_content=content)

    def ConfirmMessageReceived(self, request: Any) -> None:  # noqa: N802
        self.confirmed += 1


def grid_of(link: Link, largest: float = 1e6) -> VehicleGrid:
    grid = VehicleGrid("127.0.0.1:1", b"", "token", largest)
    grid._client, grid._run = link, SimpleNamespace(run_id=1)
    return grid


def test_a_reply_comes_once_it_is_whole():
    link = Link("question")
    grid = grid_of(link)
    link.late = set(list(link.parts)[:1])
    assert grid.pull_messages(["question"]) == grid.pull_messages(["question"]) == []
    link.late = set()
    (reply,) = grid.pull_messages(["question"])
    assert reply.content["upload"]["bytes"] == b"x" * 10
    assert (link.given, link.confirmed) == (1, 1)
    assert grid.pull_messages(["question"]) == []


def test_a_reply_whose_round_is_over_is_forgotten():
    link = Link("question")
    grid = grid_of(link)
    link.late = set(link.parts)
    grid.pull_messages(["question"])
    link.late = set()
    assert grid.pull_messages(["another"]) == []


def test_a_reply_answers_what_its_sender_was_asked():
    link = Link("question")
    link.head.metadata.reply_to_message_id = "asked"  # as the SuperLink knows it; the reply itself says otherwise
    (reply,) = grid_of(link).pull_messages(["asked"])
    assert reply.metadata.reply_to_message_id == "asked"


def garbled(link: Link) -> None:
    for key, part in link.parts.items():
        if part.startswith(b"ConfigRecord"):
            link.parts[key] = part[:-16] + b"\xff" * 16


def unknown(link: Link) -> None:
    key = link.head.metadata.message_id
    link.parts[key] = link.parts[key].replace(b"Message", b"Massage", 1)


def missing(link: Link) -> None:
    link.parts.popitem()


def crowded(link: Link) -> None:
    for _ in range(40):
        link.tree.children.add(object_id="0" * 64)


def no_message(link: Link) -> None:
    inner = next(key for key, part in link.parts.items() if part.startswith(b"RecordDict"))
    link.head.metadata.message_id = inner


def refused(link: Link) -> None:
    link.status = 400


def typeless(link: Link) -> None:
    garbled(link)
    link.head.metadata.message_type = "no such type"


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (garbled, "DecodeError"),
        (typeless, "DecodeError"),
        (unknown, "KeyError: 'Massage'"),
        (missing, "ObjectPullError"),
        (crowded, "43 parts"),
        (no_message, "AttributeError"),
        (refused, "HTTPStatusError"),
    ],
)
def test_a_reply_that_cannot_be_read_becomes_an_error(spoil, error):
    link = Link("question")
    spoil(link)
    (reply,) = grid_of(link).pull_messages(["question"])
    assert reply.has_error()
    assert reply.metadata.reply_to_message_id == "question"
    assert "a reply that cannot be read" in reply.error.reason
    assert error in reply.error.reason


def test_a_reply_that_is_too_long_becomes_an_error():
    (reply,) = grid_of(Link("question", 5000), largest=4000).pull_messages(["question"])
    assert "more than 4000 bytes" in reply.error.reason


def test_a_superlink_in_trouble_is_not_taken_for_a_bad_reply():
    link = Link("question")
    link.status = 503
    with pytest.raises(httpx.HTTPStatusError):
        grid_of(link).pull_messages(["question"])
