"""How near two vehicles come when they leave together, fly straight at one speed, and wait where they arrive."""

import numpy as np

from skyfed.types import Bools, Floats

SAFE = 1e-6  # m more than asked for, so that rounding breaks nothing


def nearest(start: Floats, stop: Floats, other_start: Floats, other_stop: Floats) -> Floats:
    """Least distance of vehicles on legs from start to stop (..., 2) to one on another leg; broadcast as arrays are.

    Their difference moves straight until one of them arrives, then straight again until the other does.
    """
    way, other = stop - start, other_stop - other_start
    length, far = _norm(way), _norm(other)
    both = np.minimum(length, far)[..., None]
    gap = start - other_start
    met = gap + both * (_unit(way, length) - _unit(other, far))
    return np.minimum(_to_origin(gap, met), _to_origin(met, stop - other_stop))


def conflicts(positions: Floats, others: Floats, metres: float) -> Bools:
    """Tell in which rounds positions (T, 2), or the leg there, come within `metres` of others (K, T, 2); (T,).

    The way to the first position is not looked at: all vehicles start at one place.
    """
    before = np.concatenate([positions[:1], positions[:-1]])
    others_before = np.concatenate([others[:, :1], others[:, :-1]], axis=1)
    return np.asarray((nearest(before[None], positions[None], others_before, others) < metres + SAFE / 2).any(axis=0))


def _norm(way: Floats) -> Floats:
    return np.asarray(np.sqrt((way**2).sum(axis=-1)))


def _unit(way: Floats, length: Floats) -> Floats:
    return np.asarray(way / np.where(length > 0, length, 1.0)[..., None])


def _to_origin(p: Floats, q: Floats) -> Floats:
    """Distance from the origin to segments from p to q."""
    way = q - p
    square = (way**2).sum(axis=-1)
    part = np.clip(-(p * way).sum(axis=-1) / np.where(square > 0, square, 1.0), 0.0, 1.0)
    return _norm(p + part[..., None] * way)
