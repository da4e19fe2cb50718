"""Numbers for people: how many digits to show, and in which unit. Every table and page of skyfed uses this."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, floor, isfinite, log, log10
from statistics import fmean

MISSING = "-"  # where there is no number
_SIGNIFICANT = 3  # digits of a number without an interval
_LONGEST = 6  # decimals; beyond, a power of ten is set apart
_LARGEST = 1e12  # likewise
_PREFIXES = {"B": (0, 4), "J": (0, 4)}  # of units that take one: the first and the last power of 1000
_NAMES = ("", "k", "M", "G", "T")
_FIXED = {"%": 100.0, "min": 1 / 60}  # units that are not SI: shares of 1, and seconds shown as minutes


@dataclass(frozen=True)
class Unit:
    """A unit and the factor that turns an SI value, or a share of 1, into it."""

    name: str
    factor: float


def unit_of(kind: str, values: Iterable[float | None]) -> Unit:
    """Return the unit that suits all values of a column together: by their geometric mean, so none is far from 1.

    kind  "%" for shares of 1, "min" for seconds; "B" and "J" get a prefix; any other unit stays as it is
    """
    if kind in _FIXED:
        return Unit(kind, _FIXED[kind])
    sizes = [abs(value) for value in values if value]
    if kind not in _PREFIXES or not sizes:
        return Unit(kind, 1.0)
    first, last = _PREFIXES[kind]
    typical = exp(fmean(map(log, sizes)))
    power = min(max(floor(log10(typical) / 3 + 1e-9), first), last)
    return Unit(_NAMES[power] + kind, 1000.0**-power)


def amount(value: float, kind: str) -> str:
    """Return one number with the unit that suits it: 12.3 kB."""
    unit = unit_of(kind, [value])
    return f"{number(unit.factor * value)} {unit.name}"


def number(value: float | None, sign: str = "") -> str:
    """Return a number without an interval: three significant digits, and every digit before the point."""
    if value is None or not isfinite(value):
        return MISSING
    return _shown(value, _decimals(value, _SIGNIFICANT), sign) if value else f"{0:{sign}d}"


def with_interval(mean: float | None, half: float | None, sign: str = "") -> str:
    """Return "mean ± half", both to the digits that the half of the interval has; "mean" where there is no interval.

    The half has two significant digits if its first is 1, otherwise one: 48.40 ± 0.12, 48.4 ± 0.3, 1,230 ± 20.
    """
    if mean is None or half is None or not isfinite(mean) or not isfinite(half):
        return number(mean, sign)
    if half == 0:
        return f"{number(mean, sign)} ± 0"
    decimals = _decimals(half, 2 if f"{half:e}"[0] == "1" else 1)
    if decimals > _LONGEST or max(abs(mean), half) >= _LARGEST:
        power = floor(log10(max(abs(mean), half)))
        scale = 10.0**-power
        both = f"{_fixed(mean * scale, decimals + power, sign)} ± {_fixed(half * scale, decimals + power)}"
        return f"({both})e{power:+03d}"
    return f"{_fixed(mean, decimals, sign)} ± {_fixed(half, decimals)}"


def probability(p: float) -> str:
    """Return a p value to three digits."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3g}"


def _decimals(value: float, significant: int) -> int:
    """Return how many decimals show so many significant digits; negative where not all before the point are shown."""
    return significant - 1 - floor(log10(abs(value)))


def _shown(value: float, decimals: int, sign: str) -> str:
    if decimals > _LONGEST or abs(value) >= _LARGEST:
        return f"{value:{sign}.{_SIGNIFICANT - 1}e}"
    return _fixed(value, max(decimals, 0), sign)


def _fixed(value: float, decimals: int, sign: str = "") -> str:
    """Return a number rounded to so many decimals, thousands apart; a rounded 0 has no minus."""
    rounded = round(value, decimals) + 0.0
    return f"{rounded:{sign},.{max(decimals, 0)}f}"
