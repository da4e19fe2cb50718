"""Malformed configs and data files: exit 2, one line, no traceback, and nothing heavy imported before.

Processes are forked here from one that has imported the command line alone, and say themselves what they imported.
"""

import csv
import io
import json
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from endurance.stage import Process, Row, run_part, workshop

HEAVY = ("torch", "scipy", "sklearn", "cvxpy", "highspy", "matplotlib", "pyarrow", "plotly", "PIL", "pyscipopt")
NEEDED = {"csv": {"scipy", "sklearn"}, "npz": {"scipy", "sklearn"}, "picture": {"PIL"}, "cache": set[str]()}

KEYS = (
    "seed", "vehicles", "rounds", "algorithms", "eval_every", "workers", "device", "checkpoint_every", "field.region",
    "field.zeta", "field.weights", "field.bases", "field.projection", "flight.method", "flight.dmin", "flight.imax",
    "flight.vmax", "flight.windows", "flight.epsilon", "sensor.altitude", "sensor.fov", "sensing.n_max",
    "sensing.initial", "sensing.decay_length", "sensing.keep_last", "data.name", "data.size", "model.name",
    "model.width", "model.norm", "train.kappa", "train.batch_size", "train.eta", "train.eta_local", "prune.delta",
    "prune.granularity", "quantise.scheme", "quantise.s", "quantise.bucket", "server.alpha", "server.clip",
    "world.time", "world.deadline", "world.wind", "world.battery", "world.channel.noise", "vehicle.battery",
    "vehicle.computer", "vehicle.airframe.drag", "cost.model", "cost.deadline", "cost.cpu", "theory.every",
    "faults.absent", "track.to",
)  # fmt: skip
VALUES = (
    "-1", "nan", "-inf", '"\\u0000"', "[]", "{}", "[[[[]]]]", '["no such thing"]', "1e999", "2020-01-01", '"nothing"',
    "{a = {b = 1}}", "99999999999999999999", "-0.5", '[1, "two"]',
)  # fmt: skip


_HUGE = "99999999999999999999"
# values that are no mistake where they stand; written down, for who would tell is who is tried
FIT = {
    ("field.projection", "-1"), ("field.projection", "-0.5"), ("field.projection", "[]"), ("flight.imax", "[]"),
    ("faults.absent", "[]"), ("track.to", "[]"), ("cost.cpu", "{}"),
} | {(key, _HUGE) for key in (
    "eval_every", "checkpoint_every", "field.projection", "flight.dmin", "flight.vmax", "sensor.altitude",
    "sensing.decay_length", "sensing.keep_last", "train.kappa", "train.batch_size", "train.eta", "train.eta_local",
    "server.clip", "world.deadline", "vehicle.battery", "vehicle.airframe.drag", "cost.deadline", "theory.every",
)}  # fmt: skip


def _broken_toml(rng: random.Random) -> bytes:
    whole = b'rounds = 3\n[flight]\nmethod = "greedy"\ndmin = 5.0\n[data]\nname = "synthetic"\n'
    at = rng.randrange(len(whole))
    texts: list[Callable[[], bytes]] = [
        lambda: b"rounds = ", lambda: b"[flight\ndmin = 1", lambda: rng.randbytes(rng.randrange(1, 400)) + b"\xff\xfe",
        lambda: b'rounds = 3\nrounds = 4\n', lambda: whole[:at] + bytes([rng.choice(b'[]{}"=\x00')]) * 3 + whole[at:],
        lambda: b"\xff\xfe" + "rounds = 3".encode("utf-16-le"), lambda: b"a = " + b"[" * 5000,
        lambda: b"a" + b".b" * rng.choice([300, 5000]) + b" = 1", lambda: b"a = " + b"{b = " * 400 + b"1" + b"}" * 400,
        lambda: b'"\\u001b[2J\\n" = 1', lambda: b"server.alpha = [1.0, 2.0, 3.0]",
        lambda: b"seed = " + b"9" * 5000, lambda: b"[a]\n[a]\n", lambda: b"\x00" * 64,
        lambda: b"unknown_%d = 1\n" % at, lambda: b"[flight]\nmethodd = 'greedy'\n", lambda: b"flight = 3\n",
    ]  # fmt: skip
    return rng.choice(texts)()


def config_words(place: Path, k: int, rng: random.Random) -> list[str]:
    """Return a command with a malformed config."""
    end = ["--out", str(place / "out"), "--plain"]
    if k % 2:
        path = place / f"{k}.toml"
        path.write_bytes(_broken_toml(rng))
        return ["run", str(path), *end]
    while (chosen := (rng.choice(KEYS), rng.choice(VALUES))) in FIT:
        pass
    return ["run", "smoke", "--set", "=".join(chosen), *end]


def _table(rng: random.Random) -> bytes:
    rows: list[list[Any]] = [["class", "x", "y", "deviation"]] + [[c, 50.0 * c, 10.0, 20.0] for c in range(10)]
    how = rng.randrange(8)
    if how == 0:
        rows[rng.randrange(1, 11)][rng.randrange(4)] = rng.choice(["", "north", "nan", "1e999", "0x10", "--"])
    elif how == 1:
        rows[0][rng.randrange(4)] = rng.choice(["", "class", "klasse", "z", "\x00"])
    elif how == 2:
        del rows[rng.randrange(1, 11)]
    elif how == 3:
        rows.append(list(rows[rng.randrange(1, 11)]))
    elif how == 4:
        rows[rng.randrange(1, 11)].append("one more")
    elif how == 5:
        rows = rows[:1]
    elif how == 6:
        rows[rng.randrange(1, 11)][3] = rng.choice([0, -5])
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return rng.randbytes(300) if how == 7 else text.getvalue().encode()


def _archive(rng: random.Random) -> bytes:
    import numpy as np

    arrays: dict[str, Any] = {"centres": np.zeros((10, 2)), "deviations": np.ones(10)}
    how = rng.randrange(6)
    if how == 0:
        arrays["centres"][3, 1] = rng.choice([np.nan, np.inf])
    elif how == 1:
        arrays["deviations"] = np.ones(rng.choice([0, 3, 11]))
    elif how == 2:
        arrays["surprise"] = np.ones(2)
    elif how == 3:
        arrays["centres"] = np.array([["a", "b"]] * 10)
    elif how == 4:
        arrays["centres"] = np.array([{"pickled": True}] * 10, dtype=object)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    data = buffer.getvalue()
    return data[: rng.randrange(1, len(data) - 30)] if how == 5 else data


def _pictures(place: Path, rng: random.Random) -> Path:
    root = place / "pictures"
    shutil.rmtree(root, ignore_errors=True)
    for part in ("train", "test"):
        for c in range(10):
            folder = root / part / f"c{c}"
            folder.mkdir(parents=True)
            header = b"P6 8 8 255\n"
            (folder / "0.ppm").write_bytes(header + bytes(range(192)))
    victim = root / rng.choice(["train", "test"]) / f"c{rng.randrange(10)}" / "0.ppm"
    data = victim.read_bytes()
    victim.write_bytes(
        rng.choice([b"", data[:40], b"P6 99999999 99999999 255\n", rng.randbytes(200), b"GIF89a" + data])
    )
    return root


def _cache(place: Path, rng: random.Random) -> Path:
    import numpy as np

    from skyfed.tasks.cache import Pictures, save_pictures

    images, labels = np.zeros((10, 3, 32, 32), np.uint8), np.arange(10, dtype=np.uint8)
    path = place / "cifar10.safetensors"
    save_pictures(path, Pictures(images, labels, images, labels, tuple("abcdefghij")))
    data = bytearray(path.read_bytes())
    how = rng.randrange(4)
    if how == 0:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif how == 1:
        del data[rng.randrange(len(data)) :]
    elif how == 2:
        data[:8] = b"\xff" * 8
    else:
        data = bytearray(rng.randbytes(500))
    path.write_bytes(data)
    return place


def data_words(place: Path, kind: str, rng: random.Random) -> list[str]:
    """Return a command with a malformed data file of a kind."""
    words = [
        "run",
        "smoke",
        "--plain",
        "--out",
        str(place / "out"),
        "--set",
        "rounds=3",
        "--set",
        "flight.method=greedy",
    ]
    if kind in ("csv", "npz"):
        path = place / f"survey.{kind}"
        path.write_bytes(_table(rng) if kind == "csv" else _archive(rng))
        return [*words, "--set", f'field.file="{path}"']
    if kind == "picture":
        return [*words, "--set", f'data.name="folder:{_pictures(place, rng)}"', "--set", f'data.dir="{place}/cache"']
    return [*words, "--set", "data.name=cifar10", "--set", f'data.dir="{_cache(place, rng)}"']


def malformed(count: int, seed: int) -> list[Row]:
    """Try `count` malformed configs and a quarter as many data files."""
    import skyfed.cli
    import skyfed.config  # noqa: F401

    before = set(HEAVY) & set(sys.modules)
    rng = random.Random(seed)
    wrong: dict[str, list[str]] = {"config": [], "data": []}
    with workshop() as place:
        for k in range(count):
            wrong["config"] += _refused(config_words(place, k, rng), place, set())
        kinds = list(NEEDED)
        files = max(4, count // 4)
        for k in range(files):
            kind = kinds[k % len(kinds)]
            wrong["data"] += _refused(data_words(place, kind, rng), place, NEEDED[kind])
        written = (place / "out").exists()
    rows = []
    for what, total in (("config", count), ("data", files)):
        held = total - len(wrong[what])
        name = (
            "malformed configs" if what == "config" else "malformed data files (CSV, NPZ, pictures, CIFAR-10's cache)"
        )
        also = {"failures": wrong[what][:5]} if wrong[what] else {}
        rows.append(Row(f"{name}: exit 2, one line, no traceback, nothing heavy imported first, nothing written",
                        f"{held} of {total}", "all", held == total and not written and not before, also))  # fmt: skip
    return rows


def _refused(words: list[str], place: Path, needed: set[str]) -> list[str]:
    """Return what was wrong with the way a command was refused."""
    report = place / "imported.json"
    report.unlink(missing_ok=True)
    process = Process(words, place / "log", _reporting(report))
    code, said = process.wait(), process.said()
    imported = set(json.loads(report.read_text())) - needed if report.exists() else {"nothing known"}
    lines = said.splitlines()
    if code == 2 and len(lines) == 1 and lines[0].startswith("skyfed:") and not imported:
        return []
    return [f"{words[1:4]}: exit {code}, {len(lines)} lines, imported {sorted(imported)}: {said[-300:]}"]


def _reporting(report: Path) -> Callable[[], None]:
    """Let a process write down what it has imported when it ends."""

    def install() -> None:
        from skyfed.cli import entry

        real = entry.run_arguments

        def noted(words: list[str]) -> int:
            code = real(words)
            report.write_text(json.dumps(sorted(set(HEAVY) & set(sys.modules))))
            return code

        setattr(entry, "run_arguments", noted)  # noqa: B010 - mypy does not let a function be replaced

    return install


if __name__ == "__main__":
    run_part(malformed, 200, __doc__)
