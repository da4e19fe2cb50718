"""Headers that station and vehicles add to Flower's requests.

By a secret a SuperLink knows its own station; a new one is made for each start.
"""

import httpx
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext

SECRET = "skyfed-secret"  # the header that shows it
SECRET_VARIABLE = "SKYFED_SECRET"  # what a SuperLink has it from: nobody else can read its environment


class Shown:
    """Adds a header to every request."""

    def __init__(self, name: str, value: str) -> None:
        self._name, self._value = name, value

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        """Add a header."""
        context.request.headers[self._name] = self._value
        response: httpx.Response = call_next(context)
        return response
