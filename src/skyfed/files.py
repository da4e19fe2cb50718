"""Writing that is whole or not at all, storage errors that name the file, and paths from a user's home."""

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from skyfed.errors import BadInputError, StorageError

_PART = ".part"  # ends the name of a file that is being written
_NODE = re.sub(r"[^A-Za-z0-9-]", "-", os.uname().nodename)  # process numbers are a node's own; folders may be shared


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn an operating system's error into a StorageError that names the path."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{error.filename or path}: {error.strerror or error}") from error


def from_home(path: str, instead: str = "a path without ~") -> Path:
    """Return a path with ~ replaced by the home folder it stands for; raises BadInputError where none is known."""
    try:
        return Path(path).expanduser()
    except RuntimeError:  # no HOME, and a user without an entry in the system's list
        raise BadInputError(f"{path}: the home folder is not known; allowed: {instead}, or set HOME") from None


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give the name of a file to write, which then takes the place of `path`.

    Readers see the old file or the new one, never a part; so it is after a loss of power.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}-{_NODE}{_PART}")
    with storage_errors(path):
        try:
            yield part
            _settle(part)
            os.replace(part, path)
            _settle(path.parent)
        except BaseException:
            with contextlib.suppress(OSError):
                part.unlink()
            raise


def make_private(folder: Path) -> None:
    """Take everybody else's rights from a folder and all that is in it; links are not followed."""
    with storage_errors(folder):
        folder.chmod(0o700)
        for place, folders, files in os.walk(folder):
            for name in (*folders, *files):
                path = Path(place, name)
                if not path.is_symlink():
                    path.chmod(path.stat().st_mode & 0o700)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    with replacing(path) as part:
        part.write_bytes(data)


def read_json_table(path: Path) -> dict[str, Any] | None:
    """Read a JSON object; None where the file is missing, damaged or holds something else."""
    try:
        tree = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return tree if isinstance(tree, dict) else None


def drop_parts(folder: Path) -> None:
    """Remove what killed processes left half written below a folder that nobody else writes to."""
    with storage_errors(folder):
        for part in folder.rglob(f".*{_PART}"):
            part.unlink(missing_ok=True)


def drop_dead_parts(folder: Path) -> None:
    """Remove what killed processes of this node left half written in a folder that others may be writing to."""
    with storage_errors(folder):
        for part in folder.glob(f".*{_PART}"):
            writer, _, node = part.name.split(".")[-2].partition("-")
            if writer.isdecimal() and node in ("", _NODE) and not _lives(int(writer)):
                part.unlink(missing_ok=True)


def is_part(name: str) -> bool:
    """Tell a file that was being written."""
    return name.startswith(".") and name.endswith(_PART)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (OSError, OverflowError) as error:
        return isinstance(error, PermissionError)  # another user's
    return True


def _settle(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
