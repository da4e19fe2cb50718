"""What goes wrong on purpose, for tests and studies: who misses which round, who attacks, whose bytes are corrupted.

Faults are made on the way out of a vehicle, so that neither an algorithm nor the station knows of them.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from skyfed.rng import stream
from skyfed.settings import StrictSettings
from skyfed.types import Raw, Singles, Update

Index = Annotated[int, Field(ge=0)]
Spoil = Literal["garbage", "nan", "round", "vehicle"]


class FaultSettings(StrictSettings):
    """Faults made on purpose."""

    absent: list[tuple[Index, Index]] | Annotated[float, Field(ge=0, lt=1)] = Field(
        [], description="who misses which round: [vehicle, round] pairs, or the probability with which each misses any"
    )
    attack: Literal["flip", "scale"] = Field(
        "flip", description="what attackers send: their gradient times -attack_scale, or times attack_scale"
    )
    attack_scale: float = Field(1, gt=0, le=1e6, description="how much attackers exaggerate")
    attackers: list[Index] = Field([], description="vehicles that attack in every round")
    spoil: list[tuple[Index, Index, Spoil]] = Field(
        [], description="uploads that are corrupted: [vehicle, round, how]; how: garbage, nan, round or vehicle"
    )


def present(settings: FaultSettings, seed: int, t: int, vehicles: int) -> list[int]:
    """Return the vehicles that are there in round t, in order."""
    if isinstance(settings.absent, float):
        return [u for u in range(vehicles) if stream(seed, "absent", t, u).random() >= settings.absent]
    away = {u for u, missed in settings.absent if missed == t}
    return [u for u in range(vehicles) if u not in away]


def outgoing(settings: FaultSettings, vehicle: int | None) -> Callable[[Singles], Singles]:
    """Return what a vehicle does to every vector it sends: nothing, unless it attacks."""
    if vehicle not in settings.attackers:
        return lambda values: values
    sign = -1.0 if settings.attack == "flip" else 1.0
    return lambda values: np.asarray(values * np.float32(sign * settings.attack_scale))


def spoil(settings: FaultSettings, seed: int, update: Update, data: bytes, encode: Callable[[Update], bytes]) -> bytes:
    """Return an upload as it is sent: intact, or corrupted by fault injection."""
    t, u = update.round, update.vehicle
    how = next((how for vehicle, k, how in settings.spoil if (vehicle, k) == (u, t)), None)
    if how == "garbage":
        return stream(seed, "garbage", t, u).bytes(len(data))
    if how == "nan":
        return encode(replace(update, body=Raw(np.full(update.kept, np.nan, np.float32)), length=0.0))
    if how == "round":
        return encode(replace(update, round=t + 1))
    if how == "vehicle":
        return encode(replace(update, vehicle=u + 1))
    return data
