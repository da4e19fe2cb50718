"""Take tasks from a Flower runtime and do them in this process, which stays warm.

Flower's own executor starts one process per task; `--isolation process` leaves the executor to us.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from subprocess import Popen
from threading import Event, Thread

import httpx
from flwr.app import Context, Message
from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL, SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest, SendTaskHeartbeatRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.protobuf.client import ProtobufClientInterceptor
from flwr.supercore.retry import RetryInvoker, exponential
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from skyfed.drivers.flower.client_app import app
from skyfed.drivers.flower.headers import SECRET, Shown
from skyfed.drivers.flower.patch_backoff import patch_backoff

_POLL = 0.2  # seconds between two looks for a task; a look costs some milliseconds on either side
_NEWER = 1.0  # seconds between two looks for a newer task
_PATIENCE = 20.0  # seconds for which a runtime that does not answer is tried again


def patient() -> RetryInvoker:
    """Return what repeats calls while a runtime is away, for a while; unlike Flower's own it ends no process."""
    return RetryInvoker(lambda: exponential(max_delay=2), httpx.TransportError, max_tries=None, max_time=_PATIENCE)


def open_runtime(
    address: str, name: str, authority: bytes | None, *, secret: bytes = b"", token: str = "", own: str = ""
) -> RuntimeHttpClient:
    """Return a client of a runtime: with the secret it may acquire tasks, with a task's token it may do the task.

    own: the station's secret, which a SuperLink asks for and a SuperNode does not.
    """
    callers: list[ProtobufClientInterceptor] = [RuntimeVersionHttpInterceptor(component_name=name)]
    if own:
        callers.append(Shown(SECRET, own))
    if secret:
        methods = frozenset({"/flwr.proto.Runtime/AcquireTask"})
        callers.append(SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=methods))
    if token:
        callers.append(RuntimeTokenHttpInterceptor(token))
    return RuntimeHttpClient.from_server_address(
        address, authority is None, authority, callers, retry_invoker=patient()
    )


def take(client: RuntimeHttpClient, kind: TaskType) -> str:
    """Return the token of a task of this kind that nobody has, or nothing."""
    acquired = client.AcquireTask(AcquireTaskRequest(supported_task_types=[kind]))
    return str(acquired.token) if acquired.HasField("task") else ""


@contextmanager
def beating(client: RuntimeHttpClient) -> Iterator[None]:
    """Tell the runtime now and then that the task is being worked on."""
    over = Event()

    def beat() -> None:
        while not over.wait(HEARTBEAT_DEFAULT_INTERVAL / 3):
            with suppress(httpx.HTTPError):
                client.SendTaskHeartbeat(SendTaskHeartbeatRequest())

    thread = Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def serve_vehicle(address: str, secret: bytes, supernode: Popen[bytes], met: Callable[[int], None]) -> None:
    """Do every task that a SuperNode has, one after the other, while it is alive.

    met: is told the id by which the station knows the SuperNode.
    """
    desk = open_runtime(address, "SuperExec", None, secret=secret)
    patch_backoff()
    while supernode.poll() is None:
        token = take(desk, TaskType.CLIENT_APP)
        if not token:
            time.sleep(_POLL)
            continue
        client, message, context = _input(desk, address, token)
        with beating(client):
            met(context.node_id)
            reply = app(message, context)
            push_message(client, reply, context)
            push_task_output(client, context, SubStatus.COMPLETED, "")
        client.close()


def _input(desk: RuntimeHttpClient, address: str, token: str) -> tuple[RuntimeHttpClient, Message, Context]:
    """Wait for what a task works on.

    A SuperNode that loses its station in the middle of a message drops the message but not its task, whose parts will
    never come. It works on one message at a time, so a newer task tells that the present one is dead.
    """
    with ThreadPoolExecutor() as waiting:
        while True:
            client = open_runtime(address, "flwr-clientapp", None, token=token)
            job = waiting.submit(pull_task_input, client)
            token = ""
            while not token:
                try:
                    message, context, _, _ = job.result(timeout=_NEWER)
                    return client, message, context
                except TimeoutError:
                    token = take(desk, TaskType.CLIENT_APP)
            client.close()  # which ends the wait
