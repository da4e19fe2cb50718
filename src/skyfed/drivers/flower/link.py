"""The SuperLink process: Flower's own, behind our guard.

`python -m skyfed.drivers.flower.link LARGEST READY LISTED PARENT ARGS…`
"""

import logging
import ssl
import sys
from pathlib import Path
from typing import Any

import uvicorn.config
from flwr.superlink import extensions
from flwr.superlink.cli.flower_superlink import flower_superlink
from starlette.middleware import Middleware

from skyfed.drivers.flower.guard import Guard, Handshake
from skyfed.workers import end_with


def main() -> None:
    """Serve until told to stop, or until the parent has gone."""
    largest, ready, listed, parent = float(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
    sys.argv[1:5] = []
    end_with(parent, grace=5.0)  # Flower's own watch interrupts, which what runs in the background does not hear
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logging.getLogger("skyfed").addHandler(handler)
    extensions.get_middleware = lambda: (Middleware(Guard, largest=largest, ready=ready, listed=listed),)
    make = uvicorn.config.create_ssl_context

    def watched(*args: Any, **kwargs: Any) -> ssl.SSLContext:
        context: ssl.SSLContext = make(*args, **kwargs)
        context.sslobject_class = Handshake
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context

    uvicorn.config.create_ssl_context = watched
    flower_superlink()


if __name__ == "__main__":
    main()
