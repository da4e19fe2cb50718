"""The comparison behind `.ci/same-bits`; the matrix itself is not run here."""

import importlib.util
import json
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tomli_w
from safetensors.numpy import save_file

from skyfed.config import load_config

BITS = Path(__file__).resolve().parent.parent / ".ci" / "bits"
NAN = float("nan")

if not BITS.exists():
    pytest.skip("the judge is part of a checkout", allow_module_level=True)


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"bits_{name}", BITS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


compare = load("compare")
Contents = dict[str, dict[str, Any]]


def contents() -> Contents:
    """What a run of two vehicles and two rounds may leave."""
    return {
        "plan.npz": {
            "positions": np.array([[0.5, NAN], [1.5, -0.0]]),
            "note": np.array(["", "fell back"]),
            "dmin": np.asarray(5.0),
            "seconds": np.array([0.1, 0.2]),
        },
        "afl/uplink.parquet": {
            "round": [0, 0, 1, 1],
            "vehicle": [0, 1, 0, 1],
            "digest": ["aa", "bb", "cc", None],
            "late": [0.0, 1.5, NAN, None],
            "measured_seconds": [0.1, 0.2, 0.3, 0.4],
        },
        "afl/rounds.parquet": {
            "round": [0, 1],
            "loss": [0.1, 0.2],
            "accuracy_class": [None, [0.5, NAN, None]],
            "seconds": [1.0, 2.0],
        },
        "afl/model.safetensors": {"weights": np.array([1, 2, 3], np.float32), "buffers": np.zeros(0, np.float32)},
    }


def write(folder: Path, files: Contents) -> Path:
    for name, columns in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".npz":
            np.savez(path, **columns)
        elif path.suffix == ".safetensors":
            save_file(columns, path)
        elif path.suffix == ".jsonl":
            rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        else:
            pq.write_table(pa.table(columns), path)
    return folder


def differences(tmp_path: Path, change: Callable[[Contents], Any], renames: str = "") -> list[str]:
    """Return what is found between a run and one that was changed."""
    new = contents()
    change(new)
    old_folder = compare.Folder(write(tmp_path / "old", contents()))
    new_folder = compare.Folder(write(tmp_path / "new", new), compare.read_renames(renames))
    return [str(each) for each in compare.compare_runs("mine", ["afl"], old_folder, new_folder)]


def test_equal_folders_have_no_differences(tmp_path: Path) -> None:
    assert differences(tmp_path, lambda new: None) == []


def test_measured_times_and_further_columns_are_not_compared(tmp_path: Path) -> None:
    def change(new: Contents) -> None:
        new["plan.npz"] |= {"seconds": np.array([9.0, 9.0]), "further": np.zeros(3)}
        new["afl/uplink.parquet"] |= {"measured_seconds": [9.0] * 4, "further": ["x"] * 4}
        new["afl/rounds.parquet"]["seconds"] = [9.0, 9.0]

    assert differences(tmp_path, change) == []


@pytest.mark.parametrize(
    ("file", "column", "values", "told"),
    [
        ("afl/uplink.parquet", "digest", ["aa", "bb", "xx", None], "digest, round 1, vehicle 0: 'cc' -> 'xx'"),
        ("afl/uplink.parquet", "digest", ["a", "b", "x", None], "digest, round 0, vehicle 0: 'aa' -> 'a' (and 2 more)"),
        ("afl/uplink.parquet", "late", [0.0, 1.5, NAN, NAN], "late, round 1, vehicle 1: None -> nan"),
        ("afl/uplink.parquet", "late", [-0.0, 1.5, NAN, None], "late, round 0, vehicle 0: 0.0 -> -0.0"),
        ("afl/rounds.parquet", "loss", [0.1, 0.30000000000000004 - 0.1], "loss, round 1: 0.2 -> 0.20000000000000004"),
        ("afl/rounds.parquet", "accuracy_class", [None, [0.5]], "accuracy_class, round 1: [0.5, nan, None] -> [0.5]"),
        ("plan.npz", "positions", np.array([[0.5, NAN], [1.5, 0.0]]), "positions, [1, 1]: -0.0 -> 0.0"),
        ("plan.npz", "note", np.array(["", "fell"]), "note, [1]: 'fell back' -> 'fell'"),
        ("plan.npz", "dmin", np.asarray(6.0), "dmin: 5.0 -> 6.0"),
        ("afl/model.safetensors", "weights", np.array([1, 2], np.float32), "weights: float32 (3,) -> float32 (2,)"),
        ("afl/model.safetensors", "weights", np.array([1, 2, 3.0]), "weights: float32 (3,) -> float64 (3,)"),
    ],
)  # fmt: skip
def test_what_differs_is_named(tmp_path: Path, file: str, column: str, values: Any, told: str) -> None:
    found = differences(tmp_path, lambda new: new[file].update({column: values}))
    assert found == [f"mine: {file}: {told}"]


def test_rows_that_are_missing_or_in_another_order_are_named(tmp_path: Path) -> None:
    def rows(order: list[int]) -> Callable[[Contents], None]:
        def change(new: Contents) -> None:
            table = new["afl/uplink.parquet"]
            new["afl/uplink.parquet"] = {name: [values[k] for k in order] for name, values in table.items()}

        return change

    place = "mine: afl/uplink.parquet"
    assert differences(tmp_path / "a", rows([0, 2, 3])) == [f"{place}: (rows), round 0, vehicle 1: there -> missing"]
    found = differences(tmp_path / "b", rows([1, 0, 2, 3]))
    assert found == [f"{place}: (order): round 0, vehicle 0 -> round 0, vehicle 1 (and 1 more)"]


def test_columns_and_files_that_are_missing_are_named(tmp_path: Path) -> None:
    found = differences(tmp_path / "a", lambda new: new["afl/rounds.parquet"].pop("loss"))
    assert found == ["mine: afl/rounds.parquet: loss: there -> missing"]
    found = differences(tmp_path / "b", lambda new: new.pop("afl/model.safetensors"))
    assert found == ["mine: afl/model.safetensors: there -> missing"]


def test_what_differs_in_early_rounds_comes_first(tmp_path: Path) -> None:
    def change(new: Contents) -> None:
        new["afl/uplink.parquet"]["digest"] = ["aa", "bb", "x", None]
        new["afl/rounds.parquet"]["loss"] = [0.0, 0.0]
        new["plan.npz"]["dmin"] = np.asarray(6.0)
        new["afl/model.safetensors"]["weights"] = np.zeros(3, np.float32)

    places = [line.split(": ")[2] for line in differences(tmp_path, change)]
    assert places == ["dmin", "loss, round 0", "digest, round 1, vehicle 0", "weights, [0]"]


def test_a_run_without_tables_is_not_the_same(tmp_path: Path) -> None:
    empty = compare.Folder(tmp_path)
    assert len(compare.compare_runs("mine", ["afl"], empty, empty)) == 1


def test_tables_of_a_run_that_did_not_end_are_compared(tmp_path: Path) -> None:
    left, right = contents(), contents()
    for files in (left, right):
        files["afl/rounds.jsonl"] = files.pop("afl/rounds.parquet")
    right["afl/rounds.jsonl"]["loss"] = [0.1, 0.3]
    folders = [compare.Folder(write(tmp_path / name, files)) for name, files in (("a", left), ("b", right))]
    found = [str(each) for each in compare.compare_runs("mine", ["afl"], *folders)]
    assert found == ["mine: afl/rounds.jsonl: loss, round 1: 0.2 -> 0.3"]


RENAMES = """
[columns.uplink]
digest = "bytes_hash"
measured_seconds = "took"
round = "t"
[columns.plan]
positions = "where"
[missing]
rounds = ["loss"]
[measured]
rounds = ["waited"]
[files]
"plan.npz" = "flights/plan.npz"
"*/uplink.parquet" = "algorithms/*/up.parquet"
"afl" = "algorithms/afl"
[settings]
"quantise.coder" = "wire.coder"
"workers" = ""
[[values]]
key = "algorithms"
old = "sgd"
new = "genie"
[[values]]
key = "quantise.coder"
old = "range"
new = "ans"
"""


def moved(new: Contents) -> None:
    for old, name in (("digest", "bytes_hash"), ("measured_seconds", "took"), ("round", "t")):
        new["afl/uplink.parquet"][name] = new["afl/uplink.parquet"].pop(old)
    new["afl/uplink.parquet"]["took"] = [9.0] * 4
    new["plan.npz"]["where"] = new["plan.npz"].pop("positions")
    new["afl/rounds.parquet"].pop("loss")
    new["flights/plan.npz"] = new.pop("plan.npz")
    new["algorithms/afl/up.parquet"] = new.pop("afl/uplink.parquet")
    for name in ("rounds.parquet", "model.safetensors"):
        new[f"algorithms/afl/{name}"] = new.pop(f"afl/{name}")


def test_renames_are_honoured(tmp_path: Path) -> None:
    assert differences(tmp_path / "a", moved, RENAMES) == []

    def change(new: Contents) -> None:
        moved(new)
        new["algorithms/afl/up.parquet"]["bytes_hash"] = ["aa", "bb", "cc", "dd"]

    found = differences(tmp_path / "b", change, RENAMES)
    assert found == ["mine: afl/uplink.parquet: digest, round 1, vehicle 1: None -> 'dd'"]


def test_two_runs_of_a_tree_with_renames_are_compared_by_old_names(tmp_path: Path) -> None:
    folders = []
    for name, waited in (("a", [1.0, 2.0]), ("b", [3.0, 4.0])):
        files = contents()
        moved(files)
        files["algorithms/afl/rounds.parquet"]["waited"] = waited
        folders.append(compare.Folder(write(tmp_path / name, files), compare.read_renames(RENAMES)))
    assert compare.compare_runs("mine", ["afl"], *folders) == []
    bare = compare.read_renames(RENAMES.replace('"waited"', ""))
    folders = [compare.Folder(folder.path, bare) for folder in folders]
    assert [each.found.column for each in compare.compare_runs("mine", ["afl"], *folders)] == ["waited"]


def test_settings_are_moved_and_values_rewritten() -> None:
    frozen = {"workers": 1, "algorithms": ["sgd", "afl"], "quantise": {"coder": "range", "s": 3}}
    expected = {"algorithms": ["genie", "afl"], "wire": {"coder": "ans"}, "quantise": {"s": 3}}
    assert compare.read_renames(RENAMES).config(frozen) == expected
    assert compare.read_renames("").config(frozen) == frozen


def test_intended_changes_are_known_by_run_file_and_column() -> None:
    text = '[[change]]\nrun = "*"\nfile = "*/rounds.parquet"\ncolumn = "loss"\nreason = "summed otherwise"'
    (change,) = compare.read_intended(text)
    found = compare.Found("loss", "round 0", "0.1", "0.2")
    assert change.covers(compare.Difference("mine", "afl/rounds.parquet", found))
    assert not change.covers(compare.Difference("mine", "afl/uplink.parquet", found))
    assert not change.covers(compare.Difference("mine", "afl/rounds.parquet", compare.Found("eta", "", "", "")))


@pytest.mark.parametrize(
    ("reader", "text", "told"),
    [
        ("read_renames", "x = ", "not valid TOML"),
        ("read_renames", "[column]", "allowed: columns, missing"),
        ("read_renames", "[columns.round]\na = 'b'", "allowed tables: plan, model"),
        ("read_renames", "[files]\n'*/a' = 'a'", "as many * on either side"),
        ("read_renames", "[[values]]\nkey = 'a'", "old"),
        ("read_intended", "[[change]]\nrun = '*'", "allowed: run, file, column, reason"),
    ],
)
def test_bad_files_are_refused_in_one_line(reader: str, text: str, told: str) -> None:
    with pytest.raises(compare.BadFileError, match=told.replace("*", r"\*")) as error:
        getattr(compare, reader)(text)
    assert "\n" not in str(error.value)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    for name in ("plan.npz", "afl/rounds.parquet", "afl/model.safetensors"):
        left, right = (compare.Folder(write(tmp_path / f"{name}-{side}", contents())) for side in "ab")
        (right.path / name).write_bytes(b"nothing of the kind")
        with pytest.raises(compare.BadFileError, match=name):
            compare.compare_runs("mine", ["afl"], left, right)


def test_this_tree_reads_every_config_of_the_matrix(tmp_path: Path) -> None:
    runs = tomllib.loads((BITS / "matrix.toml").read_text())["run"]
    names = [run["name"] for run in runs]
    configs = {run.get("config", run["name"]) for run in runs}
    assert len(set(names)) == len(names)
    assert {run["like"] for run in runs if "like" in run} <= set(names)
    assert configs == {path.stem for path in (BITS / "runs").glob("*.toml")}
    renames = compare.read_renames((BITS / "renames.toml").read_text())
    compare.read_intended((BITS / "intended.toml").read_text())
    for name in configs:
        frozen = tomllib.loads((BITS / "runs" / f"{name}.toml").read_text())
        path = tmp_path / f"{name}.toml"
        path.write_text(tomli_w.dumps(renames.config(frozen)))
        load_config(str(path))  # raises if a setting was moved and renames.toml does not say so
