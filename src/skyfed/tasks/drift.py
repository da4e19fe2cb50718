"""Appearance that changes over mission time: pictures look as the world did when they were taken."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, model_validator

from skyfed.errors import BadInputError
from skyfed.rng import stream
from skyfed.settings import StrictSettings
from skyfed.tasks.task import Task
from skyfed.types import Floats, Singles

_DUSK = (0.6, 0.75, 0.9)  # of red, green and blue light, the shares that are gone at level 1
_AIRLIGHT, _VEIL = 200.0, 0.8  # the level of haze, and its share of a picture at level 1
_PATTERN = 160.0  # of 255: the largest fixed-pattern noise of a sensor at level 1


class DriftSettings(StrictSettings):
    """How the appearance of pictures changes over mission time (docs/drift.md)."""

    kind: Literal["none", "light", "haze", "season", "sensor"] = Field(
        "none",
        description="what changes: light fades, haze veils, the season exchanges colours, the sensor gets fixed-pattern "
        "noise",
    )
    course: Literal["slow", "sudden"] = Field(
        "slow", description="slow: all the time, from nothing at take-off; sudden: at once, at `at`"
    )
    strength: float = Field(1.0, gt=0, le=1, description="the largest change; 1 is all that the kind can do")
    at: float = Field(
        0.5, gt=0, lt=1, description="sudden: when it happens, as a share of the planned mission (rounds x round_time)"
    )
    period: PositiveFloat | None = Field(
        None,
        description="slow: seconds in which the change comes and goes again; none: it grows until the planned end",
    )
    margin: float = Field(
        0.05, ge=0, lt=1, description="sudden: accuracy counts as recovered when so little is missing, 0 to 1"
    )

    @model_validator(mode="after")
    def _one_course(self) -> "DriftSettings":
        if self.course == "sudden" and self.period is not None:
            raise ValueError('period: allowed with course = "slow" only')
        return self


@dataclass(frozen=True)
class Drift:
    """The course of a drift over a mission that is planned to last some seconds; called, it shows pictures."""

    settings: DriftSettings
    mission_seconds: float

    @property
    def change(self) -> float | None:
        """The mission second of a sudden change; None where there is none."""
        sudden = self.settings.kind != "none" and self.settings.course == "sudden"
        return self.settings.at * self.mission_seconds if sudden else None

    def levels(self, seconds: Floats) -> Floats:
        """Return how far appearance has changed at these mission seconds, 0 to 1; before take-off not at all."""
        since = np.maximum(np.asarray(seconds, np.float64), 0.0)
        if self.change is not None:
            share = (since >= self.change).astype(np.float64)
        elif self.settings.period is not None:
            share = (1 - np.cos(2 * np.pi * since / self.settings.period)) / 2
        else:
            share = np.minimum(since / self.mission_seconds, 1.0)
        return np.asarray(self.settings.strength * share)

    def __call__(self, pictures: NDArray[Any], seconds: Floats) -> NDArray[Any]:
        """Return pictures (N, channels, H, W) as they look at mission seconds (N,), one for each."""
        level = self.levels(seconds).astype(np.float32)[:, None, None, None]
        if not level.any():
            return pictures
        was = pictures.astype(np.float32)
        match self.settings.kind:
            case "light":
                gone = _DUSK if pictures.shape[1] == 3 else (_DUSK[1],) * pictures.shape[1]
                seen = was * (1 - level * np.array(gone, np.float32)[:, None, None])
            case "haze":
                seen = was + level * np.float32(_VEIL) * (np.float32(_AIRLIGHT) - was)
            case "season":
                seen = was + level * (np.roll(was, 1, axis=1) - was)
            case _:
                seen = was + level * _pattern(*pictures.shape[1:])
        return np.clip(np.floor(seen + np.float32(0.5)), 0, 255).astype(np.uint8)


@cache
def _pattern(channels: int, height: int, width: int) -> Singles:
    """Return a worn sensor's error at every pixel: the same in all pictures, on all vehicles."""
    rng = stream(0, "sensor pattern")
    return cast(Singles, (_PATTERN * rng.uniform(-1, 1, (channels, height, width))).astype(np.float32))


def drifting(task: Task, settings: DriftSettings, mission_seconds: float) -> Task:
    """Return a task of pictures whose appearance drifts; the same task where nothing drifts."""
    if settings.kind == "none":
        return task
    where = f'data.drift.kind = "{settings.kind}"'
    if task.appearance is not None:
        raise BadInputError(f'{where}: the task has an appearance of its own; allowed with it: "none"')
    if len(task.shape) != 3 or any(samples.inputs.dtype != np.uint8 for samples in (task.train, task.test)):
        raise BadInputError(f'{where}: the data are not pictures of bytes (channels, height, width); allowed: "none"')
    if settings.kind == "season" and task.shape[0] < 2:
        raise BadInputError(f"{where}: pictures of one channel have no colours; allowed: light, haze, sensor")
    return replace(task, appearance=Drift(settings, mission_seconds))
