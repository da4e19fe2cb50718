"""Tables of a run: one line a round while it runs, Parquet when it is done."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from skyfed.columns import Column
from skyfed.errors import BadInputError
from skyfed.files import storage_errors, write_whole
from skyfed.runs.columns import TABLES, fits, gap, misfit, named, schema

Row = dict[str, Any]


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
            file.write("".join(json.dumps(row) + "\n" for row in rows).encode())
            file.flush()
            os.fsync(file.fileno())

    def rows(self, columns: list[str] | None = None) -> list[Row]:
        """Return all rows so far, with these columns at least; a last line that was cut off is left out."""
        found, strange = self._read(columns)
        if strange:
            raise BadInputError(f"{self._lines}: line {strange} is not a row of a table of {self._name}")
        return found

    def good(self) -> list[Row]:
        """Return all rows up to the first line that is none."""
        return self._read()[0]

    def _read(self, columns: list[str] | None = None) -> tuple[list[Row], int]:
        """Return the rows up to a line that was cut off or is no row of this table, and the number of the latter."""
        if self.parquet.exists():
            return read_parquet(self.parquet, columns, self._name), 0
        found: list[Row] = []
        with storage_errors(self._lines):
            lines = self._lines.read_bytes().splitlines() if self._lines.exists() else []
        for k, line in enumerate(lines):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                break
            if not fits(self._name, row):
                return found, k + 1
            found.append(row)
        return found, 0

    def keep(self, rounds: int) -> list[Row]:
        """Forget rows of rounds from `rounds` on; returns the others."""
        kept = [row for row in self.good() if row["round"] < rounds]
        write_whole(self._lines, "".join(json.dumps(row) + "\n" for row in kept).encode())
        with storage_errors(self.parquet):
            self.parquet.unlink(missing_ok=True)
        return kept

    def finish(self) -> None:
        """Write the Parquet file and remove the lines."""
        import pyarrow as pa

        rows = [{name: row.get(name) for name in self._columns} for row in self.rows()]
        _write(self.parquet, pa.Table.from_pylist(rows, schema(self._columns)))
        with storage_errors(self._lines):
            self._lines.unlink(missing_ok=True)


def write_parquet(path: Path, rows: list[Row]) -> None:
    """Write rows whose columns show their own kinds; a row without a column has nothing there."""
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
    """Read a table, whole or only these columns; refuse what is not the run's table of this name, if one is given."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        if name:
            _refuse(path, name, misfit(name, file.schema_arrow))
        table = file.read(columns)
    except (pa.ArrowException, OSError) as error:
        raise BadInputError(f"{path}: not a table ({error})") from None
    if name:
        _refuse(path, name, gap(name, table))
    rows: list[Row] = table.to_pylist()
    return rows


def _refuse(path: Path, name: str, wrong: str) -> None:
    if wrong:
        raise BadInputError(f"{path}: not a table of {name}: {wrong}")


_LEFT = ("uplink.parquet", "model.safetensors", "rounds.parquet")  # by a finished training; the last comes last


def is_done(path: Path) -> bool:
    """Tell whether an algorithm's folder holds all that a finished training leaves."""
    return all((path / name).exists() for name in _LEFT)


def damaged(path: Path) -> list[Path]:
    """Return the files of a finished training that are there but cannot be read: cut off, or something else."""
    return [file for name in _LEFT if (file := path / name).exists() and not _readable(file)]


def set_aside(path: Path) -> list[str]:
    """Rename what cannot be read, so that it is made again; returns a line for each."""
    said = []
    for file in damaged(path):
        aside = file.with_name(f"{file.name}.damaged")
        with storage_errors(file):
            file.replace(aside)
        said.append(f"{file}: cannot be read, kept as {aside.name}")
    return said


def _readable(file: Path) -> bool:
    """Tell whether a file is of its kind: a table with its columns, or a safetensors header and what it promises."""
    if file.suffix == ".parquet":
        return _is_table(file)
    with storage_errors(file), file.open("rb") as opened:
        size = opened.seek(0, os.SEEK_END)
        opened.seek(0)
        length = int.from_bytes(opened.read(8), "little")
        if size < 8 + length:
            return False
        try:
            header = json.loads(opened.read(length))
            ends = [int(part["data_offsets"][1]) for name, part in header.items() if name != "__metadata__"]
            return 8 + length + max(ends) == size
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return False


def _is_table(file: Path) -> bool:
    """Tell whether a Parquet file has the columns of the table it is named after; its rows are not read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with storage_errors(file), file.open("rb") as opened:
        try:
            return not misfit(file.stem, pq.read_schema(opened))
        except pa.ArrowException:
            return False
