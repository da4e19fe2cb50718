"""On which machines and with which versions the runs were made."""

from typing import Any

from reproduce.results import grid, run_name
from skyfed.runs.tables import Row

_FEW = 4  # runs that are named; of more, their number


def table(machines: dict[str, Any], rounds: list[Row]) -> str:
    """Return machines and versions with their runs and hours."""
    groups: dict[tuple[str, str], list[str]] = {}
    for run, known in machines.items():
        names = [f"skyfed {known.get('skyfed')}", f"Python {known.get('python')}"]
        packages = {"torch": "not recorded", **known.get("packages", {})}
        names += [f"{name} {version}" for name, version in packages.items()]
        groups.setdefault((f"{known.get('cpu')}, {known.get('cores')} cores", ", ".join(names)), []).append(run)
    spent: dict[str, float] = {}
    for row in rounds:
        spent[run_name(row)] = spent.get(run_name(row), 0.0) + row["seconds"] / 3600
    rows = [
        [
            *what,
            "; ".join(runs) if len(runs) < _FEW else str(len(runs)),
            f"{sum(spent.get(run, 0.0) for run in runs):.1f}",
        ]
        for what, runs in groups.items()
    ]
    return grid("machine|versions|runs|hours of rounds", rows)
