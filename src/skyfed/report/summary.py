"""The key figures of one algorithm in one run, from its tables."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from skyfed.config import Config
from skyfed.errors import BadInputError
from skyfed.report.online import online_figures
from skyfed.runs.folder import RunFolder
from skyfed.runs.tables import Row, Table, remembered

PHASES = ("fly", "sense", "receive", "train", "send", "wait", "home")  # what a vehicle spends seconds on
PARTS = ("fly", "hover", "train", "receive", "send")  # and joules
_FLYING = "flying"  # a vehicle's status; any other means that it has landed or goes home
_LATE = 0.75  # share of the rounds after which a test is late


@dataclass(frozen=True)
class Summary:
    """One algorithm's figures in SI units; accuracy is 0..1, and None stands for what its tables do not know.

    online_accuracy   accuracy_full averaged over mission time
    *_start           on samples as they looked at take-off, where appearance drifts
    drop, recovery_seconds  what a sudden change of appearance costs, and how long (`online.py`)
    *_bytes           of all vehicles, measured; total: up and down; broadcast: down, with equal messages counted once
    mission_seconds   the mission clock at the end; None under the paper's law, which has no mission
    law_time          under the paper's law: the slowest vehicle's training of every round, in units of t_tr
    *_seconds         vehicle-seconds: of all vehicles together, modelled
    measured_seconds  of all vehicles' training on this machine; wall_seconds  of the simulator, both measured
    *_joules, joules  of all vehicles, by what they were spent on and in all, modelled
    late              uploads after the deadline            least_battery  share that was left at the worst moment
    landed            vehicles that went home before the end, the first of them in round `first_landing`
    """

    algorithm: str
    rounds: int
    accuracy: float | None
    accuracy_full: float | None
    late_accuracy: float | None
    late_accuracy_full: float | None
    mean_accuracy: float | None
    online_accuracy: float | None
    forgetting: float | None
    accuracy_start: float | None
    forgetting_start: float | None
    drop: float | None
    recovery_seconds: float | None
    uplink_bytes: int
    downlink_bytes: int
    total_bytes: int
    broadcast_bytes: float | None
    paper_bits: float | None
    mission_seconds: float | None
    law_time: float | None
    fly_seconds: float | None
    sense_seconds: float | None
    receive_seconds: float | None
    train_seconds: float | None
    send_seconds: float | None
    wait_seconds: float | None
    home_seconds: float | None
    measured_seconds: float
    wall_seconds: float
    fly_joules: float | None
    hover_joules: float | None
    train_joules: float | None
    receive_joules: float | None
    send_joules: float | None
    joules: float | None
    late: int
    least_battery: float | None
    landed: int | None
    first_landing: int | None

    @property
    def paper_bytes(self) -> float | None:
        """The bytes of all uploads by the paper's formula."""
        return None if self.paper_bits is None else self.paper_bits / 8

    @property
    def radio_joules(self) -> float | None:
        """The joules of receiving and sending."""
        known = self.receive_joules, self.send_joules
        return None if known[0] is None or known[1] is None else known[0] + known[1]


@remembered
def summarise(folder: Path, algorithm: str) -> Summary | None:
    """Return the figures of an algorithm so far; None before its first round.

    Raises BadInputError for a folder that is no run's, and for an algorithm that the run does not have.
    """
    config = RunFolder.config_of(Path(folder))
    if algorithm not in config.labels:
        raise BadInputError(f"{folder}: no algorithm {algorithm!r}; allowed in this run: {', '.join(config.labels)}")
    rounds, uplink, vehicles = (
        Table(Path(folder) / algorithm, name).rows() for name in ("rounds", "uplink", "vehicles")
    )
    if not rounds:
        return None
    sent, received = (int(sum(row[name] for row in rounds)) for name in ("wire_bytes", "downlink_bytes"))
    return Summary(
        algorithm=algorithm,
        rounds=len(rounds),
        **_accuracies(tested := [row for row in rounds if row["accuracy"] is not None]),
        **online_figures(tested, config.drift),
        uplink_bytes=sent,
        downlink_bytes=received,
        total_bytes=sent + received,
        broadcast_bytes=_total(rounds, "broadcast_bytes"),
        paper_bits=_total((row for row in uplink if "paper_bits" in row), "paper_bits"),
        measured_seconds=float(sum(row["measured_seconds"] for row in uplink)),
        wall_seconds=float(sum(row["seconds"] for row in rounds)),
        late=sum(bool(row.get("late")) for row in uplink),
        **_mission(config, rounds, vehicles),
    )


def _accuracies(tested: list[Row]) -> dict[str, Any]:
    """Return the figures of the tests."""
    last = {name: tested[-1][name] if tested else None for name in ("accuracy", "accuracy_full", "forgetting")}
    return last | {
        "late_accuracy": late_mean(tested, "accuracy"),
        "late_accuracy_full": late_mean(tested, "accuracy_full"),
        "mean_accuracy": fmean(row["accuracy"] for row in tested) if tested else None,
    }


def _mission(config: Config, rounds: list[Row], vehicles: list[Row]) -> dict[str, Any]:
    """Return what the mission took; where a round is missing from the table of vehicles, their sums are not known."""
    done, law = {row["round"] for row in rounds}, config.world.time == "law"
    there = [row for row in vehicles if row["round"] in done]
    there = there if {row["round"] for row in there} == done else []
    lasted, names = _total(rounds, "mission_seconds"), [f"{phase}_seconds" for phase in PHASES]
    batteries = [row["battery_left"] for row in there if row.get("battery_left") is not None]
    landings = {row["vehicle"]: row["round"] for row in reversed(there) if row.get("status") not in (None, _FLYING)}
    known = bool(there) and not law and all(row.get("status") for row in there)
    return {
        "mission_seconds": None if law else lasted,
        "law_time": lasted / config.world.t_train if law and lasted is not None else None,
        **{name: _total(there, name) for name in (*names, *(f"{part}_joules" for part in PARTS))},
        "joules": _total(rounds, "joules"),
        "least_battery": min(batteries) / config.vehicle.battery if batteries and not law else None,
        "landed": len(landings) if known else None,
        "first_landing": min(landings.values()) if known and landings else None,
    }


def _total(rows: Iterable[Row], name: str) -> float | None:
    """Return the sum of a column; None where some row does not know it."""
    values = [row.get(name) for row in rows]
    known = [value for value in values if value is not None]
    return float(sum(known)) if known and len(known) == len(values) else None


def late_mean(tested: list[Row], key: str, every: int = 1) -> float | None:
    """Return the mean of the tests in the last quarter of the rounds so far, since single tests jump; None without any.

    every  to use the test of every nth round only; the last test stands in where there is no such round
    """
    if not tested:
        return None
    first = _LATE * tested[-1]["round"]
    late = [row for row in tested if row["round"] >= first and (row["round"] + 1) % every == 0]
    return fmean(row[key] for row in late or tested[-1:])
