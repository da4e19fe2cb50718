"""What a vehicle senses: the ground in view, how many samples it starts with and how many a round brings (Eq. 6)."""

import math
from typing import Literal

import numpy as np
from pydantic import Field, PositiveFloat

from skyfed.settings import StrictSettings
from skyfed.types import Floats, Ints

_ROUNDING = 1e-12  # relative: a ceiling must not be raised by float noise, nor a small share lost

_MOST_INITIAL = 1_000_000  # each has a position, from which a vehicle estimates its field: 16 MB of them

RIM = 1e-9  # m: a position on the rim is over the disc


class SensorSettings(StrictSettings):
    """A camera that looks straight down."""

    altitude: PositiveFloat = Field(100.0, description="h, height above ground, m")
    fov: float = Field(40.0, gt=0, lt=90, description="theta, half the opening angle, degrees (as in 2 h tan(theta))")


def footprint_side(altitude: float, fov: float) -> float:
    """Side of the square of ground in view, m: 2 h tan(theta)."""
    return 2 * altitude * math.tan(math.radians(fov))


class SensingSettings(StrictSettings):
    """How a visit brings samples: by the camera's footprint, or by the paper's law (Eq. 6); sizes of the data sets."""

    model: Literal["footprint", "eq6"] = Field(
        "footprint",
        description="footprint: a visit photographs the events in the camera's view; eq6: the paper's law of distance",
    )
    # chosen, not measured: 15 rounds of 40 s; and the camera's own altitude, so that its pictures are sharp
    stay: PositiveFloat = Field(600.0, description="footprint: seconds that an event stays in its place")
    sharp_altitude: PositiveFloat = Field(
        100.0, description="footprint: m; pictures from higher up have fewer pixels on the ground"
    )
    n_max: int = Field(420, ge=0, le=100_000_000, description="eq6: N_max, most training samples per round (Eq. 6)")
    n_max_test: int = Field(80, ge=0, le=100_000_000, description="the same for the test set")
    initial: int = Field(
        512,
        ge=1,
        le=_MOST_INITIAL,
        description="training samples that a vehicle starts with, shared out by its mean psi",
    )
    initial_test: int = Field(128, ge=1, le=_MOST_INITIAL, description="the same for the test set")
    decay_length: PositiveFloat = Field(50.0, description="eq6: m; 1 is the paper's exp(-metres)")
    keep_last: int = Field(0, ge=0, description="most samples that a vehicle keeps, the newest; 0 keeps all")


def initial_counts(psi: Floats, initial: int) -> Ints:
    """Samples of each class in the initial set: ceil(E_t[psi] * initial); psi (C, T) -> (C,)."""
    return np.asarray(np.ceil(psi.mean(axis=1) * initial * (1 - _ROUNDING)), np.int64)


def new_counts(positions: Floats, psi: Floats, centres: Floats, radii: Floats, n_max: int, decay_length: float) -> Ints:
    """New samples of each class in each round, by the true discs; positions (T, 2), psi (C, T) -> (C, T) (Eqs. 3, 6).

    N = ceil(sum_c N_max psi exp(-distance / decay_length) I). Over one disc all are of its class; where true discs
    overlap, N is shared out in proportion, largest remainders first.
    """
    far = np.hypot(*(positions[None] - centres[:, None]).transpose(2, 0, 1))  # (C, T)
    over = far <= radii[:, None] + RIM
    part = np.where(over, n_max * psi * np.exp(-far / decay_length), 0.0)
    whole = part.sum(axis=0)
    total = np.ceil(whole * (1 - _ROUNDING))
    exact = total * np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
    counts = np.floor(exact * (1 + _ROUNDING))
    for t in np.flatnonzero(total > counts.sum(axis=0)):
        short = int(total[t] - counts[:, t].sum())
        counts[np.argsort(-(exact - counts)[:, t], kind="stable")[:short], t] += 1
    return np.asarray(counts, np.int64)
