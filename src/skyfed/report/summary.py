"""The key figures of one algorithm in one run, from its tables."""

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from skyfed.errors import BadInputError
from skyfed.runs.folder import RunFolder
from skyfed.runs.tables import Row, Table, remembered

_LATE = 0.75  # share of the rounds after which a test is late


@dataclass(frozen=True)
class Summary:
    """One algorithm's figures: accuracy 0..1, bytes, modelled and measured seconds of all vehicles together."""

    algorithm: str
    rounds: int
    accuracy: float | None
    accuracy_full: float | None
    late_accuracy: float | None
    late_accuracy_full: float | None
    mean_accuracy: float | None
    forgetting: float | None
    uplink_bytes: int
    downlink_bytes: int
    paper_bits: float | None
    modelled_seconds: float
    modelled_energy: float
    measured_seconds: float
    wall_seconds: float
    fly_seconds: float
    send_seconds: float
    fly_joules: float
    send_joules: float
    late: int
    battery: float | None

    @property
    def joules(self) -> float:
        """All vehicles' joules together, modelled; waiting is part of flying."""
        return self.modelled_energy + self.fly_joules + self.send_joules

    @property
    def paper_bytes(self) -> float | None:
        """The bytes of all uploads by the paper's formula."""
        return None if self.paper_bits is None else self.paper_bits / 8


@remembered
def summarise(folder: Path, algorithm: str) -> Summary | None:
    """Return the figures of an algorithm so far; None before its first round.

    Raises BadInputError for a folder that is no run's, and for an algorithm that the run does not have.
    """
    folder = Path(folder)
    rows = Table(folder / algorithm, "rounds").rows()
    uplink = Table(folder / algorithm, "uplink").rows()
    if not rows:
        labels = RunFolder.config_of(folder).labels
        if algorithm not in labels:
            raise BadInputError(f"{folder}: no algorithm {algorithm!r}; allowed in this run: {', '.join(labels)}")
        return None
    tested = [row for row in rows if row["accuracy"] is not None]

    def last(key: str) -> float | None:
        return tested[-1][key] if tested else None

    def total(key: str) -> float:
        return float(sum(row.get(key) or 0 for row in uplink))

    return Summary(
        algorithm=algorithm,
        rounds=len(rows),
        accuracy=last("accuracy"),
        accuracy_full=last("accuracy_full"),
        late_accuracy=late_mean(tested, "accuracy"),
        late_accuracy_full=late_mean(tested, "accuracy_full"),
        mean_accuracy=fmean(row["accuracy"] for row in tested) if tested else None,
        forgetting=last("forgetting"),
        uplink_bytes=int(total("wire_bytes")),
        downlink_bytes=sum(row["downlink_bytes"] for row in rows),
        paper_bits=total("paper_bits") if any("paper_bits" in row for row in uplink) else None,
        modelled_seconds=total("modelled_seconds"),
        modelled_energy=total("modelled_energy"),
        measured_seconds=total("measured_seconds"),
        wall_seconds=sum(row["seconds"] for row in rows),
        fly_seconds=total("fly_seconds"),
        send_seconds=total("send_seconds"),
        fly_joules=total("fly_joules") + total("wait_joules"),
        send_joules=total("send_joules"),
        late=sum(bool(row.get("late")) for row in uplink),
        battery=min((row["battery_left"] for row in uplink if row.get("battery_left") is not None), default=None),
    )


def late_mean(tested: list[Row], key: str, every: int = 1) -> float | None:
    """Return the mean of the tests in the last quarter of the rounds so far, since single tests jump; None without any.

    every  to use the test of every nth round only; the last test stands in where there is no such round
    """
    if not tested:
        return None
    first = _LATE * tested[-1]["round"]
    late = [row for row in tested if row["round"] >= first and (row["round"] + 1) % every == 0]
    return fmean(row[key] for row in late or tested[-1:])
