"""The pictures of a run, checked against the rest of its settings."""

from collections.abc import Callable

from skyfed.config import Config
from skyfed.errors import BadInputError
from skyfed.sensing.datasets import Pictures, load_data
from skyfed.track.settings import require_trackers


def load_fitting(config: Config, progress: Callable[[str, int, int], None] = lambda *_: None) -> Pictures:
    """Load the pictures and check that they fit the field, and that the trackers, the model and the device are here."""
    require_trackers(config.track)
    pictures = load_data(config.data, progress)
    if pictures.classes != config.field.classes:
        here = f"{config.data.name} has {pictures.classes} classes"
        raise BadInputError(f"field.classes = {config.field.classes}: {here}; allowed: the same number")
    from skyfed.vehicle import model_of  # PyTorch: not before the data is known to be good

    model_of(config, pictures)
    return pictures
