"""What a folder that somebody sent can do: nothing is deleted, run, unpacked without measure, or shown as it is."""

import io
import json
import os
import resource
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import numpy as np
import pytest

from in_process import undrawn
from skyfed.arrays import read_npz
from skyfed.cli import run_arguments
from skyfed.errors import BadInputError
from skyfed.flight.fleet_plan import load_fleet_plan
from skyfed.imports import import_path
from skyfed.runs.folder import RunFolder
from skyfed.track.sink import Ledger

TINY = ["rounds=2", "vehicles=2", "flight.method=greedy", 'algorithms=["afl"]', "workers=1", "train.kappa=1"]
OWN = """
from pathlib import Path
import skyfed
Path(__file__).with_suffix(".ran").touch()
class Mine(skyfed.algorithms.twoceoafl.TwoCEOAFL):
    title = "Mine"
def flat(phase):
    return 0 * phase
def plan(problem, options):
    raise ValueError
"""


def run(place: Path, *settings: str) -> int:
    sets = [word for setting in (*TINY, *settings) for word in ("--set", setting)]
    return run_arguments(["run", "smoke", *sets, "--out", str(place), "--plain"])


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Draw nothing, keep the key of this user in a place of the test's own, and stand in an empty folder."""
    undrawn(monkeypatch)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path / "own.py"


def stranger(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Become a user who has another key."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another"))


# links


@pytest.mark.parametrize("name", ["plans", "afl", "figures", "config.toml", "manifest.json", "afl/checkpoints"])
@pytest.mark.parametrize("verb", ["resume", "evaluate", "bound", "report"])
def test_a_folder_with_a_link_is_refused_and_nothing_behind_it_is_touched(tmp_path, capsys, name, verb):
    place, precious = tmp_path / "received", tmp_path / "precious"
    precious.mkdir()
    for file in ("vehicle-00000.npz", "round-00000.safetensors", "thesis.tex"):
        (precious / file).write_text("mine")
    place.mkdir()
    (place / "config.toml").write_text('algorithms = ["afl"]\nrounds = 2\nvehicles = 2\n')
    target = place / name
    target.parent.mkdir(exist_ok=True)
    target.unlink(missing_ok=True)
    target.symlink_to(precious / "thesis.tex" if "." in name else precious)
    assert run_arguments([verb, str(place)]) == 2
    assert "link" in capsys.readouterr().err or name == "config.toml"
    assert sorted(path.name for path in precious.iterdir()) == [
        "round-00000.safetensors", "thesis.tex", "vehicle-00000.npz",
    ]  # fmt: skip


def test_only_parts_of_a_plan_are_deleted_by_name(tmp_path):
    place = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("skyfed.pipeline.train", lambda *_: [])
        patch.setattr("skyfed.cli.execution.show_run", lambda *_: None)
        (place / "plans").mkdir(parents=True)
        (place / "plans" / "thesis.tex").write_text("mine")
        (place / "config.toml").touch()
        (place / "config.toml").unlink()
        assert run(tmp_path / "other") == 0
        (place / "config.toml").write_bytes((tmp_path / "other" / "config.toml").read_bytes())
        assert run_arguments(["resume", str(place), "--plain"]) == 0
    assert (place / "plans" / "thesis.tex").read_text() == "mine"
    assert (place / "plan.npz").exists()


@pytest.mark.parametrize("name", ["../../x", "/etc", "..", "a/b", "*/x", ""])
def test_names_in_a_ledger_of_trackers_lead_nowhere_else(tmp_path, name):
    (tmp_path / "track.json").write_text(json.dumps({"wandb afl": name, "mlflow afl": "good-1"}))
    ledger = Ledger(tmp_path)
    assert ledger.get("wandb", "afl") is None
    assert ledger.get("mlflow", "afl") == "good-1"


# code


def received(tmp_path: Path, mine: Path, setting: str) -> Path:
    """Return a finished run whose config names code, as somebody else made it; nothing of it was imported since."""
    place = tmp_path / "received"
    assert run(place, setting.format(mine=mine)) == 0
    mine.with_suffix(".ran").unlink(missing_ok=True)
    for name in [name for name in sys.modules if name.startswith("skyfed_user_")]:
        del sys.modules[name]
    return place


def test_viewers_run_nothing(tmp_path, mine, monkeypatch, capsys):
    place = received(tmp_path, mine, 'algorithms=["afl", "{mine}:Mine"]')
    stranger(monkeypatch, tmp_path)
    for words in (["report", str(place)], ["runs", str(place)], ["bound", str(place)]):
        assert run_arguments(words) in (0, 2)
    assert not mine.with_suffix(".ran").exists()


@pytest.mark.parametrize("verb", ["resume", "evaluate"])
@pytest.mark.parametrize(
    "setting",
    ['algorithms=["afl", "{mine}:Mine"]', 'field.bases=["own:flat", "sin:1"]'],
)
def test_code_of_a_received_folder_is_run_with_trust_only(tmp_path, mine, monkeypatch, capsys, verb, setting):
    if "own:flat" in setting:
        (tmp_path / "here" / "pack").mkdir()
        (tmp_path / "here" / "pack" / "own.py").write_text(OWN)
        setting, mine = setting.replace("own:flat", "pack.own:flat"), tmp_path / "here" / "pack" / "own.py"
    place = received(tmp_path, mine, setting)
    sys.modules.pop("pack.own", None)
    config = (place / "config.toml").read_bytes()
    stranger(monkeypatch, tmp_path)
    (place / "report.html").unlink(missing_ok=True)  # so that there is something to resume
    assert run_arguments([verb, str(place)]) == 2
    said = capsys.readouterr().err
    assert "its config runs code, and you did not make it" in said
    assert ("Mine" if "Mine" in setting else "pack.own:flat") in said
    assert not mine.with_suffix(".ran").exists()
    assert run_arguments([verb, str(place), "--trust"]) == 0
    assert mine.with_suffix(".ran").exists() or verb == "evaluate" or "pack" in setting
    assert (place / "config.toml").read_bytes() == config


def test_who_made_a_run_goes_on_without_asking(tmp_path, mine):
    place = received(tmp_path, mine, 'algorithms=["{mine}:Mine"]')
    (place / "report.html").unlink(missing_ok=True)
    assert run_arguments(["resume", str(place), "--plain"]) == 0
    assert run_arguments(["evaluate", str(place)]) == 0


@pytest.mark.parametrize("forged", ["", "00" * 32, 7, None, ["x"]])
def test_a_forged_signature_is_none(tmp_path, mine, monkeypatch, capsys, forged):
    place = received(tmp_path, mine, 'algorithms=["{mine}:Mine"]')
    manifest = json.loads((place / "manifest.json").read_text())
    (place / "manifest.json").write_text(json.dumps({**manifest, "signature": forged}))
    assert run_arguments(["evaluate", str(place)]) == 2
    assert "allowed: --trust" in capsys.readouterr().err


def test_a_signature_is_of_one_config(tmp_path, mine, capsys):
    place = received(tmp_path, mine, 'algorithms=["{mine}:Mine"]')
    manifest = json.loads((place / "manifest.json").read_text())
    config = (place / "config.toml").read_text().replace(":Mine", ":Other")
    (place / "config.toml").write_text(config)
    del manifest["identity"]
    (place / "manifest.json").write_text(json.dumps(manifest))
    assert run_arguments(["evaluate", str(place)]) == 2
    assert "allowed: --trust" in capsys.readouterr().err


def test_the_key_is_private_and_made_once(tmp_path, mine):
    received(tmp_path, mine, 'algorithms=["{mine}:Mine"]')
    key = tmp_path / "config" / "skyfed" / "key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.parent.stat().st_mode & 0o777 == 0o700
    before = key.read_bytes()
    assert len(before) == 32
    RunFolder.trusted_config(tmp_path / "received", trust=False)
    assert key.read_bytes() == before


def test_a_run_of_known_algorithms_needs_no_key(tmp_path, monkeypatch):
    assert run(tmp_path / "plain") == 0
    assert not (tmp_path / "config").exists()
    stranger(monkeypatch, tmp_path)
    assert run_arguments(["evaluate", str(tmp_path / "plain")]) == 0


def test_the_present_folder_is_no_place_for_modules_until_code_is_asked_for(tmp_path):
    (tmp_path / "here" / "polars.py").write_text("raise SystemExit('ran')")
    script = "import sys; from skyfed.cli.entry import run_arguments; run_arguments(['presets']); print(sys.path)"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONSAFEPATH": "1",
    }
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert str(tmp_path / "here") not in done.stdout
    (tmp_path / "here" / "of_mine.py").write_text("value = 7")
    assert import_path("of_mine:value", "test") == 7


# archives


def bomb(path: Path, name: str = "psi.npy", size: int = 1 << 30) -> None:
    """Write an archive of some megabytes that unpacks to a gigabyte."""
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f8", "fortran_order": False, "shape": (size // 8,)})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(name, "w", force_zip64=True) as file:
        file.write(head.getvalue())
        for _ in range(size >> 24):
            file.write(bytes(1 << 24))


def test_an_archive_that_unpacks_to_far_too_much_is_refused_unread(tmp_path):
    bomb(tmp_path / "plan.npz")
    assert (tmp_path / "plan.npz").stat().st_size < 1 << 21
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(BadInputError, match="damaged, or not a plan"):
        load_fleet_plan(tmp_path / "plan.npz")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10  # KiB


def test_an_array_that_is_not_as_large_as_it_says_is_refused():
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f8", "fortran_order": False, "shape": (1 << 40,)})
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("psi.npy", head.getvalue() + bytes(64))
    with pytest.raises(ValueError, match="not as large as it says"):
        read_npz(data.getvalue())


def test_objects_are_refused(tmp_path):
    data = io.BytesIO()
    np.savez(data, x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match=r"x\.npy"):
        read_npz(data.getvalue())


def test_honest_archives_are_read():
    data = io.BytesIO()
    arrays = {"a": np.zeros((300, 100)), "b": np.arange(7), "c": np.array("text"), "d": np.empty((0, 3))}
    np.savez_compressed(data, **arrays)
    found = read_npz(data.getvalue())
    assert all(np.array_equal(found[name], arrays[name]) for name in arrays)


# the terminal


def test_escapes_in_a_manifest_do_not_reach_the_screen(tmp_path, capsys):
    place = tmp_path / "runs" / "run\x1b[2J"
    assert run(place) == 0
    manifest = json.loads((place / "manifest.json").read_text())
    evil = "\x1b]0;owned\x07\x1b[31mred\r\nforged line"
    (place / "manifest.json").write_text(json.dumps({**manifest, "failed": evil, "started": evil, "skyfed": evil}))
    (place / "afl" / "rounds.parquet").unlink()
    capsys.readouterr()
    assert run_arguments(["runs", str(place.parent)]) == 0
    assert run_arguments(["report", str(place)]) in (0, 2)
    said = "".join(capsys.readouterr())
    assert "\x1b" not in said
    assert "\x07" not in said


@pytest.mark.parametrize("words", [["presets"], ["--help"], ["runs"], ["evaluate", "nowhere"]])
def test_closed_output_is_no_traceback(tmp_path, words):
    command = f'exec "{sys.executable}" -m skyfed {" ".join(words)} >&-'
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, env=environment, check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode == (2 if "nowhere" in words else 0)


def test_without_a_home_there_is_no_traceback(tmp_path):
    """Nor an entry in the system's list of users, where the tests may change theirs."""
    script = textwrap.dedent("""
        import os, pwd
        from skyfed.runs.trust import signature
        if os.getuid() == 0:
            os.setgid(54321); os.setuid(54321)
        print(repr(signature("x")))
    """)
    kept = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CONFIG_HOME")}
    environment = {**kept, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False)
    assert "Traceback" not in done.stderr
    assert os.getuid() or done.stdout.strip() == "''"


def test_a_finished_run_with_a_changed_config_is_not_called_finished(tmp_path, capsys):
    place = tmp_path / "run"
    assert run(place) == 0
    config = place / "config.toml"
    config.write_text(config.read_text().replace("seed = 0", "seed = 1"))
    assert run_arguments(["resume", str(place)]) == 2
    said = capsys.readouterr()
    assert "not as this run began" in said.err
    assert "nothing to resume" not in said.out
