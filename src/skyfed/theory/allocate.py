"""Choose the pruning ratio and the probability of a raw upload from the bound, under budgets (docs/theory.md).

The paper leaves this for later. Of the corrected bound, a vehicle alone controls, in the lowest order of the rates,
beta^2 alpha P(delta) + 2 beta eta alpha^2 (1 - raw) q (sigma^2 + 2 kappa g^2): pruning costs what is cut off,
quantising adds noise to the whole of d. What masks of others do to it is left out. Both choices have few sensible
values, so all are tried.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skyfed.types import Floats

DELTAS: Floats = np.round(np.arange(0, 0.951, 0.025), 3)
RAWS: Floats = np.round(np.arange(0, 1.001, 0.02), 2)
_SAMPLE = 1 << 16


@dataclass(frozen=True)
class Choice:
    """What a vehicle does in a round, and the bound's terms it controls."""

    delta: float
    raw: float
    error: float
    fits: bool


def pruning_errors(weights: NDArray[np.floating]) -> Floats:
    """Return ||w - w_bar||^2 without the share delta of smallest entries, for each of DELTAS; from a sample if many."""
    step = max(1, len(weights) // _SAMPLE)
    squares = np.sort(np.square(weights[::step].astype(np.float64)))
    lost = np.concatenate([[0.0], np.cumsum(squares)]) * (len(weights) / max(1, len(squares)))
    return np.asarray(lost[np.round(DELTAS * len(squares)).astype(np.int64)])


def choose(
    errors: Floats,
    beta: float,
    eta: float,
    alpha: float,
    noise: float,
    q: float,
    may_prune: bool,
    raws: Floats,
    fits: Callable[[float, float], bool],
    cheapest: Callable[[float, float], float],
) -> Choice:
    """Return the choice with the least error of those that fit the budgets; the cheapest where none does.

    errors  ||w - w_bar||^2 for each of DELTAS    fits, cheapest  of (delta, raw): within the budgets; how far off
    raws    probabilities of a raw upload that may be chosen    noise  sigma^2 + 2 kappa g^2
    """
    choices = []
    for delta, lost in zip(DELTAS.tolist() if may_prune else DELTAS[:1].tolist(), errors, strict=False):
        for raw in raws.tolist():
            error = float(beta**2 * alpha * lost + 2 * beta * eta * alpha**2 * (1 - raw) * q * noise)
            choices.append(Choice(delta, raw, error, fits(delta, raw)))
    fitting = [choice for choice in choices if choice.fits]
    if fitting:
        return min(fitting, key=lambda choice: (choice.error, choice.delta, -choice.raw))
    return min(choices, key=lambda choice: (cheapest(choice.delta, choice.raw), choice.error))
