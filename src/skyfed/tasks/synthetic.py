"""Generated pictures: ten classes of smooth patterns under shifts, colour changes and noise; nothing to download."""

import numpy as np

from skyfed.rng import stream
from skyfed.tasks.cache import Bytes, Pictures

CLASSES, SIDE = 10, 32
TRAIN, TEST = 600, 150  # pictures per class
_NOISE = 55.0  # of 255: makes a linear classifier fail on a good part


def generate() -> Pictures:
    """Return the data set; the same on every machine."""
    patterns = _patterns()
    names = tuple(f"pattern {c}" for c in range(CLASSES))
    return Pictures(*_draw(patterns, "train", TRAIN), *_draw(patterns, "test", TEST), names)


def _patterns() -> np.ndarray:
    """One sum of a few waves per class and channel; (C, 3, side, side), zero mean."""
    rng = stream(0, "synthetic patterns")
    grid = np.arange(SIDE) / SIDE
    waves = rng.integers(1, 4, (CLASSES, 3, 4, 2))
    phase = rng.uniform(0, 2 * np.pi, (CLASSES, 3, 4))
    angle = waves[..., 0, None, None] * grid[:, None] + waves[..., 1, None, None] * grid[None]
    return np.asarray(np.sin(2 * np.pi * angle + phase[..., None, None]).sum(axis=2))


def _draw(patterns: np.ndarray, part: str, count: int) -> tuple[Bytes, Bytes]:
    rng = stream(0, f"synthetic {part}")
    labels = np.repeat(np.arange(CLASSES), count)[rng.permutation(CLASSES * count)]
    shift = rng.integers(-4, 5, (len(labels), 2))
    gain = rng.uniform(12, 32, (len(labels), 3, 1, 1))
    level = rng.uniform(96, 160, (len(labels), 3, 1, 1))
    rows = (np.arange(SIDE)[None] - shift[:, :1]) % SIDE
    columns = (np.arange(SIDE)[None] - shift[:, 1:]) % SIDE
    moved = patterns[labels][np.arange(len(labels))[:, None, None, None], np.arange(3)[None, :, None, None],
                             rows[:, None, :, None], columns[:, None, None, :]]  # fmt: skip
    noise = rng.standard_normal(moved.shape, np.float32) * _NOISE
    return np.clip(level + gain * moved + noise, 0, 255).astype(np.uint8), labels.astype(np.uint8)
