"""The world of a mission: where everybody is, what was sensed, and what a round costs in seconds and joules."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from pydantic import Field, field_validator

from skyfed.columns import Column
from skyfed.errors import BadInputError, own_code
from skyfed.faults import FaultSettings, present
from skyfed.flight.fleet_plan import FleetPlan
from skyfed.imports import check_path
from skyfed.settings import StrictSettings
from skyfed.tasks import Samples, Task
from skyfed.types import Arrays, Bools, Floats, Ints
from skyfed.world.arrivals import SensingSettings
from skyfed.world.cost import CostSettings, Effort, Spending, Where, lateness, round_end, spend_at, waiting
from skyfed.world.sensing import Schedule

JOULES = ("modelled_energy", "fly_joules", "send_joules", "wait_joules")  # what a vehicle's round takes, modelled
UPLOAD_COLUMNS = (
    Column("modelled_seconds", "float", "seconds of training, modelled"),
    Column("modelled_energy", "float", "joules of training, modelled"),
    Column("fly_seconds", "float", "seconds of flying to the round's place, modelled"),
    Column("send_seconds", "float", "seconds of sending, modelled"),
    Column("fly_joules", "float", "joules of flying, and of hovering while training and sending, modelled"),
    Column("send_joules", "float", "joules of sending, modelled"),
    Column("wait_joules", "float", "joules of hovering until the round ends, modelled"),
    Column("rate", "float", "bits per second of the uplink, modelled"),
    Column("late", "float", "seconds after the deadline, modelled"),
    Column("battery_left", "float", "joules left in the battery, modelled", empty=True),
)
VEHICLE_COLUMNS = (
    Column("round", "int", "the round"),
    Column("vehicle", "int", "the vehicle"),
    Column("present", "bool", "whether it is there in this round"),
    Column("x", "float", "metres east of the station"),
    Column("y", "float", "metres north of the station"),
    Column("samples", "int", "training samples that it holds"),
    Column("flown", "float", "metres flown to this round's place"),
    Column("battery_left", "float", "joules left in the battery, modelled", empty=True),
)


class WorldSettings(StrictSettings):
    """Which world a run takes place in."""

    use: str = Field(
        "simulated",
        description="simulated, or your own: a class made from skyfed.World, as package.module:Name or file.py:Name",
    )

    @field_validator("use")
    @classmethod
    def _known(cls, use: str) -> str:
        return use if use == "simulated" else check_path(use)


@dataclass(frozen=True)
class View:
    """What the station knows before a round: an algorithm chooses by it who takes part.

    present    vehicles that are there            samples  (U,) training samples that each holds
    positions  (U, 2) metres, station at (0, 0)   battery  (U,) joules left, infinite where none is modelled
    """

    round: int
    present: list[int]
    samples: Ints
    positions: Floats
    battery: Floats


class World:
    """One row's world: flights and data are those of all rows, batteries are its own."""

    def __init__(
        self,
        plan: FleetPlan,
        task: Task,
        sensing: SensingSettings,
        cost: CostSettings,
        faults: FaultSettings,
        altitude: float,
        seed: int,
        dirichlet: float | None = None,
    ) -> None:
        """Start before round 0."""
        self._plan, self._cost, self._faults, self._seed = plan, cost, faults, seed
        self.task, self._altitude = task, altitude
        if plan.classes != len(task.places):
            raise BadInputError(
                f"flights over {plan.classes} classes, but the data has {len(task.places)} places; allowed: as many"
            )
        self.vehicles = plan.vehicles
        self._positions = np.empty((plan.vehicles, 0, 2))
        self._used = np.zeros(plan.vehicles)
        places = {"train": task.train.places, "test": task.test.places}
        self.schedule = Schedule(plan, places, sensing, seed, dirichlet)
        self.fly(0)
        bare = [u for u in range(plan.vehicles) if not len(self.observe(u, 0))]
        if bare:
            skew = "" if dirichlet is None else ", or a larger data.dirichlet"
            raise BadInputError(
                f"vehicles = {plan.vehicles}: vehicle {bare[0]} starts without a sample; fewer would do{skew}"
            )

    def fly(self, t: int) -> None:
        """Make sure that round t is flown; asks for the next stretch where it is not."""
        while t >= (known := self._positions.shape[1]):
            with own_code(f"world.use: stretch, round {known}"):
                positions = np.asarray(self.stretch(known), np.float64)
                if positions.ndim != 3 or positions.shape[::2] != (self.vehicles, 2) or not positions.size:
                    raise ValueError(
                        f"gave shape {positions.shape}; allowed: ({self.vehicles}, rounds, 2), one round or more"
                    )
            self._positions = np.concatenate([self._positions, positions], axis=1)
            self.schedule.extend(positions)

    def stretch(self, t: int) -> Floats:
        """Return where the fleet flies from round t on, for one round or more; (U, H, 2) metres, station at (0, 0)."""
        return self._plan.positions[:, t:]

    def view(self, t: int) -> View:
        """Return what the station knows before round t."""
        self.fly(t)
        there = present(self._faults, self._seed, t, self.vehicles)
        return View(t, there, self.samples(t), self._positions[:, t].copy(), self._battery())

    def observe(self, vehicle: int, t: int) -> Ints | Samples:
        """Return the training samples that a vehicle holds in round t, D_u^t: indices, or samples of a real sensor."""
        self.fly(t)
        return self.schedule.train_set(vehicle, t)

    def data(self, vehicle: int, t: int) -> Arrays:
        """Return what a vehicle holds in round t as named arrays."""
        return data_of(self.observe(vehicle, t))

    def samples(self, t: int) -> Ints:
        """Return how many training samples each vehicle holds in round t."""
        return np.array([len(self.observe(u, t)) for u in range(self.vehicles)])

    def sensed(self, t: int) -> Ints:
        """Return (U, C) how many training samples of each place every vehicle has sensed up to round t."""
        self.fly(t)
        counts, total = [], len(self.task.places)
        for u in range(self.vehicles):
            if type(self).observe is World.observe:
                held: Ints | Samples = self.schedule.train[u].at(t)  # with what it no longer holds
            else:
                held = self.observe(u, t)
            places = held.places if isinstance(held, Samples) else self.task.train.places[held]
            counts.append(np.bincount(places[(places >= 0) & (places < total)], minlength=total))
        return np.stack(counts)

    def union(self, t: int) -> Ints | Samples:
        """Return all vehicles' samples of round t, in vehicle order."""
        held = [self.observe(u, t) for u in range(self.vehicles)]
        indices = [each for each in held if not isinstance(each, Samples)]
        if len(indices) == len(held):
            return np.concatenate(indices)
        own = [each if isinstance(each, Samples) else self.task.train.some(each) for each in held]
        parts = [[getattr(each, part) for each in own] for part in ("inputs", "targets", "places")]
        return Samples(*(np.concatenate(part) for part in parts))

    def tested(self, t: int) -> Bools:
        """Tell which test samples belong to the test set as it has grown up to round t."""
        self.fly(t)
        return self.schedule.test_members(t, len(self.task.test))

    def where(self, vehicle: int, t: int) -> Where:
        """Return where a vehicle is in round t."""
        self.fly(t)
        ground = float(np.linalg.norm(self._positions[vehicle, t], axis=-1))
        return Where(self._flown(vehicle, t), ground, self._altitude)

    def spent(self, vehicle: int, t: int, effort: Effort) -> Spending:
        """Return what a vehicle's round costs."""
        return spend_at(self._cost, self.where(vehicle, t), effort)

    def lateness(self, spent: Spending) -> float:
        """Return by how many seconds an upload misses the deadline, and 0 if late ones are waited for."""
        return lateness(self._cost, spent) if self._cost.late == "drop" else 0.0

    def close(self, t: int, spent: Mapping[int, Spending]) -> dict[int, dict[str, float | None]]:
        """End round t; returns for every vehicle that worked what it took, and takes it from its battery."""
        end = round_end(self._cost, list(spent.values()))
        rows: dict[int, dict[str, float | None]] = {}
        for u, own in spent.items():
            rows[u] = {
                "modelled_seconds": own.train_seconds,
                "modelled_energy": own.train_joules,
                "fly_seconds": own.fly_seconds,
                "send_seconds": own.send_seconds,
                "fly_joules": own.fly_joules,
                "send_joules": own.send_joules,
                "wait_joules": waiting(self._cost, own, end),
                "rate": own.rate,
                "late": lateness(self._cost, own),
            }
            self._use(u, rows[u])
            rows[u]["battery_left"] = self._left(u)
        return rows

    def rows(self, t: int) -> list[dict[str, float | int | bool | None]]:
        """Return one row per vehicle: where it is in round t and what it has."""
        there = set(present(self._faults, self._seed, t, self.vehicles))
        return [
            {
                "round": t,
                "vehicle": u,
                "present": u in there,
                "x": float(self._positions[u, t, 0]),
                "y": float(self._positions[u, t, 1]),
                "samples": len(self.observe(u, t)),
                "flown": self._flown(u, t),
                "battery_left": self._left(u),
            }
            for u in range(self.vehicles)
        ]

    def state(self) -> Arrays:
        """Return what must be kept to go on later: joules used so far."""
        return {"used": self._used.copy()}

    def restore(self, state: Arrays) -> None:
        """Go on from what `state` returned."""
        self._used = np.array(state["used"], np.float64).reshape(self.vehicles)

    def replay(self, rows: Iterable[Mapping[str, float]]) -> None:
        """Go on from the rows of a table of uploads, where no state was kept (format 0.1.0)."""
        self._used = np.zeros(self.vehicles)
        for row in rows:
            self._use(int(row["vehicle"]), row)

    def _use(self, vehicle: int, row: Mapping[str, float | None]) -> None:
        self._used[vehicle] += sum(row[name] or 0.0 for name in JOULES)

    def _flown(self, vehicle: int, t: int) -> float:
        before, here = self._positions[vehicle, [max(0, t - 1), t]]
        return float(np.linalg.norm(here - before, axis=-1))

    def _battery(self) -> Floats:
        """Return the joules that every vehicle has left, infinite where no battery is modelled."""
        battery = np.inf if self._cost.model == "law" else self._cost.battery
        return np.maximum(0.0, battery - self._used)

    def _left(self, vehicle: int) -> float | None:
        return None if self._cost.model == "law" else float(self._battery()[vehicle])


def data_of(held: Ints | Samples) -> Arrays:
    """Return what a vehicle holds as named arrays: indices of the task's samples, or samples themselves."""
    return {"inputs": held.inputs, "targets": held.targets} if isinstance(held, Samples) else {"samples": held}


def samples_of(data: Arrays) -> Ints | Samples:
    """Return what `data_of` wrote as named arrays."""
    if "samples" in data:
        return data["samples"]
    return Samples(data["inputs"], data["targets"], np.zeros(len(data["targets"]), np.int64))
