"""What goes wrong on purpose, for tests and studies: who misses which round, who attacks, whose bytes are spoilt."""

from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from skyfed.records import Singles
from skyfed.rng import stream

Index = Annotated[int, Field(ge=0)]
Spoil = Literal["garbage", "nan", "round", "vehicle"]


class FaultSettings(BaseModel):
    """Faults made on purpose."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    absent: list[tuple[Index, Index]] | Annotated[float, Field(ge=0, le=1)] = Field(
        [], description="who misses which round: [vehicle, round] pairs, or the probability with which each misses any"
    )
    attack: Literal["flip", "scale"] = Field(
        "flip", description="what attackers send: their gradient times -attack_scale, or times attack_scale"
    )
    attack_scale: float = Field(1, gt=0, le=1e6, allow_inf_nan=False, description="how much attackers exaggerate")
    attackers: list[Index] = Field([], description="vehicles that attack in every round")
    spoil: list[tuple[Index, Index, Spoil]] = Field(
        [], description="uploads made unusable: [vehicle, round, how]; how: garbage, nan, round or vehicle"
    )


def present(settings: FaultSettings, seed: int, t: int, vehicles: int) -> list[int]:
    """Return the vehicles that take part in round t, in order."""
    if isinstance(settings.absent, float):
        return [u for u in range(vehicles) if stream(seed, "absent", t, u).random() >= settings.absent]
    away = {u for u, missed in settings.absent if missed == t}
    return [u for u in range(vehicles) if u not in away]


def attacked(settings: FaultSettings, vehicle: int, values: Singles) -> Singles:
    """Return the gradient that a vehicle sends, its own or an attacker's."""
    if vehicle not in settings.attackers:
        return values
    sign = -1.0 if settings.attack == "flip" else 1.0
    return np.asarray(values * np.float32(sign * settings.attack_scale))


def how_spoilt(settings: FaultSettings, vehicle: int, t: int) -> Spoil | None:
    """Return what is done to a vehicle's upload of round t."""
    return next((how for u, k, how in settings.spoil if (u, k) == (vehicle, t)), None)
