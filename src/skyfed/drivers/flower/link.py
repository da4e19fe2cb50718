"""The SuperLink process: Flower's own, behind our guard.

`python -m skyfed.drivers.flower.link LARGEST READY LISTED LOG PARENT ARGS…`

The station's secret is in the environment, which other users cannot read.
"""

import logging
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from flwr.supercore.logger import FLOWER_LOGGER
from flwr.supercore.state.alembic import utils
from flwr.superlink import extensions
from flwr.superlink.cli.flower_superlink import flower_superlink
from starlette.middleware import Middleware

from skyfed.drivers.flower.door import serve
from skyfed.drivers.flower.guard import Guard
from skyfed.drivers.flower.headers import SECRET_VARIABLE
from skyfed.drivers.flower.log_file import Calm, LogFile
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
    secret = os.environ.pop(SECRET_VARIABLE)
    largest, (ready, listed, log), parent = float(sys.argv[1]), map(Path, sys.argv[2:5]), int(sys.argv[5])
    sys.argv[1:6] = []
    end_with(parent, grace=5.0)  # Flower's own watch sends SIGINT, which background processes ignore
    calm = Calm()
    logging.getLogger().addHandler(LogFile(log, calm))
    FLOWER_LOGGER.handlers.clear()  # its lines go through the root logger, as all do
    FLOWER_LOGGER.setLevel(logging.WARNING)  # it has a line for every message, which would crowd out the run's
    guard = Middleware(Guard, largest=largest, ready=ready, listed=listed, secret=secret)
    extensions.get_middleware = lambda: (guard,)
    utils.build_alembic_config = find_scripts
    uvicorn.run = partial(serve, calm=calm)
    flower_superlink()


if __name__ == "__main__":
    main()
