"""The ground station: decode, validate, aggregate, step (Eq. 13)."""

from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from skyfed.records import Floats, Ints, Singles, Update
from skyfed.wire import bucket_starts, dequantise


class ServerSettings(BaseModel):
    """How uploads are weighted."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    alpha: Literal["uniform", "data"] | list[Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(
        "uniform", description="weights of the vehicles: uniform, by data size, or one number a vehicle"
    )


class Aggregate:
    """Sums uploads in float64 in the order they are added; weights are rescaled to whoever was added."""

    def __init__(self, size: int, buffers: int, starts: Ints) -> None:
        self._sum = np.zeros(size)
        self._buffers = np.zeros(buffers)
        self._starts = starts
        self.total = 0.0

    def add(self, update: Update, weight: float) -> None:
        """Add one vehicle's upload."""
        entries = _entries(update, self._starts)
        if update.mask is None:
            self._sum += weight * entries.astype(np.float64)
        else:
            self._sum[update.mask] += weight * entries.astype(np.float64)
        self._buffers += weight * update.buffers.astype(np.float64)
        self.total += weight

    def step(self, weights: Singles, eta: float) -> tuple[Singles, Singles]:
        """Return w - eta * sum_u alpha_u Pi_u and the averaged buffers (Eq. 13)."""
        moved = weights.astype(np.float64) - (eta / self.total) * self._sum
        return moved.astype(np.float32), (self._buffers / self.total).astype(np.float32)


def alphas(settings: ServerSettings, vehicles: int, sizes: Ints) -> Floats:
    """Return every vehicle's weight before rescaling; sizes are the vehicles' data sets' in this round."""
    if settings.alpha == "uniform":
        return np.ones(vehicles)
    if settings.alpha == "data":
        return sizes.astype(np.float64)
    return np.asarray(settings.alpha, np.float64)


def _entries(update: Update, starts: Ints) -> Singles:
    if update.values is not None:
        return update.values
    assert update.levels is not None
    assert update.norms is not None
    buckets = bucket_starts(len(update.levels), update.bucket, starts, update.mask)
    return dequantise(update.levels, update.norms, buckets, update.s)
