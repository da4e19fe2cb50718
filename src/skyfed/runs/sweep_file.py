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
from skyfed.files import drop_dead_parts, is_part, storage_errors
from skyfed.presets import DEFAULT
from skyfed.runs.folder import RunFolder
from skyfed.runs.seeds import parse_seeds
from skyfed.settings import StrictSettings

_MOST = 10_000  # runs of one sweep
OWN = (  # what a sweep's folder holds beside variants
    "sweep.parquet", "figures", "logs", "report.html", ".lock", "search.json", "best.toml",
)  # fmt: skip


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
    """What a sweep's file may say."""

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
        found = SweepFile.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        where, why = ".".join(str(part) for part in first["loc"]), first["msg"].removeprefix("Value error, ")
        raise BadInputError(
            f"{path}: {where}: {why}; allowed: base, set, seeds, [grid], [[variant]] (name, base, set, seeds), [search]"
        ) from None
    if any(line.partition("=")[0].strip() == "seed" for line in found.set):
        raise BadInputError(f'{path}: seed: allowed: as seeds = "0-2", for all or for a variant')
    return found


def read_sweep(path: Path) -> list[SweepJob]:
    """Read a sweep's file and check every run's config; bad input shows here, before anything is run."""
    found = read_file(path)
    try:
        variants = [*_points(found), *found.variant] or [Variant(name="base")]
    except ValidationError:
        raise BadInputError(f"{path}: [grid]: allowed: quoted keys of settings, values that can be named") from None
    names = [variant.name for variant in variants]
    taken = [name for name in names if name in OWN]
    if taken:
        raise BadInputError(f"{path}: variant {taken[0]!r}: the name is taken; allowed: others than {', '.join(OWN)}")
    if any(line.partition("=")[0].strip() == "seed" for variant in variants for line in variant.set):
        raise BadInputError(f'{path}: seed: allowed: as seeds = "0-2", for all or for a variant')
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadInputError(f"{path}: variant {twice!r} is there twice; allowed: names that differ")
    jobs = [job for variant in variants[: _MOST + 1] for job in jobs_of(path, found, variant)]
    if len(jobs) > _MOST:
        raise BadInputError(f"{path}: more than {_MOST} runs")
    return jobs


def _points(found: SweepFile) -> list[Variant]:
    """Return the points of the grid as variants, named by what they set."""
    if not found.grid:
        return []
    points = list(itertools.islice(itertools.product(*found.grid.values()), _MOST + 1))
    variants = []
    for values in points:
        settings = list(zip(found.grid, values, strict=True))
        name = " ".join(f"{key.rpartition('.')[2]}={_short(value)}" for key, value in settings)
        variants.append(Variant(name=name[:80], set=[f"{key}={_toml(value)}" for key, value in settings]))
    return variants


def _short(value: Any) -> str:
    if isinstance(value, dict):  # a row with settings of its own is known by its label
        value = value.get("label") or value.get("use") or [f"{key}={_short(inner)}" for key, inner in value.items()]
    text = "-".join(map(_short, value)) if isinstance(value, list) else str(value)
    return re.sub(r"[^A-Za-z0-9._=+-]", "-", text)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, default=str)  # words and numbers look the same in both


def jobs_of(path: Path, found: SweepFile, variant: Variant) -> list[SweepJob]:
    """Return the runs of a variant, one a seed."""
    base = variant.base or found.base
    if base.endswith(".toml"):
        base = str((path.parent / base).resolve())
    jobs = []
    for seed in parse_seeds(variant.seeds or found.seeds):
        config = load_config(base, [*found.set, *variant.set, f"seed={seed}"])
        jobs.append(SweepJob(variant.name, seed, config, Path(variant.name) / f"seed-{seed}"))
    return jobs


def settle(place: Path, jobs: list[SweepJob]) -> None:
    """Refuse a folder that holds anything but this sweep."""
    with storage_errors(place):
        if place.exists() and not place.is_dir():
            raise BadInputError(f"--out {place}: is a file; allowed: a new or empty folder, or this sweep's own")
        known = {job.variant for job in jobs} | set(OWN)
        found = [entry.name for entry in place.iterdir()] if place.exists() else []
        strangers = sorted(name for name in found if name not in known and not is_part(name))
        if strangers:
            raise BadInputError(f"--out {place}: holds {strangers[0]}; allowed: a new folder, or this sweep's own")
        place.mkdir(parents=True, exist_ok=True)
    drop_dead_parts(place)
    for job in jobs:
        if (place / job.place / "config.toml").is_file():
            RunFolder(place / job.place).refuse_other(job.config)
