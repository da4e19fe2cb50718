"""What a vehicle does for its station and what it refuses; a hostile station is played by the test."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

import wording
from run_cases import fleet_plan, pictures, tiny_config
from skyfed.config import Config
from skyfed.drivers.flower import client_app
from skyfed.drivers.flower.messages import Order, ReplyError, ask, read_order, read_reply, refuse
from skyfed.drivers.flower.onboard import Vehicle
from skyfed.drivers.flower.policy import POLICY, Policy
from skyfed.errors import BadInputError
from skyfed.jobs import Upload
from skyfed.onboard import Onboard
from skyfed.runs.folder import run_identity
from skyfed.runs.start import world_of
from skyfed.types import Arrays
from skyfed.wire import encode_content

TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1  # Flower's messages ask who writes them
KNOWN = pictures().task()
BOTH = 'algorithms=["afl", "afl-quant"]'
BRIEF = [30.0, 1e7, 29.6e9, 11.0, 0.4]  # seconds, bits per second, FLOPs per second, watts, watts


def arrivals(t: int) -> bytes:
    """When a vehicle arrived in every round up to t: one a minute."""
    return (60.0 * np.arange(t + 1, dtype="<f8") + 20).tobytes()


class Asked:
    """A vehicle and the station that asks it."""

    def __init__(self, place: Path | None = None) -> None:
        self.config: Config = tiny_config(BOTH)
        self.onboard = Onboard(self.config, KNOWN)
        plan = fleet_plan(self.config.vehicles, self.config.rounds).only(1)
        self.vehicle = Vehicle(self.onboard, partial(world_of, self.config, KNOWN, plan), 1, place)
        initial = self.onboard.engine.initial()
        self.model: Arrays = {"weights": initial.weights, "buffers": initial.buffers}

    def order(self, label: str = "afl-quant", t: int = 0, exchange: int = 0) -> Order:
        return Order(run_identity(self.config), label, 1, t, 0.3, exchange, BRIEF, arrivals(t))

    def ask(self, order: Order | None = None, **changed: np.ndarray) -> Upload:
        order = order or self.order()
        upload, _ = self.vehicle.train(order, encode_content(order.round, {**self.model, **changed}, None))
        return upload

    def other(self, k: int) -> np.ndarray:
        return self.model["weights"] + np.float32(1e-3 * k)


@pytest.mark.parametrize(
    ("label", "t", "exchange", "words"),
    [
        ("unittest.__main__:x", 0, 0, "asked for 'unittest.__main__:x'; it trains: afl, afl-quant"),
        ("2ceoafl", 0, 0, "it trains: afl, afl-quant"),
        ("afl", 10**6, 0, "asked for round 1000000, exchange 0; it trains"),
        ("afl", 0, 1, "asked for round 0, exchange 1"),
    ],
)
def test_what_is_not_in_its_config_is_refused(label, t, exchange, words):
    asked = Asked()
    with pytest.raises(ReplyError) as refused:
        asked.ask(asked.order(label, t, exchange))
    assert words in str(refused.value)


def test_it_answers_few_models_in_a_round_and_remembers_them(tmp_path):
    asked = Asked(tmp_path)
    answers = [asked.ask(weights=asked.other(k)) for k in range(3)]
    with pytest.raises(ReplyError, match="round 0 was answered for 3 other models already"):
        asked.ask(weights=asked.other(3))
    again = Asked(tmp_path)  # it was started anew
    with pytest.raises(ReplyError, match="3 other models"):
        again.ask(weights=asked.other(4))
    assert again.ask(weights=asked.other(1)).data == answers[1].data  # for a model that it has answered: the same
    assert again.ask(again.order(t=1)).data


def test_a_model_that_is_asked_for_again_is_not_trained_again(monkeypatch):
    asked = Asked()
    first = asked.ask()
    monkeypatch.setattr(asked.onboard, "do", lambda job: pytest.fail("trained again"))
    assert asked.ask() is first


def test_a_model_out_of_range_is_refused():
    asked = Asked()
    wild = asked.model["weights"].copy()
    wild[3] = -2e6
    with pytest.raises(ReplyError, match=r"a model with weights beyond 1e\+06"):
        asked.ask(weights=wild)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_whole_numbers_out_of_range_are_refused_too(dtype):
    """The lowest integer has no magnitude in its own type."""
    lowest = np.full(3, np.iinfo(dtype).min, dtype)
    with pytest.raises(ReplyError, match="a model with weights beyond 100"):
        Policy(largest=100).check_model({"weights": lowest})
    Policy(largest=100).check_model({"weights": np.array([-100, 100], dtype)})


def test_a_refusal_repeats_little_of_what_was_asked():
    asked = Asked()
    with pytest.raises(ReplyError) as refused:
        asked.vehicle.train(replace(asked.order(), run="a\x1b[31m\nb" * 1000), b"")
    assert str(refused.value).isprintable()
    reason = refuse("asked for '" + "x" * 10**6, Message(RecordDict({}), 1, "train")).content["refusal"]["reason"]
    assert len(reason) == 200


def test_its_owner_may_allow_less(tmp_path):
    (tmp_path / POLICY).write_text('algorithms = ["afl-quant"]\nrounds = 2\nmodels = 1\nraw = false\n')
    asked = Asked(tmp_path)
    with pytest.raises(ReplyError, match="asked for 'afl'; it trains: afl-quant"):
        asked.ask(asked.order("afl"))
    with pytest.raises(ReplyError, match="it trains 2 rounds"):
        asked.ask(asked.order(t=2))
    assert asked.ask().data
    with pytest.raises(ReplyError, match="answered for 1 other models"):
        asked.ask(weights=asked.other(1))
    (tmp_path / POLICY).write_text("raw = false\n")
    with pytest.raises(ReplyError, match="send nothing that is not quantised"):
        Asked(tmp_path).ask(asked.order("afl"))


def test_the_policy_of_a_new_vehicle_is_its_config(tmp_path):
    config = tiny_config(BOTH)
    Policy.write(tmp_path, config)
    assert Policy.read(tmp_path) == Policy(algorithms=["afl", "afl-quant"], rounds=config.rounds)
    assert "# different models that it answers" in (tmp_path / POLICY).read_text()


@pytest.mark.parametrize(
    ("text", "words"),
    [("models = 0", "models"), ("raw = 1", "raw"), ("moduls = 3", "moduls"), ("rounds =", "not valid TOML")],
)
def test_a_bad_policy_is_named(tmp_path, text, words):
    (tmp_path / POLICY).write_text(text)
    with pytest.raises(BadInputError, match=words) as caught:
        Policy.read(tmp_path)
    assert wording.plain(str(caught.value))


@pytest.mark.parametrize("error", [SystemExit(3), KeyError("x"), RecursionError(), OverflowError("big"), MemoryError()])
def test_nothing_that_a_job_raises_ends_a_vehicle(monkeypatch, error):
    class Broken:
        def train(self, order: Order, content: bytes) -> tuple[Upload, str]:
            raise error

    monkeypatch.setattr(client_app, "board", lambda place, vehicle: Broken())
    context = Context(1, 1, {"folder": "x", "partition-id": 1}, RecordDict(), {})
    message = ask(1, Order("run", "afl", 1, 0, 1.0, 0, BRIEF, arrivals(0)), b"", 60.0, 1)
    with pytest.raises(ReplyError, match=type(error).__name__):
        read_reply(client_app.app(message, context), {})


def test_a_message_that_is_no_job_is_refused(monkeypatch):
    context = Context(1, 1, {"folder": "x", "partition-id": 1}, RecordDict(), {})
    for record in ({}, {"round": 0}, {"run": 1, "algorithm": 2, "vehicle": 3, "round": 4, "share": 5, "exchange": 6}):
        parts = {"job": ConfigRecord(record), "model": ConfigRecord({"bytes": b""})}
        with pytest.raises(ReplyError, match="not a job"):
            read_reply(client_app.app(Message(RecordDict(parts), 1, "train"), context), {})
    with pytest.raises(ReplyError, match="not a job"):
        read_order(Message(Error(1, "no content"), reply_to=Message(RecordDict({}), 1, "train")))


def test_what_was_answered_survives_damage(tmp_path):
    asked = Asked(tmp_path)
    asked.ask()
    path = tmp_path / "answered.json"
    assert list(json.loads(path.read_text())) == ["afl-quant 0 0"]
    path.write_text("{")
    assert Asked(tmp_path).ask(asked.order(t=1)).data
