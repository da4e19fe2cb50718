"""Compare what two runs left in their folders, bit by bit; files are read as they are, without skyfed's readers.

Everything has the names of the frozen configs' time ("old" names). `Renames` says what a tree calls it now.
"""

import fnmatch
import json
import math
import re
import struct
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pyarrow.parquet as pq
from safetensors import SafetensorError
from safetensors.numpy import load_file

Table = dict[str, list[Any]]
Arrays = dict[str, np.ndarray]
Names = Mapping[str, Sequence[str]]

TABLES = ("uplink", "rounds", "theory")
MEASURED = {"plan": ("seconds",), "rounds": ("seconds",), "uplink": ("measured_seconds", "measured_cpu_seconds")}
KEYS = ("round", "vehicle")  # which row is which
_LONGEST = 60


class BadFileError(Exception):
    """A file of this folder is not as it must be; the message is one line."""


@dataclass(frozen=True)
class Rewrite:
    """A setting's value, or one entry of it if it is a list, that is now written in another way."""

    key: str
    old: Any
    new: Any


@dataclass(frozen=True)
class Renames:
    """What a tree calls by another name than the frozen configs do (renames.toml).

    columns   table: {old: new}; tables are plan, model, rounds, uplink, theory
    missing   table: columns that need not be there any more
    measured  table: further columns that hold measured times, by the tree's own name
    files     {old: new} paths inside a run; * stands for one part, a folder takes what is in it along
    settings  {old key: new key}; an empty new key drops the setting
    values    settings whose values are rewritten, by their old keys
    """

    columns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    missing: Names = field(default_factory=dict)
    measured: Names = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    values: tuple[Rewrite, ...] = ()

    def path(self, name: str) -> str:
        """Return where a file of this old name lies inside a run."""
        for old, new in self.files.items():
            parts = [re.escape(part) for part in old.strip("/").split("*")]
            found = re.fullmatch("([^/]+)".join(parts) + "(/.*)?", name)
            if found:
                *stars, rest = found.groups()
                pieces = new.strip("/").split("*")
                return "".join(a + b for a, b in zip(pieces, [*stars, ""], strict=True)) + (rest or "")
        return name

    def config(self, frozen: Mapping[str, Any]) -> dict[str, Any]:
        """Return a frozen config as this tree reads it."""
        found: dict[str, Any] = {}
        for key, value in _leaves(frozen):
            for rewrite in self.values:
                if rewrite.key == key:
                    value = _rewritten(value, rewrite)
            *tables, last = self.settings.get(key, key).split(".")
            if not last:
                continue
            place = found
            for table in tables:
                place = place.setdefault(table, {})
            place[last] = value
        return found

    def old_names(self, kind: str, content: dict[str, Any]) -> dict[str, Any]:
        """Return columns or arrays by their old names."""
        renamed = self.columns.get(kind, {})
        kept = {name: values for name, values in content.items() if name not in renamed.values()}
        return kept | {old: content[new] for old, new in renamed.items() if new in content}

    def ignored(self, kind: str) -> set[str]:
        """Return the old names of what holds measured times."""
        back = {new: old for old, new in self.columns.get(kind, {}).items()}
        return {*MEASURED.get(kind, ()), *(back.get(name, name) for name in self.measured.get(kind, ()))}


@dataclass(frozen=True)
class Folder:
    """A run's folder and what its tree calls things."""

    path: Path
    renames: Renames = field(default_factory=Renames)

    def file(self, name: str) -> Path:
        """Return the file of this old name."""
        return self.path / self.renames.path(name)


@dataclass(frozen=True)
class Found:
    """The first place where a column differs, both values as text, and in how many places it does."""

    column: str
    where: str
    old: str
    new: str
    count: int = 1


@dataclass(frozen=True)
class Difference:
    """What differs between two folders of a run."""

    run: str
    file: str
    found: Found

    def __str__(self) -> str:
        found = self.found
        place = ", ".join(part for part in (found.column, found.where) if part)
        more = f" (and {found.count - 1} more)" if found.count > 1 else ""
        return ": ".join(part for part in (self.run, self.file, place, f"{found.old} -> {found.new}{more}") if part)


@dataclass(frozen=True)
class Intended:
    """A change that is meant: it is reported and does not fail. run, file and column may hold * and ?."""

    run: str
    file: str
    column: str
    reason: str
    but: str = ""  # a run that it does not cover

    def covers(self, difference: Difference) -> bool:
        """Tell whether this is the reason for a difference."""
        pairs = ((difference.run, self.run), (difference.file, self.file), (difference.found.column, self.column))
        covered = all(fnmatch.fnmatchcase(name, pattern) for name, pattern in pairs)
        return covered and not fnmatch.fnmatchcase(difference.run, self.but)


def compare_runs(run: str, algorithms: Iterable[str], old: Folder, new: Folder) -> list[Difference]:
    """Return what differs in the plan, the tables and the models of two folders; an algorithm's early rounds first."""
    found = list(_compare_named(["plan.npz"], old, new))
    for algorithm in algorithms:
        if not any(old.file(f"{algorithm}/rounds.{suffix}").exists() for suffix in ("parquet", "jsonl")):
            found.append((f"{algorithm}/rounds.parquet", Found("", "", "no table of rounds", "nothing to compare")))
            continue
        tables = [f"{algorithm}/{table}.{suffix}" for table in TABLES for suffix in ("parquet", "jsonl")]
        found += sorted(_compare_named([*tables, f"{algorithm}/model.safetensors"], old, new), key=_round)
    return [Difference(run, name, each) for name, each in found]


def _compare_named(names: Iterable[str], old: Folder, new: Folder) -> Iterator[tuple[str, Found]]:
    """Yield what differs between files of these old names, and which of them only one folder has."""
    for name in names:
        here, there = old.file(name).exists(), new.file(name).exists()
        if here and there:
            yield from ((name, each) for each in compare_files(name, old, new))
        elif here:
            yield name, Found("", "", "there", "missing")
        elif there and not name.endswith("theory.parquet"):  # a further table is fine, a run that ended otherwise not
            yield name, Found("", "", "missing", "there")


def _round(difference: tuple[str, Found]) -> float:
    """Return the round in which a column first differs, which shows where it began; what has no round comes last."""
    found = re.match(r"round (\d+)", difference[1].where)
    return int(found[1]) if found else math.inf


def compare_files(name: str, old: Folder, new: Folder) -> Iterator[Found]:
    """Yield what differs between two files of this old name."""
    kind = Path(name).stem
    ignored = old.renames.ignored(kind) | new.renames.ignored(kind)
    gone = set(new.renames.missing.get(kind, ()))
    try:
        left, right = (side.renames.old_names(kind, read(side.file(name))) for side in (old, new))
    except (OSError, ValueError, TypeError, AttributeError, BadZipFile, SafetensorError) as error:
        raise BadFileError(f"{name}: {' '.join(str(error).split())}") from None
    left = {column: values for column, values in left.items() if column not in ignored}
    for column in left:
        if column not in right and column not in gone:
            yield Found(column, "", "there", "missing")
    left = {column: values for column, values in left.items() if column in right}
    yield from compare_arrays(left, right) if name.endswith((".npz", ".safetensors")) else compare_tables(left, right)


def read(path: Path) -> dict[str, Any]:
    """Read a file: arrays of .npz and .safetensors, lists of .parquet and .jsonl."""
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    if path.suffix == ".safetensors":
        return dict(load_file(path))
    if path.suffix == ".parquet":
        return dict(pq.ParquetFile(path).read().to_pydict())
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {name: [row.get(name) for row in rows] for name in dict.fromkeys(name for row in rows for name in row)}


def compare_tables(old: Table, new: Table) -> Iterator[Found]:
    """Yield what differs in the columns of `old`: missing rows, other rows, another order, then values."""
    here, there = _labels(old, new), _labels(new, old)
    gone, more = [row for row in here if row not in there], [row for row in there if row not in here]
    if gone:
        yield Found("(rows)", gone[0], "there", "missing", len(gone))
    if more:
        yield Found("(rows)", more[0], "missing", "there", len(more))
    common = [row for row in here if row in there]
    turned = [(a, b) for a, b in zip(common, (row for row in there if row in here), strict=True) if a != b]
    if turned:
        yield Found("(order)", "", *turned[0], len(turned))
    for column, values in old.items():
        pairs = [(row, values[here[row]], new[column][there[row]]) for row in common]
        unequal = [pair for pair in pairs if not same(*pair[1:])]
        if unequal:
            row, left, right = unequal[0]
            yield Found(column, row, _text(left), _text(right), len(unequal))


def compare_arrays(old: Arrays, new: Arrays) -> Iterator[Found]:
    """Yield what differs in the arrays of `old`: kind, shape, then values."""
    for name, a in old.items():
        b = new[name]
        kinds = ["text" if each.dtype.kind == "U" else str(each.dtype) for each in (a, b)]  # of whatever length
        if kinds[0] != kinds[1] or a.shape != b.shape:
            yield Found(name, "", f"{kinds[0]} {a.shape}", f"{kinds[1]} {b.shape}")
            continue
        unequal = np.argwhere(_unequal(a, b))
        if len(unequal):
            place = tuple(int(k) for k in unequal[0])
            where = f"[{', '.join(map(str, place))}]" if place else ""
            yield Found(name, where, _text(a[place].item()), _text(b[place].item()), len(unequal))


def same(a: Any, b: Any) -> bool:
    """Tell whether two values of a table are the same: of one kind, floats bit by bit, NaN the same as NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return struct.pack("<d", a) == struct.pack("<d", b) or (a != a and b != b)
    if isinstance(a, list):
        return len(a) == len(b) and all(same(*pair) for pair in zip(a, b, strict=True))
    return bool(a == b)


def read_renames(text: str, name: str = "renames.toml") -> Renames:
    """Read renames.toml; raises BadFileError for what it cannot hold."""
    tree = _tree(text, name, ("columns", "missing", "measured", "files", "settings", "values"))
    try:
        values = tuple(Rewrite(each["key"], each["old"], each["new"]) for each in tree.pop("values", []))
        found = Renames(**tree, values=values)
        for old, new in found.files.items():
            if old.count("*") != new.count("*"):
                raise BadFileError(f"{name}: files: {old!r} -> {new!r}: allowed: as many * on either side")
        names = [found.columns, found.missing, found.measured]
        if any(table not in ("plan", "model", *TABLES) for each in names for table in each):
            raise BadFileError(f"{name}: allowed tables: plan, model, {', '.join(TABLES)}")
    except (KeyError, TypeError, AttributeError) as error:
        raise BadFileError(f"{name}: {type(error).__name__}: {error}") from None
    return found


def read_intended(text: str, name: str = "intended.toml") -> list[Intended]:
    """Read intended.toml; raises BadFileError for what it cannot hold."""
    try:
        return [Intended(**each) for each in _tree(text, name, ("change",)).get("change", [])]
    except TypeError as error:
        raise BadFileError(f"{name}: {error}; allowed: run, file, column, reason, but") from None


def _tree(text: str, name: str, allowed: Sequence[str]) -> dict[str, Any]:
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadFileError(f"{name}: not valid TOML: {error}") from None
    strange = [key for key in tree if key not in allowed]
    if strange:
        raise BadFileError(f"{name}: {strange[0]}; allowed: {', '.join(allowed)}")
    return tree


def _labels(table: Table, other: Table) -> dict[str, int]:
    """Name the rows by what both tables count them by, or by their number where that names a row twice."""
    count = len(next(iter(table.values()), []))
    keys = [key for key in KEYS if key in table and key in other]
    for used in (keys, []):
        named = {", ".join(f"{key} {table[key][k]}" for key in used) or f"row {k}": k for k in range(count)}
        if len(named) == count:
            return named
    raise AssertionError("rows are numbered")


def _unequal(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind != "f":
        return np.asarray(a != b)
    bits = f"u{a.dtype.itemsize}"
    left, right = (np.ascontiguousarray(each).view(bits).reshape(each.shape) for each in (a, b))
    return np.asarray((left != right) & ~(np.isnan(a) & np.isnan(b)))


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _rewritten(value: Any, rewrite: Rewrite) -> Any:
    if isinstance(value, list) and not isinstance(rewrite.old, list):
        return [rewrite.new if same(each, rewrite.old) else each for each in value]
    return rewrite.new if same(value, rewrite.old) else value


def _text(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= _LONGEST else shown[: _LONGEST - 3] + "..."
