"""Rounds over Flower's grid when vehicles misbehave; the grid is a stand-in, everything else is real."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from learning_cases import fleet_plan, pictures, tiny_config
from skyfed.config import Config
from skyfed.drivers.flower.carry import AloneError, FlowerDriver, Node
from skyfed.drivers.flower.messages import ReplyError, answer, read_job, read_reply, refuse
from skyfed.drivers.flower.onboard import Onboard
from skyfed.drivers.inline import InlineDriver
from skyfed.errors import BadInputError
from skyfed.simulate import Report, State, federated_round
from skyfed.vehicle import Vehicles

TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1  # Flower's messages ask who writes them
KNOWN = pictures()
Misbehaviour = Callable[["Fleet", Message, Message], list[Message]]


class Fleet:
    """A grid whose vehicles are in this process; `how` says what happens to a vehicle's replies."""

    def __init__(self, config: Config, **how: Misbehaviour) -> None:
        plan = fleet_plan(config.vehicles, config.rounds)
        self.config, self.how, self.lines = config, how, []
        self.vehicles = Vehicles(config, KNOWN, plan)
        self.boards = [Onboard(config, Vehicles(config, KNOWN, plan), u) for u in range(config.vehicles)]
        self.away: set[int] = set()
        self.unlisted: set[int] = set()
        self.deaf = 0  # messages that the SuperLink will not take
        self.since = dict.fromkeys(range(config.vehicles), "first")
        self.waiting: dict[str, list[Message]] = {}
        self.asked: list[tuple[int, int]] = []  # vehicle, bytes of the model
        self.start = State(*self.vehicles.initial())

    def driver(self) -> FlowerDriver:
        return FlowerDriver(self.vehicles, self.config, self, self.roll_call, self.lines.append, self.idle)

    def idle(self) -> None:
        pass

    def roll_call(self) -> dict[int, Node | None]:
        listed = {u: since for u, since in self.since.items() if u not in self.unlisted}
        return {u: None if u in self.away else Node(u + 10, since) for u, since in listed.items()}

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        keys = []
        for message in messages:
            if self.deaf:
                self.deaf -= 1
                keys.append("")
                continue
            key = f"message {len(self.asked)}"
            message.metadata.__dict__["_message_id"] = key
            job, model = read_job(message)
            self.asked.append((job.vehicle, len(model)))
            try:
                reply = answer(self.boards[job.vehicle].train(job, model), message)
            except ReplyError as error:
                reply = refuse(str(error), message)
            bad = self.how.get(f"v{job.vehicle}")
            self.waiting[key] = bad(self, message, reply) if bad else [reply]
            keys.append(key)
        return keys

    def pull_messages(self, keys: Iterable[str]) -> list[Message]:
        return [reply for key in list(keys) for reply in self.waiting.pop(key, [])]

    def round(self, t: int = 0, state: State | None = None) -> tuple[State, Report]:
        return federated_round(self.config, self.config.algorithms[0], t, self.driver(), state or self.start)


def settings(*more: str) -> Config:
    return tiny_config(
        "algorithms=['2ceoafl']", "fleet.deadline=2", "fleet.grace=0.1", "fleet.tries=2", "fleet.patience=1", *more
    )


def absent(config: Config, *missed: tuple[int, int]) -> State:
    """Return the model after round 0 in one process, with somebody absent."""
    config = config.model_copy(update={"faults": config.faults.model_copy(update={"absent": list(missed)})})
    vehicles = Vehicles(config, KNOWN, fleet_plan(config.vehicles, config.rounds))
    start = State(*vehicles.initial())
    return federated_round(config, config.algorithms[0], 0, InlineDriver(vehicles), start)[0]


def spoilt(change: Callable[[bytes], bytes]) -> Misbehaviour:
    def do(fleet: Fleet, message: Message, reply: Message) -> list[Message]:
        upload = read_reply(reply)
        return [answer(replace(upload, data=change(upload.data)), message)]

    return do


def dies(fleet: Fleet, message: Message, reply: Message) -> list[Message]:
    return [Message(Error(8, "ClientApp stopped responding."), reply_to=message)]


def poses(fleet: Fleet, message: Message, reply: Message) -> list[Message]:
    return [answer(replace(read_reply(reply), vehicle=0), message)]


def silent(fleet: Fleet, message: Message, reply: Message) -> list[Message]:
    return []


def babbles(fleet: Fleet, message: Message, reply: Message) -> list[Message]:
    return [Message(RecordDict({"x": ConfigRecord({"y": 1})}), reply_to=message)]


def lies(fleet: Fleet, message: Message, reply: Message) -> list[Message]:
    record = dict(reply.content["upload"])
    record["about"] = record["about"].replace('"kept": ', '"kept": -')
    return [Message(RecordDict({"upload": ConfigRecord(record)}), reply_to=message)]


def same(a: State, b: State) -> bool:
    return np.array_equal(a.weights, b.weights) and np.array_equal(a.buffers, b.buffers)


def test_a_round_over_the_grid_is_a_round():
    fleet = Fleet(settings())
    state, report = fleet.round()
    assert same(state, absent(fleet.config))
    assert not report.dropped
    assert [upload.vehicle for upload in report.uploads] == [0, 1, 2]


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        (spoilt(lambda data: b"\0" * len(data)), "not an upload"),
        (spoilt(lambda data: data[:-1]), "bytes"),
        (spoilt(lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]), "checksum differs"),
        (dies, "stopped responding"),
        (poses, "poses as vehicle 0"),
        (silent, "out of touch"),
        (babbles, "not a reply to a job"),
        (lies, "not a reply to a job"),
    ],
)
def test_who_sends_nonsense_is_left_out_as_if_absent(how, reason):
    fleet = Fleet(settings(), v1=how)
    state, report = fleet.round()
    assert reason in report.dropped[1]
    assert any("vehicle 1 is left out" in line and reason in line for line in fleet.lines)
    assert same(state, absent(fleet.config, (1, 0)))


@pytest.mark.parametrize("how", ["garbage", "nan", "round", "vehicle"])
def test_uploads_spoilt_on_purpose_are_left_out_on_flower_and_in_one_process(how):
    config = settings(f"faults.spoil=[[1, 0, '{how}']]")
    fleet = Fleet(config)
    state, report = fleet.round()
    here = InlineDriver(fleet.vehicles)
    alone, other = federated_round(config, "2ceoafl", 0, here, fleet.start)
    assert report.dropped == other.dropped
    assert same(state, alone)
    assert same(state, absent(settings(), (1, 0)))


def test_somebody_who_fails_once_is_asked_again():
    failed: list[int] = []

    def once(fleet: Fleet, message: Message, reply: Message) -> list[Message]:
        failed.append(1)
        return dies(fleet, message, reply) if len(failed) == 1 else [reply]

    fleet = Fleet(settings(), v2=once)
    state, report = fleet.round()
    assert not report.dropped
    assert len(failed) == 2
    assert same(state, absent(fleet.config))


def test_a_second_reply_to_one_question_is_ignored():
    fleet = Fleet(settings(), v0=lambda fleet, message, reply: [reply, reply])
    state, report = fleet.round()
    assert not report.dropped
    assert same(state, absent(fleet.config))


def test_a_vehicle_that_comes_back_in_the_round_is_asked_again():
    def lost(fleet: Fleet, message: Message, reply: Message) -> list[Message]:
        if fleet.since[1] == "first":
            fleet.since[1] = "second"  # it was started again and knows nothing of the message
            return []
        return [reply]

    fleet = Fleet(settings("fleet.deadline=20"), v1=lost)
    state, report = fleet.round()
    assert not report.dropped
    assert same(state, absent(fleet.config))


def test_a_vehicle_without_the_last_model_gets_the_whole_one():
    fleet = Fleet(settings())
    driver = fleet.driver()
    state, _ = federated_round(fleet.config, "2ceoafl", 0, driver, fleet.start)
    fleet.boards[2] = Onboard(fleet.config, Vehicles(fleet.config, KNOWN, fleet_plan(3, fleet.config.rounds)), 2)
    after, report = federated_round(fleet.config, "2ceoafl", 1, driver, state)
    assert not report.dropped
    sizes = [size for u, size in fleet.asked[3:] if u == 2]
    assert len(sizes) == 2
    assert sizes[0] < sizes[1]
    alone = federated_round(fleet.config, "2ceoafl", 1, InlineDriver(fleet.vehicles), state)[0]
    assert same(after, alone)


def test_later_rounds_do_not_wait_for_who_is_away():
    fleet = Fleet(settings("fleet.deadline=1000"))
    driver = fleet.driver()
    state, _ = federated_round(fleet.config, "2ceoafl", 0, driver, fleet.start)
    fleet.away = {0}
    _, report = federated_round(fleet.config, "2ceoafl", 1, driver, state)
    assert report.dropped == {0: "out of touch"}
    assert "vehicle 0 is out of touch" in fleet.lines


def test_whose_key_was_removed_is_not_waited_for():
    """Not in the first round, which waits for everybody else, nor once it was asked."""
    fleet = Fleet(settings("fleet.deadline=1000"))
    fleet.unlisted = {2}
    driver = fleet.driver()
    state, report = federated_round(fleet.config, "2ceoafl", 0, driver, fleet.start)
    assert report.dropped == {2: "its key was removed"}
    assert same(state, absent(fleet.config, (2, 0)))

    def removed(fleet: Fleet, message: Message, reply: Message) -> list[Message]:
        fleet.unlisted = {1, 2}
        return []

    fleet.how["v1"] = removed
    _, report = federated_round(fleet.config, "2ceoafl", 1, driver, state)
    assert report.dropped == {1: "its key was removed", 2: "its key was removed"}


def test_a_message_that_is_not_taken_is_sent_again():
    fleet = Fleet(settings("fleet.deadline=1000"))
    fleet.deaf = 1
    state, report = fleet.round()
    assert not report.dropped
    assert same(state, absent(fleet.config))
    fleet.deaf = 6
    with pytest.raises(AloneError):
        fleet.round()


def test_while_nobody_has_answered_a_station_may_be_stopped(monkeypatch):
    fleet = Fleet(settings("fleet.deadline=1000"))
    fleet.away = {0, 1, 2}

    def stopped() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fleet, "idle", stopped)
    with pytest.raises(KeyboardInterrupt):
        fleet.round()


def test_the_first_round_says_for_whom_it_waits(monkeypatch):
    monkeypatch.setattr("skyfed.drivers.flower.carry._PATIENT", 0.0)
    fleet = Fleet(settings("fleet.deadline=1.5", "fleet.least=2"))
    fleet.away = {0, 2}
    with pytest.raises(AloneError):
        fleet.round()
    assert sum("waiting for vehicles 0, 2, 1 s at most" in line for line in fleet.lines) == 1


def test_too_few_for_too_long_stops_the_station():
    fleet = Fleet(settings("fleet.deadline=0.2"))
    fleet.away = {0, 1, 2}
    with pytest.raises(AloneError, match="fewer than 1"):
        fleet.round()


def test_a_vehicle_prepared_for_another_run_says_so():
    fleet = Fleet(settings())
    other = settings("train.eta=0.5")
    fleet.boards[1] = Onboard(other, Vehicles(other, KNOWN, fleet_plan(3, other.rounds)), 1)
    _, report = fleet.round()
    assert "prepared for run" in report.dropped[1]


def test_the_genie_and_the_diagnostics_are_refused():
    driver = Fleet(settings()).driver()
    with pytest.raises(BadInputError, match="union"):
        driver.genie(0, driver._vehicles.initial())
    with pytest.raises(BadInputError, match="theory"):
        driver.probe(0, None, None, [])
