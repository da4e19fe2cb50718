"""One factor at a time: what every variant changes, and what that does to accuracy."""

import json
from typing import Any

from reproduce.collect import MAIN
from reproduce.page.costs import BOTH
from reproduce.results import PAPER, end_of, grid, late, run_name, title
from skyfed.runs.tables import Row

_FOR_BYTES = (BOTH, "cifar stem, compressed")  # variants too short for an accuracy: they were run for their bytes


def settings(rounds: list[Row], machines: dict[str, Any]) -> str:
    """Return which settings every variant changes."""
    rows = []
    for variant in _variants(rounds):
        changes = machines.get(run_name({"variant": variant, "seed": 0}), {}).get("changes", {})
        rows.append([variant, ", ".join(f"`{key} = {json.dumps(value)}`" for key, value in changes.items())])
    return grid("variant|what it changes", rows)


def effects(rounds: list[Row]) -> str:
    """Return the late means of seed 0 beside those of the main variant after as many rounds."""
    rows = []
    for variant in _variants(rounds):
        for name in PAPER:
            end, own = end_of(rounds, variant, name), late(rounds, variant, name, "accuracy_full")
            if end is None or own is None:
                continue
            base = late(rounds, MAIN, name, "accuracy_full", at=end["round"])
            beside = ["–", "–"] if base is None else [f"{base:.1f}", f"{own - base:+.1f}"]
            rows.append([variant, title(name), str(end["round"] + 1), f"{own:.1f}", *beside])
    return grid(f"variant|algorithm|rounds|accuracy|`{MAIN}`|difference", rows)


def _variants(rounds: list[Row]) -> list[str]:
    """Return all variants but the main one, planners and those that were run for their bytes."""
    names = dict.fromkeys(row["variant"] for row in rounds)
    return [name for name in names if name not in (MAIN, *_FOR_BYTES) and not name.startswith("planner")]
