"""Run folders: whole files, one owner, one config, plans that are never made twice and never taken unverified."""

import contextlib
import errno
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import skyfed
from skyfed.config import Config, differences, load_config
from skyfed.errors import BadInputError, StorageError
from skyfed.files import write_whole
from skyfed.flight.fleet_plan import FleetPlan
from skyfed.flight.remote import unpack_plan
from skyfed.runs import flights as flights_module
from skyfed.runs import folder as folder_module
from skyfed.runs.flights import plan_into
from skyfed.runs.folder import RunFolder
from skyfed.runs.recorder import RowRecorder
from skyfed.types import Plan
from skyfed.world.mission import Mission, prepare_mission
from waiting import LONG

SMALL = [
    "seed=0",
    "vehicles=3",
    "rounds=6",
    "workers=0",
    "field.classes=4",
    "field.region=[600,600]",
    "flight.method=greedy",
]


@pytest.fixture
def config() -> Config:
    return load_config("smoke", SMALL)


@pytest.fixture
def mission(config: Config) -> Mission:
    return prepare_mission(config.field, config.flight, config.sensing, config.vehicles, config.rounds, config.seed)


# whole files


def test_a_file_is_written_whole_and_replaced_whole(tmp_path):
    path = tmp_path / "a.bin"
    write_whole(path, b"one")
    write_whole(path, b"two" * 1000)
    assert path.read_bytes() == b"two" * 1000
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.bin"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_the_old_file_stays_when_writing_fails(tmp_path, monkeypatch, step, error):
    path = tmp_path / "a.bin"
    write_whole(path, b"old")

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(os, step, fail)
    expected = StorageError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected) as caught:
        write_whole(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.bin"]
    if expected is StorageError:
        assert "a.bin" in str(caught.value)
        assert "No space left" in str(caught.value)


def test_the_data_is_on_the_disk_before_it_takes_the_name(tmp_path, monkeypatch):
    steps = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, name=name, real=real: (steps.append(name), real(*a))[1])
    write_whole(tmp_path / "a.bin", b"data")
    assert steps[:2] == ["fsync", "replace"]


def test_writing_into_a_folder_that_is_not_there_is_a_storage_error(tmp_path):
    with pytest.raises(StorageError, match="nowhere"):
        write_whole(tmp_path / "nowhere" / "a.bin", b"")


# who may have a folder


def claim(path: Path, config: Config) -> str:
    """Claim and leave; returns the config that lies there then."""
    with RunFolder.claim(path, config, ["plan", "smoke"]) as folder:
        assert differences(folder.read_config(), config) in ([], ["workers: 0 -> 7"])
    return (path / "config.toml").read_text()


@pytest.mark.parametrize("depth", ["new", "a/b/c"])
def test_a_new_folder_is_made_with_config_and_manifest(tmp_path, config, depth):
    assert claim(tmp_path / depth, config) == config.to_toml()
    assert (tmp_path / depth / "manifest.json").exists()


def test_an_empty_folder_is_taken(tmp_path, config):
    claim(tmp_path, config)


@pytest.mark.parametrize("name", ["notes.txt", ".hidden", "plan.npz"])
def test_a_folder_with_something_else_in_it_is_refused_and_left_alone(tmp_path, config, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(BadInputError, match="not empty and not a run"), RunFolder.claim(tmp_path, config, []):
        pass
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_the_same_config_is_let_in_again_and_the_manifest_stays(tmp_path, config):
    claim(tmp_path / "run", config)
    before = (tmp_path / "run" / "manifest.json").read_bytes()
    claim(tmp_path / "run", config)
    assert (tmp_path / "run" / "manifest.json").read_bytes() == before


def test_another_number_of_workers_is_still_the_same_run(tmp_path, config):
    first = claim(tmp_path / "run", config)
    assert claim(tmp_path / "run", config.model_copy(update={"workers": 7})) == first


@pytest.mark.parametrize(
    ("override", "difference"),
    [
        ("seed=1", "seed: 0 -> 1"),
        ("flight.vmax=90", "flight.vmax: speed -> 90.0"),
        ("field.bases=['sin']", "field.bases"),
        ("flight.sca.sides=9", "flight.sca.sides: 8 -> 9"),
    ],
)
def test_another_config_is_refused_with_the_key_that_differs(tmp_path, config, override, difference):
    first = claim(tmp_path / "run", config)
    other = load_config("smoke", [*SMALL, override])
    with pytest.raises(BadInputError) as caught, RunFolder.claim(tmp_path / "run", other, []):
        pass
    assert difference in str(caught.value)
    assert "holds another run" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (tmp_path / "run" / "config.toml").read_text() == first


def test_a_file_is_not_a_folder(tmp_path, config):
    (tmp_path / "file").touch()
    with pytest.raises(BadInputError, match="is a file"), RunFolder.claim(tmp_path / "file", config, []):
        pass


@pytest.mark.parametrize("below", ["file/run", "file/a/b"])
def test_a_folder_that_cannot_be_made_is_a_storage_error(tmp_path, config, below):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="Not a directory"), RunFolder.claim(tmp_path / below, config, []):
        pass


@pytest.mark.parametrize("content", [b"seed = ", b"\xff\xfe", b"seed = -1\n", b"wat = 1\n"])
def test_a_run_whose_config_is_damaged_is_bad_input(tmp_path, config, content):
    claim(tmp_path / "run", config)
    (tmp_path / "run" / "config.toml").write_bytes(content)
    with pytest.raises(BadInputError) as caught, RunFolder.claim(tmp_path / "run", config, []):
        pass
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("survived", [0, 1])
def test_a_process_killed_while_it_settles_in_does_not_spoil_the_folder(tmp_path, config, survived):
    """It dies when about to put its first or its second file in place."""
    script = f"""
        import os, sys
        from pathlib import Path
        from skyfed.config import load_config
        from skyfed.runs.folder import RunFolder
        real, left = os.replace, [{survived}]
        def replace(*names):
            if not left[0]:
                os._exit(9)
            left[0] -= 1
            real(*names)
        os.replace = replace
        with RunFolder.claim(Path(sys.argv[1]), load_config("smoke", {SMALL!r}), []):
            pass
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "run")], timeout=LONG)
    assert done.returncode == 9
    assert claim(tmp_path / "run", config) == config.to_toml()
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["seed"] == config.seed


def test_a_folder_has_one_owner_at_a_time_and_is_free_after_kill_9(tmp_path, config):
    script = f"""
        import sys, time
        from pathlib import Path
        from skyfed.config import load_config
        from skyfed.runs.folder import RunFolder
        with RunFolder.claim(Path(sys.argv[1]), load_config("smoke", {SMALL!r}), []):
            print("held", flush=True)
            time.sleep(3600)
    """
    path = tmp_path / "run"
    owner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert owner.stdout.readline() == "held\n"
        with pytest.raises(StorageError, match="in use by another process"), RunFolder.claim(path, config, []):
            pass
    finally:
        owner.kill()
        owner.communicate()
    claim(path, config)


def test_the_lock_is_freed_when_the_work_fails(tmp_path, config):
    with pytest.raises(ZeroDivisionError), RunFolder.claim(tmp_path / "run", config, []):
        raise ZeroDivisionError
    claim(tmp_path / "run", config)


def test_a_folder_is_its_owners_even_within_one_process(tmp_path, config):
    with RunFolder.claim(tmp_path / "run", config, []):  # noqa: SIM117
        with pytest.raises(StorageError, match="in use"), RunFolder.claim(tmp_path / "run", config, []):
            pass


def test_the_manifest_says_what_one_needs_to_repeat_a_run(tmp_path, config):
    with RunFolder.claim(tmp_path / "run", config, ["plan", "smoke", "--set", "seed=0"]):
        pass
    told = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert told["skyfed"] == skyfed.__version__
    assert told["python"] == ".".join(map(str, sys.version_info[:3]))
    assert told["packages"]["numpy"] == np.__version__
    assert {"scipy", "highspy", "scikit-learn"} <= set(told["packages"])
    assert told["seed"] == config.seed
    assert told["command"] == ["skyfed", "plan", "smoke", "--set", "seed=0"]
    assert told["format"] == folder_module.FORMAT
    assert told["cores"] == os.cpu_count()
    assert told["cpu"]
    assert told["system"]
    assert told["started"].endswith("+00:00")


# flights into a folder


def fly(path: Path, config: Config, mission: Mission, workers: int = 1) -> tuple[FleetPlan, list[int]]:
    done: list[int] = []
    with RunFolder.claim(path, config, []) as folder:
        fleet = plan_into(folder, config, mission, workers, lambda vehicle, found: done.append(vehicle))
    return fleet, done


def interrupted(path: Path, config: Config, mission: Mission, after: int) -> None:
    """Plan until some vehicles are done, then stop as a signal would."""

    def done(vehicle: int, found: Plan) -> None:
        if vehicle == after - 1:
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt), RunFolder.claim(path, config, []) as folder:
        plan_into(folder, config, mission, 1, done)


def same(a: FleetPlan, b: FleetPlan) -> bool:
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in vars(a) if name != "seconds")


def test_all_vehicles_are_planned_once_and_the_parts_are_gathered(tmp_path, config, mission):
    fleet, done = fly(tmp_path / "run", config, mission)
    assert sorted(done) == [0, 1, 2]
    assert fleet.positions.shape == (3, 6, 2)
    assert (tmp_path / "run" / "plan.npz").exists()
    assert not (tmp_path / "run" / "plans").exists()
    again, done = fly(tmp_path / "run", config, mission)
    assert done == []
    assert same(fleet, again)


def test_an_interrupted_fleet_goes_on_where_it_stood(tmp_path, config, mission, monkeypatch):
    whole, _ = fly(tmp_path / "whole", config, mission)
    interrupted(tmp_path / "run", config, mission, after=2)
    parts = sorted((tmp_path / "run" / "plans").iterdir())
    assert [part.name for part in parts] == ["vehicle-00000.npz", "vehicle-00001.npz"]
    kept = [unpack_plan(part.read_bytes()).seconds for part in parts]
    asked = []
    real = flights_module.plan_fleet
    monkeypatch.setattr(
        flights_module, "plan_fleet", lambda problems, *rest: (asked.append(len(problems)), real(problems, *rest))[1]
    )
    fleet, done = fly(tmp_path / "run", config, mission)
    assert asked == [1]
    assert sorted(done) == [0, 1, 2]
    assert fleet.seconds[:2].tolist() == kept
    assert same(fleet, whole)


def damaged(data: bytes, how: str) -> bytes:
    match how:
        case "empty":
            return b""
        case "truncated":
            return data[: len(data) // 2]
        case "text":
            return b"not an archive"
        case "flipped":
            return data[:120] + bytes(b ^ 0xFF for b in data[120:140]) + data[140:]
        case _:
            raise ValueError(how)


@pytest.mark.parametrize("how", ["empty", "truncated", "text", "flipped"])
def test_a_damaged_part_is_planned_again(tmp_path, config, mission, how):
    whole, _ = fly(tmp_path / "whole", config, mission)
    interrupted(tmp_path / "run", config, mission, after=2)
    part = tmp_path / "run" / "plans" / "vehicle-00001.npz"
    part.write_bytes(damaged(part.read_bytes(), how))
    fleet, done = fly(tmp_path / "run", config, mission)
    assert sorted(done) == [0, 1, 2]
    assert same(fleet, whole)


def test_a_part_that_does_not_verify_is_planned_again(tmp_path, config, mission):
    whole, _ = fly(tmp_path / "whole", config, mission)
    interrupted(tmp_path / "run", config, mission, after=2)
    folder = tmp_path / "run" / "plans"
    (folder / "vehicle-00001.npz").write_bytes((folder / "vehicle-00000.npz").read_bytes())  # another vehicle's
    fleet, _ = fly(tmp_path / "run", config, mission)
    assert same(fleet, whole)


@pytest.mark.parametrize("how", ["empty", "truncated", "text", "flipped"])
def test_a_damaged_plan_is_refused(tmp_path, config, mission, how):
    fly(tmp_path / "run", config, mission)
    path = tmp_path / "run" / "plan.npz"
    path.write_bytes(damaged(path.read_bytes(), how))
    with pytest.raises(BadInputError, match=r"plan\.npz: damaged, or not a plan; remove it, and the run plans again$"):
        fly(tmp_path / "run", config, mission)
    path.unlink()
    assert fly(tmp_path / "run", config, mission)[0].vehicles == config.vehicles


@pytest.mark.parametrize("array", ["positions", "association", "objective", "centres", "psi"])
def test_a_plan_that_was_tampered_with_never_comes_back(tmp_path, config, mission, array):
    """It is refused or planned again; no plan leaves unverified."""
    whole, _ = fly(tmp_path / "run", config, mission)
    path = tmp_path / "run" / "plan.npz"
    with np.load(path) as archive:
        arrays = dict(archive)
    arrays[array] = np.roll(arrays[array], 1, axis=0)  # every vehicle gets another one's
    np.savez(path, **arrays)
    with contextlib.suppress(BadInputError):
        assert same(fly(tmp_path / "run", config, mission)[0], whole)


def test_the_number_of_workers_does_not_change_a_bit(tmp_path, config, mission):
    one, _ = fly(tmp_path / "one", config, mission, workers=1)
    two, _ = fly(tmp_path / "two", config, mission, workers=2)
    assert same(one, two)


def test_forgetting_is_the_mean_over_the_places_that_are_tested():
    """A place without test samples is neither remembered nor forgotten: it does not count as 0."""
    recorder = SimpleNamespace(_best_class=None)
    assert RowRecorder._forget(recorder, [0.5, 0.8, None]) == 0.0
    assert RowRecorder._forget(recorder, [0.3, 0.9, None]) == pytest.approx(0.1)
    assert RowRecorder._forget(recorder, [0.5, 0.5, None]) == pytest.approx(0.2)
    assert RowRecorder._forget(recorder, [None, None, None]) == 0.0
