"""The vehicles' side: a pure function from (global weights, own data, round, seed) to bytes."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from skyfed.algorithms import Recipe, find_recipe
from skyfed.cost import CostSettings, Spending, journeys, local_rounds, round_flops, spend
from skyfed.errors import BadInputError
from skyfed.faults import FaultSettings, attacked, how_spoilt
from skyfed.flight.fleet import FleetPlan
from skyfed.learning.channels import ChannelPruner
from skyfed.learning.evaluate import Scores, evaluate
from skyfed.learning.flat import FlatModel, Layout, usable_device
from skyfed.learning.infer import Forward, forward_of
from skyfed.learning.local import Batches, LocalRound, descend, train_locally
from skyfed.learning.memory import keep_memory
from skyfed.learning.models import build_model, is_known
from skyfed.learning.probe import Partition, curvature, losses, spread, sums
from skyfed.learning.prune import Scope, Scopes, draw_delta, least_delta
from skyfed.learning.settings import ModelSettings, PruneSettings, TrainSettings
from skyfed.learning.shapes import all_multiplications
from skyfed.records import Floats, Probe, Quantised, Raw, Singles, Update
from skyfed.rng import stream
from skyfed.sensing import Flight, Schedule, SensingSettings, SensorSettings, grow
from skyfed.sensing.datasets import Pictures
from skyfed.server import ServerSettings, alphas
from skyfed.theory.allocate import RAWS, choose, pruning_errors
from skyfed.theory.settings import TheorySettings
from skyfed.wire import Common, QuantiseSettings, bucket_starts, encode, entries, paper_bits, quantiser, read_header

Model = tuple[Singles, Singles]  # weights and buffers


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
    def sensor(self) -> SensorSettings: ...  # noqa: D102
    @property
    def server(self) -> ServerSettings: ...  # noqa: D102
    @property
    def faults(self) -> FaultSettings: ...  # noqa: D102
    @property
    def device(self) -> str: ...  # noqa: D102
    @property
    def cost(self) -> CostSettings: ...  # noqa: D102
    @property
    def theory(self) -> TheorySettings: ...  # noqa: D102


@dataclass(frozen=True)
class Upload:
    """A vehicle's bytes of one round with what is recorded about them.

    data             the message; empty where training diverged
    delta, kept      pruning ratio drawn, entries realised       quantised  whether levels were sent
    kept_live        of the entries that can have a gradient
    paper_bits       by the paper's formula (modelled)           buffer_bytes  of the message, for batch-norm buffers
    loss             mean training loss                          seconds, cpu  measured: prune, train, encode
    spent            seconds and joules of flying, training and sending (modelled)
    pruned_share     ||w - w_bar||^2 / ||w||^2 over entries that can have a gradient: at most delta by assumption 5
    raw_probability  of the draw that decided whether levels were sent
    variance         ||Q(d) - d||^2 / ||d||^2 of this upload, measured in rounds of the diagnostics; else None
    bound            largest mean of that for the quantiser used (Eq. 16); 0 where nothing can be quantised
    """

    vehicle: int
    data: bytes
    delta: float
    kept: int
    kept_live: int
    quantised: bool
    paper_bits: float
    buffer_bytes: int
    loss: float
    seconds: float
    cpu: float
    spent: Spending
    pruned_share: float = 0.0
    raw_probability: float = 1.0
    variance: float | None = None
    bound: float = 0.0


def model_of(
    settings: Experiment, pictures: Pictures, dtype: torch.dtype = torch.float32
) -> tuple[FlatModel, ChannelPruner | None]:
    """Build what vehicles train, where they train it, and what prunes it by channels; bad settings show here."""
    device, side, own = usable_device(settings.device), pictures.train_images.shape[-1], not is_known(settings.model)
    module = build_model(settings.model, pictures.classes, side, settings.seed)
    model = FlatModel(module, dtype, device, side, not own, probe=own)
    channels = settings.prune.granularity == "channel"
    return model, ChannelPruner(model, settings.prune.budget) if channels else None


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
        keep_memory()
        self.settings, self.pictures = settings, pictures
        self.schedule = schedule_of(settings, pictures, plan)
        self.model, self._pruner = model_of(settings, pictures, dtype)
        self.layout = self.model.layout
        if self._pruner is not None:
            self.layout = replace(self.layout, channels=self._pruner.channels)
        self.journeys = journeys(plan.positions, settings.sensor.altitude)
        self._multiplications = all_multiplications(self.model.module, self.model.seen)
        self._batches = Batches(pictures, dtype, self.model.device, self.model.wide)
        bare = [u for u in range(settings.vehicles) if not len(self.schedule.train_set(u, 0))]
        if bare:
            raise BadInputError(
                f"vehicles = {settings.vehicles}: vehicle {bare[0]} starts without a picture; fewer would do"
            )
        self._forward: tuple[Singles, Forward] | None = None
        self._common: tuple[Singles, Common] | None = None
        self._received: tuple[Singles, Tensor] | None = None
        self._twin: nn.Module | None = None
        self._errors: tuple[Singles, Floats] | None = None
        self._scopes = Scopes(self.layout, settings.prune.scope == "kernels")

    def initial(self) -> tuple[Singles, Singles]:
        """Return w^0 and its buffers; call before anything was trained."""
        return self.model.on_host()

    def train(
        self, algorithm: str, vehicle: int, t: int, weights: Singles, buffers: Singles, share: float | None = None
    ) -> Upload:
        """Train one vehicle in round t and encode its upload (Eqs. 8-12).

        share: of the vehicle in the aggregate; worked out here where the data of all vehicles is known.
        """
        self._forward = None  # what trains the model changes it
        begin, begin_cpu = time.perf_counter(), time.process_time()
        settings, recipe = self.settings, find_recipe(algorithm)
        delta, raw = self.choice(recipe, vehicle, t, weights, share)
        with _own_coins(settings.seed, t, vehicle):
            local = self.train_locally(recipe, vehicle, t, weights, buffers, delta)
        data, update, variance, buffer_bytes = b"", None, None, 0
        if local.finite:
            update = self.update(vehicle, t, local, raw)
            data = encode(update, self.common(weights, buffers))
            buffer_bytes = read_header(data).buffers_bytes
            data = self._spoilt(update, data, self.common(weights, buffers))
            if update.quantised and settings.theory.due(t):
                variance = _relative(entries(update, self.common(weights, buffers)), local.values)
        quantised = update is not None and update.quantised
        return Upload(
            vehicle=vehicle,
            data=data,
            delta=delta,
            kept=local.kept,
            kept_live=len(local.values),
            quantised=quantised,
            paper_bits=paper_bits(self.layout.size, delta, settings.quantise.s, raw=not quantised) if data else 0.0,
            buffer_bytes=buffer_bytes,
            loss=local.loss,
            seconds=time.perf_counter() - begin,
            cpu=time.process_time() - begin_cpu,
            spent=self._spent(recipe, vehicle, t, delta, len(data)),
            pruned_share=local.pruned_share,
            raw_probability=raw,
            variance=variance,
            bound=self._variance_bound(local) if raw < 1 else 0.0,
        )

    def choice(
        self, recipe: Recipe, vehicle: int, t: int, weights: Singles, share: float | None = None
    ) -> tuple[float, float]:
        """Return delta and the probability of a raw upload: drawn, or chosen from the bound within the budgets."""
        settings = self.settings
        if settings.prune.delta != "bound":
            drawn = draw_delta(settings.prune, settings.seed, t, vehicle)
            delta = drawn if recipe.prune else 0.0
            return delta, recipe.raw_probability(delta, settings.quantise.raw_probability)
        theory, quant, size = settings.theory, settings.quantise, self.layout.size
        if self._errors is None or self._errors[0] is not weights:
            self._errors = (weights, pruning_errors(self.layout.of_live(weights)))
        starts = bucket_starts(self.layout.live_size, quant.bucket_code, self.layout.live_starts, None)
        most = paper_bits(size, 0.0, quant.s, raw=True)

        def excess(delta: float, raw: float) -> float:
            """How far the worst budget is exceeded: at most 1 is within all."""
            bits = raw * paper_bits(size, delta, quant.s, raw=True)
            bits += (1 - raw) * paper_bits(size, delta, quant.s, raw=False)
            spent = self._spent(recipe, vehicle, t, delta, round(bits / 8))
            rounds = local_rounds(settings.train, self._prunes(recipe, delta), delta)
            device = settings.cost.model == "device"
            shares = [
                bits / (theory.payload * most) if theory.payload else 0.0,
                rounds / theory.work if theory.work else 0.0,
                (spent.train_joules + spent.send_joules) / theory.joules if device and theory.joules else 0.0,
                spent.seconds / settings.cost.deadline if device and settings.cost.deadline else 0.0,
            ]
            return max(shares)

        fixed = recipe.raw_probability(0.0, "delta") == recipe.raw_probability(1.0, "delta")
        raws = np.array([recipe.raw_probability(0.0, "delta")]) if fixed else RAWS
        found = choose(
            self._errors[1], theory.beta, settings.train.eta_at(t),
            self.share(vehicle, t) if share is None else share,
            theory.sigma2 + 2 * settings.train.kappa * settings.train.batches_per_round * theory.gradient2,
            quantiser(quant).variance_bound(starts, quant.s, quant.norm), recipe.prune, raws,
            lambda delta, raw: excess(delta, raw) <= 1, excess,
        )  # fmt: skip
        return found.delta, found.raw

    def share(self, vehicle: int, t: int) -> float:
        """Return a vehicle's share of the aggregate where all take part."""
        sizes = np.array([len(self.schedule.train_set(u, t)) for u in range(self.settings.vehicles)])
        each = alphas(self.settings.server, self.settings.vehicles, sizes)
        return float(each[vehicle] / each.sum())

    def _prunes(self, recipe: Recipe, delta: float) -> bool:
        """Tell whether a vehicle looks for a ticket: not where it was chosen to keep everything."""
        return recipe.prune and (delta > 0 or self.settings.prune.delta != "bound")

    def _spent(self, recipe: Recipe, vehicle: int, t: int, delta: float, message: int) -> Spending:
        """Return what the round costs by the model of `cost`."""
        train, where = self.settings.train, self.journeys
        rounds = local_rounds(train, self._prunes(recipe, delta), delta)
        flops = round_flops(train, self._multiplications, len(self.schedule.train_set(vehicle, t)))
        return spend(
            self.settings.cost, rounds, flops, message,
            float(where.flown[vehicle, t]), float(where.distance[vehicle, t]), where.altitude,
        )  # fmt: skip

    def _variance_bound(self, local: LocalRound) -> float:
        quant = self.settings.quantise
        starts = bucket_starts(len(local.values), quant.bucket_code, self.layout.live_starts, local.mask)
        return quantiser(quant).variance_bound(starts, quant.s, quant.norm)

    def common(self, weights: Singles, buffers: Singles) -> Common:
        """Return what a message about this model starts from."""
        if self._common is None or self._common[0] is not weights:
            self._common = (weights, common_of(self.settings, self.layout, weights, buffers))
        return self._common[1]

    def genie(self, t: int, weights: Singles, buffers: Singles) -> tuple[Singles, Singles, float]:
        """Train centrally on the union of all data of round t; returns weights, buffers and the mean loss."""
        train = self.settings.train
        self._forward = None
        self.model.load(self._tensor(weights), torch.from_numpy(buffers))
        samples = self.schedule.union(t)
        count = train.genie_batches(self.settings.vehicles)
        batches = self._batches.draw(samples, train.batch_size, count, stream(self.settings.seed, "genie batches", t))
        with _own_coins(self.settings.seed, t, None):
            loss = descend(self.model, batches, train.eta_at(t))
        return *self.model.on_host(), loss

    def delivered(self, algorithm: str, weights: Singles) -> Singles:
        """Return the model that is tested and used: without the channels that no vehicle trains.

        Those kept learn without them, and would be disturbed by what they say.
        """
        least = least_delta(self.settings.prune)
        if self._pruner is None or not least or not find_recipe(algorithm).prune:
            return weights
        kept = self._pruner.choose(self._tensor(weights), least)
        return self.layout.masked(weights, self._pruner.mask(kept)[0])

    def score(self, start: int, stop: int, weights: Singles, buffers: Singles) -> Scores:
        """Score test pictures start..stop."""
        images, labels = self.pictures.test_images[start:stop], self.pictures.test_labels[start:stop]
        if self._forward is None or self._forward[0] is not weights:
            self.model.load(self._tensor(weights), torch.from_numpy(buffers))
            with torch.inference_mode():
                self._forward = (weights, forward_of(self.model))
        return evaluate(self._forward[1], self._batches, images, labels)

    def probe(self, vehicle: int, t: int, now: Model, after: Model) -> Probe:
        """Measure what Theorem 1 needs to know about a vehicle's loss around w^t and w^{t+1} (A1, A2, Eq. 18)."""
        self._forward = None
        settings, theory, schedule = self.settings, self.settings.theory, self.schedule
        sets = [schedule.train_set(vehicle, min(max(0, k), settings.rounds - 1)) for k in (t - 1, t, t + 1)]
        total = len(self.pictures.train_labels)
        parts = Partition(sets[0], sets[1], sets[2], settings.train.batch_size, theory.batches, settings.seed, total)
        with _own_coins(settings.seed, t, vehicle):
            self.model.load(self._tensor(now[0]), torch.from_numpy(now[1]))
            old = sums(self.model, self._batches, parts.same())
            here = old.plus(sums(self.model, self._batches, parts.new()))
            shift = here.mean - old.plus(sums(self.model, self._batches, parts.changed())).mean
            self.model.load(torch.from_numpy(after[0]), torch.from_numpy(after[1]))
            there = sums(self.model, self._batches, parts.now)
            later = losses(self.model, self._batches, parts.after)
            batches = self._batches.narrow()
            pairs = [batches.take(part) for part in parts.now[: theory.beta_batches]]
            rng = stream(settings.seed, "theory curvature", t, vehicle)
            bent = curvature(self._plain(now[0]), pairs, theory.beta_steps, rng)
        moved = self.layout.of_live(after[0].astype(np.float64) - now[0])
        far = float(np.linalg.norm(moved))
        return Probe(
            vehicle=vehicle,
            gradient=here.mean.astype(np.float32),
            sigma2=spread(here, settings.train.batch_size),
            phi=float(shift @ shift),
            now=here.loss / here.count,
            kept=there.loss / there.count,
            after=later,
            curvature=bent,
            secant=float(np.linalg.norm(there.mean - here.mean)) / far if far else 0.0,
        )

    def _plain(self, weights: Singles) -> nn.Module:
        """Return the model as torch builds it, which can be differentiated twice, with these weights."""
        if self._twin is None:
            side = self.pictures.train_images.shape[-1]
            self._twin = build_model(self.settings.model, self.pictures.classes, side, self.settings.seed)
            self._twin.to(self.model.device, self.model.weights.dtype)
        plain = np.empty_like(weights)
        plain[self.layout.plain_places()] = weights
        flat = torch.from_numpy(plain).to(self.model.weights)
        with torch.no_grad():
            own = [parameter for parameter in self._twin.parameters() if parameter.requires_grad]
            for parameter, part in zip(own, torch.split(flat, [p.numel() for p in own]), strict=True):
                parameter.copy_(part.view(parameter.shape))
        return self._twin

    def train_locally(
        self, recipe: Recipe, vehicle: int, t: int, weights: Singles, buffers: Singles, delta: float
    ) -> LocalRound:
        """Look for the ticket and train it (Eqs. 8-10)."""
        settings, train = self.settings, self.settings.train
        samples, prunes = self.schedule.train_set(vehicle, t), self._prunes(recipe, delta)

        def batches(purpose: str, rounds: int) -> Iterator[tuple[Tensor, Tensor]]:
            rng = stream(settings.seed, purpose, t, vehicle)
            return self._batches.draw(samples, train.batch_size, rounds * train.batches_per_round, rng)

        return train_locally(
            self.model,
            self._tensor(weights),
            torch.from_numpy(buffers),
            batches("dense batches", train.rho) if prunes else None,
            batches("batches", train.kappa),
            train.eta_local_at(t),
            delta,
            self.scope(weights) if prunes and self._pruner is None else None,
            self._pruner,
        )

    def scope(self, weights: Singles) -> Scope:
        """Return what may be pruned of these weights."""
        return self._scopes.of(weights)

    def _tensor(self, weights: Singles) -> Tensor:
        """Return the same tensor for the same array, so that the model knows what it has."""
        if self._received is None or self._received[0] is not weights:
            self._received = (weights, torch.from_numpy(weights))
        return self._received[1]

    def update(self, vehicle: int, t: int, local: LocalRound, raw: float) -> Update:
        """Turn what was trained into an upload, quantised or raw (Eqs. 11-12)."""
        quant, mask = self.settings.quantise, local.mask
        rng = stream(self.settings.seed, "quantise", t, vehicle)
        values = attacked(self.settings.faults, vehicle, local.values.astype(np.float32, copy=False))
        body: Raw | Quantised
        if rng.random() < raw:
            exact = local.trained.dtype == np.float32 and values is local.values
            rate = self.settings.train.eta_local_at(t)
            body = Raw(values, local.trained, rate) if exact else Raw(values)
        else:
            starts = bucket_starts(len(values), quant.bucket_code, self.layout.live_starts, mask)
            levels, norms, seed = quantiser(quant).quantise(values, starts, quant.s, quant.norm, rng)
            body = Quantised(quant.scheme, levels, norms, quant.s, quant.bucket_code, seed)
        buffers = local.buffers.astype(np.float32, copy=False)
        size, channels = self.layout.live_size, local.channels
        return Update(t, vehicle, size, mask, body, buffers, local.threshold, channels, quant.coder)

    def _spoilt(self, update: Update, data: bytes, common: Common) -> bytes:
        """Return an upload as it is sent: whole, or made unusable on purpose."""
        t, u = update.round, update.vehicle
        how = how_spoilt(self.settings.faults, u, t)
        if how == "garbage":
            return stream(self.settings.seed, "garbage", t, u).bytes(len(data))
        if how == "nan":
            nothing = np.full(update.kept, np.nan, np.float32)
            return encode(replace(update, body=Raw(nothing), length=0.0), common)
        if how == "round":
            return encode(replace(update, round=t + 1), common)
        if how == "vehicle":
            return encode(replace(update, vehicle=u + 1), common)
        return data


def _relative(seen: Singles, exact: Singles) -> float:
    """Return ||seen - exact||^2 / ||exact||^2."""
    apart, whole = seen.astype(np.float64) - exact, exact.astype(np.float64)
    return float((apart @ apart) / max(float(whole @ whole), 1e-300))


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


def common_of(settings: Experiment, layout: Layout, weights: Singles, buffers: Singles) -> Common:
    """Return what vehicle and station both know in a round: the model, its layout, what may be pruned."""
    scope = layout.live_kernels if settings.prune.scope == "kernels" else None
    live = layout.of_live(weights).astype(np.float32, copy=False)
    return Common(live, buffers.astype(np.float32, copy=False), layout.live_starts, scope, layout.channels)


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
