"""A field of the user's own: centres, sample positions or psi from CSV and NPZ files.

CSV, with a header; which kind it is follows from the columns (`vehicle` is optional everywhere, all share it without):
  clusters   class, x, y, deviation [, weight]     one row per class
  samples    class, x, y                           one row per picture; clusters are then fitted by moments
  psi        round, class, psi                     one row per round and class; columns are normalised
NPZ: any of `centres` (C,2)|(U,C,2), `deviations` (C,)|(U,C), `weights` (C,)|(U,C), `psi` (C,T)|(U,C,T).
"""

import csv
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from skyfed.arrays import read_npz
from skyfed.errors import BadInputError
from skyfed.field.mixture import fit_moments
from skyfed.types import Bools, Floats, Ints

_NUMBERS = {"vehicle", "class", "round", "x", "y", "deviation", "weight", "psi"}
_WHOLE = ("vehicle", "class", "round")
_KINDS = {
    "psi": {"round", "class", "psi"},
    "clusters": {"class", "x", "y", "deviation"},
    "samples": {"class", "x", "y"},
}


def read_survey(paths: Iterable[str], vehicles: int, classes: int, rounds: int) -> dict[str, Floats]:
    """Return the arrays that the files hold, each shaped for the whole fleet; a later file overrides an earlier one.

    Raises BadInputError with file and line.
    """
    shapes = {"centres": (classes, 2), "deviations": (classes,), "weights": (classes,), "psi": (classes, rounds)}
    survey: dict[str, Floats] = {}
    for name in paths:
        path = Path(name)
        if path.exists() and not path.is_file() and not path.is_dir():
            raise BadInputError(f"field.file = {name!r}: not a file")  # a device or a pipe may never end
        try:
            part = (
                _read_npz(path, list(shapes)) if path.suffix == ".npz" else _read_csv(path, vehicles, classes, rounds)
            )
        except OSError as error:
            raise BadInputError(f"field.file = {name!r}: {error.strerror or error}") from None
        except (ValueError, csv.Error) as error:
            raise BadInputError(f"field.file = {name!r}: {error}") from None
        survey |= {key: _shaped(name, key, array, vehicles, shapes[key]) for key, array in part.items()}
    if ("centres" in survey) != ("deviations" in survey):
        raise BadInputError("field.file: centres and deviations come together; one of them is missing")
    return survey


def _shaped(name: str, key: str, array: Floats, vehicles: int, shape: tuple[int, ...]) -> Floats:
    where = f"field.file = {name!r}: {key}"
    if array.shape not in (shape, (vehicles, *shape)):
        raise BadInputError(f"{where} has shape {array.shape}; allowed: {shape} or {(vehicles, *shape)}")
    if not np.isfinite(array).all():
        raise BadInputError(f"{where} holds a number that is not finite")
    if key in ("deviations", "weights") and (array <= 0).any():
        raise BadInputError(f"{where} must be above 0")
    full = np.array(np.broadcast_to(array, (vehicles, *shape)))
    if key == "weights":
        full /= full.sum(axis=1, keepdims=True)
    if key == "psi":
        total = full.sum(axis=1, keepdims=True)
        if (full < 0).any() or (total <= 0).any():
            raise BadInputError(f"{where} must be 0 or more, and above 0 for some class in every round")
        full /= total
    return full


def _read_npz(path: Path, known: list[str]) -> dict[str, Floats]:
    data = path.read_bytes()
    try:
        if data.startswith(b"\x93NUMPY"):
            raise ValueError("not an NPZ archive but a single array")
        arrays = read_npz(data)
        unknown = sorted(set(arrays) - set(known))
        if unknown:
            raise ValueError(f"unknown array {unknown[0]!r}; allowed: {', '.join(known)}")
        for key, array in arrays.items():
            if array.dtype.kind not in "biuf":
                raise ValueError(f"{key} holds {array.dtype}; allowed: numbers")
    except ValueError:
        raise
    except Exception as error:  # a damaged archive fails in zipfile, zlib, numpy or for want of memory
        raise ValueError(f"not an NPZ archive ({error})") from None
    return {key: array.astype(np.float64) for key, array in arrays.items()}


def _read_csv(path: Path, vehicles: int, classes: int, rounds: int) -> dict[str, Floats]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        columns = {column.strip().lower() for column in reader.fieldnames or []}
        if not columns <= _NUMBERS:
            raise ValueError(
                f"unknown column {sorted(columns - _NUMBERS)[0]!r}; allowed: {', '.join(sorted(_NUMBERS))}"
            )
        kind = next((kind for kind, needed in _KINDS.items() if needed <= columns), None)
        if kind is None:
            raise ValueError(f"columns {', '.join(sorted(columns)) or 'none'}; allowed: " + "; or ".join(
                ", ".join(sorted(needed)) for needed in _KINDS.values()))  # fmt: skip
        top = {"vehicle": vehicles, "class": classes, "round": rounds}
        rows = [_numbers(raw, reader.line_num, top) for raw in reader]
    if not rows:
        raise ValueError("no rows")
    table = {column: np.array([row[column] for row in rows]) for column in columns}
    fleet = vehicles if "vehicle" in columns else 1
    vehicle = table.get("vehicle", np.zeros(len(rows))).astype(int)
    label = table["class"].astype(int)
    if kind == "psi":
        where = (vehicle, label, table["round"].astype(int))
        arrays = {"psi": _spread(table["psi"], where, (fleet, classes, rounds), "psi")}
    elif kind == "clusters":
        values = {"centres": np.stack([table["x"], table["y"]], axis=1)}
        values |= {f"{column}s": table[column] for column in sorted(columns & {"deviation", "weight"})}
        arrays = {key: _spread(each, (vehicle, label), (fleet, classes), "row") for key, each in values.items()}
    else:
        places = np.stack([table["x"], table["y"]], axis=1)
        fits = [fit_moments(places[vehicle == u], label[vehicle == u], classes) for u in range(fleet)]
        arrays = {key: np.stack([getattr(fit, key) for fit in fits]) for key in ("centres", "deviations", "weights")}
    return arrays if "vehicle" in columns else {key: array[0] for key, array in arrays.items()}


def _spread(values: Floats, where: tuple[Ints, ...], shape: tuple[int, ...], what: str) -> Floats:
    """Put the rows' values where they belong; raises ValueError unless every place has exactly one row."""
    counts = np.zeros(shape, int)
    np.add.at(counts, where, 1)
    if counts.max() > 1:
        raise ValueError(f"{counts.max()} rows for {_place(counts > 1)}; allowed: one")
    if not counts.all():
        raise ValueError(f"no {what} for {_place(counts == 0)}")
    array = np.empty(shape + values.shape[1:])
    array[where] = values
    return array


def _place(wrong: Bools) -> str:
    """Name the first place that is wrong."""
    return ", ".join(f"{name} {number}" for name, number in zip(_WHOLE, np.argwhere(wrong)[0], strict=False))


def _numbers(raw: dict[str, str], line: int, top: dict[str, int]) -> dict[str, float]:
    row: dict[str, float] = {}
    for column, text in raw.items():
        if column is None:
            raise ValueError(f"line {line}: more cells than columns")
        key = column.strip().lower()
        try:
            row[key] = float(text)
        except (TypeError, ValueError):
            raise ValueError(f"line {line}: {key} = {text!r} is not a number") from None
        if not np.isfinite(row[key]):
            raise ValueError(f"line {line}: {key} = {text!r} is not finite")
        if key in _WHOLE and not (row[key].is_integer() and 0 <= row[key] < top[key]):
            raise ValueError(f"line {line}: {key} = {text!r}; allowed: whole numbers 0 to {top[key] - 1}")
    return row
