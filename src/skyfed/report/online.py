"""Figures of learning while the world goes on: accuracy over mission time, and what a sudden change costs."""

import numpy as np

from skyfed.runs.tables import Row
from skyfed.tasks.drift import Drift
from skyfed.types import Floats


def online_figures(tested: list[Row], drift: Drift) -> dict[str, float | None]:
    """Return a row's online figures from the rounds in which it was tested; None for what is not defined."""
    last = tested[-1] if tested else {}
    seconds, accuracy = test_times(tested), np.array([row["accuracy_full"] for row in tested], np.float64)
    drop, recovery = recovery_after(seconds, accuracy, drift.change, drift.settings.margin)
    return {
        "online_accuracy": time_average(seconds, accuracy),
        "accuracy_start": last.get("accuracy_start"),
        "forgetting_start": last.get("forgetting_start"),
        "drop": drop,
        "recovery_seconds": recovery,
    }


def test_times(tested: list[Row]) -> Floats:
    """Return the mission second of every test, NaN where the tables do not know it."""
    times = [row.get("clock") if row.get("tested_at") is None else row["tested_at"] for row in tested]
    return np.array(times, np.float64)


def time_average(seconds: Floats, accuracy: Floats) -> float | None:
    """Return the mean accuracy over mission time from the first test to the last, linear between two tests."""
    if not len(seconds) or not (np.isfinite(seconds).all() and np.isfinite(accuracy).all()):
        return None
    length = float(seconds[-1] - seconds[0])
    return float(np.trapezoid(accuracy, seconds)) / length if length > 0 else float(accuracy[-1])


def recovery_after(
    seconds: Floats, accuracy: Floats, change: float | None, margin: float
) -> tuple[float | None, float | None]:
    """Return how much accuracy a sudden change costs at worst, and the seconds until it is back.

    Both compare with the last test before the change. Accuracy is back at the first test at which at most `margin` is
    missing. None: there is no change, no test on both sides of it, or, for the seconds, accuracy never came back.
    """
    if change is None or not np.isfinite(seconds).all():
        return None, None
    after = seconds >= change
    if after.all() or not after.any():
        return None, None
    before = float(accuracy[~after][-1])
    back = np.flatnonzero(after & (accuracy >= before - margin))
    return before - float(accuracy[after].min()), float(seconds[back[0]]) - change if len(back) else None
