"""How the station turns an averaged gradient into a step: plain, with momentum, or adaptive (Reddi et al., ICLR 2021).

What a step needs from earlier ones is named arrays in float32, so that the station's state and a vehicle's copy of it
stay equal to the bit. A step itself is worked out in float64.
"""

from typing import Literal

import numpy as np
from pydantic import Field

from skyfed.blocks.aggregate import moved
from skyfed.settings import StrictSettings
from skyfed.types import Arrays, Floats, Singles


class OptimiserSettings(StrictSettings):
    """The station's optimiser."""

    kind: Literal["plain", "momentum", "nesterov", "adam", "yogi"] = Field(
        "plain", description="how the averaged gradient becomes a step"
    )
    beta: float = Field(0.9, ge=0, lt=1, description="share of the last direction that is kept")
    beta2: float = Field(0.99, ge=0, lt=1, description="adam, yogi: share of the last squares that is kept")
    tau: float = Field(1e-3, gt=0, description="adam, yogi: added to the root of the squares")


def moments(settings: OptimiserSettings, size: int) -> Arrays:
    """Return what the first step starts from."""
    names = {"plain": (), "momentum": ("speed",), "nesterov": ("speed",)}.get(settings.kind, ("speed", "squares"))
    return {name: np.zeros(size, np.float32) for name in names}


def advance(
    weights: Singles, gradient: Floats | Singles, before: Arrays, eta: float, settings: OptimiserSettings
) -> tuple[Singles, Arrays]:
    """Return the weights after a step, and what the next step starts from."""
    wide, after = np.asarray(gradient, np.float64), Arrays()
    if settings.kind == "plain":
        return moved(weights, eta * wide), after
    adaptive = settings.kind in ("adam", "yogi")
    speed = settings.beta * before["speed"].astype(np.float64) + (1 - settings.beta if adaptive else 1) * wide
    after["speed"] = speed.astype(np.float32)
    if settings.kind == "momentum":
        return moved(weights, eta * speed), after
    if settings.kind == "nesterov":
        return moved(weights, eta * (wide + settings.beta * speed)), after
    last, new = before["squares"].astype(np.float64), wide * wide
    squares = settings.beta2 * last + (1 - settings.beta2) * new
    if settings.kind == "yogi":
        squares = last - (1 - settings.beta2) * new * np.sign(last - new)
    after["squares"] = squares.astype(np.float32)
    return moved(weights, eta * speed / (np.sqrt(squares) + settings.tau)), after
