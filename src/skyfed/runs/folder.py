"""A run's folder: its layout, its lock, its manifest, and writing that is whole or not at all."""

import contextlib
import fcntl
import json
import os
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from skyfed import __version__
from skyfed.config import Config, config_from_tree, differences
from skyfed.errors import BadInputError, StorageError
from skyfed.files import drop_parts, is_part, storage_errors, write_whole

FORMAT = 1  # of the folder; raised when an older version could not read it
_PACKAGES = ("torch", "numpy", "scipy", "highspy", "cvxpy", "scikit-learn", "matplotlib", "pyarrow")


class RunFolder:
    """A folder that belongs to one config; locked while in use."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    @contextlib.contextmanager
    def claim(cls, path: Path, config: Config, command: Sequence[str]) -> Iterator["RunFolder"]:
        """Create or reopen the folder of this config and hold its lock; anything else there is refused."""
        folder = cls(path)
        with storage_errors(path):
            if path.exists() and not path.is_dir():
                raise BadInputError(f"--out {path}: is a file; allowed: a new or empty folder, or this run's own")
            path.mkdir(parents=True, exist_ok=True)
            others = [entry for entry in path.iterdir() if not _ours(entry.name)]
            if others and not (path / "config.toml").exists():
                raise BadInputError(
                    f"--out {path}: not empty and not a run; allowed: a new or empty folder, or this run's own"
                )
        with locked(path):
            drop_parts(path)
            folder._settle(config, command)
            folder.note(failed=None)
            try:
                yield folder
            except Exception as error:
                with contextlib.suppress(StorageError):  # the disk may be what failed
                    folder.note(failed=str(error) or type(error).__name__)
                raise

    def read_config(self) -> Config:
        """Read config.toml."""
        import tomllib

        with storage_errors(self.path):
            data = (self.path / "config.toml").read_bytes()
        try:
            return config_from_tree(tomllib.loads(data.decode("utf-8")))
        except (ValueError, RecursionError) as error:
            raise BadInputError(f"{self.path / 'config.toml'}: not valid TOML: {error}") from None

    @classmethod
    def config_of(cls, path: Path) -> Config:
        """Read the config of a folder that may be no run's at all."""
        if not (path / "config.toml").is_file():
            raise BadInputError(f"{path}: not a run's folder (no config.toml)")
        return cls(path).read_config()

    def refuse_other(self, config: Config) -> None:
        """Raise if the folder is another config's; what changes no result (workers, track, fleet) does not matter."""
        free = ("workers:", "track.", "fleet.")
        changed = [line for line in differences(self.read_config(), config) if not line.startswith(free)]
        if changed:
            raise BadInputError(
                f"--out {self.path}: holds another run ({'; '.join(changed[:3])}); allowed: a new folder"
            )

    def note(self, **facts: Any) -> None:
        """Add what was learnt about a run to its manifest."""
        path = self.path / "manifest.json"
        try:
            known = json.loads(path.read_bytes())
        except (OSError, ValueError):
            known = {}
        if any(known.get(key) != value for key, value in facts.items()):
            write_whole(path, json.dumps({**known, **facts}, indent=2).encode())

    def subfolder(self, name: str) -> Path:
        """Return a folder inside, made if need be."""
        with storage_errors(self.path / name):
            (self.path / name).mkdir(parents=True, exist_ok=True)
        return self.path / name

    def _settle(self, config: Config, command: Sequence[str]) -> None:
        if (self.path / "config.toml").exists():
            self.refuse_other(config)
        else:
            write_whole(self.path / "config.toml", config.to_toml().encode())
        if not (self.path / "manifest.json").exists():
            write_whole(self.path / "manifest.json", json.dumps(manifest(config, command), indent=2).encode())


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a folder's lock; raises StorageError if another process has it."""
    with storage_errors(path):
        descriptor = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        for wait in (0.02, 0.05, 0.1, None):  # somebody may only be asking whether the folder is in use
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if wait is None:
                    raise StorageError(f"{path}: in use by another process") from None
                time.sleep(wait)
        yield
    finally:
        os.close(descriptor)  # the kernel frees the lock, as it does when a process is killed


def in_use(path: Path) -> bool:
    """Tell whether a process holds a folder's lock."""
    try:
        descriptor = os.open(path / ".lock", os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    finally:
        os.close(descriptor)
    return False


def _ours(name: str) -> bool:
    """Tell what a process that was killed while it settled in may have left."""
    return name == ".lock" or is_part(name)


def manifest(config: Config, command: Sequence[str]) -> dict[str, Any]:
    """What one needs to know to repeat a run: versions, machine, seed, command."""
    versions = {}
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return {
        "format": FORMAT,
        "skyfed": __version__,
        "python": platform.python_version(),
        "packages": versions,
        "system": platform.platform(),
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "seed": config.seed,
        "command": ["skyfed", *command],
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _cpu_name() -> str:
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or sys.platform
