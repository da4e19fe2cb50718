"""A task of one's own: which bands of a radio window are occupied.

`skyfed run smoke --set data.name=examples/radio_task.py:load --set model.name=cnn --set field.classes=4`

Samples are I/Q windows of shape (2, 128). A window has several labels, one per band: occupied or not. Where a window
occurs is another matter than its labels: each of the four places has its own habit of which bands are in use.
"""

import numpy as np
from torch import Tensor
from torch.nn import functional

from skyfed import Samples, Task

BANDS, LENGTH = 6, 128
HABITS = np.array([  # per place, how likely each band is in use
    [0.8, 0.8, 0.2, 0.2, 0.2, 0.2],
    [0.2, 0.8, 0.8, 0.2, 0.2, 0.2],
    [0.2, 0.2, 0.2, 0.8, 0.8, 0.2],
    [0.5, 0.2, 0.2, 0.2, 0.8, 0.8],
])  # fmt: skip


def windows(count: int, seed: int) -> Samples:
    """Draw windows: a tone of random phase and strength in every occupied band, and noise."""
    rng = np.random.default_rng(seed)
    places = rng.integers(len(HABITS), size=count)
    occupied = rng.random((count, BANDS)) < HABITS[places]
    time, frequency = np.arange(LENGTH), (np.arange(BANDS) + 0.5) / BANDS - 0.5
    phase = rng.uniform(0, 2 * np.pi, (count, BANDS, 1)) + 2 * np.pi * frequency[None, :, None] * time
    tones = (occupied * rng.uniform(0.5, 1.5, (count, BANDS)))[..., None] * np.exp(1j * phase)
    noise = rng.normal(0, 0.5, (count, LENGTH)) + 1j * rng.normal(0, 0.5, (count, LENGTH))
    signal = tones.sum(axis=1) + noise
    inputs = np.stack([signal.real, signal.imag], axis=1).astype(np.float32)
    return Samples(inputs, occupied.astype(np.float32), places)


def right(outputs: Tensor, targets: Tensor) -> Tensor:
    """Share of a window's bands that were told right; its mean over windows is the accuracy."""
    return ((outputs > 0) == (targets > 0.5)).double().mean(dim=1)


def all_right(outputs: Tensor, targets: Tensor) -> Tensor:
    """1 where every band of a window was told right; its mean is a further column of rounds.parquet."""
    return ((outputs > 0) == (targets > 0.5)).all(dim=1).double()


def load() -> Task:
    """Return the task; skyfed calls this once per process."""
    return Task(
        train=windows(4000, seed=1),
        test=windows(1000, seed=2),
        places=("harbour", "airport", "town", "field"),
        outputs=BANDS,
        loss=functional.binary_cross_entropy_with_logits,
        score=right,
        metrics={"all_right": all_right},
    )
