"""The world of a mission: where everybody is, what was sensed, the clock, the batteries and the links."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace

import numpy as np

from skyfed.errors import BadInputError, own_code
from skyfed.faults import present
from skyfed.flight.fleet_plan import FleetPlan
from skyfed.tasks import Samples, Task
from skyfed.types import Arrays, Bools, Floats, Ints
from skyfed.world.clock import Effort, Spending
from skyfed.world.columns import VehicleRow
from skyfed.world.computers import training_cost
from skyfed.world.flights import Flights
from skyfed.world.kept import Kept, pack_kept, unpack_kept
from skyfed.world.radio import Radios, why_not
from skyfed.world.replan import Known, Replanner
from skyfed.world.sensing import Schedule
from skyfed.world.settings import Conditions

_REPLANNED = ("classes", "value", "heard")  # of a world in which vehicles plan again
_LEAST_WORTH = 0.02  # error rate below which a class is worth no less


@dataclass(frozen=True)
class View:
    """What the station knows before a round: an algorithm chooses by it who takes part.

    present    vehicles that are there            samples  (U,) training samples that each holds
    positions  (U, 2) metres, station at (0, 0)   battery  (U,) joules left, infinite where none is modelled
    rates      (U,) bits per second of the uplink with an equal share of the band, infinite where none is modelled
    clock      mission seconds at the start of the round
    """

    round: int
    present: list[int]
    samples: Ints
    positions: Floats
    battery: Floats
    rates: Floats
    clock: float


class World:
    """One row's world: plans and data are those of all rows, flights, clock and batteries are its own."""

    def __init__(self, plan: FleetPlan, task: Task, conditions: Conditions) -> None:
        """Start before round 0."""
        self._plan, self.task, self.conditions = plan, task, conditions
        if plan.classes != len(task.places):
            raise BadInputError(
                f"flights over {plan.classes} classes, but the data has {len(task.places)} places; allowed: as many"
            )
        self.vehicles = plan.vehicles
        self.flights = Flights(conditions, plan.vehicles)
        self.radios = Radios(conditions, plan.vehicles)
        self.kept: dict[int, Kept] = {}  # uploads that did not arrive, by vehicle
        self._stretch, self._begins = np.empty((plan.vehicles, 0, 2)), 0  # the last stretch, and its first round
        flight = None if conditions.planned else conditions.flight
        self._replanner = None if flight is None else Replanner(plan, conditions, flight, task.train.places)
        self._every = flight.replan if flight else plan.rounds  # rounds that a stretch has at most
        self._association = plan.association.copy()
        self._value = np.ones(plan.classes, np.float32)  # of the classes, as the station last measured
        self._heard = np.ones((plan.vehicles, plan.classes), np.float32)  # as it last told every vehicle
        self._work: dict[int, Spending] = {}  # what vehicles did at their places in the present round
        self._received, self._sent = np.zeros(plan.vehicles, np.int64), np.zeros(plan.vehicles, np.int64)
        self._rates: dict[int, float] = {}
        self._uploads: dict[int, dict[str, float]] = {}
        self._rows: list[VehicleRow] = []
        places = {"train": task.train.places, "test": task.test.places}
        self.schedule = Schedule(plan, places, conditions)
        self.fly(0)
        bare = [u for u in range(plan.vehicles) if not len(self.observe(u, 0))]
        if bare:
            skew = "" if conditions.dirichlet is None else ", or a larger data.dirichlet"
            raise BadInputError(
                f"vehicles = {plan.vehicles}: vehicle {bare[0]} starts without a sample; fewer would do{skew}"
            )

    def fly(self, t: int) -> None:
        """Make sure that round t is flown; asks for the next stretch where there is none."""
        while t >= (known := self.flights.rounds):
            if known - self._begins >= self._stretch.shape[1]:
                with own_code(f"world.use: stretch, round {known}"):
                    ahead = np.asarray(self.stretch(known), np.float64)
                    if ahead.ndim != 3 or ahead.shape[::2] != (self.vehicles, 2) or not ahead.size:
                        raise ValueError(
                            f"gave shape {ahead.shape}; allowed: ({self.vehicles}, rounds, 2), one round or more"
                        )
                self._stretch, self._begins = ahead, known
            self.flights.fly(self._stretch[:, known - self._begins])
            if known:  # round 0 has the initial set
                self._sense(known)

    def _sense(self, t: int) -> None:
        positions, arrive = self.flights.positions[:, t], self.flights.arrive[:, t]
        by_round = self.conditions.follows == "rounds"
        phase = np.where(np.isnan(arrive), np.nan, t) if by_round else arrive / self.conditions.world.round_time
        self.schedule.sense(positions, arrive, phase)

    def stretch(self, t: int) -> Floats:
        """Return where the fleet flies from round t on, for one round or more; (U, H, 2) metres, station at (0, 0)."""
        if self._replanner is None or t < self._every:
            return self._plan.positions[:, t : self._every if t < self._every else None]
        held = self.sensed(t - 1)
        ahead = []
        for u in range(self.vehicles):
            known = Known(
                self.flights.positions[u, :t], self.flights.arrive[u, :t], self._association[u, :t],
                held[u].astype(np.float64), self._heard[u].astype(np.float64),
            )  # fmt: skip
            positions, association = self._replanner.ahead(u, known, self.schedule.train[u])
            self._association[u, t : t + len(association)] = association
            ahead.append(positions[: self._every])
        return np.stack(ahead)

    def measure(self, losses: Floats) -> None:
        """Take note of what the station measured of each class: its error rate is what a class is worth, 1 on average."""
        known = np.isfinite(losses)
        if self._replanner is not None and known.any():
            worth = np.maximum(np.where(known, losses, losses[known].mean()), _LEAST_WORTH)
            self._value = np.asarray(worth / worth.mean(), np.float32)

    def tell(self, t: int, vehicles: Iterable[int]) -> int:
        """Tell vehicles the classes' values with what they are sent for round t; returns the bytes for each.

        They need them when they plan the round after it.
        """
        if self._replanner is None or (t + 1) % self._every or t + 1 >= self._plan.rounds:
            return 0
        self._heard[list(vehicles)] = self._value
        return self._value.nbytes

    def view(self, t: int) -> View:
        """Return what the station knows before round t."""
        self.fly(t)
        grounds = np.hypot(*self.flights.positions[:, t].T)
        law = self.conditions.world.time == "law"
        rates = np.full(self.vehicles, np.inf) if law else self.radios.rates(grounds)
        places = self.flights.positions[:, t].copy()
        return View(t, self._reachable(t), self.samples(t), places, self._battery(), rates, self.flights.start(t))

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

    def brief(self, vehicle: int, t: int) -> dict[str, float]:
        """Return what a vehicle knows of its own means in round t, for budgets.

        elapsed  seconds of the round before it can train      rate   bits per second of its uplink
        flops, watts  of its computer                          radio  watts while it sends
        """
        self.fly(t)
        if self.conditions.world.time == "law":
            return {}
        turn, computer = self.flights.turns[vehicle], self.flights.computers[vehicle]
        before = self._work.get(vehicle, Spending()).seconds  # what it has received, and earlier exchanges
        rate = self.radios.send(t, vehicle, self._ground(vehicle, t), 0).rate
        elapsed = turn.fly_seconds + self.conditions.world.dwell + before
        return {"elapsed": elapsed, "rate": rate, "flops": computer.flops, "watts": computer.watts,
                "radio": self.radios.watts(vehicle)}  # fmt: skip

    def receive(self, t: int, to: list[int]) -> dict[int, str]:
        """Bring vehicles what is pending; returns who did not get it, and why."""
        if self.conditions.world.time == "law":
            return {}
        grounds = np.array([self._ground(u, t) for u in range(self.vehicles)])
        missed: dict[int, str] = {}
        for u, transfer in self.radios.receive(t, grounds, to).items():
            self._add(u, receive_seconds=transfer.seconds,
                      receive_joules=transfer.seconds * self.conditions.vehicle.radio.receiving_power)  # fmt: skip
            self._received[u] += transfer.bytes_sent
            if reason := why_not(transfer):
                missed[u] = reason
        return missed

    def send(self, vehicle: int, t: int, effort: Effort) -> str:
        """Let a vehicle train and send its upload; returns why it does not arrive in time, or nothing."""
        world = self.conditions.world
        if world.time == "law":
            train = {"train_seconds": effort.rounds * world.t_train, "train_joules": effort.rounds * world.e_train}
            self._work[vehicle] = Spending(**train)
            return ""
        seconds, joules = training_cost(self.flights.computers[vehicle], effort.rounds * effort.flops)
        transfer = self.radios.send(t, vehicle, self._ground(vehicle, t), effort.sent)
        self._work[vehicle] = replace(
            self._work.get(vehicle, Spending()), train_seconds=seconds, train_joules=joules,
            send_seconds=transfer.seconds, send_joules=transfer.seconds * self.radios.watts(vehicle),
        )  # fmt: skip
        self._sent[vehicle], self._rates[vehicle] = transfer.bytes_sent, transfer.rate
        late = self.late(vehicle)
        if late and world.closes is not None:
            return f"late by {late:.1f} s (modelled)"
        return why_not(transfer)

    def late(self, vehicle: int) -> float:
        """Return by how many seconds a vehicle's upload misses the deadline; 0 where it does not or there is none."""
        world, work = self.conditions.world, self._work.get(vehicle)
        if work is None or world.deadline is None or world.time == "law":
            return 0.0
        return max(0.0, self.flights.turns[vehicle].fly_seconds + world.dwell + work.seconds - world.deadline)

    def close(self, t: int) -> dict[str, float]:
        """End round t; returns its columns in the table of rounds."""
        late, rates = {u: self.late(u) for u in self._work}, self._rates
        lasted, spent = self.flights.close(t, self._work, t == self._plan.rounds - 1)
        self._uploads = {
            u: {
                "modelled_seconds": spent[u].train_seconds,
                "modelled_energy": spent[u].train_joules,
                "send_seconds": spent[u].send_seconds,
                "send_joules": spent[u].send_joules,
                "rate": rates.get(u, 0.0),
                "late": late[u],
            }
            for u in self._work
        }
        for u, work in self._work.items():  # of what the end of the round broke off, a part went over the air
            self._received[u] = _part(self._received[u], spent[u].receive_seconds, work.receive_seconds)
            self._sent[u] = _part(self._sent[u], spent[u].send_seconds, work.send_seconds)
        self._rows = self._vehicle_rows(t, spent)
        self._work, self._rates = {}, {}
        self._received[:], self._sent[:] = 0, 0
        joules = float(sum(turn.joules for turn in spent))
        return {"mission_seconds": lasted, "clock": self.flights.clock, "joules": joules}

    def upload_costs(self, vehicle: int) -> dict[str, float]:
        """Return a vehicle's columns in the table of uploads, of the round that was closed last."""
        return self._uploads[vehicle]

    def rows(self) -> list[VehicleRow]:
        """Return one row per vehicle, of the round that was closed last: where it was, what it has and has spent."""
        return self._rows

    def _vehicle_rows(self, t: int, spent: list[Spending]) -> list[VehicleRow]:
        flights, there = self.flights, set(self._reachable(t))
        return [
            {
                "round": t,
                "vehicle": u,
                "present": u in there,
                "x": float(flights.positions[u, t, 0]),
                "y": float(flights.positions[u, t, 1]),
                "samples": len(self.observe(u, t)),
                "flown": flights.metres(u, t),
                "battery_left": self._left(u),
                "status": flights.status[u],
                "arrive": None if np.isnan(flights.arrive[u, t]) else float(flights.arrive[u, t]),
                "received_bytes": int(self._received[u]),
                "sent_bytes": int(self._sent[u]),
                **asdict(spent[u]),
            }
            for u in range(self.vehicles)
        ]

    def state(self) -> Arrays:
        """Return what must be kept to go on later; of a stretch of one's own the part that is still to be flown."""
        flights, ahead = self.flights.state(), {}
        done = flights["arrive"].shape[1] - self._begins
        if (type(self).stretch is not World.stretch or self._replanner is not None) and done >= 0:
            ahead = {"ahead": self._stretch[:, done:]}
        if self._replanner is not None:
            ahead |= {"classes": self._association, "value": self._value, "heard": self._heard}
        return {**flights, **ahead, **self.radios.state(), **pack_kept(self.kept)}

    def restore(self, state: Arrays) -> None:
        """Go on from what `state` returned."""
        if "times" not in state:  # of an earlier version, whose clock nothing followed
            self.flights.batteries.restore(state)
            return
        self.flights.restore(state)
        self.radios.restore(state)
        self.kept = unpack_kept(state)
        if self._replanner is not None:
            self._association, self._value, self._heard = (np.array(state[name]) for name in _REPLANNED)
        self._stretch, self._begins = np.array(state.get("ahead", self._stretch[:, :0])), self.flights.rounds
        self._sense_again()

    def refly(self, flown: Arrays) -> None:
        """Sense along flights as they were, from what `Flights.flown` returned."""
        self.flights.positions, self.flights.arrive = flown["positions"], flown["arrive"]
        self._sense_again()

    def _sense_again(self) -> None:
        for t in range(1, self.flights.rounds):
            self._sense(t)

    def replay(self, rows: Iterable[Mapping[str, float]]) -> None:
        """Go on from the rows of a table of uploads, where no state was kept (format 0.1.0)."""
        names = ("modelled_energy", "fly_joules", "send_joules", "wait_joules")
        for row in rows:
            self.flights.batteries.used[int(row["vehicle"])] += sum(row.get(name) or 0.0 for name in names)

    def _add(self, vehicle: int, **more: float) -> None:
        """Add to what a vehicle did in the present round."""
        work = self._work.get(vehicle, Spending())
        self._work[vehicle] = replace(work, **{name: getattr(work, name) + value for name, value in more.items()})

    def _reachable(self, t: int) -> list[int]:
        """Return the vehicles that are in the air in round t and in touch."""
        there = present(self.conditions.faults, self.conditions.seed, t, self.vehicles)
        return [u for u in there if not np.isnan(self.flights.arrive[u, t])]

    def _ground(self, vehicle: int, t: int) -> float:
        return float(np.hypot(*self.flights.positions[vehicle, t]))

    def _battery(self) -> Floats:
        """Return the joules that every vehicle has left, infinite where no battery is modelled."""
        left = self.flights.batteries.left
        return np.full_like(left, np.inf) if self.conditions.world.time == "law" else np.maximum(0.0, left)

    def _left(self, vehicle: int) -> float | None:
        return None if self.conditions.world.time == "law" else float(self._battery()[vehicle])


def _part(size: int, spent: float, wanted: float) -> int:
    """Return the bytes that went over the air in a part of the time that all of them want."""
    return int(size if spent >= wanted else size * spent / wanted)


def data_of(held: Ints | Samples) -> Arrays:
    """Return what a vehicle holds as named arrays: indices of the task's samples, or samples themselves."""
    return {"inputs": held.inputs, "targets": held.targets} if isinstance(held, Samples) else {"samples": held}


def samples_of(data: Arrays) -> Ints | Samples:
    """Return what `data_of` wrote as named arrays."""
    if "samples" in data:
        return data["samples"]
    return Samples(data["inputs"], data["targets"], np.zeros(len(data["targets"]), np.int64))
