"""What is left of each error as the learning rates go to 0: in the bound, and in training to its end."""

from reproduce.floor import RATES, one_at_a_time, settle
from reproduce.results import OPEN, grid
from skyfed.runs.tables import Row


def observe() -> list[Row]:
    """Train on quadratic losses with one error at a time (about twenty seconds)."""
    return [
        {"error": name, "share": share, "gradient2": settle(problem, share)}
        for name, problem in one_at_a_time().items()
        for share in RATES
    ]


def bounded(rates: list[Row]) -> str:
    """Return the terms of the bound at shrinking rates as a table."""
    return _table(by_rate(rates, "term", "rate", "value"), "both learning rates")


def observed(floor: list[Row]) -> str:
    """Return the squared gradients that were left at shrinking rates as a table."""
    return _table(by_rate(floor, "error", "share", "gradient2"), "both learning rates (of the largest allowed)")


def by_rate(rows: list[Row], name: str, rate: str, value: str) -> dict[str, dict[float, float]]:
    """Return values by name and by rate, in their order."""
    found: dict[str, dict[float, float]] = {}
    for row in rows:
        found.setdefault(row[name], {})[row[rate]] = row[value]
    return found


def _table(found: dict[str, dict[float, float]], head: str) -> str:
    if not found:
        return OPEN
    rates = next(iter(found.values()))
    rows = [[f"{rate:.2g}", *(f"{values[rate]:.3g}" for values in found.values())] for rate in rates]
    return grid("|".join([head, *found]), rows)
