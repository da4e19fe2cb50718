"""The units that people read: each is reached in one way only, so that equal numbers look equal everywhere."""

from collections.abc import Callable
from typing import TypeVar

from skyfed.types import Floats

Unit = Callable[[float], float]  # from a number as it is kept to one as it is shown
_Number = TypeVar("_Number", float, Floats)


def percent(share: float) -> float:
    """Per cent of a share 0..1."""
    return 100.0 * share


def megabytes(size: _Number) -> _Number:
    """Megabytes of bytes."""
    return size / 1e6


def megabytes_of_bits(size: _Number) -> _Number:
    """Megabytes of bits, in which the paper's formula counts."""
    return size / 8e6


def kilojoules(joules: float) -> float:
    """Kilojoules of joules."""
    return joules / 1e3
