"""Learning curves: accuracy over what it cost to get there and over rounds, and the sizes of the messages."""

from collections import Counter
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path

import numpy as np

from skyfed.algorithms import Row
from skyfed.report.units import megabytes
from skyfed.runs.tables import Row as TableRow
from skyfed.runs.tables import Table, remembered
from skyfed.types import Floats, Ints
from skyfed.world.settings import WorldSettings


@dataclass(frozen=True)
class SeedCurve:
    """One seed's learning curve at the rounds after which its model was tested, all (n,).

    accuracy, accuracy_full  0..1, on the test set so far and on the whole one
    seconds    the mission clock (modelled); by the paper's law, the slowest vehicle's training of every round so far
    megabytes  sent and received by all vehicles so far (measured)
    joules     of all vehicles so far (modelled)

    Seconds and joules are NaN where the tables do not know them: without vehicles, and in format 0.1.0.
    """

    rounds: Ints
    accuracy: Floats
    accuracy_full: Floats
    seconds: Floats
    megabytes: Floats
    joules: Floats


@dataclass(frozen=True)
class CostAxis:
    """What accuracy is drawn over: a figure of a `SeedCurve` times a factor, what that is, and its unit."""

    figure: str
    factor: float
    label: str
    unit: str


def cost_axes(world: WorldSettings) -> dict[str, CostAxis]:
    """Return what a run's accuracy is drawn over, by the name that users give it."""
    sent = CostAxis("megabytes", 1.0, "Sent and received by all vehicles, measured", "MB")
    if world.time == "law":  # training alone takes time and energy
        time = CostAxis("seconds", 1 / world.t_train, "Modelled training time", "t_tr")
        return {"mission": time, "megabytes": sent, "joules": CostAxis("joules", 1.0, "Modelled training energy", "J")}
    return {
        "mission": CostAxis("seconds", 1 / 60, "Mission time, modelled", "min"),
        "megabytes": sent,
        "joules": CostAxis("joules", 1e-3, "Energy of all vehicles, modelled", "kJ"),
    }


ROUNDS = CostAxis("rounds", 1.0, "Round", "")


@dataclass(frozen=True)
class RowCurves:
    """One row: its runs, one per seed, and the bits of every message of all of them.

    paper_bits     of uploads by the paper's formula (modelled)
    wire_bits      of uploads, measured; an upload that was never sent is in neither
    downlink_bits  of what the vehicles were sent, measured
    """

    row: Row
    runs: tuple[SeedCurve, ...]
    paper_bits: Floats
    wire_bits: Floats
    downlink_bits: Floats = field(default_factory=lambda: np.empty(0))


@dataclass(frozen=True)
class MeanCurve:
    """A curve over some axis, x, mean, low, high all (n,): means over the seeds, least and best accuracy, per cent."""

    row: Row
    seeds: int
    x: Floats
    mean: Floats
    low: Floats
    high: Floats


def read_curves(folders: list[Path], rows: list[Row]) -> list[RowCurves]:
    """Read the tables of runs that differ in the seed only, finished or not; what has no rounds is left out."""
    curves = []
    for row in rows:
        seeds = [seed for folder in folders if (seed := _read_seed(folder, row.name))]
        if seeds:
            runs, *sizes = zip(*seeds, strict=True)
            curves.append(RowCurves(row, runs, *(np.concatenate(bits) for bits in sizes)))
    return curves


@remembered
def _read_seed(folder: Path, label: str) -> tuple[SeedCurve, Floats, Floats, Floats] | None:
    """Return a row's curve and its messages' bits: the paper's formula, uplink, downlink; None without rounds."""
    lines = Table(folder / label, "rounds").rows()
    if not lines:
        return None
    done = {line["round"] for line in lines}  # of a round that was cut short there are uploads only
    uplink = [line for line in Table(folder / label, "uplink").rows() if line["round"] in done]
    sent = [(up.get("paper_bits", np.nan), 8 * up["wire_bytes"]) for up in uplink if up["wire_bytes"]]
    formula, measured = np.array(sent, np.float64).reshape(-1, 2).T
    down = _downlink_bits(lines, Table(folder / label, "vehicles").rows())
    return seed_curve(lines), formula[np.isfinite(formula)], measured, down


def _downlink_bits(lines: list[TableRow], vehicles: list[TableRow]) -> Floats:
    """Return what a vehicle is sent, in bits, once per vehicle and round: the mean over the round's vehicles.

    A round's row counts what the vehicles of the next round start from. Runs of format 0.1.0 do not say how many these
    are; there it is those that sent something.
    """
    chosen = Counter(row["round"] for row in vehicles if row["chosen"]) or {
        line["round"]: line["uploads"] for line in lines
    }
    bits: list[float] = []
    for line in lines:
        receivers = chosen.get(line["round"] + 1) or chosen.get(line["round"], 0)  # the next round may still go on
        if line["downlink_bytes"] and receivers:
            bits += [8 * line["downlink_bytes"] / receivers] * receivers
    return np.array(bits, np.float64)


def mean_lines(curves: list[RowCurves], axis: CostAxis, measure: str = "accuracy") -> list[MeanCurve]:
    """Average every curve over its seeds, at the rounds that all of them have tested.

    A curve without such rounds is left out, and one whose tables do not know the axis.

    measure  "accuracy" on the test set so far, or "accuracy_full" on the whole one
    """
    lines = []
    for curve in curves:
        runs = [run for run in curve.runs if run.rounds.size]
        if runs and (shared := reduce(np.intersect1d, [run.rounds for run in runs])).size:
            at = [np.isin(run.rounds, shared) for run in runs]
            x = axis.factor * np.stack([getattr(run, axis.figure)[here] for run, here in zip(runs, at, strict=True)])
            y = 100 * np.stack([getattr(run, measure)[here] for run, here in zip(runs, at, strict=True)])
            if np.isfinite(x).all():
                lines.append(MeanCurve(curve.row, len(runs), x.mean(0), y.mean(0), y.min(0), y.max(0)))
    return lines


def shares(sizes: Floats, most: int = 1000) -> tuple[Floats, Floats]:
    """Return the empirical distribution of sizes: values, and the share of sizes up to each; at most `most` steps."""
    steps = min(len(sizes), most)
    rank = -(-np.arange(steps + 1) * len(sizes) // steps)  # how many make this share, rounded up
    return np.sort(sizes)[np.maximum(rank - 1, 0)], np.arange(steps + 1) / steps


def seed_curve(rows: list[TableRow]) -> SeedCurve:
    """Return one seed's learning curve from its rounds; a sum is known as far as every round before is."""
    tested = [k for k, row in enumerate(rows) if row["accuracy"] is not None]

    def column(*names: str) -> Floats:
        known = [[row.get(name) for row in rows] for name in names]
        return np.asarray(np.array(known, np.float64).sum(axis=0), np.float64)

    sent = np.cumsum(column("wire_bytes", "downlink_bytes"))
    return SeedCurve(
        rounds=np.array([rows[k]["round"] for k in tested], np.int64),
        accuracy=column("accuracy")[tested],
        accuracy_full=column("accuracy_full")[tested],
        seconds=np.cumsum(column("mission_seconds"))[tested],
        megabytes=megabytes(sent)[tested],
        joules=np.cumsum(column("joules"))[tested],
    )
