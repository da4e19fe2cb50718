"""The vehicles' side: a pure function from (global weights, own data, round, seed) to bytes."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from skyfed.algorithms import Recipe, find_recipe
from skyfed.cost import CostSettings, local_rounds
from skyfed.errors import BadInputError
from skyfed.faults import FaultSettings
from skyfed.flight.fleet import FleetPlan
from skyfed.learning.evaluate import Scores, evaluate
from skyfed.learning.flat import FlatModel, usable_device
from skyfed.learning.local import Batches, LocalRound, descend, train_locally
from skyfed.learning.models import build_model
from skyfed.learning.prune import draw_delta
from skyfed.learning.settings import ModelSettings, PruneSettings, TrainSettings
from skyfed.records import Singles, Update
from skyfed.rng import stream
from skyfed.sensing import Flight, Schedule, SensingSettings, grow
from skyfed.sensing.datasets import Pictures
from skyfed.server import ServerSettings
from skyfed.wire import QuantiseSettings, bucket_starts, encode, paper_bits, quantise


class Experiment(Protocol):
    """The settings that vehicles and station go by; `Config` has them."""

    @property
    def seed(self) -> int: ...  # noqa: D102
    @property
    def vehicles(self) -> int: ...  # noqa: D102
    @property
    def rounds(self) -> int: ...  # noqa: D102
    @property
    def eval_every(self) -> int: ...  # noqa: D102
    @property
    def model(self) -> ModelSettings: ...  # noqa: D102
    @property
    def train(self) -> TrainSettings: ...  # noqa: D102
    @property
    def prune(self) -> PruneSettings: ...  # noqa: D102
    @property
    def quantise(self) -> QuantiseSettings: ...  # noqa: D102
    @property
    def sensing(self) -> SensingSettings: ...  # noqa: D102
    @property
    def server(self) -> ServerSettings: ...  # noqa: D102
    @property
    def faults(self) -> FaultSettings: ...  # noqa: D102
    @property
    def device(self) -> str: ...  # noqa: D102
    @property
    def cost(self) -> CostSettings: ...  # noqa: D102


@dataclass(frozen=True)
class Upload:
    """A vehicle's bytes of one round with what is recorded about them.

    data             the message; empty where training diverged
    delta, kept      pruning ratio drawn, entries realised       quantised  whether levels were sent
    paper_bits       by the paper's formula (modelled)           buffer_bytes  of the message, for batch-norm buffers
    loss             mean training loss                          seconds, cpu  measured: prune, train, encode
    local_rounds     dense local rounds the work amounts to by the paper's law (modelled)
    """

    vehicle: int
    data: bytes
    delta: float
    kept: int
    quantised: bool
    paper_bits: float
    buffer_bytes: int
    loss: float
    seconds: float
    cpu: float
    local_rounds: float


class Vehicles:
    """All vehicles' data and one model to train with; each call is a pure function of its arguments and settings."""

    def __init__(
        self, settings: Experiment, pictures: Pictures, plan: FleetPlan, dtype: torch.dtype = torch.float32
    ) -> None:
        """Build the model with weights of `dtype`; uploads are float32 in any case."""
        if plan.classes != pictures.classes:
            raise BadInputError(
                f"field.classes = {plan.classes}, but the data has {pictures.classes} classes; allowed: the same number"
            )
        torch.set_num_threads(1)
        self.settings, self.pictures = settings, pictures
        self.schedule = schedule_of(settings, pictures, plan)
        side = pictures.train_images.shape[-1]
        self.model = FlatModel(
            build_model(settings.model, pictures.classes, side, settings.seed), dtype, usable_device(settings.device)
        )
        self.layout = self.model.layout
        self._batches = Batches(pictures, dtype, self.model.device)
        bare = [u for u in range(settings.vehicles) if not len(self.schedule.train_set(u, 0))]
        if bare:
            raise BadInputError(
                f"vehicles = {settings.vehicles}: vehicle {bare[0]} starts without a picture; fewer would do"
            )
        self._scope = self.layout.kernels if settings.prune.scope == "kernels" else None

    def initial(self) -> tuple[Singles, Singles]:
        """Return w^0 and its buffers; call before anything was trained."""
        return self.model.on_host()

    def train(self, algorithm: str, vehicle: int, t: int, weights: Singles, buffers: Singles) -> Upload:
        """Train one vehicle in round t and encode its upload (Eqs. 8-12)."""
        begin, begin_cpu = time.perf_counter(), time.process_time()
        settings, recipe = self.settings, find_recipe(algorithm)
        drawn = draw_delta(settings.prune, settings.seed, t, vehicle)
        delta = drawn if recipe.prune else 0.0
        with _own_coins(settings.seed, t, vehicle):
            local = self._train(recipe, vehicle, t, weights, buffers, delta)
        data, update = b"", None
        if local.finite:
            update = self._update(recipe, vehicle, t, local, delta)
            data = encode(update)
        kept = self.layout.size if local.mask is None else int(local.mask.sum())
        quantised = update is not None and update.quantised
        return Upload(
            vehicle=vehicle,
            data=data,
            delta=delta,
            kept=kept,
            quantised=quantised,
            paper_bits=paper_bits(self.layout.size, delta, settings.quantise.s, raw=not quantised) if data else 0.0,
            buffer_bytes=4 * self.layout.buffers if data else 0,
            loss=local.loss,
            seconds=time.perf_counter() - begin,
            cpu=time.process_time() - begin_cpu,
            local_rounds=local_rounds(settings.train, recipe.prune, delta),
        )

    def genie(self, t: int, weights: Singles, buffers: Singles) -> tuple[Singles, Singles, float]:
        """Train centrally on the union of all data of round t; returns weights, buffers and the mean loss."""
        train = self.settings.train
        self.model.load(torch.from_numpy(weights), torch.from_numpy(buffers))
        samples = self.schedule.union(t)
        count = train.genie_batches(self.settings.vehicles)
        batches = self._batches.draw(samples, train.batch_size, count, stream(self.settings.seed, "genie batches", t))
        with _own_coins(self.settings.seed, t, None):
            loss = descend(self.model, batches, train.eta_at(t))
        return *self.model.on_host(), loss

    def score(self, start: int, stop: int, weights: Singles, buffers: Singles) -> Scores:
        """Score test pictures start..stop."""
        images, labels = self.pictures.test_images[start:stop], self.pictures.test_labels[start:stop]
        return evaluate(self.model, self._batches, torch.from_numpy(weights), torch.from_numpy(buffers), images, labels)

    def _train(
        self, recipe: Recipe, vehicle: int, t: int, weights: Singles, buffers: Singles, delta: float
    ) -> LocalRound:
        settings, train = self.settings, self.settings.train
        samples = self.schedule.train_set(vehicle, t)

        def batches(purpose: str, rounds: int) -> Iterator[tuple[Tensor, Tensor]]:
            rng = stream(settings.seed, purpose, t, vehicle)
            return self._batches.draw(samples, train.batch_size, rounds * train.batches_per_round, rng)

        return train_locally(
            self.model,
            torch.from_numpy(weights),
            torch.from_numpy(buffers),
            batches("dense batches", train.rho) if recipe.prune else None,
            batches("batches", train.kappa),
            train.eta_local_at(t),
            delta,
            self._scope,
        )

    def _update(self, recipe: Recipe, vehicle: int, t: int, local: LocalRound, delta: float) -> Update:
        quant = self.settings.quantise
        rng = stream(self.settings.seed, "quantise", t, vehicle)
        values = local.gradient if local.mask is None else local.gradient[local.mask]
        values, buffers = values.astype(np.float32, copy=False), local.buffers.astype(np.float32, copy=False)
        raw = rng.random() < recipe.raw_probability(delta, quant.raw_probability)
        code = quant.bucket_code
        update = Update(t, vehicle, self.layout.size, local.mask, values, None, None, quant.s, code, buffers)
        if raw:
            return update
        starts = bucket_starts(len(values), code, self.layout.starts, local.mask)
        levels, norms = quantise(values, starts, quant.s, quant.norm, rng)
        return replace(update, values=None, levels=levels, norms=norms)


@contextmanager
def _own_coins(seed: int, t: int, vehicle: int | None) -> Iterator[None]:
    """Let modules that toss coins (dropout) follow the seed, round and vehicle; say what small batches mean."""
    state = torch.get_rng_state()
    torch.default_generator.manual_seed(int(stream(seed, "modules", t, vehicle).integers(2**63)))
    try:
        yield
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise BadInputError(
            "train.batch_size: batch norm needs two pictures or more in a mini-batch; or use model.norm = 'group'"
        ) from None
    finally:
        torch.set_rng_state(state)


def schedule_of(settings: Experiment, pictures: Pictures, plan: FleetPlan) -> Schedule:
    """Let the data sets grow along the planned flights; sensing goes by the true discs."""
    flights = [
        Flight(plan.positions[u], plan.psi[u], plan.true_centres[u], plan.true_radii[u]) for u in range(plan.vehicles)
    ]
    return grow(flights, pictures.train_labels, pictures.test_labels, settings.sensing, settings.seed)


def chunks(total: int, size: int = 1000) -> Sequence[tuple[int, int]]:
    """Cut the test set into parts of a fixed size, so that scores do not depend on who computes them."""
    return [(start, min(start + size, total)) for start in range(0, total, size)]


def joined(parts: Sequence[Scores]) -> Scores:
    """Put the scores of all chunks together."""
    return Scores(np.concatenate([part.correct for part in parts]), np.concatenate([part.loss for part in parts]))
