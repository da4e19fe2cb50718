"""Where the time of a whole run goes, as its main process sees it."""

from cProfile import Profile
from pathlib import Path
from pstats import Stats

from skyfed.bench.row import Row, load_average
from skyfed.config import Config
from skyfed.runs.tables import Table

_Where = tuple[str, str, str | None]  # file, function, and who calls it, where that matters
_PARTS: dict[str, list[_Where]] = {  # of the main process's time; while workers train or test it waits
    "planning": [("skyfed/pipeline.py", "plan_flights", None)],
    "vehicles train": [("drivers/pool.py", "call", "exchange"), ("skyfed/onboard.py", "_local", None)],
    "central training": [("skyfed/station.py", "replies", "central_round")],
    "testing": [("skyfed/station.py", "replies", "score_model")],
    "reading uploads": [("wire/codec.py", "decode", None)],
    "aggregating": [("blocks/aggregate.py", name, None) for name in ("aggregate", "times", "moved")],
    "packing the model": [("skyfed/station.py", "downlink_bytes", None)],
    "keeping rounds": [("runs/recorder.py", "record", None)],
    "figures and report": [("report/draw.py", name, None) for name in ("draw_run", "write_report")],
}
# uploads are trained and read while `aggregate` asks for them, and what it waits for is no aggregating
_NOT_IN: dict[str, list[_Where]] = {"aggregating": [("skyfed/diagnostics.py", "watch", "aggregate")]}


def spent(profile: Profile, seconds: float, config: Config, folder: Path) -> Row:
    """Return the minutes of a finished run with what they went to, algorithm by algorithm and part by part."""
    also: dict[str, float | str] = {}
    for name in config.labels:
        also[f"{name}, minutes"] = sum(row["seconds"] for row in Table(folder / name, "rounds").rows()) / 60
    taken = {part: _seconds(profile, at) - _seconds(profile, _NOT_IN.get(part, [])) for part, at in _PARTS.items()}
    parts = {part: took for part, took in taken.items() if took > 0}
    parts["all else"] = seconds - sum(parts.values())
    also |= {f"{part}, %": 100 * took / seconds for part, took in parts.items()}
    uplink = [row for name in config.labels for row in Table(folder / name, "uplink").rows()]
    also["CPU minutes of vehicles"] = sum(row["measured_cpu_seconds"] for row in uplink) / 60
    also["load average"] = load_average()
    name = f"a run of {len(config.rows)} algorithms, {config.rounds} rounds, {config.vehicles} vehicles"
    return Row(name, seconds / 60, "minutes", "", "", True, also)


def _seconds(profile: Profile, where: list[_Where]) -> float:
    """Return the seconds inside these functions, with all that they call."""
    total = 0.0
    for (file, _, function), (_, _, _, whole, callers) in Stats(profile).stats.items():  # type: ignore[attr-defined]
        for ends, called, caller in where:
            if function == called and Path(file).as_posix().endswith(ends):
                total += whole if caller is None else sum(by[3] for key, by in callers.items() if key[2] == caller)
    return total
