"""The tables of settings that all algorithms share; an algorithm adds keys of its own in a class made from this."""

from skyfed.blocks.aggregate import ServerSettings
from skyfed.learning.settings import PruneSettings, TrainSettings
from skyfed.settings import StrictSettings
from skyfed.theory.settings import TheorySettings
from skyfed.wire.quantise import QuantiseSettings


class Settings(StrictSettings):
    """The settings of an algorithm."""

    train: TrainSettings = TrainSettings()
    prune: PruneSettings = PruneSettings()
    quantise: QuantiseSettings = QuantiseSettings()
    server: ServerSettings = ServerSettings()
    theory: TheorySettings = TheorySettings()


TABLES = tuple(Settings.model_fields)
