"""Reading the gathered results: who stood where, and a table of it."""

import json
from collections.abc import Iterable
from pathlib import Path
from statistics import mean
from typing import Any

from skyfed.algorithms import KNOWN
from skyfed.report.numbers import with_interval
from skyfed.report.seed_model import half_interval
from skyfed.report.summary import late_mean
from skyfed.runs.tables import Row, read_parquet

PAPER = {"sgd": 51.5, "afl": 48.7, "afl-prune": 48.4, "afl-quant": 48.2, "2ceoafl": 47.5}  # %, after 100 rounds
FLEET = [name for name in PAPER if name != "sgd"]  # those that have vehicles
OPEN = "Not measured yet."
TABLES = ("rounds", "uplink", "flights", "rates")  # what was gathered of runs, a Parquet file each
_ROUNDING = 9  # decimals of points and per cents beyond which there is rounding only
_EVERY = 5  # rounds between the tests of a variant
FLOOR = "floor"  # and what training on quadratic losses has shown, another


def read_results(results: Path) -> dict[str, list[Row]]:
    """Return the tables that were gathered, by name; one that is not there is empty."""
    paths = {name: results / f"{name}.parquet" for name in (*TABLES, FLOOR)}
    return {name: read_parquet(path) if path.exists() else [] for name, path in paths.items()}


def read_machines(results: Path) -> dict[str, Any]:
    """Return the machine and versions of every run, by its name."""
    path = results / "machines.json"
    known: dict[str, Any] = json.loads(path.read_bytes()) if path.exists() else {}
    return known


def run_name(row: Row) -> str:
    """Return what the run that a row is of is called in machines.json."""
    return f"{row['variant']} seed-{row['seed']}"


def learning_curve(rounds: list[Row], variant: str, algorithm: str, seed: int | None = None) -> list[Row]:
    """Return the rounds after which a model was tested."""
    return [
        row
        for row in rounds
        if (row["variant"], row["algorithm"]) == (variant, algorithm)
        and row["accuracy"] is not None
        and seed in (None, row["seed"])
    ]


def last(rounds: list[Row], variant: str, algorithm: str, key: str) -> list[float]:
    """Return the value (%) of every seed that was tested in the last round that any was."""
    ends: list[Row] = []
    for seed in seeds_of(rounds, variant):
        ends += learning_curve(rounds, variant, algorithm, seed)[-1:]
    reached = max((row["round"] for row in ends), default=0)
    return [100 * row[key] for row in ends if row["round"] == reached]


def end_of(rounds: list[Row], variant: str, algorithm: str) -> Row | None:
    """Return the last round that seed 0 was tested in; None where it was not run."""
    tests = learning_curve(rounds, variant, algorithm, 0)
    return tests[-1] if tests else None


def late(
    rounds: list[Row], variant: str, algorithm: str, key: str, seed: int = 0, at: int | None = None
) -> float | None:
    """Return the late mean (%): of every fifth round's test in the last quarter, or the last test if there is none.

    at  a round to end with, instead of the last; variants are tested every fifth round, so all are averaged alike
    """
    tests = [row for row in learning_curve(rounds, variant, algorithm, seed) if at is None or row["round"] <= at]
    share = late_mean(tests, key, _EVERY)
    return None if share is None else 100 * share


def lates(rounds: list[Row], variant: str, algorithm: str, key: str) -> list[float]:
    """Return the late means (%) of all seeds."""
    found = [late(rounds, variant, algorithm, key, seed) for seed in seeds_of(rounds, variant)]
    return [end for end in found if end is not None]


def sensed(rounds: list[Row], variant: str, algorithm: str, seed: int = 0) -> tuple[int, int] | None:
    """Return how many pictures a run starts with and how many it has sensed in the end."""
    sizes = [
        row["train_size"]
        for row in rounds
        if (row["variant"], row["algorithm"], row["seed"]) == (variant, algorithm, seed)
    ]
    return (sizes[0], sizes[-1] - sizes[0]) if sizes else None


def title(name: str) -> str:
    """Return what an algorithm is called in tables."""
    return KNOWN[name].title


def grid(head: str, rows: list[list[str]]) -> str:
    """Return a table; the columns of its head are parted by bars."""
    names = head.split("|")
    return "\n".join(f"| {' | '.join(row)} |" for row in [names, ["---"] * len(names), *rows])


def interval(values: list[float], sign: str = "") -> str:
    """Return a mean with its 95 % interval (Student's t over seeds)."""
    if not values:
        return "–"
    known = [round(value, _ROUNDING) for value in values]
    return with_interval(mean(known), half_interval(known), sign)


def seeds_of(rows: list[Row], variant: str) -> list[int]:
    """Return the seeds that a variant was run with."""
    return sorted({row["seed"] for row in rows if row["variant"] == variant})


def an_upload(
    uplink: list[Row], variant: str, algorithm: str, key: str, seeds: list[int] | None = None
) -> float | None:
    """Return the mean over a variant's uploads, raw and quantised, of all seeds or of some; None without any."""
    some = [row for row in uplink if (row["variant"], row["algorithm"]) == (variant, algorithm)]
    some = [row for row in some if seeds is None or row["seed"] in seeds]
    count = sum(row["uploads"] for row in some)
    return float(sum(row["uploads"] * row[key] for row in some) / count) if count else None


def whole_seeds(uplink: list[Row], variant: str, algorithms: Iterable[str]) -> list[int]:
    """Return the seeds in which every one of some algorithms has uploaded: only these compare seconds fairly."""
    found = [
        {row["seed"] for row in uplink if (row["variant"], row["algorithm"]) == (variant, name)} for name in algorithms
    ]
    return sorted(set.intersection(*found)) if found else []
