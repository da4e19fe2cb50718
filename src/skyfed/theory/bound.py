"""Theorem 1 for one round, as printed and as it can be proved (docs/theory.md), in six named terms (Eqs. 19, 20)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from skyfed.types import Floats

Form = Literal["printed", "supplement", "corrected"]
FORMS: tuple[Form, ...] = get_args(Form)
TERMS = ("progress", "gradient noise x quantisation", "local gradient noise", "data shift", "dissimilarity", "pruning")


@dataclass(frozen=True)
class Round:
    """What the bound of one round is made of; arrays have one entry a vehicle that took part.

    kappa      local mini-batch steps                            eta, eta_local  learning rates
    beta       smoothness                                        rho1, rho2      of the dissimilarity (A3)
    alpha      weights, sum 1                                    sigma2          variance of a mini-batch gradient (A2)
    q          relative variance of the quantiser (A4)           raw             probability of a raw upload
    phi        squared gradient shift since the last round       epsilon         distance to the fleet's data (A3)
    delta      pruning ratio                                     norm2           ||w||^2
    pruned     ||w - w_bar||^2                                   mismatch        ||r||^2: gradients of entries that some
                                                                                 vehicles train, at those that do not
    now        f(w^t | D^t)                                      after           f(w^{t+1} | D^{t+1})
    kept       f(w^{t+1} | D^t)
    """

    kappa: int
    eta: float
    eta_local: float
    beta: float
    rho1: float
    rho2: float
    alpha: Floats
    sigma2: Floats
    q: Floats
    raw: Floats
    phi: Floats
    epsilon: Floats
    delta: Floats
    norm2: float
    pruned: Floats
    mismatch: float
    now: float
    after: float
    kept: float


@dataclass(frozen=True)
class Condition:
    """A condition of the theorem: `value` must be below `limit`, or equal it where that is allowed."""

    name: str
    value: float
    limit: float
    strict: bool = True

    @property
    def holds(self) -> bool:
        """Whether it does."""
        return self.value < self.limit or (not self.strict and self.value == self.limit)


@dataclass(frozen=True)
class Bound:
    """The bound on ||grad f||^2 of one round.

    terms       by name; their sum is the bound; of the corrected form infinite where a condition fails
    conditions  of the learning rates
    """

    form: Form
    terms: dict[str, float]
    conditions: tuple[Condition, ...]

    @property
    def total(self) -> float:
        """The bound."""
        return float(sum(self.terms.values()))

    @property
    def valid(self) -> bool:
        """Whether all conditions hold."""
        return all(condition.holds for condition in self.conditions)


def bound(given: Round, form: Form = "corrected") -> Bound:
    """Return the six terms of the bound on the masked gradient's squared norm in one round (Eq. 19).

    printed     as in the paper, pruning by delta ||w||^2
    supplement  as in the paper's supplement, pruning by ||w - w_bar||^2
    corrected   descent on D^t, an explicit drift, denominators kept, masks that differ
    """
    return _corrected(given) if form == "corrected" else _printed(given, form)


def averaged(rounds: Sequence[Round], form: Form = "corrected") -> dict[str, float]:
    """Return the six terms of the bound averaged over rounds (Eq. 20).

    The printed average has the quantisation term without the factor kappa that every single round has.
    """
    each = [bound(given, form).terms for given in rounds]
    mean = {name: float(np.mean([terms[name] for terms in each])) for name in TERMS}
    if form != "corrected":
        noise = [terms[TERMS[1]] / given.kappa for terms, given in zip(each, rounds, strict=True)]
        mean[TERMS[1]] = float(np.mean(noise))
    return mean


def quantisation_factor(q: float, raw: Floats) -> Floats:
    """C_u(q, raw) of the paper: 2 + 2q + (4 + q) raw^2 - (3q + 4) raw."""
    return 2 + 2 * q + (4 + q) * raw**2 - (3 * q + 4) * raw


def _printed(given: Round, form: Form) -> Bound:
    beta, kappa, eta, local = given.beta, given.kappa, given.eta, given.eta_local
    sigma2, q = float(given.sigma2.max()), float(given.q.max())  # one number each in the paper
    lost = given.delta * given.norm2 if form == "printed" else given.pruned
    values = (
        2 * (given.now - given.after) / (eta * kappa),
        beta * sigma2 * kappa * eta * float(np.sum(given.alpha**2 * quantisation_factor(q, given.raw))),
        2 * beta**2 * kappa * local**2 * sigma2,
        16 * beta**2 * kappa**2 * local**2 * float(given.alpha @ given.phi),
        8 * given.rho2 * beta**2 * kappa**2 * local**2 * float(given.alpha @ given.epsilon),
        2 * beta**2 * float(given.alpha @ lost),
    )
    conditions = (
        Condition("eta <= 1 / (beta kappa (2 + q))", eta, 1 / (beta * kappa * (2 + q)), strict=False),
        Condition("eta_local < 1 / (2 sqrt(2) beta kappa)", local, 1 / (8**0.5 * beta * kappa)),
        Condition("eta_local < 1 / (2 sqrt(2 rho1) beta kappa)", local, 1 / ((8 * given.rho1) ** 0.5 * beta * kappa)),
    )
    return Bound(form, dict(zip(TERMS, values, strict=True)), conditions)


def _corrected(given: Round) -> Bound:
    beta, kappa, eta, local, alpha = given.beta, given.kappa, given.eta, given.eta_local, given.alpha
    spread = (1 - given.raw) * given.q  # relative variance that quantisation adds to an upload
    weight = alpha * (1 + 4 * beta * eta * kappa * alpha * spread)
    inner = 2 * beta**2 * local**2 * kappa * (kappa - 1)
    drift = 2 / 3 * beta**2 * local**2 * (kappa - 1) * (2 * kappa - 1)
    own = 4 * beta * eta * kappa * alpha**2 * spread
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = drift * weight / np.float64(1 - inner)
        outer = given.rho1 * float(np.sum(own + apart))
        values = np.array(
            [
                2 * (given.now - given.after) / (eta * kappa),
                2 * beta * eta * float(np.sum(alpha**2 * (1 + spread) * given.sigma2)),
                beta**2 * local**2 * (kappa - 1) * float(weight @ given.sigma2) / np.float64(1 - inner),
                2 * (given.after - given.kept) / (eta * kappa),
                given.rho2 * float((own + apart) @ given.epsilon),
                2 * given.mismatch + beta**2 * float(weight @ given.pruned) / np.float64(1 - inner),
            ]
        ) / np.float64(1 - outer)
    conditions = (
        Condition("eta <= 1 / (4 beta kappa)", eta, 1 / (4 * beta * kappa), strict=False),
        Condition("2 beta^2 eta_local^2 kappa (kappa - 1) < 1", inner, 1.0),
        Condition("rho1 (quantisation + local drift) < 1", outer if inner < 1 else float("inf"), 1.0),
    )
    if not all(condition.holds for condition in conditions):
        values = np.full(len(TERMS), np.inf)
    return Bound("corrected", dict(zip(TERMS, values.tolist(), strict=True)), conditions)


def largest_rate(given: Round, form: Form = "corrected") -> float:
    """Return the largest learning rate that the theorem allows for both eta and eta_local."""
    if form != "corrected":
        return float(min(condition.limit for condition in _printed(given, form).conditions))
    low, high = 0.0, 1 / (4 * given.beta * given.kappa)
    for _ in range(60):
        middle = (low + high) / 2
        fits = _corrected(replace(given, eta=middle, eta_local=middle)).valid
        low, high = (middle, high) if fits else (low, middle)
    return low
