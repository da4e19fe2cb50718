"""Choose the pruning ratio and the probability of a raw upload from the bound, under budgets (docs/theory.md).

The paper leaves this for later. Of the corrected bound, a vehicle alone controls, in the lowest order of the rates,
beta^2 alpha P(delta) + 2 beta eta alpha^2 (1 - raw) q (sigma^2 + 2 kappa g^2): pruning costs what is cut off,
quantising adds noise to the whole of d. What masks of others do to it is left out. Both choices have few sensible
values, so all are tried.
"""

from collections.abc import Callable
from itertools import product

import numpy as np
from numpy.typing import NDArray

from skyfed.types import Floats

DELTAS: Floats = np.round(np.arange(0, 0.951, 0.025), 3)
RAWS: Floats = np.round(np.arange(0, 1.001, 0.02), 2)
Excess = Callable[[float, float], float]  # of delta and raw: how far budgets are exceeded, at most 1 is within all
_SAMPLE = 1 << 16


def pruning_errors(weights: NDArray[np.floating]) -> Floats:
    """Return ||w - w_bar||^2 without the share delta of smallest entries, for each of DELTAS; from a sample if many."""
    step = max(1, len(weights) // _SAMPLE)
    squares = np.sort(np.square(weights[::step].astype(np.float64)))
    lost = np.concatenate([[0.0], np.cumsum(squares)]) * (len(weights) / max(1, len(squares)))
    return np.asarray(lost[np.round(DELTAS * len(squares)).astype(np.int64)])


def choose(
    errors: Floats, beta: float, eta: float, alpha: float, noise: float, q: float, raws: Floats, excess: Excess
) -> tuple[float, float]:
    """Return delta and the probability of a raw upload with the least error within the budgets, or the least excess.

    errors  ||w - w_bar||^2 for those of DELTAS that may be chosen, the first    noise  sigma^2 + 2 kappa g^2
    raws    probabilities of a raw upload that may be chosen
    """
    lost = dict(zip(DELTAS.tolist(), errors, strict=False))

    def rank(choice: tuple[float, float]) -> tuple[float, ...]:
        delta, raw = choice
        error = float(beta**2 * alpha * lost[delta] + 2 * beta * eta * alpha**2 * (1 - raw) * q * noise)
        over = excess(delta, raw)
        return (1.0, error, delta, -raw) if over <= 1 else (over, error)

    return min(product(lost, raws.tolist()), key=rank)
