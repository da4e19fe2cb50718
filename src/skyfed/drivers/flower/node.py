"""The SuperNode process: Flower's own, which ends with its parent and looks for messages as often as it is told.

`python -m skyfed.drivers.flower.node PARENT POLL ARGS…`

Flower's loop takes a message, sends whatever reply comes next, and goes on. A message can be dropped halfway, when its
run ended with the station. It still gets a reply later, an error; from then on every reply would be sent one message
late. So dropped messages are forgotten, and the loop goes on once the reply to its own message has been sent.
"""

import os
import sys
import time
from functools import partial
from typing import Any

import httpx
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext
from flwr.supernode import fleet_http_connection, start_client_internal
from flwr.supernode.cli import flower_supernode
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from skyfed.drivers.flower.headers import Shown
from skyfed.drivers.flower.patch_backoff import patch_backoff
from skyfed.drivers.flower.sessions import SESSION, SESSION_VARIABLE
from skyfed.workers import end_with

_PULL, _PUSH = start_client_internal._pull_and_store_message, start_client_internal._push_messages


class _Clock:
    """Stands in for `time` in Flower's loop, which sleeps 3 s between looks for messages and 0.5 s for replies."""

    def __init__(self, poll: float) -> None:
        self._poll = poll

    def sleep(self, seconds: float) -> None:
        """Sleep, but not longer than asked for."""
        time.sleep(min(seconds, self._poll))

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def pull_or_forget(*, state: Any, **rest: Any) -> int | None:
    """Take a message as Flower does; where there is none, nothing is under way."""
    run: int | None = _PULL(state=state, **rest)
    if run is None:
        state.delete_messages()
    return run


def push_until_answered(*, state: Any, **rest: Any) -> None:
    """Send replies as Flower does, until no message is without one."""
    _PUSH(state=state, **rest)
    while any(not entry.message.metadata.reply_to_message_id for entry in list(state.msg_store.values())):
        _PUSH(state=state, **rest)


class Signing(NodeAuthHttpInterceptor):  # type: ignore[misc]
    """Signs as Flower does, and shows this vehicle's session."""

    def __init__(self, session: str, *keys: Any) -> None:
        super().__init__(*keys)
        self._shown = Shown(SESSION, session)

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        """Add the headers."""
        response: httpx.Response = super().intercept(context, lambda inner: self._shown.intercept(inner, call_next))
        return response


def main() -> None:
    """Serve until told to stop, or until the parent has gone."""
    parent, poll = int(sys.argv.pop(1)), float(sys.argv.pop(1))
    end_with(parent, grace=5.0)  # Flower's own watch sends SIGINT, which background processes ignore
    start_client_internal.time = _Clock(poll)
    start_client_internal._pull_and_store_message = pull_or_forget
    start_client_internal._push_messages = push_until_answered
    fleet_http_connection.NodeAuthHttpInterceptor = partial(Signing, os.environ.pop(SESSION_VARIABLE))
    patch_backoff()
    flower_supernode()


if __name__ == "__main__":
    main()
