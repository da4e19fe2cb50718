"""AFL with every planner, seed 0: what its flights hit, what they sense, and what is learnt."""

from reproduce.collect import MAIN
from reproduce.results import end_of, grid, late, sensed
from skyfed.runs.tables import Row

_NAMES = {MAIN: "sca (as `paper`)", "decay 50 m": "sca, 50 m"}


def flights_table(rounds: list[Row], flights: list[Row]) -> str:
    """Return what the visits of every planner hit."""
    rows = [
        [name, f"{flight['visits']:.0f}"]
        + [
            "–" if flight.get(key) is None else f"{factor * flight[key]:.{digits}f}"
            for key, factor, digits in (("peak", 100, 0), ("rank", 1, 1), ("rim", 1, 2), ("over", 100, 0))
        ]
        for name, flight in _planners(rounds, flights)
    ]
    return grid("planner|visits per vehicle|psi: percentile|psi: rank|distance (radii)|over the true disc (%)", rows)


def pictures_table(rounds: list[Row], flights: list[Row]) -> str:
    """Return the pictures that every planner brought, and AFL's accuracies."""
    rows = []
    for name, flight in _planners(rounds, flights):
        end, grown = (of(rounds, flight["variant"], "afl") for of in (end_of, sensed))
        full = late(rounds, flight["variant"], "afl", "accuracy_full")
        if isinstance(end, dict) and isinstance(grown, tuple) and full is not None:
            tests = [f"{100 * end[key]:.1f}" for key in ("accuracy", "accuracy_full")]
            rows.append([name, f"{grown[1]:,}", *tests, f"{full:.1f}"])
    return grid(
        "planner|pictures sensed|last test, test set so far|last test, all pictures|late mean, all pictures", rows
    )


def _planners(rounds: list[Row], flights: list[Row]) -> list[tuple[str, Row]]:
    """Return seed 0 of every planner that AFL was trained with: by reach of sensing, by placement, by name."""
    found = [
        (_NAMES.get(flight["variant"], flight["variant"].removeprefix("planner ")), flight)
        for flight in flights
        if flight["variant"] in _NAMES or flight["variant"].startswith("planner ")
        if not flight["seed"] and end_of(rounds, flight["variant"], "afl") is not None
    ]
    return sorted(found, key=lambda pair: ("50 m" in pair[0], "placed" in pair[0], pair[0]))
