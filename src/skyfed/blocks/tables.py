"""The tables of settings that all algorithms share; an algorithm adds keys of its own in a class made from this."""

from pydantic import BaseModel, ConfigDict

from skyfed.blocks.aggregate import ServerSettings
from skyfed.learning.settings import PruneSettings, TrainSettings
from skyfed.theory.settings import TheorySettings
from skyfed.wire.quantise import QuantiseSettings


class Settings(BaseModel):
    """The settings of an algorithm."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    train: TrainSettings = TrainSettings()
    prune: PruneSettings = PruneSettings()
    quantise: QuantiseSettings = QuantiseSettings()
    server: ServerSettings = ServerSettings()
    theory: TheorySettings = TheorySettings()


TABLES = tuple(Settings.model_fields)
