"""Keeps the results of a run: rows of the tables, checkpoints, and the model at the end."""

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import xxhash

from skyfed.arrays import pack_npz
from skyfed.columns import Column
from skyfed.files import write_whole
from skyfed.onboard import Onboard, start_of
from skyfed.runs.checkpoint import Checkpoints, Saved, pack_model
from skyfed.runs.folder import RunFolder
from skyfed.runs.tables import Row, Table, damaged, is_done, set_aside
from skyfed.station import Report
from skyfed.types import Arrays, Floats, Singles
from skyfed.world import World
from skyfed.world.columns import ROUND_COLUMNS


class RowRecorder:
    """Records one row of a run; `after` is called with every finished round and may raise to stop."""

    def __init__(
        self, folder: RunFolder, onboard: Onboard, label: str, world: World, identity: str, after: Callable[[Row], None]
    ) -> None:
        self._onboard, self._label = onboard, label
        self._config, self._world, self._after = onboard.config, world, after
        self._engine, self._algorithm = onboard.engine, onboard.algorithms[label]
        self._columns = (*self._algorithm.columns, *self._algorithm.station_columns)
        metrics = [Column(name, "float", "a metric of the task", empty=True) for name in onboard.task.metrics]
        self.path = folder.subfolder(label)
        self._checkpoints = Checkpoints(folder.subfolder(f"{label}/checkpoints"), identity, label)
        self._rounds, self._theory = Table(self.path, "rounds", metrics), Table(self.path, "theory")
        self._uplink, self._vehicles = Table(self.path, "uplink", self._columns), Table(self.path, "vehicles")
        self._others = [self._vehicles, *([self._theory] if self._algorithm.settings.theory.every else [])]
        self._best_class: np.ndarray | None = None
        self._best_start = 0.0  # accuracy on the appearance at take-off
        self._kept: dict[int, int] = {}  # vehicles that have a memory, and the round in which it was last saved
        self._changed: set[int] = set()
        self._clock = time.perf_counter()

    @property
    def done(self) -> bool:
        """Whether the row has been trained to the end, and the files of that can be read."""
        return is_done(self.path) and not damaged(self.path)

    def standing(self) -> Saved:
        """Return the state to go on from: that of the newest good checkpoint, or the initial one."""
        complaints = set_aside(self.path)
        start = start_of(self._onboard, self._label)
        layout = self._engine.layout
        saved = self._checkpoints.last(start, layout.of_live, layout.size, self._config.vehicles)
        complaints += saved.complaints
        if not self._complete(saved.first):
            complaints.append(f"{self.path}: rounds are missing from the tables; starting over")
            saved = Saved()
        first = saved.first
        self._checkpoints.drop(saved.round)
        rows = self._uplink.keep(first)
        if saved.world is None:
            self._world.replay(rows)
        elif first:
            self._world.restore(saved.world)
        for table in self._others:
            table.keep(first)
        for row in self._rounds.keep(first):
            self._forget(row.get("accuracy_class"))
            self._forget_start(row.get("accuracy_start"))
        self._kept, self._clock = dict(saved.kept), time.perf_counter()
        return replace(saved, state=saved.state if first else start, complaints=complaints)

    def _complete(self, rounds: int) -> bool:
        """Tell whether both tables hold every round up to this one."""
        uploads = Counter(row["round"] for row in self._uplink.rows(good=True))
        whole = {row["round"] for row in self._rounds.rows(good=True) if uploads[row["round"]] == row["uploads"]}
        return whole >= set(range(rounds))

    def record(self, state: Arrays, memories: dict[int, Arrays], report: Report) -> None:
        """Keep a finished round."""
        t = report.round
        rows = [self._uplink_row(report, k) for k in range(len(report.uploads))]
        if rows:
            self._uplink.append(rows)
        if report.theory is not None:
            self._theory.append([{name: _storable(value) for name, value in report.theory.items()}])
        if not self._algorithm.central:
            self._vehicles.append([self._vehicle_row(report, row) for row in self._world.rows()])
        row = self._round_row(state, report)
        self._rounds.append([row])
        self._changed |= report.changed
        if (t + 1) % self._config.checkpoint_every == 0 or t == self._config.rounds - 1:
            for u in sorted(self._changed):
                self._checkpoints.save_memory(u, t, memories[u])
                self._kept[u] = t
            self._changed.clear()
            self._checkpoints.save(t, state, self._world.state(), self._kept)
        if t == self._config.rounds - 1:
            self.finish(state)
        self._clock = time.perf_counter()
        self._after(row)

    def rows(self) -> list[Row]:
        """Return the rounds so far."""
        return self._rounds.rows()

    def finish(self, state: Arrays) -> None:
        """Turn the tables into Parquet and save the models; may be repeated where it was cut short."""
        for table in (self._uplink, *self._others):
            table.finish()
        if not self._algorithm.central:
            write_whole(self.path / "flown.npz", pack_npz(self._world.flights.flown()))
        about = self._checkpoints.about(self._config.rounds - 1)
        models = self._algorithm.deliver(state)
        files = {"model": (next(iter(models.values())), about)}
        if len(models) > 1:
            (self.path / "models").mkdir(exist_ok=True)
            serves = [self._algorithm.serves(state, u) for u in range(self._config.vehicles)]
            for name, model in models.items():
                served = " ".join(str(u) for u, own in enumerate(serves) if own == name)
                files[f"models/{name}"] = (model, {**about, "model": name, "vehicles": served})
        for name, (model, description) in files.items():
            data = pack_model(self._engine.whole(model.weights), model.buffers, description)
            write_whole(self.path / f"{name}.safetensors", data)
        self._rounds.finish()

    def _round_row(self, state: Arrays, report: Report) -> Row:
        t, train, tested = report.round, self._algorithm.settings.train, report.tested
        per_class = _finite_list(tested.per_class)
        return {
            "round": t,
            "accuracy": _finite(tested.accuracy),
            "accuracy_full": _finite(tested.accuracy_full),
            "loss": _finite(tested.loss),
            "train_loss": _finite(report.train_loss),
            "test_size": int(self._world.tested(t).sum()),
            "train_size": len(self._world.union(t)),
            "eta": train.eta_at(t),
            "eta_local": train.eta_local_at(t),
            "seconds": time.perf_counter() - self._clock,
            "wire_bytes": sum(len(upload.data) for upload in report.uploads),
            "downlink_bytes": report.downlink_bytes,
            "broadcast_bytes": report.broadcast_bytes,
            "uploads": len(report.uploads),
            "dropped": len(report.dropped),
            "forgetting": self._forget(per_class),
            "accuracy_class": per_class,
            "accuracy_vehicle": _known(_finite_list(tested.per_vehicle)),
            "model_digest": self._model_digest(state),
            "tested_at": _finite(tested.tested_at),
            "accuracy_start": (start := _finite(tested.accuracy_start)),
            "forgetting_start": self._forget_start(start),
            **{column.name: report.mission.get(column.name) for column in ROUND_COLUMNS},
            **{name: _finite(value) for name, value in tested.metrics.items()},
        }

    def _model_digest(self, state: Arrays) -> str:
        """Return a hash of the state's arrays; a model alone is hashed as it is saved, with all its weights."""
        if set(state) >= {"weights", "buffers"}:
            return _digest(self._engine.whole(state["weights"]), state["buffers"])
        return _digest(*(state[name] for name in sorted(state)))

    def _uplink_row(self, report: Report, k: int) -> Row:
        upload = report.uploads[k]
        spent = self._world.upload_costs(upload.vehicle)
        if any(later.vehicle == upload.vehicle for later in report.uploads[k + 1 :]):  # the last of a round has it all
            spent = {name: value if name == "rate" else 0.0 for name, value in spent.items()}
        facts = {**upload.facts, **report.notes.get(upload.vehicle, {})}
        return {
            "round": report.round,
            "vehicle": upload.vehicle,
            "wire_bytes": len(upload.data),
            "buffer_bytes": upload.buffer_bytes,
            "measured_seconds": upload.seconds,
            "measured_cpu_seconds": upload.cpu,
            "train_loss": _finite(upload.loss),
            "dropped": report.dropped.get(upload.vehicle),
            "samples": upload.samples,
            "digest": _digest(upload.data),
            **spent,
            **{column.name: _storable(facts.get(column.name, column.default)) for column in self._columns},
        }

    def _vehicle_row(self, report: Report, row: Row) -> Row:
        u = row["vehicle"]
        uploaded = any(upload.vehicle == u for upload in report.uploads)
        return {**row, "chosen": u in report.chosen, "uploaded": uploaded, "reason": report.dropped.get(u)}

    def _forget(self, per_class: list[float | None] | None) -> float | None:
        """Return the mean over the places of the best past accuracy less the present one, on the whole test set."""
        if per_class is None:
            return None
        now = np.array(per_class, np.float64)
        best = now if self._best_class is None else self._best_class
        self._best_class, lost = np.fmax(best, now), np.maximum(best - now, 0.0)  # a place without samples stays NaN
        return float(np.nanmean(lost)) if np.isfinite(lost).any() else 0.0


    def _forget_start(self, accuracy: float | None) -> float | None:
        """Return the best past accuracy on the appearance at take-off less the present one; None without a test."""
        if accuracy is None:
            return None
        self._best_start = max(self._best_start, accuracy)
        return self._best_start - accuracy


def _digest(*parts: bytes | Singles) -> str:
    """Return the 64-bit XXH3 hash of these bytes as text: equal runs have equal hashes in every row."""
    hashed = xxhash.xxh3_64()
    for part in parts:
        hashed.update(part if isinstance(part, bytes) else np.ascontiguousarray(part).data)
    return str(hashed.hexdigest())


def _storable(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(number) for number in value]
    return _finite(value) if isinstance(value, float) else value


def _finite_list(values: Floats | None) -> list[float | None] | None:
    return None if values is None else [_finite(value) for value in values]


def _known(values: list[float | None] | None) -> list[float | None] | None:
    """Return nothing instead of a list of nothing: where a figure is not defined for any vehicle."""
    return values if values and any(value is not None for value in values) else None


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
