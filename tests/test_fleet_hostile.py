"""Hostile vehicles and a hostile station, with real processes: each costs itself, and nobody else.

A hostile vehicle is a thread of the test that speaks to the real station; a hostile station is the real one, which
asks for something else.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import (
    add_header_to_object_body,
    get_all_nested_objects,
    get_object_tree,
)

from fleet_cases import Rogue, Yard, deliver_reply, environment, honest, says, start
from skyfed.cli import run_arguments
from skyfed.drivers.flower.messages import Order, answer
from skyfed.drivers.flower.onboard import Vehicle
from skyfed.drivers.flower.patch_backoff import patch_backoff
from skyfed.runs.checkpoint import unpack_model

pytestmark = pytest.mark.fleet
patch_backoff()
QUICK = ['algorithms=["2ceoafl"]', "rounds=4", "fleet.tries=1", "fleet.deadline=20"]
Reply = Callable[[Order, bytes, Message], Message]


def reports(reply: Reply, values: list[tuple[str, str]]) -> Reply:
    """In round t, report the t-th of these figures with this JSON text as its value."""

    def do(order: Order, content: bytes, message: Message) -> Message:
        own = dict(reply(order, content, message).content["upload"])
        if order.round < len(values):
            name, text = values[order.round]
            own["about"] = re.sub(rf'"{name}": [^,}}]+', f'"{name}": {text}', own["about"])
        return Message(RecordDict({"upload": ConfigRecord(own)}), reply_to=message)

    return do


def withhold(reply: Message, run: int, send: Any, push: Any) -> None:
    """Announce a reply, and send all of it but its first part."""
    reply.metadata.__dict__["_message_id"] = reply.object_id
    parts = get_all_nested_objects(reply)
    wanted, session = send(reply, get_object_tree(reply), 0.0)
    for key, part in list(parts.items())[1:]:
        if key in wanted:
            push(run, session, key, part.deflate())


class Garbled(ConfigRecord):
    """A record whose bytes are none."""

    def deflate(self) -> bytes:
        """Return the name of a record, and what is none."""
        return bytes(add_header_to_object_body(b"\xff\x00 garbage", ConfigRecord({})))


def garble(reply: Message, run: int, send: Any, push: Any) -> None:
    """Send a reply that no vehicle of Flower can write."""
    broken = Message(RecordDict({"upload": Garbled({})}), reply_to=asked[-1])
    deliver_reply(broken, run, send, push)


asked: list[Message] = []  # what a garbling vehicle was asked last


def test_figures_of_a_hostile_vehicle_cost_it_its_round(tmp_path):
    big = [("seconds", "9" * 400), ("cpu", "1e308"), ("flops", "-" + "9" * 400)]
    with Yard(tmp_path / "yard", 3, *QUICK) as yard:
        yard.station()
        yard.wait("the station listens")
        one = yard.place / "vehicle-1"
        yard.vehicle(0)
        yard.vehicle(2)
        with Rogue(one, reports(honest(one), big)):
            yard.end()
        missed = yard.same_as_absent(tmp_path)
        assert {pair for pair in missed if pair[0] == 1} >= {(1, 0), (1, 1), (1, 2)}
        assert says(yard.log, "vehicle 1 is left out: not a reply to a job")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (-1e6, "vehicle 1 is left out: a running variance is below 0"),
        (1e6, "the batch-norm buffers of vehicle 1 are left out"),
    ],
)
def test_batch_norm_buffers_of_a_hostile_vehicle_do_not_reach_the_model(tmp_path, value, words):
    with Yard(tmp_path / "yard", 3, 'algorithms=["2ceoafl"]', "rounds=3", "fleet.tries=1", "fleet.grace=1000") as yard:
        yard.station()
        yard.wait("the station listens")
        yard.vehicle(0)
        yard.vehicle(2)
        one = yard.place / "vehicle-1"
        board = Vehicle.load(one, 1)
        real = board._onboard._encode

        def bent(algorithm: Any, parts: Any, job: Any) -> Any:
            spoilt = {name: replace(part, buffers=np.full_like(part.buffers, value)) for name, part in parts.items()}
            return real(algorithm, spoilt, job)

        board._onboard._encode = bent
        with Rogue(one, lambda order, content, message: answer(board.train(order, content)[0], message)):
            yard.end()
        assert says(yard.log, words)
        model = unpack_model(yard.run / "2ceoafl" / "model.safetensors")
        assert np.abs(model[1]).max() < 100


@pytest.mark.parametrize(("deliver", "words"), [(withhold, "vehicle 1 is left out"), (garble, "cannot be read")])
def test_a_reply_that_cannot_be_read_or_never_comes_costs_its_sender(tmp_path, deliver, words):
    with Yard(tmp_path / "yard", 2, 'algorithms=["2ceoafl"]', "rounds=2", "fleet.tries=1", "fleet.deadline=30") as yard:
        yard.station()
        yard.wait("the station listens")
        one = yard.place / "vehicle-1"
        reply = honest(one)

        def remember(order: Order, content: bytes, message: Message) -> Message:
            asked.append(message)
            return reply(order, content, message)

        yard.vehicle(0)
        with Rogue(one, remember, deliver=deliver):
            yard.end()
        missed = yard.same_as_absent(tmp_path)
        assert {(1, 0), (1, 1)} <= set(missed)
        assert says(yard.log, words)


HOSTILE = """
import sys
from dataclasses import replace
from skyfed.drivers.flower import driver

real, asked = driver.Order, []

def order(run, label, vehicle, round, share, exchange, brief, arrive):
    asked.append(vehicle)
    honest = real(run, label, vehicle, round, share, exchange, brief, arrive)
    wrong = [
        {"algorithm": "unittest.__main__:x"}, {"algorithm": "afl"},
        {"round": 10**6, "arrive": bytes(8 * (10**6 + 1))}, {"exchange": 7},
        {"vehicle": 1 - vehicle}, {"run": "x" * 10**6}, {"share": 1.0},
    ]
    return replace(honest, **wrong[len(asked) - 1]) if len(asked) <= len(wrong) else honest

driver.Order = order
sys.argv[1:] = ["fleet", "station", sys.argv[1], "--plain"]
from skyfed.__main__ import main
main()
"""


def test_a_vehicle_outlives_what_a_hostile_station_asks_for(tmp_path):
    settings = ['algorithms=["2ceoafl"]', "rounds=2", "fleet.tries=9", "fleet.deadline=1000"]
    with Yard(tmp_path / "yard", 1, *settings) as yard:
        with (yard.place / "station.out").open("wb") as out:
            command = [sys.executable, "-c", HOSTILE, str(yard.run)]
            yard.processes["station"] = subprocess.Popen(command, stdout=out, stderr=out, env=environment())
        vehicle = yard.vehicle(0)
        yard.end()
        assert vehicle.poll() is None
        assert yard.same_as_absent(tmp_path) == []  # what was asked for in earnest was done
        answered = json.loads((yard.place / "vehicle-0" / "answered.json").read_text())
        assert list(answered) == ["2ceoafl 0 0", "2ceoafl 1 0"]


def test_a_stolen_folder_is_noticed_and_a_new_key_goes_on(tmp_path):
    settings = ['algorithms=["2ceoafl"]', "rounds=40", "fleet.tries=1", "fleet.deadline=1000"]
    with Yard(tmp_path / "yard", 2, *settings) as yard:
        yard.station()
        yard.vehicle(0)
        owner = yard.vehicle(1)
        yard.wait("round 0: 2 in")
        shutil.copytree(yard.place / "vehicle-1", yard.place / "stolen")
        yard.processes["stolen"] = start("vehicle", str(yard.place / "stolen"), log=yard.place / "stolen.out")
        yard.wait("vehicle 1 is quarantined: its key is used twice, from 127.0.0.1 and from 127.0.0.1")
        yard.wait("a key that is quarantined")
        new = yard.place / "new"
        assert run_arguments(["fleet", "key", str(yard.run), "1", "--out", str(new)]) == 0
        owner.kill()
        yard.processes["new"] = start("vehicle", str(new), log=yard.place / "new.out")
        yard.end()
        assert (1, 39) not in yard.same_as_absent(tmp_path)
