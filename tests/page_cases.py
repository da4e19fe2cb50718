"""Runs for the page, written without training: what matters there is the tables' form, not where they come from."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from run_cases import blank, in_toml, table_of
from skyfed.config import Config, load_config
from skyfed.runs.tables import Row, Table
from skyfed.theory.estimate import COLUMNS as THEORY
from test_figures import hand_made_fleet

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = next((found for name in NAMES if (found := shutil.which(name))), None)
in_a_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium found (apt-get install chromium)")
HOSTILE = "<script>window.bad=1</script><img src=x onerror=window.bad=1>"
FIVE = ("sgd", "afl", "afl-prune", "afl-quant", "2ceoafl")


def settings(
    vehicles: int, rounds: int, classes: int, algorithms: Sequence[str | dict[str, object]] = FIVE, *more: str
) -> Config:
    sizes = [f"vehicles={vehicles}", f"rounds={rounds}", f"field.classes={classes}", "eval_every=1"]
    return load_config("smoke", [*sizes, f"algorithms={in_toml(list(algorithms))}", *more])


def write_run(
    folder: Path, config: Config, done: int | None = None, names: Sequence[str] | None = None, planned: bool = True
) -> Path:
    """Write a run whose first `done` rounds are there; all where none is given."""
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(config.to_toml())
    about = {"skyfed": "0.1.0", "command": ["skyfed", "run", "my config.toml"], "packages": {"numpy": "2.4.6"}}
    (folder / "manifest.json").write_text(json.dumps(about | ({"classes": list(names)} if names else {})))
    if planned:
        fleet = hand_made_fleet(config.vehicles, config.field.classes, config.rounds)
        (folder / "plan.npz").write_bytes(fleet.to_bytes())
    for k, row in enumerate(config.rows):
        write_tables(folder / row.name, config, k, done, row.central)
    return folder


def write_tables(folder: Path, config: Config, k: int, done: int | None, central: bool = False) -> None:
    """Write an algorithm's tables: curves that rise, each its own; bytes that shrink with k."""
    folder.mkdir()
    add_rounds(folder, config, k, range(config.rounds if done is None else done), central)
    if done is None:
        for name in ("uplink", "vehicles", "rounds"):
            table_of(folder, name).finish()
        (folder / "model.safetensors").write_bytes(b"")


def add_rounds(folder: Path, config: Config, k: int, more: range, central: bool = False) -> None:
    """Add the rows of further rounds to an algorithm's tables."""
    rng = np.random.default_rng([config.seed, k, more.start])
    uplink, rounds, vehicles = (table_of(folder, name) for name in ("uplink", "rounds", "vehicles"))
    for t in more:
        if not central:
            uploads = [_upload(config, k, t, u, rng) for u in range(config.vehicles)]
            uplink.append(uploads)
            vehicles.append([_vehicle(config, k, t, u) for u in range(config.vehicles)])
        level = 0.9 * (1 - np.exp(-(t + 1) / (0.2 * config.rounds + k))) + rng.normal(0, 0.004)
        classes = np.clip(level + rng.normal(0, 0.08, config.field.classes), 0, 1)
        told = {"accuracy": level, "accuracy_full": level - 0.01, "forgetting": 0.01, "seconds": 1.5}
        told |= {"downlink_bytes": 1000 * (config.vehicles + t) // (1 + k) * (t + 1 < config.rounds)}
        sizes = {"train_size": 400 + 30 * t, "test_size": 100 + 5 * t, "uploads": config.vehicles, "dropped": 0}
        row: Row = blank("rounds") | {"round": t} | told | sizes | {"accuracy_class": classes.tolist()}
        row |= dict.fromkeys(("mission_seconds", "clock", "joules"))
        if not central:
            row |= {"wire_bytes": sum(upload["wire_bytes"] for upload in uploads), "broadcast_bytes": 1000}
            row |= {
                "mission_seconds": 60.0,
                "clock": 60.0 * (t + 1),
                "joules": config.vehicles * sum(_joules(k).values()),
            }
        rounds.append([row])


def _joules(k: int) -> dict[str, float]:
    """Joules of a vehicle in a round."""
    return {"fly_joules": 800.0 + 40 * k, "hover_joules": 400.0, "receive_joules": 1.0, "train_joules": 12.0 / (1 + k),
            "send_joules": 3.0 / (1 + k)}  # fmt: skip


def _vehicle(config: Config, k: int, t: int, u: int) -> Row:
    places = hand_made_fleet(config.vehicles, config.field.classes, config.rounds).positions
    x, y = (float(value) for value in places[u, t])
    left = config.vehicle.battery * (1 - (t + 1) / (2 * config.rounds))
    told = {"present": True, "chosen": True, "uploaded": True, "reason": None, "flown": 0.0, "samples": 90 + 9 * t}
    seconds = {"fly_seconds": 20.0, "sense_seconds": 10.0, "receive_seconds": 1.0, "train_seconds": 2.0 / (1 + k),
               "send_seconds": 1.0, "wait_seconds": 5.0, "home_seconds": 0.0}  # fmt: skip
    told |= {"status": "flying", "arrive": 60.0 * t + 20, "received_bytes": 0, "sent_bytes": 0, **seconds, **_joules(k)}
    return {"round": t, "vehicle": u, "x": x, "y": y, "battery_left": left, **told}


def _upload(config: Config, k: int, t: int, u: int, rng: np.random.Generator) -> Row:
    size = 1e6 / (1 + k) * rng.uniform(0.7, 1.1)
    spent = {
        "modelled_seconds": 2.0 / (1 + k),
        "measured_seconds": 2.5 + 0.1 * k,
        "modelled_energy": 12.0 / (1 + k),
        "samples": 90 + 9 * t,
    }
    sent = {
        "wire_bytes": int(size),
        "paper_bits": 30 * size,
        "send_joules": 3.0 / (1 + k),
    }
    return (
        blank("uplink")
        | {"round": t, "vehicle": u, "dropped": None, "quantised": False, "turned": False}
        | spent
        | sent
    )


def write_theory(folder: Path, rounds: Sequence[int], vehicles: int) -> None:
    """Add constants of Theorem 1 as if they had been measured, with rates small enough for its conditions."""
    one = {"kappa": 2, "eta": 0.001, "eta_local": 0.001, "curvature": 3.0, "secant": 2.0, "norm2": 9.0, "now": 2.0}
    more = {"kept": 1.9, "after": 1.95, "gradient2": 0.5, "whole_gradient2": 0.6, "mismatch": 0.1}
    each = {"alpha": 1 / vehicles, "sigma2": 0.4, "phi": 0.01, "epsilon": 0.2, "own2": 0.5, "delta": 0.3, "raw": 0.3}
    rest = {"q": 2.0, "variance": 1.5, "pruned": 0.2}
    lists = {name: [value] * vehicles for name, value in (each | rest).items()}
    rows = [{**one, **more, **lists, "vehicles": list(range(vehicles)), "round": t} for t in rounds]
    assert rows[0].keys() == {column.name for column in THEORY}
    Table(folder, "theory").append(rows)


def without_formula(folder: Path) -> Path:
    """Take the paper's sizes out of a row's table of uploads, as for an algorithm of a user's own."""
    path = folder / "uplink.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["paper_bits"]), path)
    return folder
