"""The SuperLink process: Flower's own, behind our guard.

`python -m skyfed.drivers.flower.link LARGEST READY LISTED PARENT ARGS…`
"""

import logging
import os
import ssl
import sys
from pathlib import Path
from typing import Any

import uvicorn.config
from flwr.supercore.state.alembic import utils
from flwr.superlink import extensions
from flwr.superlink.cli.flower_superlink import flower_superlink
from starlette.middleware import Middleware

from skyfed.drivers.flower.guard import Guard, Handshake
from skyfed.workers import end_with

_SCRIPTS = utils.build_alembic_config


def find_scripts(engine: Any) -> Any:
    """Name the folders of Flower's migration scripts as Flower does, but do not split their paths at spaces."""
    config = _SCRIPTS(engine)
    places = [utils.ALEMBIC_DIR / "versions", *utils._version_locations]
    config.set_main_option("path_separator", "os")
    config.set_main_option("version_locations", os.pathsep.join(map(str, places)))
    return config


def main() -> None:
    """Serve until told to stop, or until the parent has gone."""
    largest, ready, listed, parent = float(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
    sys.argv[1:5] = []
    end_with(parent, grace=5.0)  # Flower's own watch sends SIGINT, which background processes ignore
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logging.getLogger("skyfed").addHandler(handler)
    extensions.get_middleware = lambda: (Middleware(Guard, largest=largest, ready=ready, listed=listed),)
    utils.build_alembic_config = find_scripts
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
