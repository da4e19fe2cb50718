"""A node that works on a sweep: `python sweep_node.py MEETING NODES WORDS...`, a process that draws nothing.

It begins when so many nodes have come to the meeting, so that all ask for runs at the same time. Runs are done in this
process, without workers, and the generated pictures are made once: a run is so short that the rest takes longer.
"""

import os
import sys
import time
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from in_process import Popen, undrawn
from skyfed import tasks
from skyfed.cli import main, sweep
from skyfed.drivers import sweep_jobs


def meet(place: Path, nodes: int) -> None:
    """Wait until so many processes are here."""
    place.mkdir(exist_ok=True)
    (place / str(os.getpid())).touch()
    while len(list(place.iterdir())) < nodes:
        time.sleep(0.01)


if __name__ == "__main__":
    meeting, count, *words = sys.argv[1:]
    patch = pytest.MonkeyPatch()
    undrawn(patch)
    patch.setattr(sweep, "write_report", lambda places, target: target.touch())  # whoever is second finds it
    patch.setattr(sweep_jobs, "Popen", Popen)
    patch.setattr(sweep_jobs, "usable_cores", lambda: 1)
    patch.setattr(tasks, "synthetic", SimpleNamespace(generate=cache(tasks.synthetic.generate)))
    patch.setattr(sys, "argv", ["skyfed", *words])
    meet(Path(meeting), int(count))
    main()
