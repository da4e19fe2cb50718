"""Processes that die in the middle of a fleet's run: every round closes, and the bits are those of who was there."""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Message

from fleet_cases import Rogue, Yard, children, says, until, weights
from skyfed.drivers.flower.hurry import hurry
from skyfed.drivers.flower.messages import Job, ReplyError, answer, refuse
from skyfed.drivers.flower.onboard import Onboard
from skyfed.rng import stream

pytestmark = [pytest.mark.fleet, pytest.mark.timeout(600)]
hurry()
ONE = ['algorithms=["2ceoafl"]', "rounds=6", "fleet.deadline=60"]


def honest(place: Path) -> Callable[[Job, bytes, Message], Message]:
    board = Onboard.load(place, int(place.name.removeprefix("vehicle-")))

    def reply(job: Job, model: bytes, message: Message) -> Message:
        try:
            return answer(board.train(job, model), message)
        except ReplyError as error:
            return refuse(str(error), message)

    return reply


def test_a_vehicle_killed_in_the_middle_of_a_round_comes_back(tmp_path):
    with Yard(tmp_path / "yard", 2, *ONE) as yard:
        yard.station()
        yard.vehicle(0)
        craft = yard.vehicle(1)
        yard.wait("round 1: 2 in")
        craft.send_signal(signal.SIGSTOP)  # its SuperNode goes on and takes the next message
        time.sleep(3)
        craft.kill()
        craft.wait()
        yard.vehicle(1)
        yard.end()
        yard.same_as_absent(tmp_path)


def test_a_supernode_that_is_killed_is_started_again(tmp_path):
    with Yard(tmp_path / "yard", 2, *ONE) as yard:
        yard.station()
        yard.vehicle(0)
        craft = yard.vehicle(1)
        yard.wait("round 1: 2 in")
        (node,) = children(craft, "skyfed.drivers.flower.node")
        os.kill(node, signal.SIGKILL)
        yard.end()
        assert says(tmp_path / "yard" / "vehicle-1.out", "the SuperNode ended (exit code -9); starting it again")
        yard.same_as_absent(tmp_path)


def test_a_superlink_that_is_killed_is_started_again_and_the_run_goes_on(tmp_path):
    with Yard(tmp_path / "yard", 2, *ONE) as yard:
        station = yard.station()
        yard.vehicle(0)
        yard.vehicle(1)
        yard.wait("round 1: 2 in")
        (link,) = children(station, "skyfed.drivers.flower.link")
        os.kill(link, signal.SIGKILL)
        yard.end()
        assert says(yard.log, "starting it again")
        yard.same_as_absent(tmp_path)


def test_a_station_that_is_killed_goes_on_at_the_last_round(tmp_path):
    with Yard(tmp_path / "yard", 2, *ONE) as yard:
        station = yard.station()
        yard.vehicle(0)
        yard.vehicle(1)
        yard.wait("round 1: 2 in")
        station.kill()
        station.wait()
        yard.station()
        yard.end()
        begun = [line for line in yard.log.read_text(errors="replace").splitlines() if "2ceoafl begins" in line]
        assert len(begun) == 2
        assert begun[0].endswith("round 0")
        assert not begun[1].endswith("round 0")
        assert yard.same_as_absent(tmp_path) == []


def test_thirty_rounds_with_a_third_dropping_out_at_random(tmp_path):
    settings = ['algorithms=["2ceoafl"]', "rounds=30", "eval_every=30", "fleet.deadline=6", "fleet.tries=1"]
    with Yard(tmp_path / "yard", 3, *settings) as yard:
        places = [yard.place / f"vehicle-{u}" for u in range(3)]

        def flaky(place: Path) -> Callable[[Job, bytes, Message], Message | None]:
            good, coins = honest(place), stream(5, "drop", 0, int(place.name.removeprefix("vehicle-")))
            return lambda job, model, message: None if coins.random() < 0.3 else good(job, model, message)

        yard.station()
        with contextlib.ExitStack() as crew:
            for place in places:
                crew.enter_context(Rogue(place, flaky(place), 400))
            yard.end(400)
        missed = yard.same_as_absent(tmp_path)
        assert 10 < len(missed) < 60


def test_a_late_vehicle_misses_the_round_and_is_in_the_next(tmp_path):
    with Yard(tmp_path / "yard", 2, 'algorithms=["2ceoafl"]', "rounds=4", "fleet.deadline=15", "fleet.tries=1") as yard:
        late = honest(yard.place / "vehicle-1")

        def slow(job: Job, model: bytes, message: Message) -> Message:
            if job.round == 1:
                time.sleep(20)
            return late(job, model, message)

        yard.station()
        with Rogue(yard.place / "vehicle-0", honest(yard.place / "vehicle-0")), Rogue(yard.place / "vehicle-1", slow):
            yard.end()
        assert (1, 1) in yard.same_as_absent(tmp_path)
        assert says(yard.log, "round 1: vehicle 1 is left out")


@pytest.mark.parametrize("how", ["garbage", "nan", "round", "vehicle"])
def test_spoilt_bytes_are_dropped_with_id_and_reason(tmp_path, how):
    spoil = f'faults.spoil=[[1, 1, "{how}"]]'
    with Yard(tmp_path / "yard", 2, 'algorithms=["2ceoafl"]', "rounds=3", "fleet.deadline=30", spoil) as yard:
        yard.station()
        zero, one = (yard.place / f"vehicle-{u}" for u in range(2))
        with Rogue(zero, honest(zero)), Rogue(one, honest(one)):
            yard.end()
        assert yard.same_as_absent(tmp_path) == [(1, 1)]
        assert says(yard.log, "round 1: vehicle 1 is left out")
        until(lambda: np.isfinite(weights(yard.run, "2ceoafl")).all(), 1)
