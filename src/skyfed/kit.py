"""What a vehicle has on board in one round: its data, the model, random numbers, budgets, and the steps of a method."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import numpy as np

from skyfed.blocks.tables import Settings
from skyfed.errors import SkyfedError
from skyfed.jobs import Job
from skyfed.learning.batches import Batch
from skyfed.learning.engine import Engine
from skyfed.learning.flat import Adjust, Layout
from skyfed.learning.local import Ticket, Trained, descend, find_ticket, seeded, train
from skyfed.rng import stream
from skyfed.tasks.task import Samples
from skyfed.types import Arrays, Ints, Model, Quantised, Raw, Singles, Update
from skyfed.wire import Reference, bucket_starts, entries, quantiser
from skyfed.world import Spending, round_flops, samples_of

if TYPE_CHECKING:
    from skyfed.tasks.task import Loss

Fact = float | int | bool | str | None
Outgoing = Callable[[Singles], Singles]


class NotFiniteError(SkyfedError):
    """Training diverged on board; the vehicle sends nothing."""


class Kit:
    """One vehicle in one round.

    vehicle, round  whose round it is; the vehicle is None for the central baseline
    samples         indices of the training samples that it holds; 0, 1, ... for what a real sensor brought, and
                    where appearance drifts
    share           its share of the aggregate if all vehicles take part
    exchange        which exchange of the round it is, from 0
    deadline        modelled seconds that a round may take; None where there is no such limit
    facts           what is reported for the tables; the station's `step` never sees it
    work            dense local rounds that the work so far amounts to
    loss            mean loss of the last training
    """

    def __init__(
        self, engine: Engine, settings: Settings, seed: int, job: Job, deadline: float | None, outgoing: Outgoing
    ) -> None:
        """Take what the round gives; every vector passes `outgoing` on its way out (faults are made there)."""
        self._engine, self.settings, self._seed, self._job = engine, settings, seed, job
        self._batches, self._outgoing = engine.batches, outgoing
        held = samples_of(job.data)
        if isinstance(held, Samples):  # what a real sensor brought, and not a part of the task's samples
            self._batches = engine.batches.over(held)
        elif "sensed" in job.data:  # a sample keeps the look of the time at which it was sensed
            self._batches = engine.batches.sensed(held, job.data["sensed"])
        own = isinstance(held, Samples) or "sensed" in job.data
        self.samples: Ints = np.arange(len(held)) if own else np.asarray(held)
        self.round, self.vehicle, self.share = job.round, job.vehicle, job.words.get("share", 1.0)
        self.exchange, self.deadline = int(job.words.get("exchange", 0)), deadline
        self.facts: dict[str, Fact] = {}
        self.work, self.loss = 0.0, float("nan")

    @property
    def layout(self) -> Layout:
        """Where each tensor of the model lies in a vector."""
        return self._engine.layout

    @property
    def rate(self) -> float:
        """The local learning rate of this round."""
        return self.settings.train.eta_local_at(self.round)

    @property
    def flops(self) -> float:
        """Floating-point operations of one dense local round."""
        return round_flops(self.settings.train, self._engine.multiplications, len(self.samples))

    def spend(self, work: float, sent: int) -> Spending | None:
        """Return what so much training and so many bytes would cost; None where no mission time is modelled.

        Its `seconds` count from the start of the round.
        """
        words = self._job.words
        if "elapsed" not in words:
            return None
        training = work * self.flops / words["flops"]
        sending = 8 * sent / words["rate"] if words["rate"] else float("inf")  # out of range
        return Spending(
            fly_seconds=words["elapsed"], train_seconds=training, send_seconds=sending,
            train_joules=training * words["watts"], send_joules=sending * words["radio"],
        )  # fmt: skip

    def rng(self, purpose: str) -> np.random.Generator:
        """Return the random stream of this purpose, round and vehicle."""
        return stream(self._seed, purpose, self.round, self.vehicle)

    def seeded(self) -> AbstractContextManager[None]:
        """Seed torch's random generator for this round and vehicle while training lasts."""
        return seeded(self._seed, self.round, self.vehicle)

    def note(self, **facts: Fact) -> None:
        """Report figures for the table of uploads."""
        self.facts |= facts

    def batches(self, count: int, purpose: str = "batches") -> Iterator[Batch]:
        """Yield mini-batches of the vehicle's samples, drawn from the stream of this purpose."""
        return self._batches.draw(self.samples, self.settings.train.batch_size, count, self.rng(purpose))

    def winning_ticket(self, received: Arrays, delta: float) -> Ticket:
        """Train rho dense local rounds and keep the share 1 - delta that is largest after them (Eq. 8, mask)."""
        settings, engine, rho = self.settings, self._engine, self.settings.train.rho
        self.work += rho
        dense = self.batches(rho * settings.train.batches_per_round, "dense batches")
        pruner = engine.pruner(settings.prune) or engine.scope(settings.prune)
        return find_ticket(engine.training(), received, dense, self.rate, engine.task.loss, delta, pruner)

    def descend(
        self,
        received: Arrays,
        ticket: Ticket | None = None,
        *,
        delta: float = 0.0,
        rounds: int | None = None,
        rate: float | None = None,
        loss: "Loss | None" = None,
        adjust: Adjust | None = None,
    ) -> Trained:
        """Train kappa local rounds from the received model, or only its ticket (Eqs. 9, 10, d).

        delta   share of the work that pruning saves, by the paper's law
        rounds  local rounds instead of train.kappa          rate  instead of the local learning rate
        loss    (outputs, targets) instead of the task's     adjust  (weights, gradient) -> gradient, at every step
        """
        settings, engine = self.settings, self._engine
        kappa = settings.train.kappa if rounds is None else rounds
        self.work += kappa * (1 - delta)
        batches, eta = self.batches(kappa * settings.train.batches_per_round), self.rate if rate is None else rate
        pruner = engine.pruner(settings.prune)
        loss = loss or engine.task.loss
        trained = train(engine.training(), received, batches, eta, loss, ticket, pruner, adjust)
        self.loss = trained.loss
        return trained

    def central(self, received: Arrays, count: int) -> Model:
        """Train `count` mini-batches at the global learning rate: what the central baseline does."""
        settings, engine = self.settings, self._engine
        model = engine.training()
        model.load(received["weights"], received["buffers"])
        eta = settings.train.eta_at(self.round)
        batches = self.batches(count, "genie batches")  # the stream's name of version 0.1: results follow from it
        self.loss = descend(model, batches, eta, engine.task.loss)
        return Model(model.live(), model.moved())

    def losses(self, received: Arrays, most: int = 0) -> float:
        """Return the mean loss of a model on the vehicle's samples, the first `most` of them if given."""
        import torch

        engine, samples = self._engine, self.samples[:most] if most else self.samples
        model = engine.training()
        model.load(received["weights"], received["buffers"])
        model.module.eval()
        total = 0.0
        with torch.no_grad():
            for start in range(0, len(samples), 250):
                inputs, targets = self._batches.take(samples[start : start + 250], training=False)
                total += float(engine.task.loss(model.module(inputs), targets)) * len(targets)
        return total / len(samples)

    def raw(self, trained: Trained) -> Update:
        """Return an upload of the accumulated gradient as it is (Eq. 11)."""
        values = self._sent(trained)
        # both sides know where training started: the end is sent, as its difference from that
        exact = (
            trained.trained.dtype == np.float32
            and values is trained.values
            and trained.start is self._job.sent.get("weights")
        )
        return self._update(trained, Raw(values, trained.trained, trained.rate) if exact else Raw(values))

    def quantise(self, trained: Trained, rng: np.random.Generator | None = None) -> Update:
        """Return an upload of the accumulated gradient as levels (Eq. 12)."""
        values, quant = self._sent(trained), self.settings.quantise
        starts = bucket_starts(len(values), quant.bucket_code, self.layout.live_starts, trained.mask)
        levels, norms, seed = quantiser(quant).quantise(
            values, starts, quant.s, quant.norm, rng or self.rng("quantise")
        )
        return self._update(trained, Quantised(quant.scheme, levels, norms, quant.s, quant.bucket_code, seed))

    def sparse(self, values: Singles, places: Ints, buffers: Singles) -> Update:
        """Return an upload of some entries of an (n,) vector, as they are."""
        mask = np.zeros(len(values), bool)
        mask[places] = True
        return self.vector(values[mask], buffers, mask)

    def vector(self, values: Singles, buffers: Singles | None = None, mask: "np.ndarray | None" = None) -> Update:
        """Return an upload of any vector over the model's weights, or of the entries under a mask."""
        if not np.isfinite(values).all() or (buffers is not None and not np.isfinite(buffers).all()):
            raise NotFiniteError("training diverged")
        sent = self._outgoing(np.asarray(values, np.float32))
        own = np.empty(0, np.float32) if buffers is None else np.asarray(buffers, np.float32)
        return Update(self.round, self.vehicle or 0, self.layout.live_size, mask, Raw(sent), own)

    def top_k(self, values: Singles, count: int) -> Ints:
        """Return the places of the `count` largest magnitudes, in ascending order; ties go by place."""
        sizes, count = np.abs(values), min(max(count, 0), len(values))
        if not 0 < count < len(values):
            return np.arange(count)
        least = np.partition(sizes, -count)[-count]
        above = np.flatnonzero(sizes > least)
        return np.sort(np.concatenate([above, np.flatnonzero(sizes == least)[: count - len(above)]]))

    def variance(self, update: Update, trained: Trained, reference: Reference) -> float:
        """Return ||Q(d) - d||^2 / ||d||^2 of an upload."""
        apart = entries(update, reference).astype(np.float64) - trained.values
        whole = trained.values.astype(np.float64)
        return float((apart @ apart) / max(float(whole @ whole), 1e-300))

    def variance_bound(self, trained: Trained) -> float:
        """Return the largest mean of that for the quantiser used (Eq. 16)."""
        quant = self.settings.quantise
        starts = bucket_starts(len(trained.values), quant.bucket_code, self.layout.live_starts, trained.mask)
        return quantiser(quant).variance_bound(starts, quant.s, quant.norm)

    def reference(self, received: Arrays) -> Reference:
        """Return what the station knows of the received model too."""
        return self._engine.reference(Model(received["weights"], received["buffers"]), self.settings.prune)

    def _sent(self, trained: Trained) -> Singles:
        if not trained.finite:
            raise NotFiniteError("training diverged")
        return self._outgoing(trained.values.astype(np.float32, copy=False))

    def _update(self, trained: Trained, body: Raw | Quantised) -> Update:
        buffers = trained.buffers.astype(np.float32, copy=False)
        return Update(
            self.round, self.vehicle or 0, self.layout.live_size, trained.mask, body, buffers, trained.threshold,
            trained.channels, self.settings.quantise.coder,
        )  # fmt: skip
