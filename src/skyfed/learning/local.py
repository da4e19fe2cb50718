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
from skyfed.learning.channels import ChannelPruner
from skyfed.learning.flat import Adjust, FlatModel
from skyfed.learning.prune import Scope
from skyfed.learning.prune import Ticket as Ticket
from skyfed.rng import stream
from skyfed.types import Arrays, Singles
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
class Trained(Ticket):
    """A ticket after a vehicle's training, for the k trained entries of the n that can have a gradient.

    values   (k,) their d             trained  (k,) weights at the end
    buffers  (b,) at the end          loss     mean training loss      rate  local learning rate
    start    (n,) the weights that training started from, as they were handed in
    pruned_share  ||w - w_bar||^2 / ||w||^2 over the n entries (Eq. 17)
    """

    values: Singles
    trained: Singles
    buffers: Singles
    loss: float
    rate: float
    start: Singles
    pruned_share: float

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
    received: Arrays,
    batches: Iterator[Batch],
    rate: float,
    loss: "Loss",
    delta: float,
    pruner: Scope | ChannelPruner,
) -> Ticket:
    """Take dense steps and keep the largest weights after them, or the channels with the largest (Eq. 8, mask)."""
    model.load(received["weights"], received["buffers"])
    descend(model, batches, rate, loss)
    return pruner.ticket(model, delta)


def train(
    model: FlatModel,
    received: Arrays,
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
    weights = received["weights"]
    model.load(weights, received["buffers"])
    ticket = ticket or Ticket(None, float("nan"), model.layout.size, None)
    places = slice(None) if ticket.mask is None else np.flatnonzero(ticket.mask)  # faster than by the mask itself
    start = weights[places]
    if ticket.channels is not None and pruner is not None:
        kept = pruner.by_group(ticket.channels)
        small = pruner.cut(kept, torch.from_numpy(start).to(model.device))
        error = descend(small, batches, rate, loss, adjust=adjust)
        pruner.put_back(kept, small)
        end = small.live()
    else:
        mask = None if ticket.mask is None else torch.from_numpy(ticket.mask).to(model.device, model.weights.dtype)
        if mask is not None:
            model.mask(mask)
        error = descend(model, batches, rate, loss, mask, adjust)
        end = model.live()[places]
    return Trained(
        **vars(ticket), values=accumulated(start, end, rate), trained=end, buffers=model.moved(), loss=error, rate=rate,
        start=weights, pruned_share=0.0 if ticket.mask is None else _share(weights, start),
    )  # fmt: skip


def _share(whole: Singles, kept: Singles) -> float:
    """Return how much of the squared norm is not kept."""
    total = _square(whole)
    return max(0.0, 1 - _square(kept) / total) if total > 0 else 0.0


def _square(values: Singles) -> float:
    """Return the squared norm, short pieces in their own precision; not by BLAS, whose sums depend on its threads."""
    rows, rest = np.split(values, [len(values) // _PIECE * _PIECE])
    rows = rows.reshape(-1, _PIECE)
    return float(np.einsum("ij,ij->i", rows, rows).sum(dtype=np.float64) + np.einsum("i,i", rest, rest))
