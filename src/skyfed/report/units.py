"""The units that figures are drawn in: each is reached in one way only, so that equal numbers look equal everywhere."""

from typing import TypeVar

from skyfed.types import Floats

_Number = TypeVar("_Number", float, Floats)


def megabytes(size: _Number) -> _Number:
    """Megabytes of bytes."""
    return size / 1e6


def megabytes_of_bits(size: _Number) -> _Number:
    """Megabytes of bits, in which the paper's formula counts."""
    return size / 8e6
