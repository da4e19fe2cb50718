"""A vehicle's own side: its data, its plan and its state; a job and a model in, an upload out."""

from pathlib import Path

import numpy as np

from skyfed.config import Config
from skyfed.drivers.execute import run_identity
from skyfed.drivers.flower.messages import NO_BASE, Job, ReplyError
from skyfed.flight.fleet import load_fleet_plan
from skyfed.records import Singles
from skyfed.runs.folder import RunFolder
from skyfed.sensing.datasets import load_data
from skyfed.vehicle import Upload, Vehicles, common_of
from skyfed.wire import Common, DecodeError, decode_model


class Onboard:
    """One vehicle, resident: data and model are loaded once and stay."""

    def __init__(self, config: Config, vehicles: Vehicles, vehicle: int) -> None:
        self.vehicle, self.config, self._run = vehicle, config, run_identity(config)
        self._vehicles = vehicles
        self._start = vehicles.initial()
        self._held: list[Common] = []  # the last two models: who is asked twice in a round needs the one before

    @classmethod
    def load(cls, place: Path, vehicle: int) -> "Onboard":
        """Load what a vehicle's folder says: config.toml and plan.npz."""
        config = RunFolder.config_of(place)
        vehicles = Vehicles(config, load_data(config.data), load_fleet_plan(place / "plan.npz"))
        return cls(config, vehicles, vehicle)

    def train(self, job: Job, model: bytes) -> Upload:
        """Do a job, or raise ReplyError with why not."""
        if job.run != self._run:
            raise ReplyError(f"prepared for run {self._run}, asked by run {job.run}")
        if job.vehicle != self.vehicle:
            raise ReplyError(f"this is vehicle {self.vehicle}, not {job.vehicle}")
        weights, buffers = self._receive(job.round, model)
        return self._vehicles.train(job.algorithm, self.vehicle, job.round, weights, buffers, job.share)

    def _receive(self, t: int, model: bytes) -> tuple[Singles, Singles]:
        layout = self._vehicles.layout
        sizes = (layout.live_size, len(self._start[1]))
        problem = NO_BASE
        for base in (None, *self._held):
            try:
                live, buffers = decode_model(model, t, sizes, base)
                break
            except DecodeError as error:
                problem = NO_BASE if "another model" in str(error) else str(error)
        else:
            raise ReplyError(problem)
        weights = self._start[0].copy()  # entries that meet only padding never change, and are not sent
        for run, part in layout.parts():
            weights[run] = live[part]
        buffers = np.ascontiguousarray(buffers)
        received = common_of(self.config, layout, weights, buffers)
        others = [held for held in self._held if held.digest != received.digest]
        self._held = [received, *others[:1]]
        return weights, buffers
