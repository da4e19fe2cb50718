"""2CEOAFL and its baselines, in the order of Section III of the paper.

"Computation- and Communication-Efficient Online FL for Resource-Constrained Aerial Vehicles", arXiv 2506.02972. Every
round t, vehicle u receives w^t and

    finds a winning ticket    m_u^t keeps the share 1 - delta that is largest after rho dense rounds    (Eq. 8)
    trains it                 kappa rounds from w^t * m_u^t; d_u^t = (start - end) / local rate         (Eqs. 9, 10)
    sends it                  d_u^t raw with probability q, else quantised to s levels                  (Eqs. 11, 12)

and the station steps         w^{t+1} = w^t - eta sum_u alpha_u Pi_u^t                                  (Eq. 13)

AFL neither prunes nor quantises, AFL-Prune prunes, AFL-Quant quantises always: three settings of one algorithm. Where
the paper is silent or wrong, docs/paper.md says what was decided.
"""

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from skyfed.algorithms.base import Algorithm, Parts
from skyfed.blocks.tables import Settings
from skyfed.columns import Column
from skyfed.theory.allocate import RAWS, choose, pruning_errors
from skyfed.types import Arrays, Model
from skyfed.wire import bucket_starts, paper_bits, quantiser

if TYPE_CHECKING:
    from skyfed.kit import Kit


class PaperSettings(Settings):
    """What distinguishes 2CEOAFL from its baselines."""

    pruning: bool = Field(True, description="whether vehicles look for a winning ticket first")
    quantising: Literal["never", "always", "drawn"] = Field(
        "drawn", description="drawn: an upload is raw with probability quantise.raw_probability"
    )


class TwoCEOAFL(Algorithm):
    """2CEOAFL; with other settings AFL, AFL-Prune, AFL-Quant."""

    title = "2CEOAFL"
    Settings = PaperSettings
    settings: PaperSettings
    columns: ClassVar[tuple[Column, ...]] = (
        Column("delta", "float", "pruning ratio drawn"),
        Column("kept", "int", "weights that stay, of all"),
        Column("kept_live", "int", "weights that stay, of those that can have a gradient"),
        Column("quantised", "bool", "whether levels were sent"),
        Column("paper_bits", "float", "size by the paper's formula, bits (modelled)"),
        Column("pruned_share", "float", "share of ||w||^2 that was pruned (Eq. 17)", empty=True),
        Column("raw_probability", "float", "probability of a raw upload"),
        Column("quantiser_bound", "float", "bound on the quantiser's relative variance (Eq. 16)", empty=True),
        Column("quantiser_variance", "float", "its relative variance, where measured", empty=True),
    )

    def local(self, kit: "Kit", received: Arrays, memory: Arrays) -> tuple[Parts, Arrays]:
        """Find a ticket, train it, send it raw or quantised (Eqs. 8-12)."""
        delta, raw = self.choice(kit, received)
        ticket = kit.winning_ticket(received, delta) if self.prunes(delta) else None
        trained = kit.descend(received, ticket, delta=delta)
        bound = kit.variance_bound(trained) if raw < 1 else 0.0
        kit.note(delta=delta, raw_probability=raw, kept=trained.kept, kept_live=len(trained.values), quantised=False,
                 paper_bits=0.0, pruned_share=trained.pruned_share, quantiser_bound=bound)  # fmt: skip
        rng = kit.rng("quantise")
        update = kit.raw(trained) if rng.random() < raw else kit.quantise(trained, rng)
        bits = paper_bits(kit.layout.size, delta, self.settings.quantise.s, raw=not update.quantised)
        kit.note(quantised=update.quantised, paper_bits=bits)
        if update.quantised and self.settings.theory.due(kit.round):
            kit.note(quantiser_variance=kit.variance(update, trained, kit.reference(received)))
        return {"update": update}, memory

    def deliver(self, state: Arrays) -> dict[str, Model]:
        """Only channels that some vehicle trains are evaluated and saved; the others would disturb them."""
        model, prune = Model(state["weights"], state["buffers"]), self.settings.prune
        least = prune.least if self.settings.pruning else 0.0
        return {"model": self.fleet.engine.slim(model, prune, least)}

    def prunes(self, delta: float) -> bool:
        """Tell whether a vehicle looks for a ticket: not where it was chosen to keep everything."""
        return self.settings.pruning and (delta > 0 or self.settings.prune.delta != "bound")

    def raw_probability(self, delta: float) -> float:
        """Return the probability of a raw upload at this pruning ratio."""
        if self.settings.quantising != "drawn":
            return 1.0 if self.settings.quantising == "never" else 0.0
        setting = self.settings.quantise.raw_probability
        return delta if setting == "delta" else float(setting)

    def choice(self, kit: "Kit", received: Arrays) -> tuple[float, float]:
        """Return delta and the probability of a raw upload: drawn, or chosen from the bound within the budgets."""
        settings = self.settings
        if settings.prune.delta != "bound":
            drawn = settings.prune.draw(self.fleet.seed, kit.round, kit.vehicle or 0)
            delta = drawn if settings.pruning else 0.0
            return delta, self.raw_probability(delta)
        theory, quant, train, layout = settings.theory, settings.quantise, settings.train, kit.layout
        most = paper_bits(layout.size, 0.0, quant.s, raw=True)

        def excess(delta: float, raw: float) -> float:
            """How far the worst budget is exceeded: at most 1 is within all."""
            bits = raw * paper_bits(layout.size, delta, quant.s, raw=True)
            bits += (1 - raw) * paper_bits(layout.size, delta, quant.s, raw=False)
            rounds = train.rho + train.kappa * (1 - delta) if self.prunes(delta) else float(train.kappa)
            shares = [
                bits / (theory.payload * most) if theory.payload else 0.0,
                rounds / theory.work if theory.work else 0.0,
            ]
            spent = kit.spend(rounds, round(bits / 8))
            if spent is not None and theory.joules:
                shares.append((spent.train_joules + spent.send_joules) / theory.joules)
            if spent is not None and kit.deadline:
                shares.append(spent.seconds / kit.deadline)
            return max(shares)

        starts = bucket_starts(layout.live_size, quant.bucket_code, layout.live_starts, None)
        raws = RAWS if settings.quantising == "drawn" else np.array([self.raw_probability(0.0)])
        errors = pruning_errors(received["weights"])
        return choose(
            errors if settings.pruning else errors[:1], theory.beta, train.eta_at(kit.round), kit.share,
            theory.sigma2 + 2 * train.kappa * train.batches_per_round * theory.gradient2,
            quantiser(quant).variance_bound(starts, quant.s, quant.norm), raws, excess,
        )  # fmt: skip
