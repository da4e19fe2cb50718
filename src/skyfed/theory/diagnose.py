"""What Theorem 1 says about a run that recorded its constants: terms by round, what fails and by how much, advice."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from skyfed.theory.bound import FORMS, Bound, Form, Round, averaged, bound, largest_rate
from skyfed.theory.estimate import Row, rounds_of

Record = dict[str, str | int | float | None]


@dataclass(frozen=True)
class Diagnosis:
    """The bound of one algorithm in every measured round, in all forms.

    rounds     their numbers                             realised  (r,) ||masked gradient||^2, measured
    constants  of every round                            uploads   of how many assumption 5 was checked
    bounds     by form                                   broken    of them, how many broke it, and the worst excess
    variance   mean measured relative variance of quantised uploads in the measured rounds; NaN without any
    pruned     whether some upload was pruned
    """

    algorithm: str
    rounds: list[int]
    realised: list[float]
    constants: list[Round]
    bounds: dict[Form, list[Bound]]
    uploads: int
    broken: int
    worst: float
    variance: float
    pruned: bool

    def largest_rate(self, form: Form) -> float:
        """Return the largest rate that every measured round allows."""
        return min(largest_rate(given, form) for given in self.constants)

    def failing(self, form: Form) -> list[tuple[str, int, float]]:
        """Return the conditions that fail: name, in how many rounds, and the worst factor by which."""
        failed: dict[str, list[float]] = {}
        for broken in (condition for each in self.bounds[form] for condition in each.conditions if not condition.holds):
            failed.setdefault(broken.name, []).append(broken.value / broken.limit)
        return [(name, len(factors), max(factors)) for name, factors in failed.items()]

    def errors_at(self, rate: float) -> dict[str, float]:
        """Return the corrected error terms beside progress and shift, averaged, if both learning rates were this."""
        still = [replace(given, eta=rate, eta_local=rate, now=0.0, after=0.0, kept=0.0) for given in self.constants]
        return {name: value for name, value in averaged(still).items() if name not in ("progress", "data shift")}

    def records(self) -> list[Record]:
        """Return everything as records: round, form, term, value; None where there is no finite value."""
        records = []
        for t, value in zip(self.rounds, self.realised, strict=True):
            records.append(_record(self.algorithm, t, "measured", "gradient", value))
        for form, bounds in self.bounds.items():
            for t, each in zip(self.rounds, bounds, strict=True):
                for term, value in (*each.terms.items(), ("total", each.total)):
                    records.append(_record(self.algorithm, t, form, term, value))
        return records


def _record(algorithm: str, t: int, form: str, term: str, value: float) -> Record:
    finite = float(value) if np.isfinite(value) else None
    return {"algorithm": algorithm, "round": t, "form": form, "term": term, "value": finite}


def diagnose(algorithm: str, rows: Sequence[Row], uplink: Sequence[Row]) -> Diagnosis:
    """Evaluate the bound from the rows of `theory` and `uplink`."""
    constants = rounds_of(rows)
    shares = [(row["pruned_share"], row["delta"]) for row in uplink if row.get("pruned_share") is not None]
    excess = [share / delta if delta else np.inf for share, delta in shares if share > delta + 1e-9]
    variances = [value for row in rows for value in row["variance"] if value is not None]
    return Diagnosis(
        algorithm,
        [row["round"] for row in rows],
        [row["gradient2"] for row in rows],
        constants,
        {form: [bound(given, form) for given in constants] for form in FORMS},
        len(shares),
        len(excess),
        float(max(excess, default=1.0)),
        float(np.mean(variances)) if variances else float("nan"),
        any(row.get("delta") for row in uplink),
    )
