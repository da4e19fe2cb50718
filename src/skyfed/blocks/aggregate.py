"""How uploads become one gradient (Eq. 13): their weighted mean, or a robust one. Any algorithm may use it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from skyfed.blocks.buffers import IGNORED, Buffers, mean_buffers, plausible
from skyfed.blocks.robust import LONGEST, How, Opinion, against, combine, factors, middle_buffers, no_agreement, noted
from skyfed.columns import Column
from skyfed.settings import StrictSettings
from skyfed.types import Arrays, Bools, Floats, Ints, Singles
from skyfed.wire import Message, Reference

AGREEMENT = "agreement"  # in the station's state: who has agreed with whom so far (server.aggregate = "consensus")
COLUMNS = (
    Column(
        "turned",
        "bool",
        'whether it counted with the opposite sign (`server.aggregate = "consensus"`)',
        empty=True,
        default=False,
    ),
    Column(
        IGNORED,
        "bool",
        "whether its batch-norm buffers were left out: too far from all others'",
        empty=True,
        default=False,
        since="0.2.0",
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
    how, mean, opinions, buffers = settings.aggregate, None, list[Opinion](), list[Buffers]()
    for message in messages:
        update, wide = message.update, message.values().astype(np.float64)
        mean = mean or _Sum(message.reference)
        if settings.clip is not None:
            wide *= min(1.0, settings.clip / max(float(np.sqrt(np.add.reduce(wide * wide))), 1e-300))
        message.notes["turned"] = False
        if how == "mean" or message.weight <= 0:
            mean.add(wide, None if update.mask is None else update.places, message.weight)
            buffers.append(Buffers(update.buffers, message.weight, message.notes))
        else:
            values = wide.astype(np.float32)
            opinions.append(
                Opinion(message.vehicle, values, update.mask, update.buffers, message.weight, message.notes)
            )
    if mean is None or mean.total + sum(opinion.weight for opinion in opinions) <= 0:
        return None
    reference, size, memory, turned = mean.reference, len(mean.values), Arrays(), list[int]()
    if how == "mean":
        return Aggregate(mean.values, mean.total, mean_buffers(buffers, reference), memory)
    if how == "consensus":
        memory[AGREEMENT] = noted(state.get(AGREEMENT, no_agreement(vehicles)), opinions, size)
        turned = against(memory[AGREEMENT])
    buffers = [
        Buffers(opinion.buffers, 0.0 if opinion.vehicle in turned else opinion.weight, opinion.notes)
        for opinion in opinions
    ]
    if how in ("trimmed", "median"):
        known, _ = plausible(buffers, reference)
        middle = middle_buffers(how, known, settings.trim) if known else reference.buffers
        return Aggregate(combine(how, opinions, size, settings.trim), 1.0, middle, memory)
    for opinion, factor in zip(opinions, factors(how, opinions, turned), strict=True):
        opinion.notes["turned"] = opinion.vehicle in turned
        mean.add(factor * opinion.values.astype(np.float64), opinion.places, opinion.weight)
    return Aggregate(mean.values, mean.total, mean_buffers(buffers, reference, LONGEST[how]), memory)


class _Sum:
    """Adds uploads up in float64, in the order they come."""

    def __init__(self, reference: Reference) -> None:
        self.reference, self.values, self.total = reference, np.zeros(reference.size), 0.0

    def add(self, values: Floats, kept: Bools | Ints | None, weight: float) -> None:
        wide = weight * values
        if kept is None:
            self.values += wide
        else:
            self.values[kept] += wide
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
