"""A vehicle on its own that is sent changes: it trains from the station's model, or asks for the whole one."""

from functools import partial

import pytest

pytest.importorskip("flwr")

from learning_cases import run_row
from skyfed.drivers.flower.messages import NO_BASE, ReplyError, ask, read_order
from skyfed.drivers.flower.onboard import Vehicle
from skyfed.onboard import Onboard
from skyfed.station import Station
from skyfed.wire import decode_changes, encode_changes, encode_content
from test_world_fleet import Listener, order_of
from world_cases import TASK, plan_of, settings, world_for


@pytest.fixture(scope="module")
def mission() -> tuple[Onboard, Listener, partial]:
    """Return a run of swift with absent vehicles and fading links: its jobs, and how to make a vehicle's world."""
    hard = ("faults.absent=0.2", "world.links='fading'", "world.downlink='broadcast'")
    config = settings("algorithms=['swift']", "train.kappa=1", "eval_every=12", *hard, rounds=12)
    onboard, plan = Onboard(config, TASK), plan_of(config)
    listener = Listener(onboard)
    run_row(Station("swift", onboard, world_for(config, plan), listener))
    return onboard, listener, partial(world_for, config, plan.only(1))


def asked(vehicle: Vehicle, onboard: Onboard, job, content: bytes) -> bytes:
    order, content = read_order(ask(1, order_of(onboard.config, job), content, 60.0, 1))
    return vehicle.train(order, content)[0].data


def own(listener: Listener) -> list[int]:
    return [t for v, t in sorted(listener.done) if v == 1]


def test_a_vehicle_that_follows_changes_sends_what_the_simulation_sends(mission):
    onboard, listener, make = mission
    vehicle, followed = Vehicle(onboard, make, 1), 0
    for t in own(listener):
        job, reply = listener.done[1, t]
        followed += bool(job.changes)
        assert asked(vehicle, onboard, job, job.changes or encode_content(t, job.sent, None)) == reply.data
    assert followed > 5


def test_a_vehicle_that_was_started_anew_asks_for_the_whole_model(mission):
    onboard, listener, make = mission
    t = own(listener)[-1]
    job, reply = listener.done[1, t]
    vehicle = Vehicle(onboard, make, 1)
    with pytest.raises(ReplyError, match=NO_BASE):
        asked(vehicle, onboard, job, job.changes)
    assert asked(vehicle, onboard, job, encode_content(t, job.sent, None)) == reply.data


def test_the_first_model_follows_from_the_seed(mission):
    onboard, listener, make = mission
    jobs = [listener.done[1, t] for t in own(listener)]
    ((job, reply),) = [
        (job, reply) for job, reply in jobs if job.changes and decode_changes(job.changes, job.round)[0] == 0
    ]
    assert asked(Vehicle(onboard, make, 1), onboard, job, job.changes) == reply.data


def test_another_result_than_the_station_s_is_refused(mission):
    onboard, listener, make = mission
    t = own(listener)[0]
    job, _ = listener.done[1, t]
    with pytest.raises(ReplyError, match=NO_BASE):
        asked(Vehicle(onboard, make, 1), onboard, job, encode_changes(t, 0, [], 12345))
