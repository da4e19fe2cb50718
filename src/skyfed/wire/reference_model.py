"""What vehicle and station both know before a message: the model the round started from."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import xxhash
from numpy.typing import NDArray

from skyfed.types import Bools, Ints, Singles
from skyfed.wire.reader import chunks


@dataclass(frozen=True)
class Channels:
    """Which channels every entry belongs to: it is kept when both of its channels are; -1 stands for none.

    count  number of channels that may be pruned      first, second  (size,) their numbers
    """

    count: int
    first: NDArray[np.int32]
    second: NDArray[np.int32]

    def mask(self, kept: Bools) -> Bools:
        """Return the entries that stay when these channels do."""
        known = np.append(kept, True)  # -1 is always there
        return np.asarray(known[self.first] & known[self.second])


@dataclass(frozen=True)
class Reference:
    """The received model, and how its entries lie.

    weights  (size,) w^t                         buffers   (b,) its running means and variances
    starts   (k+1,) of its parameter tensors     scope     (size,) entries that may be pruned; None: all
    channels which entries a channel takes along, where whole channels are pruned
    variances (b,) of each buffer the place of the running variance that goes with it, its own for a variance; -1: none
    """

    weights: Singles
    buffers: Singles
    starts: Ints
    scope: Bools | None = None
    channels: Channels | None = None
    variances: Ints | None = None

    @property
    def variance_of(self) -> Ints:
        """Of each buffer the place of its running variance; -1 where it has none."""
        return np.full(len(self.buffers), -1) if self.variances is None else self.variances

    @property
    def size(self) -> int:
        """Entries of a message."""
        return len(self.weights)

    @cached_property
    def digest(self) -> int:
        """64 bits that stand for w^t and its buffers (XXH3)."""
        hashed = xxhash.xxh3_64(np.ascontiguousarray(self.weights, "<f4").data)
        hashed.update(np.ascontiguousarray(self.buffers, "<f4").data)
        return int(hashed.intdigest())

    def guess(self, threshold: float) -> Bools:
        """Return the mask that this threshold gives on w^t: what a mask sent as its differences starts from."""
        kept = np.empty(self.size, bool)
        for part in chunks(self.size):
            np.greater_equal(np.abs(self.weights[part]), np.float32(threshold), out=kept[part])
            if self.scope is not None:
                kept[part] |= ~self.scope[part]
        return kept


@dataclass(frozen=True)
class Expected:
    """What the station waits for: whose upload of which round, and the limits it sets.

    rate     local learning rate of the round; None: not checked
    longest  largest l2 norm of d that is accepted
    """

    round: int
    vehicle: int
    reference: Reference
    rate: float | None = None
    longest: float = float("inf")
