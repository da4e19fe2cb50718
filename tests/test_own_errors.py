"""Errors of a user's own algorithm: which function failed, early, and where with --traceback."""

from pathlib import Path

import pytest

from in_process import Said, skyfed

TINY = ["vehicles=2", "rounds=2", "sensing.initial=60", "sensing.initial_test=20", "flight.method=greedy"]
OWN = """
from skyfed.algorithms.base import Algorithm
from skyfed.algorithms.twoceoafl import TwoCEOAFL


def broken(*_):
    raise ValueError("it broke")


class Local(Algorithm):
    def local(self, kit, received, memory):
        return broken()


class Start(TwoCEOAFL):
    def start(self, model):
        broken()


class Select(TwoCEOAFL):
    def select(self, t, view):
        broken()


class Send(TwoCEOAFL):
    def send(self, state, vehicle, t):
        broken()


class SendList(TwoCEOAFL):
    def send(self, state, vehicle, t):
        return [state["weights"]]


class Deliver(TwoCEOAFL):
    def deliver(self, state):
        broken()


class Serves(TwoCEOAFL):
    def deliver(self, state):
        model = super().deliver(state)["model"]
        return {"a": model, "b": model}

    def serves(self, state, vehicle):
        broken()


class Step(TwoCEOAFL):
    def step(self, state, messages, t):
        broken()


class Answer(TwoCEOAFL):
    exchanges = 2

    def answer(self, state, messages, t, exchange):
        broken()


class Train(Algorithm):
    central = True

    def train(self, kit, state):
        broken()


class Parts(TwoCEOAFL):
    def parts(self):
        broken()


class Init(TwoCEOAFL):
    def __init__(self, settings, fleet):
        broken()
"""

WORLD = """
import numpy as np
from skyfed import World


class Lands(World):
    def stretch(self, t):
        return super().stretch(t)[:, :1] if t == 0 else np.empty((self.vehicles, 0, 2))


class Flat(World):
    def stretch(self, t):
        return np.zeros((self.vehicles, 2))


class Blind(World):
    def view(self, t):
        return None.positions
"""


def run(place: Path, *algorithms: str, workers: int = 1, first: tuple[str, ...] = ()) -> Said:
    (place / "own.py").write_text(OWN)
    rows = [name if name == "afl" else f"own.py:{name}" for name in algorithms]
    settings = [*TINY, f"workers={workers}", f"algorithms={rows}"]
    words = [word for setting in settings for word in ("--set", setting)]
    return skyfed(place, *first, "run", "smoke", *words, "--plain", "--out", "run")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Local", "Local: local, round 0, vehicle 0: ValueError: it broke"),
        ("Start", "Start: start: ValueError: it broke"),
        ("Select", "Select: select, round 0: ValueError: it broke"),
        ("Send", "Send: send, round 0: ValueError: it broke"),
        ("SendList", "SendList: send, round 0: TypeError: what it sends is a list; allowed: a dictionary of named"),
        ("Deliver", "Deliver: deliver: ValueError: it broke"),
        ("Serves", "Serves: serves, round 1: ValueError: it broke"),
        ("Step", "Step: step, round 0: ValueError: it broke"),
        ("Answer", "Answer: answer, round 0: ValueError: it broke"),
        ("Train", "Train: train, round 0: ValueError: it broke"),
        ("Parts", "algorithms, row 'Parts': parts: ValueError: it broke"),
        ("Init", "algorithms, row 'Init': __init__: ValueError: it broke"),
    ],
)
def test_the_line_names_the_function(name: str, says: str, tmp_path: Path) -> None:
    done = run(tmp_path, name)
    assert done.returncode == (2 if name in ("Parts", "Init") else 1)
    assert done.stderr.splitlines()[-1].startswith(f"skyfed: {says}")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Lands", "stretch, round 1: ValueError: gave shape (2, 0, 2); allowed: (2, rounds, 2), one round or more"),
        ("Flat", "stretch, round 0: ValueError: gave shape (2, 2); allowed: (2, rounds, 2), one round or more"),
        ("Blind", "view, round 0: AttributeError: 'NoneType' object has no attribute 'positions'"),
    ],
)
def test_a_world_that_gives_no_flight_ends_the_run(name: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "world.py").write_text(WORLD)
    settings = [*TINY, "workers=1", 'algorithms=["afl"]', f"world.use=world.py:{name}"]
    words = [word for setting in settings for word in ("--set", setting)]
    done = skyfed(tmp_path, "run", "smoke", *words, "--plain", "--out", "run")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"skyfed: world.use: {says}")


@pytest.mark.parametrize("name", ["Start", "Select", "Send", "Deliver"])
def test_the_last_row_fails_before_the_first_is_trained(name: str, tmp_path: Path) -> None:
    done = run(tmp_path, "afl", name)
    assert done.returncode == 1
    assert "afl: round" not in done.stdout + done.stderr
    assert not (tmp_path / "run" / "afl").exists()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_traceback_shows_the_users_lines_once_and_the_message_last(workers: int, tmp_path: Path) -> None:
    said = run(tmp_path, "Local", workers=workers, first=("--traceback",)).stderr
    shown = said[said.index("Traceback") :].splitlines()
    assert shown[-1] == "skyfed: Local: local, round 0, vehicle 0: ValueError: it broke"
    assert [line.split(", ")[-1] for line in shown if line.startswith("  File")] == ["in local", "in broken"]
    assert said.count("Traceback") == said.count("ValueError: it broke") == 1


def test_without_traceback_the_line_says_how_to_see_one(tmp_path: Path) -> None:
    assert run(tmp_path, "Local").stderr.endswith("ValueError: it broke (skyfed --traceback shows where)\n")


def test_a_file_that_cannot_be_parsed_shows_the_place(tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text("def load(\n")
    done = skyfed(tmp_path, "--traceback", "run", "smoke", "--set", "data.name=task.py:load")
    assert done.returncode == 2
    *where, message = done.stderr.splitlines()
    assert where == [f'  File "{tmp_path}/task.py", line 1', "    def load(", "            ^"]
    assert message.startswith(f"skyfed: data.name = '{tmp_path}/task.py:load': SyntaxError: '(' was never closed")


def test_skyfeds_own_refusals_show_no_lines_of_skyfed(tmp_path: Path) -> None:
    said = skyfed(tmp_path, "--traceback", "plan", "nope").stderr
    assert said.startswith("skyfed: 'nope' is neither a preset nor a file")
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(("word", "near"), [("plna", "'plan'"), ("runn", "'run', 'runs'")])
def test_an_unknown_verb_is_suggested_once(word: str, near: str, tmp_path: Path) -> None:
    assert skyfed(tmp_path, word).stderr == (
        f"skyfed: No such command {word!r}. Did you mean {near}? (see skyfed --help)\n"
    )
