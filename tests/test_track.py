"""Trackers: every round once, also after a stop; the same bits; and a run that outlives a tracker that fails."""

import importlib.util
import json
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from run_cases import fleet_plan, pictures, tiny_config
from skyfed.cli import run_arguments
from skyfed.config import Config, load_config
from skyfed.drivers import tracking
from skyfed.drivers.execute import execute
from skyfed.drivers.tracking import Tracking, hparams
from skyfed.errors import BadInputError
from skyfed.runs.folder import RunFolder, run_identity
from skyfed.runs.tables import Row, Table
from skyfed.track.sink import Ledger, Tracked

KNOWN, PLAN = pictures().task(), fleet_plan(rounds=5)
NAMES = ["tensorboard", "mlflow", "wandb"]


class StopError(BaseException):
    pass


class Watching:
    """Collects what is said; stops a run after a round of an algorithm."""

    def __init__(self, stop: tuple[str, int] | None = None) -> None:
        self.said: list[str] = []
        self._stop = stop

    def begin(self, algorithm: str, first: int, rows: list[Row]) -> None:
        pass

    def round(self, algorithm: str, row: Row) -> None:
        if (algorithm, row["round"]) == self._stop:
            raise StopError

    def say(self, line: str) -> None:
        self.said.append(line)


def configured(*names: str, more: tuple[str, ...] = ()) -> Config:
    to = f"track.to={json.dumps(list(names))}"
    return tiny_config("rounds=5", 'algorithms=["sgd","afl"]', "workers=1", "checkpoint_every=2", to, *more)


def trained(place: Path, config: Config, stop: tuple[str, int] | None = None) -> list[str]:
    """Train in a folder, from the start or on; returns what was said."""
    watching = Watching(stop)
    with RunFolder.claim(place, config, []) as folder:
        try:
            with Tracking(folder, config, watching) as watcher:
                execute(folder, config, KNOWN, PLAN, watcher)
        except StopError:
            pass
    return watching.said


# what each tracker holds: (step, value) of each figure, in the order it was written


def in_tensorboard(place: Path, algorithm: str) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(place / "tensorboard" / algorithm))
    events.Reload()
    return {name: [(one.step, one.value) for one in events.Scalars(name)] for name in events.Tags()["scalars"]}


def in_mlflow(place: Path, algorithm: str) -> dict[str, list[tuple[int, float]]]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=(place / "mlruns").resolve().as_uri())
    (experiment,) = [one for one in client.search_experiments() if one.name == "skyfed"]
    found = client.search_runs([experiment.experiment_id], f"tags.algorithm = '{algorithm}'")
    (run,) = found
    return {
        name: [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, name)]
        for name in run.data.metrics
    }


def wandb_records(place: Path, algorithm: str) -> Iterator[object]:
    """Read an offline run: records in blocks of 32 KiB, as LevelDB's log has them."""
    from wandb.proto import wandb_internal_pb2

    (path,) = (place / "wandb").glob(f"offline-run-*-{Ledger(place).get('wandb', algorithm)}/*.wandb")
    data, at, part = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if -at % 32768 < 7 and at % 32768:
            at += -at % 32768
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        part += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record = wandb_internal_pb2.Record()
            record.ParseFromString(part)
            part = b""
            yield record


def in_wandb(place: Path, algorithm: str) -> dict[str, list[tuple[int, float]]]:
    found: dict[str, list[tuple[int, float]]] = {}
    for record in wandb_records(place, algorithm):
        if record.WhichOneof("record_type") == "history":
            for item in record.history.item:
                name = item.key or item.nested_key[0]
                found.setdefault(name, []).append((record.history.step.num, json.loads(item.value_json)))
    return found


READERS: dict[str, Callable[[Path, str], dict[str, list[tuple[int, float]]]]] = {
    "tensorboard": in_tensorboard, "mlflow": in_mlflow, "wandb": in_wandb,
}  # fmt: skip


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("track") / "plain"
    trained(place, configured())
    return place


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with all trackers, stopped in the middle of the second algorithm, before a checkpoint, and resumed."""
    place = tmp_path_factory.mktemp("track") / "tracked"
    config = configured(*NAMES)
    assert not [line for line in trained(place, config, ("afl", 2)) if "failed" in line]
    assert not [line for line in trained(place, config) if "failed" in line]
    return place


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("algorithm", ["sgd", "afl"])
def test_every_round_is_there_once_also_after_a_stop(tracked, name, algorithm):
    rows = Table(tracked / algorithm, "rounds").rows()
    found = READERS[name](tracked, algorithm)
    for figure in ("accuracy", "loss", "train_loss", "eta", "wire_bytes"):
        expected = [(row["round"], row[figure]) for row in rows if row[figure] is not None]
        assert [step for step, _ in found[figure]] == [step for step, _ in expected], figure
        assert [value for _, value in found[figure]] == pytest.approx([value for _, value in expected])
    assert len(found["seconds"]) == 5
    assert found["megabytes_sent"][-1][1] == pytest.approx(sum(row["wire_bytes"] for row in rows) / 1e6)


def test_trackers_change_no_bits(plain, tracked):
    for algorithm in ("sgd", "afl"):
        name = f"{algorithm}/model.safetensors"
        assert (plain / name).read_bytes() == (tracked / name).read_bytes()


def test_settings_and_the_end_are_there_too(tracked):
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=(tracked / "mlruns").resolve().as_uri())
    run = client.get_run(Ledger(tracked).get("mlflow", "afl"))
    assert run.info.status == "FINISHED"
    assert run.data.params["train.batch_size"] == "8"
    assert run.data.metrics["final_accuracy"] == run.data.metrics["accuracy"]
    records = list(wandb_records(tracked, "afl"))
    (made,) = [one.run for one in records if one.WhichOneof("record_type") == "run"]
    assert (made.project, made.run_group, made.display_name) == ("skyfed", "tracked", "tracked afl")
    settings = {item.key or item.nested_key[0]: item.value_json for item in made.config.update}
    assert settings["train.batch_size"] == "8"
    assert records[-1].exit.exit_code == 0


def test_a_tracker_may_be_added_to_a_run_that_is_there(plain, tmp_path):
    place = tmp_path / "later"
    config = configured()
    trained(place, config, ("afl", 3))
    trained(place, configured("tensorboard"))
    assert [step for step, _ in in_tensorboard(place, "sgd")["seconds"]] == [0, 1, 2, 3, 4]
    assert [step for step, _ in in_tensorboard(place, "afl")["seconds"]] == [0, 1, 2, 3, 4]
    assert (place / "afl/model.safetensors").read_bytes() == (plain / "afl/model.safetensors").read_bytes()


def test_runs_of_one_name_do_not_share_events_in_a_common_folder(tmp_path):
    more = (f"track.dir={tmp_path}/shared", "rounds=2", 'algorithms=["sgd"]')
    for parent in ("a", "b"):
        trained(tmp_path / parent / "run", configured("tensorboard", more=more))
    assert sorted(path.name for path in (tmp_path / "shared/tensorboard").iterdir()) == ["run", "run 2"]
    assert not (tmp_path / "a/run/tensorboard").exists()


class Failing:
    """A tracker that fails at some call."""

    def __init__(self, where: str) -> None:
        self.where, self.calls = where, 0

    def _call(self, where: str) -> None:
        self.calls += 1
        if where == self.where:
            raise RuntimeError(f"no more {where}\nand a long story")

    def begin(self, *_: object) -> None:
        self._call("begin")

    def log(self, points: list[object]) -> None:
        if points:  # none were done before
            self._call("round")

    def end(self, *_: object) -> None:
        self._call("end")


@pytest.mark.parametrize("where", ["open", "begin", "round", "end"])
def test_a_tracker_that_fails_is_said_once_and_never_ends_the_run(tmp_path, plain, monkeypatch, where):
    def opened(*_: object) -> Failing:
        if where == "open":
            raise RuntimeError("no more open\nand a long story")
        return Failing(where)

    monkeypatch.setattr(tracking, "open_sink", opened)
    said = trained(tmp_path / "run", configured("wandb"))
    assert [line for line in said if "fail" in line] == [
        f"wandb failed (no more {where}); the run goes on without it"
    ]  # fmt: skip
    assert (tmp_path / "run/afl/model.safetensors").read_bytes() == (plain / "afl/model.safetensors").read_bytes()


def test_a_server_that_is_away_does_not_end_the_run(tmp_path):
    more = ("track.mlflow_uri=http://127.0.0.1:9", "rounds=1", 'algorithms=["sgd"]')
    said = trained(tmp_path / "run", configured("mlflow", more=more))
    assert len([line for line in said if line.startswith("mlflow failed")]) == 1
    assert (tmp_path / "run/sgd/model.safetensors").exists()


# settings


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ('track.to=["tensorbord"]', "track.to"),
        ('track.to=["wandb","wandb"]', "named twice"),
        ('track.to="wandb"', "track.to"),
        ("track.project=''", "track.project"),
        ("track.url=x", "track.url is not a setting"),
    ],
)
def test_bad_settings_are_refused(override, says):
    with pytest.raises(BadInputError, match=says):
        load_config("smoke", [override])


@pytest.mark.parametrize("found", [None, ModuleSpec("wandb", None)], ids=["nothing", "a folder of that name"])
def test_a_tracker_that_is_not_installed_is_one_line_before_anything_is_run(tmp_path, monkeypatch, capsys, found):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)
    words = ["run", "smoke", "--set", 'track.to=["wandb"]', "--out", str(tmp_path / "out"), "--plain"]
    assert run_arguments(words) == 2
    assert capsys.readouterr().err == (
        'skyfed: track.to: wandb is not installed; allowed: pip install "skyfed[track]", or without it\n'
    )
    assert not (tmp_path / "out").exists()


def test_installed_trackers_are_fine():
    configured(*NAMES).track.require_installed()


def test_trackers_are_no_part_of_what_a_run_is(tmp_path):
    assert run_identity(configured("wandb")) == run_identity(configured())
    with RunFolder.claim(tmp_path / "run", configured(), []):
        pass
    with RunFolder.claim(tmp_path / "run", configured("mlflow", more=("track.project=mine",)), []):
        pass
    with pytest.raises(BadInputError, match="another run"), RunFolder.claim(tmp_path / "run", tiny_config(), []):
        pass


def test_a_folder_beside_the_config_is_meant(tmp_path):
    (tmp_path / "mine.toml").write_text('[track]\ndir = "all"\n')
    assert load_config(str(tmp_path / "mine.toml")).track.dir == str(tmp_path / "all")


def test_settings_are_flat_values():
    assert hparams({"a": {"b": 1, "c": [1, 2]}, "d": "x", "e": True}) == {
        "a.b": 1,
        "a.c": "[1, 2]",
        "d": "x",
        "e": True,
    }


def test_a_seed_s_folder_is_named_with_those_above(tmp_path):
    settings = configured().track
    assert Tracked(tmp_path / "quick", settings, {}).name == "quick"
    assert Tracked(tmp_path / "sweep" / "eta=1" / "seed-0", settings, {}).name == "sweep eta=1 seed-0"


def test_a_damaged_ledger_counts_as_none(tmp_path):
    for text in ("[", "[1]", '{"wandb afl": 3}'):
        (tmp_path / "track.json").write_text(text)
        ledger = Ledger(tmp_path)
        assert ledger.get("wandb", "afl") is None
        ledger.put("id", "wandb", "afl")
        assert Ledger(tmp_path).get("wandb", "afl") == "id"
