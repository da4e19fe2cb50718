"""Who misses which round, for tests and studies; a vehicle that is absent neither trains nor uploads."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from skyfed.rng import stream

Index = Annotated[int, Field(ge=0)]


class FaultSettings(BaseModel):
    """Faults made on purpose."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    absent: list[tuple[Index, Index]] | Annotated[float, Field(ge=0, le=1)] = Field(
        [], description="who misses which round: [vehicle, round] pairs, or the probability with which each misses any"
    )


def present(settings: FaultSettings, seed: int, t: int, vehicles: int) -> list[int]:
    """Return the vehicles that take part in round t, in order."""
    if isinstance(settings.absent, float):
        return [u for u in range(vehicles) if stream(seed, "absent", t, u).random() >= settings.absent]
    away = {u for u, missed in settings.absent if missed == t}
    return [u for u in range(vehicles) if u not in away]
