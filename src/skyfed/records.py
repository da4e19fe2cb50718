"""Frozen records that travel between rooms."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

IDLE = -1  # association of a round in which a vehicle is over no disc


@dataclass(frozen=True)
class Plan:
    """One vehicle's flight: where it is and which class it senses in every round.

    positions    (T, 2) metres, station at (0, 0)         q_u^t
    association  (T,) class index, IDLE where none        I_{u,c}^t = 1 for c = association[t]
    objective    sum_c log(sum_t I psi + epsilon), nats   (Eq. 4)
    bound        proven upper bound on the best objective; infinity where the method proves none
    seconds      CPU seconds the planner spent (measured)
    method       what was asked for
    note         empty, or what happened instead: a fallback, a limit that was reached
    history      objective after each iteration of an iterative method
    """

    positions: Floats
    association: Ints
    objective: float
    bound: float
    seconds: float
    method: str
    note: str = ""
    history: tuple[float, ...] = field(default=())

    @property
    def gap(self) -> float:
        """Distance to the proven bound, nats."""
        return max(0.0, self.bound - self.objective)

    def loss(self, classes: int) -> float:
        """Geometric-mean loss per class against the bound, 0..1: 1 - exp(-gap / C)."""
        return float(-np.expm1(-self.gap / classes))
