"""The secret by which a SuperLink knows its own station; a new one is made for each start."""

import httpx
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext

SECRET = "skyfed-secret"  # the header that shows it
SECRET_VARIABLE = "SKYFED_SECRET"  # what a SuperLink has it from: nobody else can read its environment


class Own:
    """Shows the station's secret with every request."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        """Add a header."""
        context.request.headers[SECRET] = self._secret
        response: httpx.Response = call_next(context)
        return response
