"""Flower's grid, in which a reply that cannot be read, or never arrives in full, costs nobody but its sender.

Flower's own waits up to two hours for the parts of one reply, raises whatever a malformed part raises, and believes a
reply about whose question it answers.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import httpx
from flwr.app import Error, Message
from flwr.app.message import make_message
from flwr.common.constant import ErrorCode
from flwr.common.serde import metadata_from_proto
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree
from flwr.proto.message_pb2 import Message as Head
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf
from flwr.supercore.inflatable.inflatable_utils import ObjectUnavailableError, inflate_object_from_contents
from flwr.superlink.grid import HttpGrid

from skyfed.drivers.flower.messages import TRAIN
from skyfed.errors import one_line

_MOST = 16  # parts of a reply; an honest one has three


@dataclass
class _Arriving:
    """A reply that was announced, and what has come of it so far."""

    head: Head
    tree: ObjectTree
    parts: dict[str, bytes] = field(default_factory=dict)


class VehicleGrid(HttpGrid):  # type: ignore[misc]
    """Flower's grid for vehicles that may be hostile."""

    def __init__(self, address: str, authority: bytes, token: str, largest: float) -> None:
        """Take at most `largest` bytes of one reply."""
        super().__init__(address, False, authority, token=token)
        self._largest = largest
        self._arriving: dict[str, _Arriving] = {}

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies that have come in full; each answers the message that the SuperLink gave to its sender."""
        asked = list(message_ids)
        self._arriving = {key: reply for key, reply in self._arriving.items() if key in asked}
        unanswered = [key for key in asked if key not in self._arriving]
        pulled = self._runtime_client.PullMessages(PullAppMessagesRequest(message_ids=unanswered))
        for head, tree in zip(pulled.messages_list, pulled.message_object_trees, strict=True):
            self._arriving[head.metadata.reply_to_message_id] = _Arriving(head, tree)
        return [reply for key in list(self._arriving) if (reply := self._completed(key)) is not None]

    def _completed(self, key: str) -> Message | None:
        """Return a reply once all of it is there; one that is of no use becomes an error."""
        reply = self._arriving[key]
        try:
            self._pull(reply)
            message = cast(Message, inflate_object_from_contents(reply.head.metadata.message_id, dict(reply.parts)))
            message.metadata.__dict__["_reply_to_message_id"] = key
        except ObjectUnavailableError:
            return None
        except httpx.HTTPError as error:
            if not isinstance(error, httpx.HTTPStatusError) or error.response.status_code >= 500:
                raise
            message = _unreadable(reply.head, error)
        except Exception as error:  # whatever its sender wrote costs its sender alone
            message = _unreadable(reply.head, error)
        del self._arriving[key]
        return message

    def _pull(self, reply: _Arriving) -> None:
        run = self._run.run_id
        names = [part.object_id for part in iterate_object_tree(reply.tree)]
        if len(names) > _MOST:
            raise ValueError(f"{len(names)} parts")
        pull = make_pull_object_fn_protobuf(self._runtime_client.PullObject, self.node, run)
        for name in names:
            if name not in reply.parts:
                reply.parts[name] = pull(name)
            if sum(map(len, reply.parts.values())) > self._largest:
                raise ValueError(f"more than {self._largest:.0f} bytes")
        confirm = ConfirmMessageReceivedRequest(
            node=self.node, run_id=run, message_object_id=reply.head.metadata.message_id
        )
        self._runtime_client.ConfirmMessageReceived(confirm)


def _unreadable(head: Any, error: Exception) -> Message:
    reason = one_line(f"a reply that cannot be read ({type(error).__name__}: {error})")
    head.metadata.message_type = TRAIN  # Flower takes no message with a type that it does not know
    return make_message(metadata_from_proto(head.metadata), error=Error(ErrorCode.MESSAGE_UNAVAILABLE, reason))
