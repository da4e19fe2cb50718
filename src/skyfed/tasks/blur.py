"""What a camera sees from high up: the same pictures with fewer pixels on the ground."""

from dataclasses import replace

import numpy as np

from skyfed.errors import BadInputError
from skyfed.tasks.cache import Bytes
from skyfed.tasks.task import Samples, Task
from skyfed.types import Ints

_CHUNK = 2048  # pictures at a time: 25 MB of floats for three channels of 32 x 32
_SINGLE = 2**24  # whole numbers up to this are exact in float32


def pixels_from(side: int, altitude: float, sharp_altitude: float) -> int:
    """Return how many pixels a side of a picture has, taken from this altitude: `side` up to `sharp_altitude`."""
    return side if altitude <= sharp_altitude else max(1, round(side * sharp_altitude / altitude))


def seen_from(task: Task, altitude: float, sharp_altitude: float) -> Task:
    """Return the task as a camera sees it from an altitude, in training and in testing; the same up to the sharp one.

    Higher up, pictures are averaged down to fewer pixels and enlarged back to their size.
    """
    if altitude <= sharp_altitude:
        return task
    if len(task.shape) != 3 or any(samples.inputs.dtype != np.uint8 for samples in (task.train, task.test)):
        raise BadInputError(
            f"sensor.altitude = {altitude:g} is above sensing.sharp_altitude = {sharp_altitude:g}, but the data are "
            f"not pictures of bytes (channels, height, width); allowed: an altitude of at most {sharp_altitude:g}"
        )
    height, width = (pixels_from(side, altitude, sharp_altitude) for side in task.shape[1:])
    if (height, width) == task.shape[1:]:
        return task

    def blurred(samples: Samples) -> Samples:
        return replace(samples, inputs=coarse(samples.inputs, height, width))

    return replace(task, train=blurred(task.train), test=blurred(task.test), digest=None)  # hashed as it now is


def coarse(pictures: Bytes, height: int, width: int) -> Bytes:
    """Average pictures (N, channels, H, W) over height x width equal cells, and give each pixel its cell's mean.

    A pixel that lies in several cells counts in each by its area there; it takes the mean of the cell that holds its
    centre. All sums are whole numbers that floats hold exactly, so every machine gives the same bytes.
    """
    tall, wide = pictures.shape[2:]
    kind: type[np.float32 | np.float64] = np.float32 if 255 * tall * wide < _SINGLE else np.float64
    across, down = _overlaps(wide, width).astype(kind).T, _overlaps(tall, height).astype(kind)
    rows, columns = _holding_cell(tall, height), _holding_cell(wide, width)
    seen = np.empty_like(pictures)
    for start in range(0, len(pictures), _CHUNK):
        part = pictures[start : start + _CHUNK]
        total = np.matmul(down, np.matmul(part.astype(kind), across)).astype(np.int64)
        mean = ((total + tall * wide // 2) // (tall * wide)).astype(np.uint8)  # halves go up
        seen[start : start + _CHUNK] = mean[:, :, rows[:, None], columns]
    return seen


def _overlaps(pixels: int, cells: int) -> Ints:
    """Return how much of each pixel lies in each cell, (cells, pixels), in units in which a cell is `pixels` long."""
    cell, pixel = np.arange(cells)[:, None] * pixels, np.arange(pixels) * cells
    shared = np.minimum(cell + pixels, pixel + cells) - np.maximum(cell, pixel)
    return np.asarray(np.maximum(0, shared))


def _holding_cell(pixels: int, cells: int) -> Ints:
    """Return the cell that holds each pixel's centre, (pixels,)."""
    return (2 * np.arange(pixels) + 1) * cells // (2 * pixels)
