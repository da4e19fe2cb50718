"""Tables of a run: JSON lines while it runs, Parquet when it is done."""

import json
import os
from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, TypeVar

from skyfed.columns import Column
from skyfed.errors import BadInputError
from skyfed.files import storage_errors, write_whole
from skyfed.runs.columns import TABLES, fits, gap, misfit, named, schema

Row = dict[str, Any]
Result = TypeVar("Result")


class Table:
    """Rows that grow round by round: `name.jsonl` until `finish` turns it into `name.parquet`."""

    def __init__(self, folder: Path, name: str, further: Sequence[Column] = ()) -> None:
        """Name the table; `further` columns are those of an algorithm, which only a writer needs to know."""
        self._name, self._columns = name, named(TABLES[name], further)
        self._lines = folder / f"{name}.jsonl"
        self.parquet = folder / f"{name}.parquet"

    def append(self, rows: list[Row]) -> None:
        """Add rows and make sure they are on the disk."""
        with storage_errors(self._lines), self._lines.open("ab") as file:
            file.write(_json_lines(rows))
            file.flush()
            os.fsync(file.fileno())

    def rows(self, columns: list[str] | None = None, good: bool = False) -> list[Row]:
        """Return all rows so far, with these columns at least; a last line that was cut off is left out.

        good: whether to return the rows before a line that is no row of this table, instead of raising BadInputError.
        """
        lines = None if self.parquet.exists() else self._read_lines()
        if lines is None:  # finished, perhaps this moment: the lines go when the Parquet file is there
            return read_parquet(self.parquet, columns, self._name) if self.parquet.exists() else []
        rows: list[Row] = []
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                break
            if not fits(self._name, row):
                if good:
                    break
                raise BadInputError(f"{self._lines}: line {number} is not a row of a table of {self._name}")
            rows.append(row)
        return rows

    def _read_lines(self) -> list[bytes] | None:
        """Return the lines of a table that still grows; None where there is no such file."""
        with storage_errors(self._lines):
            try:
                return self._lines.read_bytes().splitlines()
            except FileNotFoundError:
                return None

    def keep(self, rounds: int) -> list[Row]:
        """Drop the rows of rounds from `rounds` on; return the others."""
        kept = [row for row in self.rows(good=True) if row["round"] < rounds]
        write_whole(self._lines, _json_lines(kept))
        with storage_errors(self.parquet):
            self.parquet.unlink(missing_ok=True)
        return kept

    def finish(self) -> None:
        """Write the Parquet file and remove the lines."""
        import pyarrow as pa

        _write(self.parquet, pa.Table.from_pylist(self.rows(), schema(self._columns)))
        with storage_errors(self._lines):
            self._lines.unlink(missing_ok=True)


def _json_lines(rows: list[Row]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def write_parquet(path: Path, rows: list[Row]) -> None:
    """Write rows with column types inferred from the values; a row without a column has nothing there."""
    import pyarrow as pa

    names = dict.fromkeys(name for row in rows for name in row)
    _write(path, pa.table({name: [row.get(name) for row in rows] for name in names}))


def _write(path: Path, table: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    write_whole(path, sink.getvalue().to_pybytes())


def read_parquet(path: Path, columns: list[str] | None = None, name: str | None = None) -> list[Row]:
    """Read a table, or only these columns of it; where a name is given, refuse what is not a run's table of it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        fault = misfit(name, file.schema_arrow) if name else ""
        if not fault:
            table = file.read(columns)
            fault = gap(name, table) if name else ""
    except (pa.ArrowException, OSError) as error:
        raise BadInputError(f"{path}: not a table ({error})") from None
    if fault:
        raise BadInputError(f"{path}: not a table of {name}: {fault}")
    rows: list[Row] = table.to_pylist()
    return rows


def remembered(read: Callable[[Path, str], Result]) -> Callable[[Path, str], Result]:
    """Let what is read of a run's row, by folder and label, be kept until one of the row's tables changes.

    Whoever watches a run asks every few seconds, and most rows are finished or have not begun.
    """
    kept = lru_cache(maxsize=1024)(lambda folder, label, stamp: read(folder, label))

    @wraps(read)
    def ask(folder: Path, label: str) -> Result:
        return kept(Path(folder), label, stamp(Path(folder) / label))

    return ask


def stamp(path: Path) -> tuple[tuple[str, int, int], ...]:
    """Return name, time and size of every table in a row's folder: they change when one of the tables does."""
    try:
        with os.scandir(path) as entries:
            tables = [entry for entry in entries if entry.name.endswith((".jsonl", ".parquet"))]
            return tuple(sorted((entry.name, entry.stat().st_mtime_ns, entry.stat().st_size) for entry in tables))
    except OSError:  # no such folder yet, or a table that was finished this moment
        return ()


_LEFT = ("uplink.parquet", "model.safetensors", "rounds.parquet")  # by a finished training, in the order of writing


def is_done(path: Path) -> bool:
    """Tell whether an algorithm's folder holds all that a finished training leaves."""
    return all((path / name).exists() for name in _LEFT)


def damaged(path: Path) -> list[Path]:
    """Return the files of a finished training that are there but cannot be read: cut off, or something else."""
    return [file for name in _LEFT if (file := path / name).exists() and not _readable(file)]


def set_aside(path: Path) -> list[str]:
    """Rename what cannot be read, so that it is made again; return one line per file."""
    lines = []
    for file in damaged(path):
        aside = file.with_name(f"{file.name}.damaged")
        with storage_errors(file):
            file.replace(aside)
        lines.append(f"{file}: cannot be read, kept as {aside.name}")
    return lines


def _readable(file: Path) -> bool:
    """Tell by its header whether a file is the table that it is named after, or complete safetensors."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from safetensors import SafetensorError, safe_open

    with storage_errors(file), file.open("rb") as opened:
        try:
            if file.suffix == ".parquet":
                return not misfit(file.stem, pq.read_schema(opened))
            with safe_open(file, "numpy") as tensors:
                return bool(tensors.keys())
        except (pa.ArrowException, SafetensorError):
            return False
