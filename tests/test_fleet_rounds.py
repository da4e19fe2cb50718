"""Rounds over Flower's grid when vehicles misbehave; the grid is a stand-in, everything else is real."""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from learning_cases import Relay
from run_cases import LAW, fleet_plan, pictures, tiny_config
from skyfed.algorithms.twoceoafl import TwoCEOAFL
from skyfed.config import Config
from skyfed.drivers.flower import driver as driver_module
from skyfed.drivers.flower.driver import AloneError, FlowerDriver, Node
from skyfed.drivers.flower.messages import Order, ReplyError, answer, read_order, read_reply, refuse
from skyfed.drivers.flower.onboard import Vehicle
from skyfed.errors import BadInputError, one_line
from skyfed.jobs import Driver, Job, Upload
from skyfed.onboard import Onboard
from skyfed.runs.columns import named
from skyfed.runs.folder import run_identity
from skyfed.runs.start import world_of
from skyfed.simulate import federated_round
from skyfed.station import Report, Station
from skyfed.types import Arrays
from skyfed.world import World
from wire_cases import traced

TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1  # Flower's messages ask who writes them
KNOWN = pictures().task()
Misbehaviour = Callable[["Fleet", Message, Message], list[Message]]


class Clock:
    """A clock that goes on only while somebody sleeps, so that no round closes because a machine is slow."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "time", Clock())


def world(config: Config, vehicle: int | None = None) -> World:
    """Return the world as the station knows it, or as a vehicle does, which has its own flights alone."""
    plan = fleet_plan(config.vehicles, config.rounds)
    return world_of(config, KNOWN, plan if vehicle is None else plan.only(vehicle))


def one_round(onboard: Onboard, driver: Driver, t: int, state: Arrays) -> tuple[Arrays, Report]:
    return federated_round(Station(onboard.config.labels[0], onboard, world(onboard.config), driver), t, state)


class Fleet:
    """A grid whose vehicles are in this process; `how` says what happens to a vehicle's replies."""

    def __init__(self, config: Config, **how: Misbehaviour) -> None:
        self.config, self.how, self.lines = config, how, []
        self.onboard = Onboard(config, KNOWN)
        self.boards = [self.board(u) for u in range(config.vehicles)]
        self.away: set[int] = set()
        self.unlisted: set[int] = set()
        self.deaf = 0  # messages that the SuperLink will not take
        self.since = dict.fromkeys(range(config.vehicles), "first")
        self.waiting: dict[str, list[Message]] = {}
        self.asked: list[tuple[int, int]] = []  # vehicle, bytes of the model
        self.start = start_of(self.onboard)

    def board(self, vehicle: int) -> Vehicle:
        return Vehicle(Onboard(self.config, KNOWN), partial(world, self.config, vehicle), vehicle)

    def driver(self) -> FlowerDriver:
        return FlowerDriver(self.onboard, self, self.roll_call, self.lines.append, self.idle)

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
            order, content = read_order(message)
            self.asked.append((order.vehicle, len(content)))
            try:
                upload, remark = self.boards[order.vehicle].train(order, content)
                reply = answer(upload, message, remark)
            except ReplyError as error:
                reply = refuse(str(error), message)
            bad = self.how.get(f"v{order.vehicle}")
            self.waiting[key] = bad(self, message, reply) if bad else [reply]
            keys.append(key)
        return keys

    def pull_messages(self, keys: Iterable[str]) -> list[Message]:
        return [reply for key in list(keys) for reply in self.waiting.pop(key, [])]

    def round(self, t: int = 0, state: Arrays | None = None) -> tuple[Arrays, Report]:
        return one_round(self.onboard, self.driver(), t, state or self.start)


def settings(*more: str) -> Config:
    return tiny_config(
        "algorithms=['2ceoafl']", "fleet.deadline=2", "fleet.grace=0.1", "fleet.tries=2", "fleet.patience=1", *more
    )


def start_of(onboard: Onboard) -> Arrays:
    return onboard.algorithms[onboard.config.labels[0]].start(onboard.engine.initial())


def absent(config: Config, *missed: tuple[int, int]) -> Arrays:
    """Return the model after round 0 in one process, with somebody absent."""
    config = config.model_copy(update={"faults": config.faults.model_copy(update={"absent": list(missed)})})
    onboard = Onboard(config, KNOWN)
    return one_round(onboard, onboard, 0, start_of(onboard))[0]


def upload_in(reply: Message) -> Upload:
    return read_reply(reply, named(TwoCEOAFL.columns))[0]


def spoilt(change: Callable[[bytes], bytes]) -> Misbehaviour:
    def do(fleet: Fleet, message: Message, reply: Message) -> list[Message]:
        upload = upload_in(reply)
        return [answer(replace(upload, data=change(upload.data)), message)]

    return do


def dies(fleet: Fleet, message: Message, reply: Message) -> list[Message]:
    return [Message(Error(8, "ClientApp stopped responding."), reply_to=message)]


def poses(fleet: Fleet, message: Message, reply: Message) -> list[Message]:
    return [answer(replace(upload_in(reply), vehicle=0), message)]


def silent(fleet: Fleet, message: Message, reply: Message) -> list[Message]:
    return []


def babbles(fleet: Fleet, message: Message, reply: Message) -> list[Message]:
    return [Message(RecordDict({"x": ConfigRecord({"y": 1})}), reply_to=message)]


def lies(fleet: Fleet, message: Message, reply: Message) -> list[Message]:
    record = dict(reply.content["upload"])
    record["about"] = record["about"].replace('"kept": ', '"kept": -')
    return [Message(RecordDict({"upload": ConfigRecord(record)}), reply_to=message)]


def claims(name: str, value: str) -> Misbehaviour:
    """Report a figure with this JSON text as its value."""

    def do(fleet: Fleet, message: Message, reply: Message) -> list[Message]:
        record = dict(reply.content["upload"])
        record["about"] = re.sub(rf'"{name}": [^,}}]+', f'"{name}": {value}', record["about"])
        return [Message(RecordDict({"upload": ConfigRecord(record)}), reply_to=message)]

    return do


def same(a: Arrays, b: Arrays) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def test_a_round_over_the_grid_is_a_round():
    fleet = Fleet(settings())
    state, report = fleet.round()
    assert same(state, absent(fleet.config))
    assert not report.dropped
    assert [upload.vehicle for upload in report.uploads] == [0, 1, 2]


def test_a_vehicle_chooses_by_its_share_of_all_data_though_it_holds_only_its_own():
    bound = ["server.alpha=data", "prune.delta=bound", "theory.payload=0.5", "theory.sigma2=60", "sensing.n_max=60"]
    fleet = Fleet(settings(*bound, "theory.gradient2=0"))
    _, report = fleet.round(2)
    jobs: list[Job] = []

    class Noting(Relay):
        def call(self, asked):
            jobs.extend(asked)
            return super().call(asked)

    _, here = one_round(fleet.onboard, Noting(fleet.onboard), 2, fleet.start)
    assert len({job.words["share"] for job in jobs}) == 3
    assert [(each.facts["delta"], each.facts["raw_probability"]) for each in report.uploads] == [
        (each.facts["delta"], each.facts["raw_probability"]) for each in here.uploads
    ]
    assert [each.data for each in report.uploads] == [each.data for each in here.uploads]
    alone = [fleet.onboard.do(replace(job, words={**job.words, "share": 1 / 3})) for job in jobs]
    assert [each.data for each in alone] != [each.data for each in here.uploads]  # so the share does matter


def test_a_round_over_the_grid_without_mission_time_is_a_round():
    """Nobody has means to be told of, and arrivals are the numbers of rounds."""
    fleet = Fleet(settings(*LAW))
    for t in range(3):
        state, report = fleet.round(t)
        alone, other = one_round(fleet.onboard, fleet.onboard, t, fleet.start)
        assert not report.dropped
        assert [upload.data for upload in report.uploads] == [upload.data for upload in other.uploads]
        assert same(state, alone)


def test_a_vehicle_senses_along_the_times_that_it_is_told():
    """The station's clock decides when a vehicle arrived, so what it holds; its own flights alone cannot tell."""
    fleet = Fleet(settings("sensing.n_max=60"))
    orders = []
    for shift in (0.0, 60.0):
        board = fleet.board(0)
        times = np.array([20.0, 80.0, 140.0]) + shift
        order = Order(
            run_identity(fleet.config), "2ceoafl", 0, 2, 1 / 3, 0, [30.0, 1e7, 29.6e9, 11.0, 0.4], times.tobytes()
        )  # fmt: skip
        held = board._world_of(order).observe(0, 2)
        station = world(fleet.config)
        station.flights.tell(0, times)
        assert np.array_equal(held, station.observe(0, 2))
        orders.append(held)
    assert len(orders[0]) != len(orders[1])  # psi is another a minute later


def test_a_row_with_a_label_and_settings_of_its_own_goes_over_the_grid():
    row = '{use = "afl-quant", label = "EDEN, 1 bit", quantise = {scheme = "eden", s = 1}}'
    fleet = Fleet(settings(f"algorithms=[{row}]"))
    state, report = fleet.round()
    assert not report.dropped
    assert all(upload.facts["quantised"] for upload in report.uploads)
    assert same(state, absent(fleet.config))


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
        *((claims(name, "9" * 400), "not a reply to a job") for name in ("seconds", "work", "loss", "delta")),
        *((claims(name, "1e308"), "not a reply to a job") for name in ("seconds", "cpu", "work", "flops", "delta")),
        *((claims(name, value), "not a reply to a job") for name in ("seconds", "work") for value in ("-1", "NaN")),
        (claims("samples", "[[[1]]]"), "not a reply to a job"),
        (claims("work", '1, "work": 2'), "not a reply to a job"),
        (claims("delta", '0.5, "delta": 0.5'), "not a reply to a job"),
        (claims("work", "1" + " " * 1_000_000), "not a reply to a job"),
        (claims("facts", '7, "x": {'), "not a reply to a job"),
    ],
)
def test_who_sends_nonsense_is_left_out_as_if_absent(how, reason):
    fleet = Fleet(settings(), v1=how)
    state, report = fleet.round()
    assert reason in report.dropped[1]
    assert any("vehicle 1 is left out" in line and reason in line for line in fleet.lines)
    assert same(state, absent(fleet.config, (1, 0)))


def test_a_refusal_and_a_remark_are_one_short_line_however_long_they_are():
    to = Message(RecordDict({}), 7, "train")
    with pytest.raises(ReplyError) as refused:
        read_reply(refuse("a\x1b[31m  b\n" + "x" * 5_000_000, to), {})
    assert str(refused.value) == "a [31m b " + "x" * 191
    upload = Upload(1, b"", {}, 1, 1.0, 1.0, 1.0, 0, 1.0, 1.0)
    remark = read_reply(answer(upload, to, "a" * 199 + "\0b" + " " * 9), {})[1]
    assert remark == "a" * 199
    assert read_reply(answer(upload, to, remark), {})[1] == remark
    text = "x\n" * 5_000_000
    assert traced(lambda: one_line(text)) < 100_000


def test_whatever_reading_a_reply_raises_costs_its_vehicle_alone(monkeypatch):
    def read(message: Message, columns: Any) -> tuple[Upload, str]:
        upload, remark = read_reply(message, columns)
        if upload.vehicle == 1:
            raise ZeroDivisionError("a fault of the reader")
        return upload, remark

    monkeypatch.setattr(driver_module, "read_reply", read)
    fleet = Fleet(settings())
    state, report = fleet.round()
    assert report.dropped == {1: "a reply that cannot be read (ZeroDivisionError)"}
    assert same(state, absent(fleet.config, (1, 0)))


@pytest.mark.parametrize("how", ["garbage", "nan", "round", "vehicle"])
def test_uploads_spoilt_on_purpose_are_left_out_on_flower_and_in_one_process(how):
    config = settings(f"faults.spoil=[[1, 0, '{how}']]")
    fleet = Fleet(config)
    state, report = fleet.round()
    alone, other = one_round(fleet.onboard, fleet.onboard, 0, fleet.start)
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
    state, _ = one_round(fleet.onboard, driver, 0, fleet.start)
    fleet.boards[2] = fleet.board(2)
    after, report = one_round(fleet.onboard, driver, 1, state)
    assert not report.dropped
    sizes = [size for u, size in fleet.asked[3:] if u == 2]
    assert len(sizes) == 2
    assert sizes[0] < sizes[1]
    alone = one_round(fleet.onboard, fleet.onboard, 1, state)[0]
    assert same(after, alone)


def test_later_rounds_do_not_wait_for_who_is_away():
    fleet = Fleet(settings("fleet.deadline=1000"))
    driver = fleet.driver()
    state, _ = one_round(fleet.onboard, driver, 0, fleet.start)
    fleet.away = {0}
    _, report = one_round(fleet.onboard, driver, 1, state)
    assert report.dropped == {0: "out of touch"}
    assert "vehicle 0 is out of touch" in fleet.lines


def test_whose_key_was_removed_is_not_waited_for():
    """Not in the first round, which waits for everybody else, nor once it was asked."""
    fleet = Fleet(settings("fleet.deadline=1000"))
    fleet.unlisted = {2}
    driver = fleet.driver()
    state, report = one_round(fleet.onboard, driver, 0, fleet.start)
    assert report.dropped == {2: "its key was removed"}
    assert same(state, absent(fleet.config, (2, 0)))

    def removed(fleet: Fleet, message: Message, reply: Message) -> list[Message]:
        fleet.unlisted = {1, 2}
        return []

    fleet.how["v1"] = removed
    _, report = one_round(fleet.onboard, driver, 1, state)
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
    monkeypatch.setattr("skyfed.drivers.flower.driver._PATIENT", 0.0)
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
    fleet.boards[1] = Vehicle(Onboard(other, KNOWN), partial(world, other), 1)
    _, report = fleet.round()
    assert "prepared for run" in report.dropped[1]


def test_the_genie_and_the_diagnostics_are_refused():
    driver = Fleet(settings()).driver()
    for do in ("central", "probe"):
        with pytest.raises(BadInputError, match=r"central baseline and theory\.every need the data of all vehicles"):
            driver.call([Job(do, {})])
