"""The data of a run, checked against the rest of its settings."""

from collections.abc import Callable

from skyfed.config import Config
from skyfed.errors import BadInputError
from skyfed.tasks import Task, load_task
from skyfed.track.settings import require_trackers


def load_fitting(config: Config, progress: Callable[[str, int, int], None] = lambda *_: None) -> Task:
    """Load the data and check that it fits the field, and that trackers, algorithms, model and device are here."""
    require_trackers(config.track)
    task = load_task(config.data, progress)
    if len(task.places) != config.field.classes:
        here = f"{config.data.name} has {len(task.places)} classes"
        raise BadInputError(f"field.classes = {config.field.classes}: {here}; allowed: the same number")
    from skyfed.learning.evaluate import try_task  # PyTorch: not before the data is known to be good
    from skyfed.onboard import Onboard

    try_task(task)
    Onboard(config, task)
    return task
