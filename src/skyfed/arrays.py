"""Named arrays in files and in memory that processes share, as safetensors."""

import io
import json
from math import prod
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
from safetensors.numpy import save, save_file

from skyfed.types import Arrays

_DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1", "U64": "<u8",
    "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip

_EXPANDS, _SPARE = 64, 1 << 24  # an NPZ archive may be so many times as large unpacked, and so many bytes more


def read_npz(data: bytes) -> Arrays:
    """Return the arrays of an NPZ archive; raises an error for one with objects, or that unpacks to far too much."""
    with ZipFile(io.BytesIO(data)) as archive:
        if sum(member.file_size for member in archive.infolist()) > _EXPANDS * len(data) + _SPARE:
            raise ValueError("it would take too much memory")
        for member in archive.infolist():
            with archive.open(member) as file:
                reader = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}
                shape, _, dtype = reader[np.lib.format.read_magic(file)[0]](file)
            if dtype.hasobject or prod(shape) * dtype.itemsize > member.file_size:
                raise ValueError(f"{member.filename}: not as large as it says")
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return dict(arrays)


def pack_npz(arrays: Arrays) -> bytes:
    """Return named arrays as an NPZ archive, the same bytes for the same arrays."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def pack_arrays(arrays: Arrays, about: dict[str, str] | None = None) -> bytes:
    """Return named arrays as bytes."""
    return bytes(save({name: np.asarray(array, order="C") for name, array in arrays.items()}, about))


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Write named arrays into a file."""
    save_file({name: np.asarray(array, order="C") for name, array in arrays.items()}, path)


def view_arrays(data: Any) -> tuple[Arrays, dict[str, str]]:
    """Return arrays that are views of these bytes, and what is said about them; raises ValueError for other bytes."""
    view = memoryview(data)
    length = int.from_bytes(view[:8], "little")
    if len(view) < 8 + length:
        raise ValueError("cut off")
    header = json.loads(bytes(view[8 : 8 + length]))
    if not isinstance(header, dict):
        raise ValueError("its header is no table")
    about = header.pop("__metadata__", None) or {}
    arrays: Arrays = {}
    body = view[8 + length :]
    for name, part in header.items():
        start, stop = (int(place) for place in part["data_offsets"])
        shape, dtype = tuple(int(axis) for axis in part["shape"]), np.dtype(_DTYPES[part["dtype"]])
        if not 0 <= start <= stop <= len(body) or stop - start != int(np.prod(shape, dtype=object)) * dtype.itemsize:
            raise ValueError(f"{name!r} is not where it should be")
        arrays[name] = np.frombuffer(body[start:stop], dtype).reshape(shape)
    if sum(array.nbytes for array in arrays.values()) != len(body):
        raise ValueError("bytes that belong to no array")
    return arrays, {str(key): str(value) for key, value in about.items()}


def map_arrays(path: Path) -> Arrays:
    """Return the arrays of a file without reading it; what is written to them stays in this process."""
    return view_arrays(np.memmap(path, np.uint8, mode="c"))[0] if path.stat().st_size else {}
