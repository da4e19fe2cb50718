"""A message over a channel that fades: blocks of packets arrive or are sent again (modelled)."""

from collections.abc import Sequence
from math import ceil

import numpy as np
from numpy.typing import NDArray


def send_blocks(
    size: int, block: int, needed: NDArray[np.float64], factors: Sequence[float], retries: int, rng: np.random.Generator
) -> tuple[int, int, NDArray[np.bool_]]:
    """Send blocks of packets until every receiver has them or the tries are used up.

    All packets of a block see the same channel, so they arrive together or not at all. A repetition waits for the next
    block. Returns the bytes sent, the bytes that fit into the time waited, and by receiver whether all arrived.
    """
    count = ceil(size / block)
    missing = np.ones((count, len(needed)), dtype=bool)
    unfilled = count * block - size  # of the last block
    sent = idle = gap = 0
    for _ in range(retries + 1):
        open_blocks = np.flatnonzero(missing.any(axis=1))
        if not len(open_blocks):
            break
        idle += gap
        gap = unfilled if open_blocks[-1] == count - 1 else 0
        sent += len(open_blocks) * block - gap
        missing[open_blocks] &= rician_gains(factors, len(open_blocks), rng) < needed
    arrived: NDArray[np.bool_] = np.logical_not(missing.any(axis=0))
    return sent, idle, arrived


def rician_gains(factors: Sequence[float], blocks: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw Rician power gains of mean 1, one row per block, one column per receiver."""
    factor = np.asarray(factors)
    parts = rng.standard_normal((2, blocks, len(factor)))
    direct, scattered = np.sqrt(factor / (factor + 1)), 1 / np.sqrt(2 * (factor + 1))
    gains: NDArray[np.float64] = (direct + scattered * parts[0]) ** 2 + (scattered * parts[1]) ** 2
    return gains
