"""The ground station: decode, validate, aggregate, step (Eq. 13)."""

from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from skyfed.records import Bools, Floats, Ints, Singles, Update
from skyfed.robust import How, Opinion, against, combine, factors, noted
from skyfed.wire import Common, DecodeError, encode_model, entries


class ServerSettings(BaseModel):
    """How uploads are weighted."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    downlink: Literal["difference", "dense"] = Field(
        "difference", description="how the model is sent down: its difference from the last one, or whole"
    )
    aggregate: How = Field(
        "mean",
        description="how uploads become a step: their mean; with norms clipped to the median one; entry by entry "
        "trimmed, or the median; or the mean with those turned round that have pulled against the others for rounds",
    )
    trim: float = Field(
        0.3,
        ge=0,
        lt=0.5,
        allow_inf_nan=False,
        description="share of the vehicles that `trimmed` leaves out at either end",
    )
    clip: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="largest l2 norm of an upload; longer ones are scaled down to it"
    )
    alpha: Literal["uniform", "data"] | list[Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(
        "uniform", description="weights of the vehicles: uniform, by data size, or one number a vehicle"
    )


class Aggregate:
    """Sums uploads in float64 in the order they are added; weights are rescaled to whoever was added.

    All but the mean need every upload at once, which are kept until the step.
    """

    def __init__(
        self,
        common: Common,
        clip: float | None = None,
        live: tuple[slice, ...] | None = None,
        how: How = "mean",
        trim: float = 0.3,
        agreement: Floats | None = None,
    ) -> None:
        """Start from nothing.

        `common` is what the uploads were made from, `live` the runs of w they are, `agreement` what earlier rounds
        showed of who agrees with whom.
        """
        self._common, self._clip, self._live = common, clip, live
        self._how, self._trim, self._opinions = how, trim, list[Opinion]()
        self._sum = np.zeros(common.size)
        self._buffers = np.zeros(len(common.buffers))
        self._seen: set[int] = set()
        self.agreement, self.turned = agreement, list[int]()
        self.total = 0.0

    def add(self, update: Update, weight: float) -> None:
        """Add one vehicle's upload; a second one of the same vehicle is refused with a DecodeError."""
        if update.vehicle in self._seen:
            raise DecodeError(f"vehicle {update.vehicle} has already sent an upload in this round")
        self._seen.add(update.vehicle)
        wide = entries(update, self._common).astype(np.float64)
        if self._clip is not None:
            wide *= min(1.0, self._clip / max(float(np.sqrt(np.add.reduce(wide * wide))), 1e-300))
        if self._how != "mean" and weight > 0:
            self._opinions.append(Opinion(update.vehicle, wide.astype(np.float32), update.mask, update.buffers, weight))
            self.total += weight
            return
        self._take(wide, None if update.mask is None else update.places, update.buffers, weight)
        self.total += weight

    def _take(self, values: Floats, kept: Bools | Ints | None, buffers: Singles, weight: float) -> None:
        wide = weight * values
        if kept is None:
            self._sum += wide
        else:
            self._sum[kept] += wide
        self._buffers += weight * buffers.astype(np.float64)

    def step(self, weights: Singles, eta: float) -> tuple[Singles, Singles]:
        """Return w - eta * sum_u alpha_u Pi_u and the averaged buffers (Eq. 13)."""
        moved = weights.astype(np.float64)
        if self._how == "consensus" and self.agreement is not None:
            self.agreement = noted(self.agreement, self._opinions, self._common.size)
            self.turned = against(self.agreement)
        if self._how in ("clip", "consensus"):
            for each, factor in zip(self._opinions, factors(self._how, self._opinions, self.turned), strict=True):
                self._take(factor * each.values.astype(np.float64), each.places, each.buffers, each.weight)
        down, buffers, done = (eta / self.total) * self._sum, self._buffers / self.total, 0
        if self._how in ("trimmed", "median"):
            found, buffers = combine(self._how, self._opinions, self._common.size, self._trim)
            down = eta * found
        for run in (slice(0, len(moved)),) if self._live is None else self._live:
            moved[run] -= down[done : done + run.stop - run.start]
            done += run.stop - run.start
        return moved.astype(np.float32), buffers.astype(np.float32)


def alphas(settings: ServerSettings, vehicles: int, sizes: Ints) -> Floats:
    """Return every vehicle's weight before rescaling; sizes are the vehicles' data sets' in this round."""
    if settings.alpha == "uniform":
        return np.ones(vehicles)
    if settings.alpha == "data":
        return sizes.astype(np.float64)
    return np.asarray(settings.alpha, np.float64)


def broadcast_bytes(
    settings: ServerSettings, t: int, model: Common, last: Common, had: list[int], following: list[int]
) -> int:
    """Return the bytes that bring the model of round t to its vehicles; those that had the last get the difference."""
    known = len(set(had) & set(following)) if settings.downlink == "difference" else 0
    others = len(following) - known
    difference = len(encode_model(t, model, last)) if known else 0
    return known * difference + others * (len(encode_model(t, model, None)) if others else 0)
