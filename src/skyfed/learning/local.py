"""One vehicle's training in one round: the winning ticket, the masked steps, the accumulated gradient (Eqs. 8-10)."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from skyfed.errors import BadInputError
from skyfed.learning.batches import Batch
from skyfed.learning.channels import ChannelPruner, Kept
from skyfed.learning.flat import Adjust, FlatModel
from skyfed.learning.prune import Scope, magnitude_mask
from skyfed.rng import stream
from skyfed.types import Bools, Singles
from skyfed.wire import accumulated

if TYPE_CHECKING:
    from skyfed.tasks.task import Loss

_PIECE = 256  # entries summed in their own precision


@contextmanager
def seeded(seed: int, t: int, vehicle: int | None) -> Iterator[None]:
    """Seed torch's random generator per round and vehicle; explain the error of too small mini-batches."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(stream(seed, "modules", t, vehicle).integers(2**63)))
        try:
            yield
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):
                raise
            raise BadInputError(
                "train.batch_size: batch norm needs two samples or more in a mini-batch; or use model.norm = 'group'"
            ) from None


def descend(
    model: FlatModel,
    batches: Iterator[Batch],
    rate: float,
    loss: "Loss",
    mask: Tensor | None = None,
    adjust: Adjust | None = None,
) -> float:
    """Take one plain SGD step per mini-batch, masked entries left alone; returns the mean loss (Eqs. 8, 10)."""
    total, count = 0.0, 0
    model.module.train()
    for inputs, targets in batches:
        model.clear_gradient()
        error = loss(model.module(inputs), targets)
        error.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            model.step(rate, mask, adjust)
        total += float(error.detach())
        count += 1
    return total / max(1, count)


@dataclass(frozen=True)
class Ticket:
    """What a vehicle trains: some weights of the model, or a smaller model cut out of it.

    mask       (n,) entries that stay          threshold  magnitude below which entries were pruned; NaN for channels
    kept       how many of all p entries stay  channels   the ones that stay, where whole channels are pruned
    """

    mask: Bools
    threshold: float
    kept: int
    channels: Kept | None = None


@dataclass(frozen=True)
class Trained:
    """The result of a vehicle's training, for the k trained entries of the n that can have a gradient.

    values    (k,) their d             mask       (n,) which entries were trained, None when all were
    trained   (k,) weights at the end  threshold  magnitude below which entries were pruned; NaN for channels
    buffers   (b,) at the end          loss       mean training loss
    kept      of all p entries         channels   which channels were kept, where whole channels were pruned
    rate      local learning rate      pruned_share  ||w - w_bar||^2 / ||w||^2 over the n entries (Eq. 17)
    start     (n,) the weights that training started from, as they were handed in
    """

    values: Singles
    trained: Singles
    mask: Bools | None
    threshold: float
    buffers: Singles
    loss: float
    kept: int
    rate: float
    start: Singles
    channels: Bools | None = None
    pruned_share: float = 0.0

    @property
    def finite(self) -> bool:
        """Whether weights, buffers and the loss are finite; an infinite loss may be followed by finite weights."""
        return bool(np.isfinite(self.loss) and np.isfinite(self.values).all() and np.isfinite(self.buffers).all())

    @property
    def gradient(self) -> Singles:
        """(n,) d, zero where nothing was trained."""
        if self.mask is None:
            return self.values
        whole = np.zeros(len(self.mask), self.values.dtype)
        whole[self.mask] = self.values
        return whole


def find_ticket(
    model: FlatModel,
    weights: Singles,
    buffers: Singles,
    batches: Iterator[Batch],
    rate: float,
    loss: "Loss",
    delta: float,
    scope: Scope | None,
    pruner: ChannelPruner | None = None,
) -> Ticket:
    """Take dense steps and keep the largest weights after them, or the channels with the largest (Eq. 8, mask)."""
    model.load(weights, buffers)
    descend(model, batches, rate, loss)
    if pruner is not None:
        kept = pruner.choose(model.weights, delta)
        mask, total = pruner.mask(kept)
        return Ticket(mask, float("nan"), total, kept)
    assert scope is not None
    mask, threshold, inside = magnitude_mask(model.live(), delta, scope.runs, scope.dead)
    return Ticket(mask, threshold, model.layout.size - scope.size + inside)


def train(
    model: FlatModel,
    weights: Singles,
    buffers: Singles,
    batches: Iterator[Batch],
    rate: float,
    loss: "Loss",
    ticket: Ticket | None = None,
    pruner: ChannelPruner | None = None,
    adjust: Adjust | None = None,
) -> Trained:
    """Train the ticket, or everything, from the received weights: d = (w_start - w_end) / rate (Eqs. 9-10, d).

    Training starts again from the received weights under the mask, with the received buffers (lottery ticket).
    """
    model.load(weights, buffers)
    if ticket is None:
        error = descend(model, batches, rate, loss, adjust=adjust)
        end = model.live()
        d = accumulated(weights, end, rate)
        return Trained(d, end, None, float("nan"), model.moved(), error, model.layout.size, rate, weights)
    if ticket.channels is not None and pruner is not None:
        start = pruner.entries(ticket.channels, weights)
        small = pruner.cut(ticket.channels, torch.from_numpy(start).to(model.device))
        error = descend(small, batches, rate, loss, adjust=adjust)
        pruner.put_back(ticket.channels, small)
        end, flags = small.live(), np.concatenate(ticket.channels)
    else:
        within = torch.from_numpy(ticket.mask).to(model.device, model.weights.dtype)
        model.mask(within)
        error = descend(model, batches, rate, loss, within, adjust)
        places = np.flatnonzero(ticket.mask)  # faster than by the mask itself
        end, start, flags = model.live()[places], weights[places], None
    d, lost = accumulated(start, end, rate), _share(weights, start)
    return Trained(d, end, ticket.mask, ticket.threshold, model.moved(), error, ticket.kept, rate, weights, flags, lost)


def _share(whole: Singles, kept: Singles) -> float:
    """Return how much of the squared norm is not kept."""
    total = _square(whole)
    return max(0.0, 1 - _square(kept) / total) if total > 0 else 0.0


def _square(values: Singles) -> float:
    """Return the squared norm, short pieces in their own precision; not by BLAS, whose sums depend on its threads."""
    rows, rest = np.split(values, [len(values) // _PIECE * _PIECE])
    rows = rows.reshape(-1, _PIECE)
    return float(np.einsum("ij,ij->i", rows, rows).sum(dtype=np.float64) + np.einsum("i,i", rest, rest))
