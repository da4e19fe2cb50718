"""Which trackers a run is sent to, and whether they are installed."""

import importlib.util
from typing import Literal

from pydantic import Field, field_validator

from skyfed.errors import BadInputError
from skyfed.settings import StrictSettings

Tracker = Literal["tensorboard", "mlflow", "wandb"]


class TrackSettings(StrictSettings):
    """Trackers that get every round beside the run's own tables; never changes a result."""

    to: list[Tracker] = Field([], description="any of tensorboard, mlflow, wandb; pip install 'skyfed[track]'")
    project: str = Field("skyfed", min_length=1, description="the experiment in MLflow, the project in W&B")
    dir: str | None = Field(
        None, min_length=1, description="one folder for what the trackers of many runs write; a run's own if off"
    )
    mlflow_uri: str | None = Field(
        None, min_length=1, description="an MLflow server or data base; files in the folder if off"
    )
    wandb_online: bool = Field(
        False, description="whether W&B sends while the run goes on; else offline, for wandb sync"
    )

    @field_validator("to")
    @classmethod
    def _each_once(cls, names: list[Tracker]) -> list[Tracker]:
        if len(set(names)) < len(names):
            raise ValueError("a tracker is named twice")
        return names

    def require_installed(self) -> None:
        """Raise BadInputError for a tracker that is not installed, before anything is run."""
        for name in self.to:
            package = importlib.util.find_spec(name)
            if package is None or package.origin is None:  # W&B makes folders of that name, which are not the package
                raise BadInputError(
                    f'track.to: {name} is not installed; allowed: pip install "skyfed[track]", or without it'
                )
