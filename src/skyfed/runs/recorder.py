"""Keeps what a run gives: rows of the tables, checkpoints, and the model at the end."""

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash

from skyfed.config import Config
from skyfed.cost import lateness, round_end, waiting
from skyfed.files import write_whole
from skyfed.records import Singles
from skyfed.runs.checkpoint import drop_checkpoints, last_checkpoint, pack_model, save_checkpoint
from skyfed.runs.folder import RunFolder
from skyfed.runs.store import Row, Table, damaged, is_done, set_aside
from skyfed.sensing import Schedule
from skyfed.simulate import Report, State

JOULES = ("modelled_energy", "fly_joules", "send_joules", "wait_joules")  # what a vehicle's round takes, modelled


@dataclass(frozen=True)
class Standing:
    """Where an algorithm of a run stands: the next round, the model to start from, complaints about checkpoints."""

    first: int
    state: State
    complaints: list[str]


class AlgorithmRecorder:
    """Records one algorithm of a run.

    `after` is called with every finished round's row and may raise to stop; `deliver` makes the final weights those
    that are used.
    """

    def __init__(
        self,
        folder: RunFolder,
        config: Config,
        algorithm: str,
        schedule: Schedule,
        test_total: int,
        identity: str,
        after: Callable[[Row], None],
        deliver: Callable[[Singles], Singles],
    ) -> None:
        self._config, self._algorithm, self._schedule, self._identity = config, algorithm, schedule, identity
        self.path = folder.subfolder(algorithm)
        self._checkpoints = folder.subfolder(f"{algorithm}/checkpoints")
        self._rounds, self._uplink = Table(self.path, "rounds"), Table(self.path, "uplink")
        self._theory = Table(self.path, "theory")
        self._test_total, self._after, self._deliver = test_total, after, deliver
        self._best_class: np.ndarray | None = None
        self._used: dict[int, float] = defaultdict(float)
        self._clock = time.perf_counter()

    @property
    def done(self) -> bool:
        """Whether the algorithm has been trained to the end, and what that left can be read."""
        return is_done(self.path) and not damaged(self.path)

    def standing(self, start: State) -> Standing:
        """Return where to go on: after the newest good checkpoint, or at the start."""
        aside = set_aside(self.path)
        sizes = len(start.weights), len(start.buffers)
        found = last_checkpoint(self._checkpoints, self._identity, self._algorithm, sizes, self._config.vehicles)
        first, state, complaints = 0, start, []
        if found is not None:
            first, complaints = found[0] + 1, found[3]
            if first:
                state = State(found[1], found[2], found[4])
        if not self._complete(first):
            complaints = [*complaints, f"{self.path}: rounds are missing from the tables; starting over"]
            first, state = 0, start
        drop_checkpoints(self._checkpoints, first - 1)
        self._used.clear()
        for row in self._uplink.keep(first):
            self._used[row["vehicle"]] += sum(row[name] for name in JOULES)
        if self._config.theory.every:
            self._theory.keep(first)
        for row in self._rounds.keep(first):
            self._forget(row.get("accuracy_class"))
        self._clock = time.perf_counter()
        return Standing(first, state, [*aside, *complaints])

    def _complete(self, rounds: int) -> bool:
        """Tell whether both tables hold every round up to this one."""
        uploads = Counter(row["round"] for row in self._uplink.good())
        whole = {row["round"] for row in self._rounds.good() if uploads[row["round"]] == row["uploads"]}
        return whole >= set(range(rounds))

    def record(self, state: State, report: Report) -> None:
        """Keep a finished round."""
        t = report.round
        rows = [self._uplink_row(report, k) for k in range(len(report.uploads))]
        if rows:
            self._uplink.append(rows)
        if report.theory is not None:
            self._theory.append([{name: _storable(value) for name, value in report.theory.items()}])
        row = self._round_row(state, report)
        self._rounds.append([row])
        if (t + 1) % self._config.checkpoint_every == 0 or t == self._config.rounds - 1:
            save_checkpoint(
                self._checkpoints, t, state.weights, state.buffers, self._identity, self._algorithm,
                state.agreement,
            )  # fmt: skip
        if t == self._config.rounds - 1:
            self.finish(state)
        self._clock = time.perf_counter()
        self._after(row)

    def rows(self) -> list[Row]:
        """Return the rounds so far."""
        return self._rounds.rows()

    def finish(self, state: State) -> None:
        """Turn the tables into Parquet and save the model; may be repeated where it was cut short."""
        self._uplink.finish()
        if self._config.theory.every:
            self._theory.finish()
        about = {"run": self._identity, "algorithm": self._algorithm, "round": str(self._config.rounds - 1)}
        write_whole(self.path / "model.safetensors", pack_model(self._deliver(state.weights), state.buffers, about))
        self._rounds.finish()

    def _round_row(self, state: State, report: Report) -> Row:
        t, train = report.round, self._config.train
        per_class = (
            None if report.per_class is None else [None if math.isnan(x) else float(x) for x in report.per_class]
        )
        return {
            "round": t,
            "accuracy": _finite(report.accuracy),
            "accuracy_full": _finite(report.accuracy_full),
            "loss": _finite(report.loss),
            "train_loss": _finite(report.train_loss),
            "test_size": int(self._schedule.test_members(t, self._test_total).sum()),
            "train_size": len(self._schedule.union(t)),
            "eta": train.eta_at(t),
            "eta_local": train.eta_local_at(t),
            "seconds": time.perf_counter() - self._clock,
            "wire_bytes": sum(len(upload.data) for upload in report.uploads),
            "downlink_bytes": report.downlink_bytes,
            "uploads": len(report.uploads),
            "dropped": len(report.dropped),
            "forgetting": self._forget(per_class),
            "accuracy_class": per_class,
            "model_digest": _digest(state.weights, state.buffers),
        }

    def _uplink_row(self, report: Report, k: int) -> Row:
        upload, cost = report.uploads[k], self._config.cost
        spent = upload.spent
        wait = waiting(cost, spent, round_end(cost, [other.spent for other in report.uploads]))
        row: Row = {
            "round": report.round,
            "vehicle": upload.vehicle,
            "delta": upload.delta,
            "kept": upload.kept,
            "kept_live": upload.kept_live,
            "quantised": upload.quantised,
            "paper_bits": upload.paper_bits,
            "wire_bytes": len(upload.data),
            "buffer_bytes": upload.buffer_bytes,
            "modelled_seconds": spent.train_seconds,
            "measured_seconds": upload.seconds,
            "measured_cpu_seconds": upload.cpu,
            "modelled_energy": spent.train_joules,
            "train_loss": _finite(upload.loss),
            "dropped": report.dropped.get(upload.vehicle),
            "pruned_share": upload.pruned_share,
            "raw_probability": upload.raw_probability,
            "quantiser_bound": upload.bound,
            "quantiser_variance": upload.variance,
            "fly_seconds": spent.fly_seconds,
            "send_seconds": spent.send_seconds,
            "fly_joules": spent.fly_joules,
            "send_joules": spent.send_joules,
            "wait_joules": wait,
            "rate": spent.rate,
            "late": lateness(cost, spent),
            "turned": upload.vehicle in report.turned,
            "samples": len(self._schedule.train_set(upload.vehicle, report.round)),
            "digest": _digest(upload.data),
        }
        self._used[upload.vehicle] += sum(row[name] for name in JOULES)
        left = max(0.0, cost.battery - self._used[upload.vehicle])
        return {**row, "battery_left": None if cost.model == "law" else left}

    def _forget(self, per_class: list[float | None] | None) -> float | None:
        """Mean over the classes of the best past accuracy less the present one; both on the fixed test set."""
        if per_class is None:
            return None
        now = np.array([np.nan if x is None else x for x in per_class])
        if self._best_class is None:
            self._best_class = now
            return 0.0
        lost = np.fmax(self._best_class - now, 0.0)
        self._best_class = np.fmax(self._best_class, now)
        return float(np.nanmean(lost)) if np.isfinite(lost).any() else 0.0


def _digest(*parts: bytes | Singles) -> str:
    """Return 64 bits that stand for these bytes (XXH3), as text: equal runs have equal ones in every row."""
    hashed = xxhash.xxh3_64()
    for part in parts:
        hashed.update(part if isinstance(part, bytes) else np.ascontiguousarray(part).data)
    return str(hashed.hexdigest())


def _storable(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return _finite(value) if isinstance(value, float) else value


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
