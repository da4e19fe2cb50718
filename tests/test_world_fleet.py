"""A vehicle on its own, told its arrivals by orders, does what the station's simulation of it does."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.supercore.task_identity import TaskIdentity

from learning_cases import run_row
from skyfed.config import Config
from skyfed.drivers.flower.messages import BRIEF, Order, ask, read_order
from skyfed.drivers.flower.onboard import Vehicle
from skyfed.flight.fleet_plan import FleetPlan
from skyfed.jobs import Job, Jobs, Reply
from skyfed.onboard import Onboard
from skyfed.runs.folder import run_identity
from skyfed.station import Station
from skyfed.wire import encode_content
from world_cases import TASK, plan_of, settings, world_for

TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1  # Flower's messages ask who writes them
LABEL = "2ceoafl"
HARD = (
    "vehicle.battery=60e3", "vehicle.recharge=40", "world.deadline=62", "world.late='drop'", "faults.absent=0.2",
    "world.links='fading'", "world.downlink='broadcast'",
)  # fmt: skip
CASES = {
    "plain": (),
    "hard": HARD,
    "camera": (*HARD, "sensing.model='footprint'", "sensing.stay=100"),
    "one field": (*HARD, "sensing.model='footprint'", "field.shared=true"),
    "uneven": (*HARD, "data.dirichlet=0.5", "sensing.keep_last=30"),
    "law": ("world.time='law'", "field.follows='rounds'"),
}


class Listener:
    """A driver that does jobs in this process and keeps them with their replies."""

    def __init__(self, onboard: Onboard) -> None:
        self._onboard = onboard
        self.done: dict[tuple[int, int], tuple[Job, Reply]] = {}

    def call(self, jobs: Jobs) -> Iterator[Reply]:
        """Yield the replies in order."""
        for job in jobs:
            reply = self._onboard.do(job)
            if job.do == "local":
                self.done[job.vehicle, job.round] = job, reply
            yield reply


def order_of(config: Config, job: Job) -> Order:
    """Return the order that the station of a fleet makes from a job."""
    brief = [float(job.words[name]) for name in BRIEF if name in job.words]
    arrive = job.data["arrive"].astype("<f8").tobytes()
    return Order(
        run_identity(config),
        job.label,
        job.vehicle,
        job.round,
        job.words["share"],
        job.words["exchange"],
        brief,
        arrive,
    )


def flown(case: str) -> tuple[Config, Onboard, Listener, FleetPlan]:
    config = settings(f"algorithms=['{LABEL}']", "train.kappa=1", "eval_every=12", *CASES[case], rounds=12)
    plan = plan_of(config)
    if config.field.shared:
        one = {name: np.repeat(getattr(plan, name)[:1], 3, 0) for name in ("psi", "true_centres", "true_radii")}
        plan = replace(plan, **one)
    onboard = Onboard(config, TASK)
    listener = Listener(onboard)
    station = Station(LABEL, onboard, world_for(config, plan), listener)
    run_row(station)
    return config, onboard, listener, plan


def answers(vehicle: Vehicle, config: Config, listener: Listener, rounds: Sequence[int]) -> None:
    """Ask a vehicle for some rounds; assert that it holds and sends what the station's simulation has."""
    for t in rounds:
        job, reply = listener.done[vehicle.vehicle, t]
        content = encode_content(t, job.sent, None)
        order, content = read_order(ask(1, order_of(config, job), content, 60.0, 1))
        held = vehicle._world_of(order).data(vehicle.vehicle, t)["samples"]
        np.testing.assert_array_equal(held, job.data["samples"])
        upload, _ = vehicle.train(order, content)
        assert upload.data == reply.data
        assert upload.samples == len(held)


@pytest.mark.parametrize("case", CASES)
def test_a_vehicle_on_its_own_is_the_one_that_the_station_simulates(case):
    config, onboard, listener, plan = flown(case)
    for u in range(3):
        own = [t for v, t in sorted(listener.done) if v == u]
        assert len(own) > 3
        make = partial(world_for, config, plan.only(u))
        for rounds in (own, own[::3], own[-1:], [*own[:4], own[1], *own[2:]], [*own, own[0], own[-1]]):
            answers(Vehicle(onboard, make, u), config, listener, rounds)


def test_a_station_that_goes_back_and_lives_another_past_is_followed():
    """The same vehicle serves two missions of one row whose clocks differ from some round on."""
    config, onboard, listener, plan = flown("plain")
    vehicle = Vehicle(onboard, partial(world_for, config, plan.only(1)), 1)
    answers(vehicle, config, listener, range(6))
    job, _ = listener.done[1, 5]
    times = job.data["arrive"].copy()
    times[3:] += 90.0  # rounds were longer: the world is a later one
    again = world_for(config, plan)
    again.flights.tell(1, times)
    told = replace(job, data={**job.data, "arrive": times})
    held = vehicle._world_of(order_of(config, told)).data(1, 5)["samples"]
    np.testing.assert_array_equal(held, again.data(1, 5)["samples"])
    assert not np.array_equal(held, job.data["samples"])
    answers(vehicle, config, listener, [5, 6])
