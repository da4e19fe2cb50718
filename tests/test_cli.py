"""End to end through the command line; in processes of their own where that matters."""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import uuid
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

import in_process
from skyfed import __version__
from skyfed.cli import fleet as fleet_verbs
from skyfed.config import load_config
from skyfed.flight import Problem, verify
from skyfed.presets import describe
from skyfed.runs.flights import plan_into
from skyfed.runs.folder import RunFolder
from skyfed.types import Plan
from skyfed.world.mission import prepare_mission
from waiting import LONG

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # typer takes names from click that click has deprecated
    import typer.main

    from skyfed.cli import app, main, run_arguments

COMMAND = [sys.executable, "-m", "skyfed"]


def skyfed(*arguments: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "timeout": LONG, **options},
    )


def here(place: Path, *arguments: str | Path) -> in_process.Said:
    """Run a command in a folder, in this process; nothing is drawn."""
    return in_process.skyfed(place, *map(str, arguments))


SMALL = """
seed = 0
vehicles = 3
rounds = 12

[field]
classes = 4
region = [600.0, 600.0]

[flight]
vmax = "unlimited"
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "small.toml"
    path.write_text(SMALL)
    return path


def arrays(folder: Path) -> dict[str, np.ndarray]:
    with np.load(folder / "plan.npz", allow_pickle=False) as archive:
        return dict(archive)


def same_but_for_seconds(a: Path, b: Path) -> bool:
    one, other = arrays(a), arrays(b)
    del one["seconds"], other["seconds"]
    return one.keys() == other.keys() and all(one[key].tobytes() == other[key].tobytes() for key in one)


@pytest.fixture(scope="module")
def planned(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small fleet, planned by two workers, with an origin so that everything is written."""
    out = tmp_path_factory.mktemp("cli") / "run"
    done = skyfed("plan", small, "--set", "workers=2", "--set", "field.origin=[52.5,13.4]", "--out", out)
    assert done.returncode == 0, done.stderr
    assert "Flights: exact, 3 vehicles, 12 rounds, 4 classes" in done.stdout
    assert "Traceback" not in done.stderr
    assert "Warning" not in done.stderr
    return out


# what is written


def test_the_folder_holds_what_the_contract_names(planned):
    for name in ("config.toml", "manifest.json", "plan.npz", "map.png", "figures/fig1-psi.png"):
        assert (planned / name).stat().st_size > 0, name
    assert (planned / "map.png").read_bytes().startswith(b"\x89PNG")
    assert not (planned / "plans").exists()
    command = json.loads((planned / "manifest.json").read_text())["command"]
    assert command[:2] == ["skyfed", "plan"]
    assert command[-2:] == ["--out", str(planned)]


def test_waypoints_are_exported_when_an_origin_is_given(planned):
    suffixes = {path.suffix for path in (planned / "waypoints").rglob("*")}
    assert {".geojson", ".kml", ".plan"} <= suffixes


def test_the_plan_has_the_names_shapes_and_types_of_the_contract(planned):
    U, C, T = 3, 4, 12
    found = arrays(planned)
    shapes = {
        "positions": (U, T, 2), "association": (U, T), "centres": (U, C, 2), "radii": (U, C),
        "true_centres": (U, C, 2), "true_radii": (U, C), "psi": (U, C, T), "dmin": (), "epsilon": (),
        "objective": (U,), "bound": (U,), "seconds": (U,),
    }  # fmt: skip
    assert shapes.keys() <= found.keys()
    assert {key: found[key].shape for key in shapes} == shapes
    assert all(found[key].dtype == np.float64 for key in shapes if key != "association")
    assert np.issubdtype(found["association"].dtype, np.integer)
    assert np.issubdtype(found["imax"].dtype, np.integer)
    assert found["imax"].shape[:2] == (U, C)
    assert set(np.unique(found["association"])) <= set(range(-1, C))
    assert (float(found["dmin"]), float(found["epsilon"])) == (5.0, 1e-6)
    assert not np.array_equal(found["centres"], found["true_centres"])  # planned on the estimate
    assert (found["seconds"] > 0).all()


def test_the_plan_verifies_against_what_the_file_itself_says(planned):
    found = arrays(planned)
    for u in range(3):
        problem = Problem(
            found["centres"][u], found["radii"][u], found["psi"][u], found["imax"][u], float(found["dmin"]),
            float(found["vmax"]), str(found["windows"]), float(found["epsilon"]),
        )  # fmt: skip
        plan = Plan(found["positions"][u], found["association"][u], float(found["objective"][u]),
                    float(found["bound"][u]), 0.0, "exact")  # fmt: skip
        assert verify(problem, plan) == []
        assert plan.gap <= 1e-4


def test_the_written_config_runs_again_to_the_same_bits_with_any_number_of_workers(planned, tmp_path):
    for name, more in (("as it is", []), ("alone", ["--set", "workers=1"])):
        done = here(tmp_path, "plan", planned / "config.toml", *more, "--out", tmp_path / name)
        assert done.returncode == 0, done.stderr
        assert same_but_for_seconds(planned, tmp_path / name)
    assert (tmp_path / "as it is" / "config.toml").read_bytes() == (planned / "config.toml").read_bytes()


def test_a_finished_run_is_not_planned_again(planned):
    before = (planned / "plan.npz").read_bytes()
    done = here(planned, "plan", planned / "config.toml", "--out", planned)
    assert done.returncode == 0, done.stderr
    assert "Flights" in done.stdout
    assert (planned / "plan.npz").read_bytes() == before


def test_another_seed_gives_another_plan(planned, small):
    config = load_config(str(small), ["seed=1"])
    other = prepare_mission(config.field, config.flight, config.sensing, 3, 12, 1)
    assert not np.array_equal(arrays(planned)["psi"], other.field.psi)


def test_without_out_a_new_folder_is_made_under_runs(tmp_path, small):
    done = here(tmp_path, "plan", small, "--set", "vehicles=1", "--set", "flight.method=greedy")
    assert done.returncode == 0, done.stderr
    [folder] = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("small-")
    assert (folder / "plan.npz").exists()


# words


def test_presets_are_listed_with_a_line_each():
    done = skyfed("presets")
    assert done.returncode == 0
    assert [tuple(line.split(None, 1)) for line in done.stdout.splitlines()] == [*describe().items()]


def test_the_version():
    done = skyfed("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"skyfed {__version__}\n", "")


def verbs(command: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from verbs(inner, (*path, name))


def help_of(path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setattr(sys, "argv", ["skyfed", *path, "--help"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("path", [*verbs(typer.main.get_command(app))], ids=" ".join)
def test_every_verb_has_help(path, monkeypatch, capsys):
    out = help_of(path, monkeypatch, capsys)
    assert out.lstrip().startswith(f"Usage: {' '.join(('skyfed', *path))}")
    assert len(out.split("Options:")[0].strip().splitlines()) > 1  # a usage line and what it does
    assert "\\[" not in out


def test_the_help_of_plan_says_what_its_arguments_are(monkeypatch, capsys):
    out = " ".join(help_of(("plan",), monkeypatch, capsys).split())
    for words in ("A preset's name or a TOML file.", "--set KEY=VALUE", "Folder for the results", "--plain"):
        assert words in out


def test_no_arguments_show_the_verbs():
    done = skyfed()
    assert {"presets", "plan"} <= set((done.stdout + done.stderr).split())


@pytest.mark.parametrize("arguments", [["--help"], ["plan", "--help"], ["--version"], ["presets"]], ids=" ".join)
def test_words_need_none_of_the_heavy_libraries(arguments):
    script = f"""
        import sys
        from skyfed.cli import main
        sys.argv = ["skyfed", *{arguments!r}]
        try:
            main()
        except SystemExit as ended:
            assert not ended.code
        print([m for m in ("torch", "cvxpy", "flwr", "matplotlib", "plotly", "sklearn", "highspy") if m in sys.modules])
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=LONG)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


def test_a_bad_sweep_needs_none_of_the_heavy_libraries(tmp_path):
    (tmp_path / "bad.toml").write_text("bass = 'quick'")
    script = """
        import sys
        from skyfed.cli import run_arguments
        assert run_arguments(["sweep", "bad.toml"]) == 2
        print([m for m in ("torch", "scipy.optimize", "pyarrow", "rich", "matplotlib", "optuna") if m in sys.modules])
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG, cwd=tmp_path)
    assert done.stdout == "[]\n", done.stderr


def test_ctrl_c_while_modules_are_loaded_says_nothing():
    script = """
        import signal, sys
        from skyfed.__main__ import main

        class Interrupt:
            def find_spec(self, name, path=None, target=None):
                if name == "skyfed.cli.app":
                    signal.raise_signal(signal.SIGINT)

        sys.meta_path.insert(0, Interrupt())
        main()
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=LONG)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


# what is refused


def one_line(done: subprocess.CompletedProcess[str] | in_process.Said, code: int) -> str:
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("skyfed: ")
    assert done.stderr.endswith("\n")
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["plan", "nowhere"], "'nowhere' is neither a preset nor a file; presets: quick"),
        (["plan", "smoke", "--set", "flight.dmni=3"], "did you mean dmin?"),
        (["plan", "smoke", "--set", "rounds=0"], "rounds = 0: must be at least 1 (T)"),
        (["plan", "smoke", "--set", "field.file=nowhere.csv"], "nowhere.csv"),
        (["plan", "smoke", "--set", "flight.imax=99999999999999999999"], "flight.imax"),
        (["plan", "smoke", "--set", "field.bases=['bump:0.5:0']"], "field.bases"),
        (["plan", "smoke", "--set", "two\nlines=1"], "is not a setting"),
        (["plan", "smoke", "--set"], "--set"),
        (["plan", "smoke", "quick"], "quick"),
        (["plan", "--wat"], "--wat"),
        (["run", "smoke", "--seeds", "3-1"], "--seeds '3-1'"),
        (["run", "smoke", "--set", "server.alpha=[1.0]"], "skyfed: server.alpha: allowed: one number for each"),
        (["run", "smoke", "--set", "model.name=resnet99"], "allowed: resnet18, cnn, mlp, package.module:callable"),
        (["run", "smoke", "--set", "model.name=nowhere:build"], "model.name = 'nowhere:build': ModuleNotFoundError"),
        (["run", "smoke", "--set", "model.name=torch:rand"], "model.name = 'torch:rand': gave Tensor"),
        (
            ["report", "nowhere", "--out", "config.toml"],
            "--out config.toml: the page is HTML; allowed: a name that ends",
        ),
        (["run", "smoke", "--set", "device=cuda:99"], "device = 'cuda:99': not on this machine; allowed here: cpu"),
        (["run", "smoke", "--set", "device=gpu"], 'device = "gpu": allowed: cpu, cuda, mps, xpu, and one of several'),
        (["plan", "smoke", "--set", "field.file=/dev/zero"], "not a file"),
        (["plan", "smoke", "--set", "flight.dmin=1e20"], "dmin must be 0 to 1e+09 m"),
        (["plan", "smoke", "--set", 'field."\x1b[2J"=1'], "\\x1b[2J"),
        (["sweep", "/dev/zero"], "not a file"),
        (["fly"], "'fly'"),
    ],
    ids=lambda value: " ".join(value)[-25:] if isinstance(value, list) else "",
)
def test_bad_input_is_one_line_and_exit_code_2(tmp_path, arguments, says):
    done = here(tmp_path, *arguments)
    assert says in one_line(done, 2)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_another_run_is_refused(planned, small):
    before = (planned / "config.toml").read_bytes()
    done = skyfed("plan", small, "--set", "seed=5", "--out", planned)
    assert "seed: 0 -> 5" in one_line(done, 2)
    assert (planned / "config.toml").read_bytes() == before


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    done = skyfed("plan", "smoke", "--out", tmp_path)
    assert "not empty and not a run" in one_line(done, 2)
    assert [entry.name for entry in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("where", ["{}/file/run", "/proc/skyfed/run", "/dev/null/run"])
def test_a_folder_that_cannot_be_written_is_one_line_and_exit_code_3(tmp_path, where):
    (tmp_path / "file").touch()
    one_line(skyfed("plan", "smoke", "--out", where.format(tmp_path)), 3)


def test_a_folder_in_use_is_one_line_and_exit_code_3(tmp_path):
    with RunFolder.claim(tmp_path / "run", load_config("smoke"), []):
        done = skyfed("plan", "smoke", "--out", tmp_path / "run")
    assert "in use" in one_line(done, 3)


def test_a_signal_that_a_library_takes_for_its_own_failure_still_stops(monkeypatch, capsys):
    """A validator that is being built when Ctrl-C comes raises an error of its own."""

    def interrupted(**_: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except BaseException as error:
            raise RuntimeError("could not be built") from error

    monkeypatch.setattr("skyfed.cli.entry.app", interrupted)
    assert run_arguments([]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_wrong_option_leads_to_the_verbs_own_help(capsys):
    assert run_arguments(["run", "--nope"]) == 2
    assert capsys.readouterr().err == "skyfed: No such option '--nope'. (see skyfed run --help)\n"


def test_a_full_device_behind_standard_output_is_one_line_and_exit_code_3():
    with open("/dev/full", "w") as full:
        done = skyfed("presets", stdout=full)
    assert (done.returncode, done.stderr.count("\n")) == (3, 1), done.stderr
    assert "No space left" in done.stderr


def test_a_reader_that_has_gone_is_no_reason_to_complain():
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = skyfed("presets", stdout=writing)
    finally:
        os.close(writing)
    assert done.stderr == ""


# signals


class Running:
    """A planning in a session of its own, so that a signal reaches it as one from a terminal would."""

    def __init__(self, small: Path, out: Path, *overrides: str, ignored: signal.Signals | None = None) -> None:
        self.out, self.mark = out, uuid.uuid4().hex
        self.overrides = ["vehicles=40", *overrides]
        settings = [word for override in self.overrides for word in ("--set", override)]
        self.process = subprocess.Popen(
            [*COMMAND, "plan", str(small), *settings, "--out", str(out)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            env={**os.environ, "SKYFED_TEST_MARK": self.mark},
            preexec_fn=ignored and (lambda: signal.signal(ignored, signal.SIG_IGN)),
        )  # fmt: skip

    def parts(self) -> list[Path]:
        return sorted((self.out / "plans").glob("vehicle-*.npz"))

    def wait_for_parts(self, count: int) -> None:
        while len(self.parts()) < count:
            assert self.process.poll() is None, self.process.communicate()[1]
            time.sleep(0.005)

    def stop(self, number: signal.Signals) -> str:
        """Send the signal to the whole session; returns what was said on standard error."""
        os.killpg(self.process.pid, number)
        return self.process.communicate(timeout=LONG)[1]

    def left_over(self) -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if self.mark.encode() in (entry / "environ").read_bytes():
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found


@pytest.mark.parametrize(
    ("number", "code", "workers"),
    [
        (signal.SIGINT, 130, 2),
        (signal.SIGINT, 130, 1),
        (signal.SIGTERM, 143, 2),
        (signal.SIGTERM, 143, 1),
        (signal.SIGHUP, 129, 2),
    ],
)
def test_a_signal_stops_the_planning_and_keeps_what_is_finished(small, tmp_path, number, code, workers):
    running = Running(small, tmp_path / "run", f"workers={workers}", "rounds=60")
    running.wait_for_parts(3)
    said = running.stop(number)
    assert running.process.returncode == code, said
    assert "Traceback" not in said
    saved = running.parts()
    assert 3 <= len(saved) < 40
    counted = int(re.search(r"stopped: (\d+) of 40 flights are saved", said)[1])
    assert counted == len(saved)
    assert not (tmp_path / "run" / "plan.npz").exists()
    assert running.left_over() == []
    for part in saved:
        with np.load(part) as plan:
            assert str(plan["note"]) == ""  # the signal was not taken for a solver's failure


def test_an_interrupted_planning_goes_on_to_the_plan_of_an_uninterrupted_one(small, tmp_path):
    running = Running(small, tmp_path / "run", "workers=2", "vehicles=24")
    running.wait_for_parts(3)
    running.stop(signal.SIGINT)
    kept = [float(np.load(part)["seconds"]) for part in running.parts()]
    assert 3 <= len(kept) < 24
    done = here(tmp_path, "plan", tmp_path / "run" / "config.toml", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr

    config = load_config(str(small), running.overrides)
    mission = prepare_mission(config.field, config.flight, config.sensing, config.vehicles, config.rounds, config.seed)
    with RunFolder.claim(tmp_path / "whole", config, []) as folder:
        plan_into(folder, config, mission, 2, lambda vehicle, found: None)
    assert same_but_for_seconds(tmp_path / "run", tmp_path / "whole")
    assert set(kept) <= set(arrays(tmp_path / "run")["seconds"])  # what was finished was not planned again


def test_a_planning_under_nohup_outlives_its_terminal(small, tmp_path):
    running = Running(small, tmp_path / "run", "vehicles=8", "workers=2", ignored=signal.SIGHUP)
    running.wait_for_parts(1)
    said = running.stop(signal.SIGHUP)
    assert running.process.returncode == 0, said
    assert (tmp_path / "run" / "plan.npz").exists()


@pytest.mark.parametrize("words", ["fleet try smoke", "fleet vehicle .", "bench fleet"])
def test_a_fleet_without_flower_says_what_is_missing(words, monkeypatch, capsys):
    for name in [name for name in sys.modules if name.startswith("skyfed.drivers.flower")]:
        monkeypatch.delitem(sys.modules, name)
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "flwr" else real(name, *rest))
    assert run_arguments(words.split()) == 2
    assert capsys.readouterr().err.endswith('flwr, which is not installed; allowed: pip install "skyfed[fleet]"\n')


def test_a_bench_of_a_run_tells_where_its_time_went(tmp_path, capsys):
    words = ["--set", "rounds=2", "--set", "vehicles=2", "--set", 'algorithms=["sgd","afl"]', "--set", "workers=1"]
    words += ["--set", "flight.method=greedy"]
    assert run_arguments(["bench", "run", "smoke", *words, "--out", str(tmp_path / "run"), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    shares = [value for name, value in row["also"].items() if name.endswith(", %")]
    assert sum(shares) == pytest.approx(100)
    assert {
        "sgd, minutes",
        "afl, minutes",
        "testing, %",
        "vehicles train, %",
        "central training, %",
        "planning, %",
    } <= set(row["also"])
    assert "figures and report, %" in row["also"]
    assert all(share > 0 for share in shares)
    assert row["value"] * 60 > sum(row["also"][f"{name}, minutes"] for name in ("sgd", "afl"))
    assert run_arguments(["bench", "run", "smoke", *words, "--out", str(tmp_path / "run")]) == 2


def test_a_signal_while_a_plan_is_checked_counts_the_flights_that_are_saved(tmp_path, monkeypatch):
    words = ("plan", "smoke", "--set", "vehicles=2", "--set", "flight.method=greedy", "--out", "run", "--plain")
    assert here(tmp_path, *words).returncode == 0
    monkeypatch.setattr("skyfed.runs.flights.verify", lambda *_: signal.raise_signal(signal.SIGINT))
    done = here(tmp_path, *words)
    assert done.returncode == 130
    assert "stopped: 2 of 2 flights are saved" in done.stderr


def test_a_signal_after_a_stations_last_round_stops_before_the_figures(tmp_path, monkeypatch, capsys):
    config = load_config("smoke")

    def last_round(*_: object) -> list[str]:
        signal.raise_signal(signal.SIGINT)
        return []

    monkeypatch.setattr("skyfed.drivers.flower.run.run_station", last_round)
    monkeypatch.setattr("skyfed.cli.fleet.show_run", lambda *_: pytest.fail("it went on"))
    monkeypatch.setattr("skyfed.cli.fleet.watching", lambda *_: nullcontext())
    monkeypatch.setattr("skyfed.cli.entry.app", lambda **_: fleet_verbs._run_station(folder, config, True, "go on"))
    with RunFolder.claim(tmp_path / "run", config, []) as folder:
        assert run_arguments([]) == 130
    assert "every finished round is kept; go on with: go on" in capsys.readouterr().err
