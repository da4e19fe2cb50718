"""Where the time of a whole run goes, as its main process sees it."""

import os
from cProfile import Profile
from pathlib import Path
from pstats import Stats

from skyfed.bench.row import Row
from skyfed.config import Config
from skyfed.runs.store import Table

_PARTS = {  # of the main process's time; while workers train or test it waits
    "planning": [("cli/work.py", "plan_flights")],
    "vehicles train": [("drivers/pool.py", "train"), ("drivers/inline.py", "train")],
    "the genie trains": [("drivers/pool.py", "genie"), ("drivers/inline.py", "genie")],
    "testing": [("drivers/pool.py", "score"), ("drivers/inline.py", "score")],
    "reading uploads": [("wire/codec.py", "decode")],
    "aggregating": [("skyfed/server.py", "add"), ("skyfed/server.py", "step")],
    "packing the model": [("skyfed/server.py", "broadcast_bytes")],
    "keeping rounds": [("runs/recorder.py", "record")],
    "figures and report": [("cli/work.py", "show_run"), ("cli/draw.py", "write_report")],
}


def spent(profile: Profile, seconds: float, config: Config, folder: Path) -> Row:
    """Return the minutes of a finished run with what they went to, algorithm by algorithm and part by part."""
    each = {name: Table(folder / name, "rounds").rows() for name in config.algorithms}
    uplink = [row for name in config.algorithms for row in Table(folder / name, "uplink").rows()]
    also: dict[str, float | str] = {
        f"{name}, minutes": sum(row["seconds"] for row in rows) / 60 for name, rows in each.items()
    }
    parts = {part: found for part, where in _PARTS.items() if (found := _seconds(profile, where)) > 0}
    parts["all else"] = seconds - sum(parts.values())
    also |= {f"{part}, %": 100 * took / seconds for part, took in parts.items()}
    also["CPU minutes of vehicles"] = sum(row["measured_cpu_seconds"] for row in uplink) / 60
    also["load average"] = " ".join(f"{value:.2f}" for value in os.getloadavg())
    name = f"a run of {len(config.algorithms)} algorithms, {config.rounds} rounds, {config.vehicles} vehicles"
    return Row(name, seconds / 60, "minutes", "", "", True, also)


def _seconds(profile: Profile, where: list[tuple[str, str]]) -> float:
    """Return the seconds inside these functions, with all that they call."""
    entries = Stats(profile).stats.items()  # type: ignore[attr-defined]
    return float(
        sum(
            total
            for (file, _, function), (_, _, _, total, _) in entries
            for ends, called in where
            if function == called and Path(file).as_posix().endswith(ends)
        )
    )
