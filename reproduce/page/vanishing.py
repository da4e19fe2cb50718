"""Does an error vanish as the learning rates go to 0? In the bound, and where training can be followed to its end."""

from statistics import mean

from reproduce.floor import RATES, one_at_a_time, settle
from reproduce.results import OPEN, grid
from skyfed.runs.tables import Row

_GONE = 0.3  # share of an error that is left from one rate to the next, a tenth of it, if it goes to 0


def observe() -> list[Row]:
    """Train on quadratic losses with one error at a time (about twenty seconds)."""
    return [
        {"error": name, "share": share, "gradient2": settle(problem, share)}
        for name, problem in one_at_a_time().items()
        for share in RATES
    ]


def answer(rates: list[Row], floor: list[Row]) -> str:
    """Say what is left of pruning and of the other errors from the second lowest rate to the lowest."""
    terms = _by(rates, "term", "rate", "value")
    if len(terms.get("pruning", {})) < 2:
        return OPEN
    low, high = sorted(terms["pruning"])[:2]
    stays = "Not in the bound, where this term has no rate as a factor, only denominators that tend to 1"
    verdict = "In the bound, yes" if _left(terms)["pruning"] <= _GONE else stays
    beside = [row["realised"] for row in rates if row.get("realised")]
    far = f", {terms['pruning'][low] / mean(beside):.1g} times the squared gradient in that run" if beside else ""
    said = (
        f"{verdict} (the corrected form, constants measured in one run): from the rate {high:.2g} to {low:.2g} "
        f"{_shares(terms)}. Pruning is at {terms['pruning'][low]:.2g} then{far}."
    )
    seen = _by(floor, "error", "share", "gradient2")
    if seen:
        seems = "It does" if _left(seen)["pruning"] <= _GONE else "Nor does it"
        said += (
            f" {seems} in training, where that can be followed to its end (quadratic losses, one error at a time): "
            f"at a tenth of the rate {_shares(seen)}."
        )
    return said


def bounded(rates: list[Row]) -> str:
    """Return the terms of the bound at shrinking rates as a table."""
    return _table(_by(rates, "term", "rate", "value"), "both learning rates")


def observed(floor: list[Row]) -> str:
    """Return the squared gradients that were left at shrinking rates as a table."""
    return _table(_by(floor, "error", "share", "gradient2"), "both learning rates (of the largest allowed)")


def _by(rows: list[Row], name: str, rate: str, value: str) -> dict[str, dict[float, float]]:
    """Return values by name and by rate, in their order."""
    found: dict[str, dict[float, float]] = {}
    for row in rows:
        found.setdefault(row[name], {})[row[rate]] = row[value]
    return found


def _left(found: dict[str, dict[float, float]]) -> dict[str, float]:
    """Return what share of each is left from the second lowest rate to the lowest."""
    low, high = sorted(next(iter(found.values())))[:2]
    return {name: by_rate[low] / by_rate[high] for name, by_rate in found.items()}


def _shares(found: dict[str, dict[float, float]]) -> str:
    left = _left(found)
    others = ", ".join(f"{name} {share:.2g}" for name, share in left.items() if name != "pruning")
    return f"pruning keeps {left['pruning']:.2g} of itself, {others}"


def _table(found: dict[str, dict[float, float]], head: str) -> str:
    if not found:
        return OPEN
    rates = next(iter(found.values()))
    rows = [[f"{rate:.2g}", *(f"{by_rate[rate]:.3g}" for by_rate in found.values())] for rate in rates]
    return grid("|".join([head, *found]), rows)
