"""A fleet on Flower: the same bits as in one process, with real processes on this machine."""

import contextlib
import importlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.supercore.inflatable import inflatable_utils
from flwr.supernode.nodestate.in_memory_nodestate import InMemoryNodeState
from sqlalchemy import create_engine

from fleet_cases import ALGORITHMS, SMALL, in_process, says, sets, start, weights
from skyfed.cli import run_arguments
from skyfed.drivers import flower
from skyfed.drivers.flower import link, node
from skyfed.drivers.flower.client_app import board
from skyfed.drivers.flower.onboard import Vehicle
from skyfed.drivers.flower.patch_backoff import patch_backoff
from skyfed.errors import BadInputError
from skyfed.runs.folder import RunFolder
from waiting import LONG


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("fleet")
    words = sets(*SMALL, f"algorithms={ALGORITHMS}".replace("'", '"'), "rounds=2")
    process = start(
        "try", "smoke", "--vehicles", "2", *words, "--out", str(place / "run"), "--plain", log=place / "out"
    )
    assert process.wait(LONG) == 0, (place / "out").read_text()
    return place / "run"


def test_flower_gives_the_same_bits_as_one_process_and_as_a_pool(tried: Path, tmp_path: Path) -> None:
    same = ["vehicles=2", "rounds=2", f"algorithms={ALGORITHMS}".replace("'", '"')]
    here = in_process(tmp_path / "here", *same)
    pool = in_process(tmp_path / "pool", *same, workers=2)
    for algorithm in ALGORITHMS:
        assert np.array_equal(weights(tried, algorithm), weights(here, algorithm)), algorithm
        assert np.array_equal(weights(pool, algorithm), weights(here, algorithm)), algorithm


def test_a_fleet_leaves_the_folder_of_a_run(tried: Path) -> None:
    assert (tried / "report.html").exists()
    assert RunFolder.config_of(tried).vehicles == 2
    assert says(tried / "station.log", "2ceoafl round 1: 2 in, 0 left out")
    assert run_arguments(["report", str(tried), "--out", str(tried / "again.html")]) == 0


def test_a_vehicle_loads_its_data_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []
    monkeypatch.setattr(Vehicle, "load", lambda *words: loaded.append(words) or object())
    assert board(tmp_path, 0) is board(tmp_path, 0)
    assert len(loaded) == 1


def held(*keys: str) -> InMemoryNodeState:
    state = InMemoryNodeState(None)
    for key in keys:
        metadata = SimpleNamespace(message_id=key, reply_to_message_id="")
        state.store_message(SimpleNamespace(metadata=metadata))
    return state


def test_a_supernode_goes_on_once_its_own_message_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at a reply to a message that it had dropped, or all later replies would be one message late."""
    state, sent = held("dropped", "present"), []

    def push(state: InMemoryNodeState, **_: object) -> None:
        sent.append(next(iter(state.msg_store)))
        state.delete_messages(message_ids=[sent[-1]])

    monkeypatch.setattr(node, "_PUSH", push)
    node.push_until_answered(state=state)
    assert sent == ["dropped", "present"]


def test_a_supernode_forgets_what_it_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    state = held("dropped")
    monkeypatch.setattr(node, "_PULL", lambda **_: 7)
    assert node.pull_or_forget(state=state) == 7
    assert list(state.msg_store) == ["dropped"]
    monkeypatch.setattr(node, "_PULL", lambda **_: None)
    assert node.pull_or_forget(state=state) is None
    assert not state.msg_store


def test_flower_may_be_installed_in_a_path_with_spaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a station's database has no tables."""
    place = tmp_path / "a clone, mine"
    monkeypatch.setattr(link.utils, "ALEMBIC_DIR", place)
    config = link.find_scripts(create_engine("sqlite://"))
    assert config.get_version_locations_list() == [str(place / "versions")]


def test_nothing_of_it_runs_on(tried: Path) -> None:
    """What was started for the run has ended with it."""
    here = str(tried.parent).encode()
    left = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if here in path.read_bytes():
                left.append(path)
    assert not left


def pulls(objects: list[str], *, max_time: float = 9, initial_backoff: float = 1, backoff_cap: float = 10) -> None:
    """Like Flower's function, with one argument less."""


def test_flower_asks_again_after_a_short_while(monkeypatch: pytest.MonkeyPatch) -> None:
    flower = inflatable_utils.pull_objects
    monkeypatch.setattr(flower, "__kwdefaults__", {**flower.__kwdefaults__, "initial_backoff": 1, "backoff_cap": 10})
    patch_backoff()
    found = flower.__kwdefaults__
    assert (found["initial_backoff"], found["backoff_cap"], found["max_tries_per_object"]) == (0.05, 2.0, None)
    assert found["max_time"] == 7200


@pytest.mark.parametrize("function", [None, len, lambda objects: None, pulls])
def test_a_flower_that_pulls_in_another_way_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch, function: Callable[..., None] | None
) -> None:
    if function is None:
        monkeypatch.delattr(inflatable_utils, "pull_objects")
    else:
        monkeypatch.setattr(inflatable_utils, "pull_objects", function)
    before = dict(pulls.__kwdefaults__)
    patch_backoff()
    assert pulls.__kwdefaults__ == before


def test_a_fleet_without_a_home_is_refused_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", unknown)
    with pytest.raises(BadInputError, match="~: the home folder is not known"):
        importlib.reload(flower)
