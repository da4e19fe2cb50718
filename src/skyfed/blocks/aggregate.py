"""How uploads become one gradient (Eq. 13): their weighted mean, or a robust one. Any algorithm may use it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from skyfed.blocks.robust import How, Opinion, against, combine, factors, no_agreement, noted
from skyfed.columns import Column
from skyfed.settings import StrictSettings
from skyfed.types import Arrays, Bools, Floats, Ints, Singles
from skyfed.wire import Message

AGREEMENT = "agreement"  # in the station's state: who has agreed with whom so far (server.aggregate = "consensus")
COLUMNS = (
    Column(
        "turned",
        "bool",
        'whether it counted with the opposite sign (`server.aggregate = "consensus"`)',
        empty=True,
        default=False,
    ),
)


class ServerSettings(StrictSettings):
    """How the model is sent and how uploads are weighted."""

    downlink: Literal["difference", "dense"] = Field(
        "difference", description="how the model is sent down: its difference from the last one, or whole"
    )
    aggregate: How = Field(
        "mean",
        description="how uploads become a step: their mean; the mean with norms clipped to the median norm; per entry "
        "the trimmed mean or the median; or the mean, with the sign flipped for vehicles that opposed the majority in "
        "recent rounds",
    )
    trim: float = Field(0.3, ge=0, lt=0.5, description="share of the vehicles that `trimmed` leaves out at either end")
    clip: float | None = Field(
        None, gt=0, description="largest l2 norm of an upload; longer ones are scaled down to it"
    )
    alpha: Literal["uniform", "data"] | list[Annotated[float, Field(ge=0)]] = Field(
        "uniform", description="weights of the vehicles: uniform, by data size, or one number per vehicle"
    )


@dataclass(frozen=True)
class Aggregate:
    """The uploads of a round in one.

    total    sum of the weights of those who took part
    buffers  (b,) the averaged buffers
    memory   named arrays that the station keeps for the next round
    """

    summed: Floats
    total: float
    buffers: Singles
    memory: Arrays

    def times(self, factor: float) -> Floats:
        """Return the aggregated gradient times a factor, in float64."""
        return (factor / self.total) * self.summed

    @property
    def gradient(self) -> Floats:
        """The aggregated gradient."""
        return self.times(1.0)


def aggregate(messages: Iterable[Message], settings: ServerSettings, vehicles: int, state: Arrays) -> Aggregate | None:
    """Return the aggregate of a round's uploads, or nothing if nobody with a weight took part.

    The mean adds them up as they come, in float64 and in that order; all others keep them until the last is there.
    """
    how, mean, opinions = settings.aggregate, None, list[Opinion]()
    for message in messages:
        update, wide = message.update, message.values().astype(np.float64)
        mean = mean or _Sum(message.reference.size, len(message.reference.buffers))
        if settings.clip is not None:
            wide *= min(1.0, settings.clip / max(float(np.sqrt(np.add.reduce(wide * wide))), 1e-300))
        message.notes["turned"] = False
        if how == "mean" or message.weight <= 0:
            mean.add(wide, None if update.mask is None else update.places, update.buffers, message.weight)
        else:
            values = wide.astype(np.float32)
            opinions.append(
                Opinion(message.vehicle, values, update.mask, update.buffers, message.weight, message.notes)
            )
    if mean is None or mean.total + sum(opinion.weight for opinion in opinions) <= 0:
        return None
    size, memory, turned = len(mean.values), Arrays(), list[int]()
    if how in ("trimmed", "median"):
        gradient, buffers = combine(how, opinions, size, settings.trim)
        return Aggregate(gradient, 1.0, buffers.astype(np.float32), memory)
    if how == "consensus":
        memory[AGREEMENT] = noted(state.get(AGREEMENT, no_agreement(vehicles)), opinions, size)
        turned = against(memory[AGREEMENT])
    scales = factors(how, opinions, turned) if opinions else []  # the mean has taken all uploads already
    for opinion, factor in zip(opinions, scales, strict=True):
        opinion.notes["turned"] = opinion.vehicle in turned
        mean.add(factor * opinion.values.astype(np.float64), opinion.places, opinion.buffers, opinion.weight)
    return Aggregate(mean.values, mean.total, (mean.buffers / mean.total).astype(np.float32), memory)


class _Sum:
    """Adds uploads up in float64, in the order they come."""

    def __init__(self, size: int, buffers: int) -> None:
        self.values, self.buffers, self.total = np.zeros(size), np.zeros(buffers), 0.0

    def add(self, values: Floats, kept: Bools | Ints | None, buffers: Singles, weight: float) -> None:
        wide = weight * values
        if kept is None:
            self.values += wide
        else:
            self.values[kept] += wide
        self.buffers += weight * buffers.astype(np.float64)
        self.total += weight


def moved(weights: Singles, down: Floats) -> Singles:
    """Return weights minus a step, subtracted in float64."""
    wide = weights.astype(np.float64)
    wide -= down
    return wide.astype(np.float32)


def alphas(settings: ServerSettings, sizes: Ints) -> Floats:
    """Return every vehicle's weight before rescaling; `sizes` are the sizes of their data sets in this round."""
    if settings.alpha == "uniform":
        return np.ones(len(sizes))
    if settings.alpha == "data":
        return sizes.astype(np.float64)
    return np.asarray(settings.alpha, np.float64)
