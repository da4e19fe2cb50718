"""Frozen records that travel between rooms."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

Singles = NDArray[np.float32]

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


@dataclass(frozen=True)
class Update:
    """What one vehicle sends in one round: its accumulated gradient d, raw or quantised, and its buffers.

    size     p, entries of the model
    mask     (p,) which entries were trained, None when all were             m_u^t
    values   (n,) raw entries of d under the mask, None when quantised        d_u^t
    levels   (n,) signed levels -s..s, None when raw                          sign(d) * xi * s
    norms    (k,) one norm a bucket                                           ||d||
    s        levels above zero                bucket  entries a bucket: 0 all, -1 one a tensor, n
    buffers  (b,) running means and variances after training
    """

    round: int
    vehicle: int
    size: int
    mask: Bools | None
    values: Singles | None
    levels: NDArray[np.int8] | None
    norms: Singles | None
    s: int
    bucket: int
    buffers: Singles

    @property
    def kept(self) -> int:
        """Number of entries sent."""
        return self.size if self.mask is None else int(self.mask.sum())

    @property
    def quantised(self) -> bool:
        """Whether levels are sent instead of values."""
        return self.levels is not None
