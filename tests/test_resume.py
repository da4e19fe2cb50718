"""Stopping and going on: by signals, by force, with damaged checkpoints; always the bits of an uninterrupted run."""

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from matplotlib.figure import Figure
from safetensors.numpy import load_file, save

from in_process import Said, skyfed
from run_cases import ALGORITHMS, fleet_plan, pictures, rows_of, tiny_config, write_picture_folder
from skyfed.config import Config
from skyfed.drivers.execute import execute
from skyfed.errors import BadInputError
from skyfed.report import figures
from skyfed.report.learning_curves import read_curves
from skyfed.runs import recorder as recorder_module
from skyfed.runs.checkpoint import Checkpoints, Saved, pack_model, unpack_model
from skyfed.runs.columns import ROUNDS as ROUND_COLUMNS
from skyfed.runs.columns import named
from skyfed.runs.folder import RunFolder
from skyfed.runs.seeds import claim_seeds
from skyfed.runs.tables import Row, read_parquet, write_parquet
from waiting import LONG, wait_until

COMMAND = [sys.executable, "-m", "skyfed"]
ROUNDS = 5
SETTINGS = (
    "vehicles=2", f"rounds={ROUNDS}", "eval_every=2", "workers=1", "field.classes=4", "flight.method=greedy",
    "model.name=run_cases:Gated", "sensing.initial=24", "sensing.n_max=12", "sensing.initial_test=12",
    "sensing.n_max_test=8", "train.batch_size=8", "train.kappa=2", "data.size=8",
)  # fmt: skip
TIMES = {"seconds", "measured_seconds", "measured_cpu_seconds"}


def table(path: Path) -> list[Row]:
    """Rows of a table without the columns that are times."""
    return [{name: value for name, value in row.items() if name not in TIMES} for row in read_parquet(path)]


def same_run(one: Path, other: Path, algorithms: tuple[str, ...] = ALGORITHMS) -> bool:
    """Compare models bit by bit and tables but for times; says what differs."""
    for name in algorithms:
        for file in ("rounds.parquet", "uplink.parquet", "vehicles.parquet"):
            assert table(one / name / file) == table(other / name / file), f"{name}/{file}"
        models = [folder / name / "model.safetensors" for folder in (one, other)]
        for a, b in zip(unpack_model(models[0])[:2], unpack_model(models[1])[:2], strict=True):
            assert a.tobytes() == b.tobytes(), name
        assert models[0].read_bytes() == models[1].read_bytes(), name
    return True


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-5] ^= 0x40
    path.write_bytes(data)


# through the command line


class Stage:
    """Where runs of the command line take place: pictures, their cache, folders."""

    def __init__(self, place: Path) -> None:
        self.place = place
        root = write_picture_folder(place / "pictures", pictures())
        self.settings = [*SETTINGS, f'data.name="folder:{root}"', f'data.dir="{place / "cache"}"']

    def arguments(self, out: Path, *overrides: str) -> list[str]:
        chosen = [part for setting in (*self.settings, *overrides) for part in ("--set", setting)]
        return [*COMMAND, "run", "smoke", "--plain", "--out", str(out), *chosen]

    def environment(self, **more: object) -> dict[str, str]:
        paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        return {
            **os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **{k: str(v) for k, v in more.items()}
        }  # fmt: skip

    def call(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, capture_output=True, text=True, timeout=LONG, env=self.environment())

    def run(self, out: Path, *more: str, draws: bool = False) -> Said:
        """Run in this process."""
        return skyfed(self.place, *self.arguments(out)[len(COMMAND) :], *more, draws=draws)

    def resume(self, folder: Path, draws: bool = False) -> Said:
        """Resume in this process."""
        return skyfed(self.place, "resume", str(folder), "--plain", draws=draws)

    @contextmanager
    def held(self, out: Path, algorithm: str, rows: int, *overrides: str) -> Iterator["Held"]:
        """A run that has finished `rows` rounds of an algorithm and waits in the next one."""
        hold, lines = out.parent / f"{out.name}.hold", out / algorithm / "rounds.jsonl"
        waits = Path(f"{hold}.waits")
        waits.unlink(missing_ok=True)
        hold.touch()
        variables = {"SKYFED_TEST_HOLD": hold, "SKYFED_TEST_TABLE": lines, "SKYFED_TEST_ROWS": rows}
        with subprocess.Popen(
            self.arguments(out, *overrides),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment(**variables),
        ) as process:
            try:
                assert wait_until(lambda: waits.exists() or process.poll() is not None)
                assert process.poll() is None, process.communicate()
                yield Held(process, hold)
            finally:
                hold.unlink(missing_ok=True)
                process.kill()


class Held:
    """A run that waits in a round."""

    def __init__(self, process: subprocess.Popen[str], hold: Path) -> None:
        self.process, self._hold = process, hold

    def stop(self, number: int) -> tuple[int, str]:
        """Send a signal, let the round end; returns the exit code and what was said."""
        self.process.send_signal(number)
        time.sleep(0.1)
        self._hold.unlink()
        _, said = self.process.communicate(timeout=LONG)
        return self.process.returncode, said


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return Stage(tmp_path_factory.mktemp("stage"))


@pytest.fixture(scope="module")
def whole(stage: Stage) -> Path:
    """A run that was never interrupted."""
    out = stage.place / "whole"
    done = stage.run(out, draws=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"report: {out / 'report.html'}"
    return out


class Stopped:
    """A run that was stopped by Ctrl-C in round 2 of its third algorithm, and what was seen on the way."""

    def __init__(self, stage: Stage) -> None:
        self.folder = stage.place / "stopped"
        with stage.held(self.folder, "afl-prune", 2) as held:
            self.second = stage.resume(self.folder)
            self.third = stage.run(self.folder)
            self.code, self.said = held.stop(signal.SIGINT)

    def copy(self, target: Path) -> Path:
        return Path(shutil.copytree(self.folder, target))


@pytest.fixture(scope="module")
def stopped(stage: Stage) -> Stopped:
    return Stopped(stage)


def test_ctrl_c_stops_after_the_round_and_says_how_to_go_on(stopped):
    assert stopped.code == 130, stopped.said
    assert "stopping after this round" in stopped.said
    assert f"skyfed resume {stopped.folder}" in stopped.said.splitlines()[-1]
    assert "Traceback" not in stopped.said
    rows = (stopped.folder / "afl-prune" / "rounds.jsonl").read_text().splitlines()
    assert [json.loads(row)["round"] for row in rows] == [0, 1, 2]  # the round it was in was finished
    newest = max((stopped.folder / "afl-prune" / "checkpoints").iterdir())
    assert newest.name == "round-00002.safetensors"
    assert not (stopped.folder / "afl-quant").exists()


def test_a_folder_in_use_is_refused(stopped):
    for refused in (stopped.second, stopped.third):
        assert refused.returncode == 3
        assert "in use by another process" in refused.stderr
        assert len(refused.stderr.splitlines()) == 1


def test_resume_ends_with_the_bits_of_an_uninterrupted_run(stage, stopped, whole, tmp_path):
    folder = stopped.copy(tmp_path / "run")
    done = stage.resume(folder, draws=True)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "Warning" not in done.stderr
    assert "afl-prune: 3 of 5 rounds were done before" in done.stderr
    assert same_run(folder, whole)
    assert (folder / "figures" / "fig3-accuracy.png").exists()


def test_a_damaged_checkpoint_is_named_and_the_one_before_taken(stage, stopped, whole, tmp_path):
    folder = stopped.copy(tmp_path / "run")
    newest = max((folder / "afl-prune" / "checkpoints").iterdir())
    damage(newest)
    done = stage.resume(folder)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if str(newest) in line]
    assert "damaged" in line
    assert "afl-prune: 2 of 5 rounds were done before" in done.stderr
    assert same_run(folder, whole)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_stop_after_the_round_too(stage, tmp_path, number):
    with stage.held(tmp_path / "run", "afl", 1, 'algorithms=["afl"]') as held:
        code, said = held.stop(number)
    assert code == 128 + number, said
    assert f"skyfed resume {tmp_path / 'run'}" in said
    rows = (tmp_path / "run" / "afl" / "rounds.jsonl").read_text().splitlines()
    assert len(rows) == 2


def test_a_run_that_was_killed_goes_on_to_the_same_bits(stage, whole, tmp_path):
    """Killed with two workers, resumed without; the workers change nothing and end with their parent."""
    out = tmp_path / "run"
    with stage.held(out, "afl", 2, "workers=2") as held:
        held.process.kill()
        held.process.communicate(timeout=LONG)
    assert not (out / "afl" / "model.safetensors").exists()
    again = stage.run(out)  # the same command once more is as good as resume
    assert again.returncode == 0, again.stderr
    assert same_run(out, whole)


def test_a_finished_run_says_so(stage, whole):
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*") if path.is_file()}
    done = stage.resume(whole)
    assert done.returncode == 0
    assert "finished" in done.stdout
    assert before == {path: path.stat().st_mtime_ns for path in whole.rglob("*") if path.is_file()}


@pytest.mark.parametrize("missing", ["*", "fig4*"])
def test_a_run_stopped_before_its_figures_were_drawn_gets_them(stage, whole, tmp_path, missing):
    """As after a signal in the very last round, or after a kill while the figures were drawn."""
    folder = Path(shutil.copytree(whole, tmp_path / "run"))
    for path in (folder / "figures").glob(missing):
        path.unlink()
    done = stage.resume(folder, draws=True)
    assert done.returncode == 0, done.stderr
    for path in (whole / "figures").iterdir():
        assert (folder / "figures" / path.name).exists(), path.name


def test_a_run_killed_before_its_last_table_is_not_called_finished(stage, whole, tmp_path):
    """The model is written before the rounds' table; a kill in between must not end in "finished"."""
    folder = Path(shutil.copytree(whole, tmp_path / "run"))
    last = folder / ALGORITHMS[-1]
    lines = [json.dumps(row) for row in read_parquet(last / "rounds.parquet")]
    (last / "rounds.jsonl").write_text("".join(line + "\n" for line in lines))
    (last / "rounds.parquet").unlink()
    done = stage.resume(folder)
    assert done.returncode == 0, done.stderr
    assert same_run(folder, whole)


def test_several_seeds_have_a_folder_each_and_one_mean(stage, whole, tmp_path):
    place = tmp_path / "group"
    done = stage.run(place, "--seeds", "0-1", draws=True)
    assert done.returncode == 0, done.stderr
    assert "2 seeds, mean ± 95 % interval" in " ".join(done.stdout.split())  # however wide the terminal is
    assert done.stdout.splitlines()[-1] == f"report: {place / 'report.html'}"
    assert same_run(place / "seed-0", whole)
    assert table(place / "seed-1" / "afl" / "rounds.parquet") != table(whole / "afl" / "rounds.parquet")
    assert (place / "figures" / "fig3-accuracy.png").exists()
    assert "finished" in stage.resume(place).stdout
    for name in ("rounds.parquet", "model.safetensors"):
        (place / "seed-1" / "afl" / name).rename(tmp_path / name)
    (place / "figures" / "fig3-accuracy.png").unlink()
    done = stage.resume(place, draws=True)
    assert done.returncode == 0, done.stderr
    assert (place / "seed-1" / "afl" / "model.safetensors").read_bytes() == (
        tmp_path / "model.safetensors"
    ).read_bytes()
    assert (place / "figures" / "fig3-accuracy.png").exists()


def test_what_a_kill_left_of_a_common_page_does_not_keep_the_seeds_from_going_on(tmp_path):
    config = tiny_config()
    claim_seeds(tmp_path, config, [0], [])
    (tmp_path / ".report.html.99999999.part").write_bytes(b"half")
    claim_seeds(tmp_path, config, [0], [])
    assert [path.name for path in tmp_path.iterdir()] == ["seed-0"]


@pytest.mark.parametrize("module", ["skyfed.tasks", "skyfed.drivers.execute", "skyfed.runs.flights"])
def test_a_signal_while_a_run_is_prepared_says_how_to_go_on(stage, stopped, tmp_path, module):
    """Importing and loading take seconds; a signal there stops at once."""
    folder = stopped.copy(tmp_path / "run")
    script = f"""
import os, signal, sys
class Finder:
    def find_spec(self, name, *rest):
        if name == "{module}":
            os.kill(os.getpid(), signal.SIGTERM)
sys.meta_path.insert(0, Finder())
sys.argv = ["skyfed", "resume", "{folder}", "--plain"]
from skyfed.cli import main
main()
"""
    done = stage.call([sys.executable, "-c", script])
    assert done.returncode == 143, done.stderr
    assert [line for line in done.stderr.splitlines() if f"go on with: skyfed resume {folder}" in line], done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_figure_that_is_there_is_whole(tmp_path, monkeypatch):
    """A kill while a figure is written leaves none by its name, which would count as drawn."""
    figure = Figure()
    monkeypatch.setattr(os, "replace", lambda *_: pytest.fail("killed"))
    with pytest.raises(pytest.fail.Exception):
        figures.save(figure, tmp_path / "fig3-accuracy")
    assert not [path for path in tmp_path.iterdir() if path.name[0] != "."]
    monkeypatch.undo()
    figures.save(figure, tmp_path / "fig3-accuracy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fig3-accuracy.pdf", "fig3-accuracy.png"]


def test_resume_of_something_else_is_refused_in_one_line(stage, tmp_path):
    done = stage.resume(tmp_path)
    assert done.returncode == 2
    assert "not a run's folder" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_tables_have_the_columns_of_the_contract(whole):
    for name in ALGORITHMS:
        rounds, uplink = read_parquet(whole / name / "rounds.parquet"), read_parquet(whole / name / "uplink.parquet")
        assert [row["round"] for row in rounds] == list(range(ROUNDS))
        for column in (
            "round", "accuracy", "accuracy_full", "loss", "test_size", "train_size", "eta", "eta_local", "seconds"
        ):  # fmt: skip
            assert column in rounds[0], column
        assert [row["accuracy"] is not None for row in rounds] == [False, True, False, True, True]
        tested = [row for row in rounds if row["accuracy"] is not None]
        assert all(0 <= row["accuracy"] <= 1 and 0 <= row["accuracy_full"] <= 1 for row in tested)
        assert all(row["seconds"] > 0 for row in rounds)
        assert [row["train_size"] for row in rounds] == sorted(row["train_size"] for row in rounds)
        if name == "sgd":
            assert uplink == []
            continue
        assert [(row["round"], row["vehicle"]) for row in uplink] == [(t, u) for t in range(ROUNDS) for u in range(2)]
        for column in (
            "delta", "kept", "quantised", "paper_bits", "wire_bytes", "buffer_bytes", "modelled_seconds",
            "measured_seconds", "modelled_energy",
        ):  # fmt: skip
            assert column in uplink[0], column
        for row in rounds:
            assert row["wire_bytes"] == sum(up["wire_bytes"] for up in uplink if up["round"] == row["round"])
        assert all(row["modelled_seconds"] > 0 and row["measured_seconds"] > 0 for row in uplink)
        assert {row["quantised"] for row in uplink} <= {"afl": {False}, "afl-prune": {False}, "afl-quant": {True}}.get(
            name, {True, False}
        )


def test_the_digests_are_of_the_model_and_of_every_upload(whole):
    rounds = read_parquet(whole / "2ceoafl" / "rounds.parquet")
    weights, buffers, _ = unpack_model(whole / "2ceoafl" / "model.safetensors")
    assert rounds[-1]["model_digest"] == xxhash.xxh3_64(weights.tobytes() + buffers.tobytes()).hexdigest()
    uploads = [row["digest"] for row in read_parquet(whole / "2ceoafl" / "uplink.parquet")]
    assert len(set(uploads)) == len(uploads) > 0


def ratios(place: Path) -> list[list[float]]:
    return [
        [row["delta"] for row in read_parquet(place / name / "uplink.parquet")] for name in ("afl-prune", "2ceoafl")
    ]


def test_algorithms_share_their_ratios(whole):
    one, other = ratios(whole)
    assert one == other


# without the command line: states a kill can leave behind


class StopHereError(Exception):
    """The run ends at this point."""


class Watcher:
    """Keeps what is said; may stop the run after some round of some algorithm."""

    def __init__(self, algorithm: str = "", after: int = -1) -> None:
        self.lines: list[str] = []
        self.begun: list[tuple[str, int]] = []
        self._stop = (algorithm, after)

    def begin(self, algorithm: str, first: int, rows: list[Row]) -> None:
        self.begun.append((algorithm, first))
        assert [row["round"] for row in rows] == list(range(first))

    def round(self, algorithm: str, row: Row) -> None:
        if (algorithm, row["round"]) == self._stop:
            raise StopHereError

    def say(self, line: str) -> None:
        self.lines.append(line)


KNOWN = pictures().task()


def go(place: Path, config: Config, *stop: object) -> Watcher:
    """Start or go on with a run; returns what was seen."""
    watcher = Watcher(*stop)
    plan = fleet_plan(config.vehicles, config.rounds)
    with RunFolder.claim(place, config, ["run"]) as folder:
        (place / "plan.npz").write_bytes(plan.to_bytes())
        try:
            execute(folder, config, KNOWN, plan, watcher)
        except StopHereError:
            assert stop
    return watcher


def test_algorithms_share_their_data_and_ratios_where_psi_follows_the_rounds(tmp_path):
    """They differ only in what they do; where psi follows mission time, each has the data of its own clock."""
    for follows in ("rounds", "mission"):
        go(tmp_path / follows, tiny_config("rounds=4", f"field.follows={follows}"))
    sizes = {
        name: [
            (row["train_size"], row["test_size"]) for row in read_parquet(tmp_path / "rounds" / name / "rounds.parquet")
        ]
        for name in ALGORITHMS
    }
    assert len({tuple(found) for found in sizes.values()}) == 1
    assert len(set(next(iter(sizes.values())))) == 4  # they do grow
    one, other = ratios(tmp_path / "rounds")
    assert one == other
    clocks = {
        name: tuple(row["clock"] for row in read_parquet(tmp_path / "mission" / name / "rounds.parquet"))
        for name in ALGORITHMS
    }
    assert clocks.pop("sgd") == (None,) * 4  # nobody flies for it
    assert len(set(clocks.values())) == 4
    assert all(clock == tuple(sorted(clock)) for clock in clocks.values())


def small(*overrides: str) -> Config:
    return tiny_config('algorithms=["2ceoafl"]', "rounds=7", "eval_every=1", *overrides)


ONE = ("2ceoafl",)


@pytest.fixture
def unbroken(tmp_path: Path) -> Path:
    go(tmp_path / "unbroken", small())
    return tmp_path / "unbroken"


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """Stopped after round 4 of 7."""
    go(tmp_path / "broken", small(), "2ceoafl", 4)
    assert not (tmp_path / "broken" / "2ceoafl" / "model.safetensors").exists()
    return tmp_path / "broken"


def checkpoints(place: Path) -> list[str]:
    return sorted(path.name for path in (place / "2ceoafl" / "checkpoints").iterdir())


@pytest.mark.parametrize("keep", [0, 3, 100, -9])
@pytest.mark.parametrize("name", ["model.safetensors", "rounds.parquet", "uplink.parquet"])
def test_what_a_finished_run_lost_is_made_again(unbroken, tmp_path, name, keep):
    """Files that are empty or cut off; what is left of them is kept aside."""
    place = tmp_path / "hurt"
    shutil.copytree(unbroken, place)
    file = place / "2ceoafl" / name
    file.write_bytes(file.read_bytes()[:keep])
    seen = go(place, small())
    assert f"{file}: cannot be read, kept as {name}.damaged" in "\n".join(seen.lines)
    assert same_run(unbroken, place, ONE)
    assert not any("cannot be read" in line for line in go(place, small()).lines)


@pytest.mark.parametrize(
    ("name", "rows", "wrong"),
    [
        ("uplink", [{"round": 0}], "column 'vehicle' is missing"),
        ("rounds", [dict.fromkeys(named(ROUND_COLUMNS), "x")], "column 'round' holds string, not int64"),
    ],
    ids=["missing", "of another kind"],
)
def test_another_table_under_a_table_s_name_is_refused_and_made_again(unbroken, tmp_path, name, rows, wrong):
    place = tmp_path / "hurt"
    shutil.copytree(unbroken, place)
    file = place / "2ceoafl" / f"{name}.parquet"
    write_parquet(file, rows)
    with pytest.raises(BadInputError, match=f"{file}: not a table of {name}: {wrong}"):
        read_curves([place], rows_of("2ceoafl"))
    go(place, small())
    assert same_run(unbroken, place, ONE)


def test_a_table_with_holes_or_a_column_twice_is_refused(unbroken):
    file = unbroken / "2ceoafl/uplink.parquet"
    whole = pq.read_table(file)
    place = whole.column_names.index("wire_bytes")
    pq.write_table(whole.set_column(place, "wire_bytes", pa.nulls(len(whole), pa.int64())), file)
    with pytest.raises(BadInputError, match="column 'wire_bytes' has no value in some rows"):
        read_curves([unbroken], rows_of("2ceoafl"))
    pq.write_table(whole.append_column("wire_bytes", whole.column(place)), file)
    with pytest.raises(BadInputError, match="column 'wire_bytes' is there twice"):
        read_curves([unbroken], rows_of("2ceoafl"))


@pytest.mark.parametrize("line", ['{"round": 0}', "[1]", '{"round": "x"}', "[" * 100_000])
def test_a_line_of_something_else_counts_as_missing_when_a_run_goes_on(broken, unbroken, line):
    table = broken / "2ceoafl" / "rounds.jsonl"
    table.write_text(f"{line}\n{table.read_text()}")
    seen = go(broken, small())
    assert "rounds are missing from the tables; starting over" in "\n".join(seen.lines)
    assert same_run(unbroken, broken, ONE)


def test_a_run_does_not_go_on_with_other_pictures(broken, unbroken, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "KNOWN", pictures(seed=1).task())
    with pytest.raises(BadInputError, match="not the pictures that it began with; allowed: the same pictures, or a"):
        go(broken, small())
    monkeypatch.undo()
    go(broken, small())
    assert same_run(unbroken, broken, ONE)


def test_the_last_three_checkpoints_are_kept(broken, unbroken):
    assert checkpoints(broken) == [f"round-0000{t}.safetensors" for t in (2, 3, 4)]
    assert checkpoints(unbroken) == [f"round-0000{t}.safetensors" for t in (4, 5, 6)]


def test_two_uninterrupted_runs_are_equal(unbroken, tmp_path):
    go(tmp_path / "again", small())
    assert same_run(unbroken, tmp_path / "again", ONE)


@pytest.mark.parametrize("after", range(7))
def test_a_stop_after_any_round_changes_nothing(unbroken, tmp_path, after):
    place = tmp_path / "run"
    go(place, small(), "2ceoafl", after)
    seen = go(place, small())
    assert seen.begun == [("2ceoafl", after + 1)]
    assert same_run(place, unbroken, ONE)


def test_a_run_can_be_stopped_after_every_single_round(unbroken, tmp_path):
    for after in range(7):
        go(tmp_path / "run", small(), "2ceoafl", after)
    assert same_run(tmp_path / "run", unbroken, ONE)


def test_what_the_station_remembers_of_its_vehicles_survives(tmp_path):
    config = small("server.aggregate=consensus", "faults.attackers=[0]")
    go(tmp_path / "whole", config)
    for after in (1, 4):
        go(tmp_path / "run", config, "2ceoafl", after)
    go(tmp_path / "run", config)
    assert same_run(tmp_path / "run", tmp_path / "whole", ONE)
    whole, again = (
        load_file(place / "2ceoafl" / "checkpoints" / "round-00006.safetensors")["state/agreement"]
        for place in (tmp_path / "whole", tmp_path / "run")
    )
    assert whole.tobytes() == again.tobytes()
    assert np.abs(whole[0]).max() > 0


REMEMBERS = """
import numpy as np
from skyfed.algorithms.base import Algorithm


class Remembers(Algorithm):
    def local(self, kit, received, memory):
        trained = kit.descend(received)
        before = memory.get("kept", np.zeros(len(trained.values), np.float32))
        kept = (0.5 * before + trained.values).astype(np.float32)
        return {"update": kit.vector(kept, trained.buffers)}, {"kept": kept}
"""


@pytest.mark.parametrize("every", [1, 3])
def test_what_vehicles_remember_survives(tmp_path, every):
    (tmp_path / "mine.py").write_text(REMEMBERS)
    own = (f'algorithms=["{tmp_path}/mine.py:Remembers"]', f"checkpoint_every={every}", "faults.absent=[[0,1],[2,3]]")
    config = small(*own)
    go(tmp_path / "whole", config)
    for after in (0, 3, 4):
        go(tmp_path / "run", config, "Remembers", after)
    go(tmp_path / "run", config)
    assert same_run(tmp_path / "run", tmp_path / "whole", ("Remembers",))
    kept = sorted(path.name for path in (tmp_path / "run" / "Remembers" / "checkpoints").glob("memory-*"))
    assert kept == sorted(
        path.name for path in (tmp_path / "whole" / "Remembers" / "checkpoints").glob("memory-*")
    )  # fmt: skip
    assert kept


def test_code_of_a_user_that_changes_in_between_is_noticed(tmp_path):
    (tmp_path / "mine.py").write_text(REMEMBERS)
    config = small(f'algorithms=["{tmp_path}/mine.py:Remembers"]')
    assert not any("changed" in line for line in go(tmp_path / "run", config, "Remembers", 2).lines)
    (tmp_path / "mine.py").write_text(REMEMBERS.replace("0.5", "0.6"))
    for _ in range(2):
        told = [line for line in go(tmp_path / "run", config).lines if "changed" in line]
        assert told == [f"warning: {tmp_path}/mine.py has changed since this run began; a new folder would start over"]


def test_defaults_of_a_user_s_algorithm_that_change_in_between_are_noticed(tmp_path, monkeypatch):
    """A module by its dotted name has no file whose hash is kept; its defaults are in no config."""
    source = (
        REMEMBERS
        + """
from pydantic import Field
from skyfed.blocks.tables import Settings as Tables

class Own(Tables):
    pull: float = Field(0.25)

class Pulls(Remembers):
    Settings = Own
"""
    )
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "pulling.py").write_text(source)
    config = small('algorithms=["pulling:Pulls", "afl"]')
    assert not any("changed" in line for line in go(tmp_path / "run", config, "Pulls", 2).lines)
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["settings"].keys() == {"Pulls"}
    assert manifest["settings"]["Pulls"]["pull"] == 0.25
    sys.modules["pulling"].Own.model_fields["pull"].default = 0.75
    sys.modules["pulling"].Own.model_rebuild(force=True)
    for _ in range(2):
        told = [line for line in go(tmp_path / "run", config).lines if "changed" in line]
        assert told == [
            "warning: Pulls: pull has changed from 0.25 to 0.75 since this run began; a new folder would start over"
        ]


def test_fewer_checkpoints_cost_rounds_but_not_bits(unbroken, tmp_path):
    config = small("checkpoint_every=3")
    go(tmp_path / "run", config, "2ceoafl", 4)
    assert checkpoints(tmp_path / "run") == ["round-00002.safetensors"]
    assert go(tmp_path / "run", config).begun == [("2ceoafl", 3)]
    for file in ("rounds.parquet", "uplink.parquet"):
        assert table(tmp_path / "run" / "2ceoafl" / file) == table(unbroken / "2ceoafl" / file)


@pytest.mark.parametrize("how", ["flip", "cut", "empty", "zeros", "text"])
def test_every_kind_of_damage_makes_it_go_back_one(unbroken, broken, how):
    newest = broken / "2ceoafl" / "checkpoints" / checkpoints(broken)[-1]
    data = newest.read_bytes()
    if how == "flip":
        damage(newest)
    else:
        newest.write_bytes({"cut": data[:-9], "empty": b"", "zeros": bytes(len(data)), "text": b"hello"}[how])
    seen = go(broken, small())
    assert seen.begun == [("2ceoafl", 4)]
    assert sum(str(newest) in line for line in seen.lines) == 1
    assert all("\n" not in line for line in seen.lines)
    assert same_run(broken, unbroken, ONE)


def test_with_all_checkpoints_damaged_it_starts_over(unbroken, broken):
    for name in checkpoints(broken):
        damage(broken / "2ceoafl" / "checkpoints" / name)
    seen = go(broken, small())
    assert seen.begun == [("2ceoafl", 0)]
    assert len([line for line in seen.lines if "damaged" in line]) == 3
    assert same_run(broken, unbroken, ONE)


def test_after_starting_over_new_checkpoints_count(unbroken, broken):
    """The damaged ones of later rounds must not crowd out the new ones."""
    for name in checkpoints(broken):
        damage(broken / "2ceoafl" / "checkpoints" / name)
    go(broken, small(), "2ceoafl", 1)
    assert go(broken, small()).begun == [("2ceoafl", 2)]
    assert same_run(broken, unbroken, ONE)


def test_checkpoints_of_another_run_are_not_taken(unbroken, broken, tmp_path):
    other = tmp_path / "other"
    go(other, small("seed=1"), "2ceoafl", 5)
    for name in checkpoints(other):
        shutil.copy(other / "2ceoafl" / "checkpoints" / name, broken / "2ceoafl" / "checkpoints" / name)
    seen = go(broken, small())
    assert any("belongs to another run" in line for line in seen.lines)
    assert same_run(broken, unbroken, ONE)


@pytest.mark.parametrize("name", ["rounds", "uplink"])
def test_a_last_line_that_was_cut_off_does_no_harm(unbroken, broken, name):
    """Killed while a row was written: the checkpoint of that round is not there yet."""
    lines = broken / "2ceoafl" / f"{name}.jsonl"
    lines.write_bytes(lines.read_bytes() + b'{"round": 5, "accur')
    go(broken, small())
    assert same_run(broken, unbroken, ONE)


def test_rows_beyond_the_last_checkpoint_are_not_kept_twice(unbroken, broken):
    """Killed between a round's rows and its checkpoint."""
    (broken / "2ceoafl" / "checkpoints" / checkpoints(broken)[-1]).unlink()
    assert go(broken, small()).begun == [("2ceoafl", 4)]
    assert same_run(broken, unbroken, ONE)


@pytest.mark.parametrize("name", ["rounds", "uplink"])
@pytest.mark.parametrize("keep", [0, 2])
def test_rows_lost_from_a_table_are_made_again(unbroken, broken, name, keep):
    lines = broken / "2ceoafl" / f"{name}.jsonl"
    lines.write_text("".join(lines.read_text().splitlines(keepends=True)[:keep]))
    go(broken, small())
    assert same_run(broken, unbroken, ONE)


@pytest.mark.parametrize("missing", ["everything", "the model", "the rounds' table"])
def test_a_kill_at_the_very_end_leaves_nothing_unfinished(unbroken, tmp_path, monkeypatch, missing):
    """The last checkpoint is written; tables and model follow one by one."""
    place = tmp_path / "run"
    real_write, real_finish = recorder_module.write_whole, recorder_module.Table.finish

    def finish(self: recorder_module.Table) -> None:
        if missing == "everything" or (missing == "the rounds' table" and self.parquet.name == "rounds.parquet"):
            raise StopHereError
        real_finish(self)

    def write(path: Path, data: bytes) -> None:
        if missing == "the model" and path.name == "model.safetensors":
            raise StopHereError
        real_write(path, data)

    with monkeypatch.context() as patched:
        patched.setattr(recorder_module, "write_whole", write)
        patched.setattr(recorder_module.Table, "finish", finish)
        go(place, small(), "never", 0)
    assert checkpoints(place)[-1] == "round-00006.safetensors"
    go(place, small())
    assert (place / "2ceoafl" / "model.safetensors").exists()
    assert same_run(place, unbroken, ONE)


def test_a_finished_algorithm_is_not_trained_again(unbroken):
    seen = go(unbroken, small())
    assert seen.begun == [("2ceoafl", 7)]


def test_pools_that_run_dry_are_reported_for_training_and_for_testing(tmp_path):
    few = (
        'algorithms=["afl"]',
        "sensing.initial=8",
        "sensing.n_max=2",
        "sensing.initial_test=4",
        "sensing.n_max_test=1",
    )
    assert not any("dry" in line for line in go(tmp_path / "plenty", tiny_config(*few)).lines)
    for key, part in (("n_max", "training"), ("n_max_test", "test")):
        seen = go(tmp_path / key, tiny_config(*few, f"sensing.{key}=900"))
        (line,) = [line for line in seen.lines if "dry" in line]
        assert f" {part} samples" in line


# checkpoints alone

WEIGHTS, BUFFERS = np.arange(6, dtype=np.float32), np.arange(2, dtype=np.float32)
STATE = {"weights": WEIGHTS, "buffers": BUFFERS}
WORLD = {"battery": np.arange(2, dtype=np.float64)}


def keep(place: Path, t: int, state: dict[str, np.ndarray] = STATE, kept: dict[int, int] | None = None) -> Path:
    Checkpoints(place, "run", "afl").save(t, state, WORLD, kept or {})
    return place / f"round-{t:05d}.safetensors"


def last(
    place: Path, run: str = "run", label: str = "afl", start: dict[str, np.ndarray] = STATE, whole: int = 6
) -> Saved:
    return Checkpoints(place, run, label).last(start, lambda weights: weights, whole, vehicles=2)


def unnoticed(path: Path, read: Callable[[], tuple[dict[str, np.ndarray], int]]) -> list[tuple[int, int]]:
    """Change every byte of a checkpoint to some others; returns where it was read as something else."""
    data, (good, when) = path.read_bytes(), read()
    found = []
    for at in range(len(data)):
        for value in {data[at] ^ 1, data[at] ^ 0x80, ord("I"), ord("U"), 0x20} - {data[at]}:
            path.write_bytes(data[:at] + bytes([value]) + data[at + 1 :])
            try:
                arrays, told = read()
            except BadInputError:
                continue
            if told == -1:  # taken for damaged
                continue
            same = arrays.keys() == good.keys() and told == when
            if not same or any(
                arrays[name].dtype != array.dtype or arrays[name].shape != array.shape
                or arrays[name].tobytes() != array.tobytes()
                for name, array in good.items()
            ):  # fmt: skip
                found.append((at, value))
    path.write_bytes(data)
    return found


def test_checkpoints_are_ordered_by_round_beyond_five_digits(tmp_path):
    for t in (99_998, 99_999, 100_000, 100_001):
        keep(tmp_path, t, {"weights": WEIGHTS + t, "buffers": BUFFERS})
    assert len(list(tmp_path.iterdir())) == 3
    found = last(tmp_path)
    assert found.round == 100_001
    assert found.state["weights"].tobytes() == (WEIGHTS + 100_001).tobytes()


def test_no_byte_of_a_checkpoint_can_change_unnoticed(tmp_path):
    path = keep(tmp_path, 3, {**STATE, "agreement": np.arange(8.0).reshape(2, 2, 2)})

    def read() -> tuple[dict[str, np.ndarray], int]:
        found = last(tmp_path)
        assert found.world is not None or found.round == -1
        return {**found.state, **{f"world {name}": array for name, array in (found.world or {}).items()}}, found.round

    assert read()[1] == 3
    assert not unnoticed(path, read)


def test_no_byte_of_a_saved_model_can_change_unnoticed(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(pack_model(WEIGHTS, BUFFERS, {"round": "3", "run": "run", "algorithm": "afl"}))

    def read() -> tuple[dict[str, np.ndarray], int]:
        weights, buffers, about = unpack_model(path)
        return {"weights": weights, "buffers": buffers}, int(about["round"])

    assert not unnoticed(path, read)


def first_version(place: Path, t: int, **more: str) -> Path:
    """Write a checkpoint as version 0.1.0 did: a model alone, the agreement in its description."""
    path = place / f"round-{t:05d}.safetensors"
    path.write_bytes(pack_model(WEIGHTS, BUFFERS, {"round": str(t), "run": "run", "algorithm": "afl", **more}))
    return path


def packed(agreement: np.ndarray) -> str:
    return base64.b64encode(agreement.tobytes()).decode()


@pytest.mark.parametrize(
    "agreement", ["AAAA", "!", "", packed(np.zeros((2, 3, 3))), packed(np.full((2, 2, 2), np.nan))]
)
def test_an_agreement_that_is_none_of_these_vehicles_makes_it_go_back_one(tmp_path, agreement):
    """Whole by its hash, yet of no use: a line and the checkpoint before, no traceback."""
    good = np.arange(8.0).reshape(2, 2, 2)
    first_version(tmp_path, 2, agreement=packed(good))
    first_version(tmp_path, 3, agreement=agreement)
    found = last(tmp_path)
    assert found.round == 2
    assert found.complaints == [f"{tmp_path}/round-00003.safetensors: its agreement is not one of 2 vehicles"]
    assert found.state["agreement"].tobytes() == good.tobytes()
    assert found.world is None


def test_a_changed_letter_of_an_agreement_is_noticed(tmp_path):
    said = packed(np.ones((2, 2, 2)))
    path = first_version(tmp_path, 3, agreement=said)
    data = path.read_bytes()
    start = data.index(said.encode())
    for at in range(start, start + len(said)):
        path.write_bytes(data[:at] + (b"B" if data[at : at + 1] != b"B" else b"C") + data[at + 1 :])
        with pytest.raises(BadInputError, match="its hash differs"):
            unpack_model(path)


@pytest.mark.parametrize("about", ["[]", "5", "null", "[" * 100_000], ids=["list", "number", "null", "deep"])
def test_a_checkpoint_whose_description_is_no_table_is_no_checkpoint(tmp_path, about):
    path = tmp_path / "round-00003.safetensors"
    path.write_bytes(save(STATE, {"about": about}))
    with pytest.raises(BadInputError, match="not a checkpoint"):
        unpack_model(path)
    found = last(tmp_path)
    assert found.round == -1
    assert "not a checkpoint" in found.complaints[0]


@pytest.mark.parametrize("write", [keep, first_version], ids=["now", "0.1.0"])
def test_a_checkpoint_of_another_algorithm_round_or_size_is_not_taken(tmp_path, write):
    write(tmp_path, 3)
    assert last(tmp_path).round == 3
    smaller = {"weights": WEIGHTS[:5], "buffers": BUFFERS}
    for found in (last(tmp_path, run="other"), last(tmp_path, label="sgd"), last(tmp_path, start=smaller, whole=5)):
        assert found.round == -1
        assert len(found.complaints) == 1
    shutil.copy(tmp_path / "round-00003.safetensors", tmp_path / "round-00004.safetensors")
    assert last(tmp_path).round == 3
    nothing = last(tmp_path / "nowhere")
    assert (nothing.round, nothing.state, nothing.complaints) == (-1, {}, [])


def test_a_state_without_an_array_that_it_starts_with_is_not_taken(tmp_path):
    keep(tmp_path, 3)
    assert last(tmp_path, start={**STATE, "control": WEIGHTS}).round == -1


# memories: files of their own, named by the checkpoints that they belong to


def remember(place: Path, vehicle: int, t: int, value: float) -> None:
    Checkpoints(place, "run", "afl").save_memory(vehicle, t, {"h": np.full(3, value)})


def memories(place: Path) -> list[str]:
    return sorted(path.name for path in place.glob("memory-*"))


def test_a_memory_comes_back_as_it_was_after_the_round(tmp_path):
    remember(tmp_path, 0, 1, 0.5)
    keep(tmp_path, 1, kept={0: 1})
    remember(tmp_path, 1, 2, 0.75)
    keep(tmp_path, 2, kept={0: 1, 1: 2})
    found = last(tmp_path)
    assert found.kept == {0: 1, 1: 2}
    assert {u: memory["h"].tolist() for u, memory in found.memories.items()} == {0: [0.5] * 3, 1: [0.75] * 3}


def test_memories_that_no_checkpoint_names_are_removed(tmp_path):
    for t in range(5):
        remember(tmp_path, 0, t, float(t))
        if t == 0:
            remember(tmp_path, 1, t, 7.0)  # does not change again
        keep(tmp_path, t, kept={0: t, 1: 0})
    newest = [f"memory-00000-0000{t}.safetensors" for t in (2, 3, 4)]
    assert memories(tmp_path) == [*newest, "memory-00001-00000.safetensors"]


@pytest.mark.parametrize("how", ["flip", "gone", "of another vehicle", "of another run"])
def test_a_memory_that_is_damaged_makes_it_go_back_one(tmp_path, how):
    for t in (1, 2):
        remember(tmp_path, 0, t, float(t))
        keep(tmp_path, t, kept={0: t})
    path = tmp_path / "memory-00000-00002.safetensors"
    if how == "flip":
        damage(path)
    elif how == "gone":
        path.unlink()
    else:
        other = tmp_path / "other"
        other.mkdir()
        vehicle, run = (1, "run") if how == "of another vehicle" else (0, "another")
        Checkpoints(other, run, "afl").save_memory(vehicle, 2, {"h": np.zeros(3)})
        shutil.copy(next(other.glob("memory-*")), path)
    found = last(tmp_path)
    assert found.round == 1
    assert found.memories[0]["h"].tolist() == [1.0] * 3
    assert len(found.complaints) == 1
    assert str(path) in found.complaints[0]
