"""Frozen records that travel between rooms."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

Singles = NDArray[np.float32]
Levels = NDArray[np.int8]
Arrays = dict[str, NDArray[Any]]  # named arrays: the station's state, a vehicle's memory, what is sent down

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
    landed       (T,) rounds in which it is on the ground at home or on the way there; empty where it flies in all
    """

    positions: Floats
    association: Ints
    objective: float
    bound: float
    seconds: float
    method: str
    note: str = ""
    history: tuple[float, ...] = field(default=())
    landed: Bools = field(default_factory=lambda: np.empty(0, bool))

    @property
    def aloft(self) -> Bools:
        """Tell in which rounds the vehicle flies; (T,)."""
        return ~self.landed if self.landed.size else np.ones(len(self.association), bool)

    @property
    def gap(self) -> float:
        """Distance to the proven bound, nats."""
        return max(0.0, self.bound - self.objective)

    def loss(self, classes: int) -> float:
        """Geometric-mean loss per class against the bound, 0..1: 1 - exp(-gap / C)."""
        return float(-np.expm1(-self.gap / classes))


@dataclass(frozen=True)
class Raw:
    """Entries of d as they are.

    values   (n,) entries of d under the mask                                  d_u^t
    trained  (n,) weights after training, of which (start - trained) / rate are the values bit for bit; None if unknown
    rate     local learning rate                                               tilde eta^t
    """

    values: Singles
    trained: Singles | None = None
    rate: float = 0.0


@dataclass(frozen=True)
class Quantised:
    """Entries of d as levels.

    scheme  the quantiser      s  levels above zero      bucket  entries a bucket: 0 all, -1 one a tensor, n
    levels  signed levels -s..s                                                sign(d) * xi * s
    norms   (b,) one norm a bucket                                             ||d||
    seed    what both sides draw shared randomness from; 0 where there is none
    """

    scheme: str
    levels: Levels
    norms: Singles
    s: int
    bucket: int
    seed: int = 0


@dataclass(frozen=True)
class Update:
    """What one vehicle sends in one round: its accumulated gradient d, raw or quantised, and its buffers.

    size       entries of the vector that is sent; p but for weights that can never have a gradient
    mask       (size,) which entries were trained, None when all were          m_u^t
    buffers    (b,) running means and variances after training
    threshold  magnitude below which entries were pruned: helps to send the mask; NaN if unknown
    channels   kept channels, where whole channels were pruned
    coder      how levels are packed
    forms      how the parts were packed in the message this was read from; None lets the sender choose the shortest
    length     largest l2 norm the message allows for d; None where it has not been sent yet
    """

    round: int
    vehicle: int
    size: int
    mask: Bools | None
    body: Raw | Quantised
    buffers: Singles
    threshold: float = float("nan")
    channels: Bools | None = None
    coder: str = "range"
    forms: tuple[int, int, int, int] | None = None
    length: float | None = None

    @cached_property
    def kept(self) -> int:
        """Number of entries sent."""
        return self.size if self.mask is None else int(np.count_nonzero(self.mask))

    @cached_property
    def places(self) -> Ints:
        """(kept,) where the entries sent are."""
        return np.arange(self.size) if self.mask is None else np.flatnonzero(self.mask)

    @property
    def quantised(self) -> bool:
        """Whether levels are sent instead of values."""
        return isinstance(self.body, Quantised)


@dataclass(frozen=True)
class Model:
    """A model: (n,) the weights that can have a gradient, and (b,) its running means and variances."""

    weights: Singles
    buffers: Singles


def checked(arrays: Any, what: str) -> Arrays:
    """Return what a user's own code gave as named arrays; raises TypeError saying what is no array of numbers."""
    if not isinstance(arrays, dict) or not all(isinstance(name, str) for name in arrays):
        raise TypeError(f"{what} is a {type(arrays).__name__}; allowed: a dictionary of named arrays")
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
            raise TypeError(f"{what}[{name!r}] is a {type(array).__name__}; allowed: NumPy arrays of numbers")
    return arrays


def same_arrays(a: Arrays, b: Arrays) -> bool:
    """Tell whether two sets of named arrays are equal to the bit."""
    return a.keys() == b.keys() and all(
        a[name].dtype == b[name].dtype and a[name].shape == b[name].shape and a[name].tobytes() == b[name].tobytes()
        for name in a
    )
