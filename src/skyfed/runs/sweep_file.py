"""Sweeps: grids, named variants and seeds over a config, read from a TOML file (docs/sweeps.md)."""

import itertools
import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError

from skyfed.config import Config, load_config
from skyfed.errors import BadInputError
from skyfed.files import is_part
from skyfed.presets import DEFAULT
from skyfed.runs.folder import RunFolder, entries
from skyfed.runs.seeds import parse_seeds
from skyfed.settings import StrictSettings, first_fault

_MOST = 10_000  # runs of one sweep
OWN = (  # what a sweep's folder holds beside variants
    "sweep.parquet", "figures", "logs", "report.html", ".lock", "search.json", "best.toml",
)  # fmt: skip
TURN = "logs/.turn"  # its lock is held while files of the whole sweep are written


def _named(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 ,._=+-]{0,80}", name):
        raise ValueError(f"{name!r} cannot name a folder: a letter or digit first, then also spaces and , . _ = + -")
    return name


Name = Annotated[str, AfterValidator(_named)]
Seeds = Annotated[str, Field(min_length=1)]


class Variant(StrictSettings):
    """A named setting of some keys, beside the base."""

    name: Name
    base: str | None = None
    set: list[str] = Field([])
    seeds: Seeds | None = None


class SweepFile(StrictSettings):
    """The contents of a sweep's file."""

    base: str = DEFAULT
    set: list[str] = Field([])
    seeds: Seeds = "0"
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field({})
    variant: list[Variant] = Field([])
    search: dict[str, Any] | None = None


@dataclass(frozen=True)
class SweepJob:
    """One run of a sweep: which variant, which seed, its config, and where it goes below the sweep's folder."""

    variant: str
    seed: int
    config: Config
    place: Path


def read_file(path: Path) -> SweepFile:
    """Read a sweep's file as far as its tables go."""
    if path.exists() and not path.is_file():
        raise BadInputError(f"{path}: not a file")
    try:
        tree = tomllib.loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        raise BadInputError(f"{path}: no such file") from None
    except (OSError, ValueError, RecursionError) as error:
        raise BadInputError(f"{path}: not valid TOML: {' '.join(str(error).split())}") from None
    try:
        file = SweepFile.model_validate(tree)
    except ValidationError as error:
        where, why = first_fault(error)
        raise BadInputError(
            f"{path}: {where}: {why}; allowed: base, set, seeds, [grid], [[variant]] (name, base, set, seeds), [search]"
        ) from None
    _refuse_seed(path, file.set)
    return file


def _refuse_seed(path: Path, overrides: list[str]) -> None:
    if any(line.partition("=")[0].strip() == "seed" for line in overrides):
        raise BadInputError(f'{path}: seed: allowed: as seeds = "0-2", for all or for a variant')


def read_sweep(path: Path) -> list[SweepJob]:
    """Read a sweep's file and check every run's config; bad input shows here, before anything is run."""
    file = read_file(path)
    try:
        variants = [*_points(file), *file.variant] or [Variant(name="base")]
    except ValidationError:
        raise BadInputError(f"{path}: [grid]: allowed: quoted keys of settings, values that can be named") from None
    names = [variant.name for variant in variants]
    for name in names:
        if name in OWN:
            raise BadInputError(f"{path}: variant {name!r}: the name is taken; allowed: others than {', '.join(OWN)}")
    _refuse_seed(path, [line for variant in variants for line in variant.set])
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadInputError(f"{path}: variant {twice!r} is there twice; allowed: names that differ")
    if sum(len(parse_seeds(variant.seeds or file.seeds)) for variant in variants) > _MOST:
        raise BadInputError(f"{path}: more than {_MOST} runs")  # before each one's config is checked, which takes time
    return [job for variant in variants for job in jobs_of(path, file, variant)]


def _points(file: SweepFile) -> list[Variant]:
    """Return the points of the grid as variants, named by what they set."""
    if not file.grid:
        return []
    variants = []
    for values in itertools.islice(itertools.product(*file.grid.values()), _MOST + 1):
        settings = list(zip(file.grid, values, strict=True))
        name = " ".join(f"{key.rpartition('.')[2]}={_short(value)}" for key, value in settings)
        variants.append(Variant(name=name[:80], set=[f"{key}={_toml(value)}" for key, value in settings]))
    return variants


def _short(value: Any) -> str:
    if isinstance(value, dict):  # a row with settings of its own is named by its label
        value = value.get("label") or value.get("use") or [f"{key}={_short(inner)}" for key, inner in value.items()]
    text = "-".join(map(_short, value)) if isinstance(value, list) else str(value)
    return re.sub(r"[^A-Za-z0-9._=+-]", "-", text)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, default=str)  # strings and numbers look the same in both


def jobs_of(path: Path, file: SweepFile, variant: Variant) -> list[SweepJob]:
    """Return the runs of a variant, one per seed."""
    base = variant.base or file.base
    if base.endswith(".toml"):
        base = str((path.parent / base).resolve())
    jobs = []
    for seed in parse_seeds(variant.seeds or file.seeds):
        config = load_config(base, [*file.set, *variant.set, f"seed={seed}"])
        jobs.append(SweepJob(variant.name, seed, config, Path(variant.name) / f"seed-{seed}"))
    return jobs


def share_of(jobs: list[SweepJob], part: str | None) -> list[SweepJob]:
    """Return every Nth run from the Kth on for the part "K/N"; all runs if no part is given."""
    if part is None:
        return jobs
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", part)
    k, n = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= k <= n:
        raise BadInputError(f"--part {part!r}: allowed: K/N with K from 1 to N, as 1/4")
    return jobs[k - 1 :: n]


def settle(place: Path, jobs: list[SweepJob]) -> None:
    """Refuse a folder that holds anything but this sweep."""
    known = {job.variant for job in jobs} | set(OWN)
    for name in entries(place, "allowed: a new or empty folder, or this sweep's own"):
        if name not in known and not is_part(name):
            raise BadInputError(f"--out {place}: holds {name}; allowed: a new folder, or this sweep's own")
    for job in jobs:
        if (place / job.place / "config.toml").is_file():
            RunFolder(place / job.place).refuse_other(job.config)
