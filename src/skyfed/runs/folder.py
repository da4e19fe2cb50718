"""A run's folder: its layout, its lock, its manifest, and writing that is whole or not at all."""

import contextlib
import hashlib
import hmac
import json
import os
import platform
import sys
import tomllib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import tomli_w

from skyfed import __version__
from skyfed.config import Config, config_from_tree, differences
from skyfed.errors import BadInputError, StorageError, one_line, printable
from skyfed.files import drop_parts, is_part, read_json_table, storage_errors, write_whole
from skyfed.runs.lock import locked
from skyfed.runs.trust import named_code, signature

FORMAT = 1  # of the folder; raised when an older version could not read it
_PACKAGES = ("torch", "numpy", "scipy", "highspy", "cvxpy", "scikit-learn", "matplotlib", "pyarrow")


class RunFolder:
    """A folder that belongs to one config; locked while in use.

    complaints  what was found damaged and made again when the folder was claimed
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.complaints: list[str] = []

    @classmethod
    @contextlib.contextmanager
    def claim(cls, path: Path, config: Config, command: Sequence[str]) -> Iterator["RunFolder"]:
        """Create or reopen the folder of this config and hold its lock; anything else there is refused."""
        folder = cls(path)
        allowed = "allowed: a new or empty folder, or this run's own"
        others = [name for name in entries(path, allowed) if name != ".lock" and not is_part(name)]
        if others and not (path / "config.toml").exists():
            raise BadInputError(f"--out {path}: not empty and not a run; {allowed}")
        refuse_links(path)
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
        """Read config.toml; what another version wrote is read, or refused with that version named."""
        known = self.manifest()
        if known.get("format", FORMAT) != FORMAT:
            raise BadInputError(
                f"{self.path}: written by skyfed {known.get('skyfed')} in format {known['format']}; "
                f"allowed: format {FORMAT}, which skyfed {__version__} reads"
            )
        try:
            config = config_from_tree(self._tree())
            rows = known.get("rows")
            for row in rows if isinstance(rows, list) else []:
                if isinstance(row, dict) and isinstance(row.get("title"), str):
                    config.show(str(row.get("label")), one_line(row["title"]), row.get("central") is True)
            return config
        except BadInputError as error:
            writer = known.get("skyfed", __version__)
            if writer == __version__:
                raise
            raise BadInputError(f"{self.path}: written by skyfed {writer}, this is {__version__}: {error}") from None

    def identity(self) -> str:
        """Return what marks this run's own checkpoints: its settings as they were written, workers and trackers aside.

        Settings that a later version adds are not in the file, so its runs keep their checkpoints.
        """
        return identity_of(self._tree())

    def manifest(self) -> dict[str, Any]:
        """Read manifest.json without control characters; empty where it is missing or damaged."""
        return {
            str(key): printable(value) for key, value in (read_json_table(self.path / "manifest.json") or {}).items()
        }

    def _tree(self) -> dict[str, Any]:
        path = self.path / "config.toml"
        with storage_errors(self.path):
            data = path.read_bytes()
        try:
            return tomllib.loads(data.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise BadInputError(f"{path}: not valid TOML: {error}") from None

    @classmethod
    def config_of(cls, path: Path) -> Config:
        """Read the config of a folder that may be no run's at all; nothing that it names is imported."""
        if not (path / "config.toml").is_file():
            raise BadInputError(f"{path}: not a run's folder (no config.toml)")
        refuse_links(path)
        config = cls(path).read_config()
        cls(path).refuse_changed()
        return config

    @classmethod
    def trusted_config(cls, path: Path, trust: bool) -> Config:
        """Read the config of a folder whose code will be run; raises BadInputError if this user did not make it.

        trust: whether the user says that it may be run all the same.
        """
        config, folder = cls.config_of(path), cls(path)
        named, signed = named_code(config), folder.manifest().get("signature")
        own = signature(folder.identity()) if named and not trust else ""
        if named and not trust and not (own and isinstance(signed, str) and hmac.compare_digest(signed, own)):
            raise BadInputError(
                f"{path}: its config runs code, and you did not make it: {', '.join(named)}; allowed: --trust"
            )
        return config

    def refuse_other(self, config: Config) -> None:
        """Raise if the folder is another config's; what changes no result (workers, track, fleet) does not matter."""
        free = ("workers:", "track.", "fleet.")
        changed = [line for line in differences(self.read_config(), config) if not line.startswith(free)]
        if changed:
            raise BadInputError(
                f"--out {self.path}: holds another run ({'; '.join(changed[:3])}); allowed: a new folder"
            )

    def refuse_changed(self) -> None:
        """Raise if config.toml is not what the run began with."""
        identity = self.identity()
        if self.manifest().get("identity", identity) != identity:
            raise BadInputError(
                f"{self.path / 'config.toml'}: not as this run began (manifest.json knows it otherwise); "
                "allowed: the config as it was, or a new folder"
            )

    def note(self, **facts: Any) -> None:
        """Add facts about a run to its manifest."""
        known = self.manifest()
        if any(known.get(key) != value for key, value in facts.items()):
            write_whole(self.path / "manifest.json", json.dumps({**known, **facts}, indent=2).encode())

    def keep_to(self, data: str) -> None:
        """Note the hash of a run's pictures when it begins; raise if it goes on with others."""
        if self.manifest().get("data", data) != data:
            raise BadInputError(
                f"{self.path}: not the pictures that it began with; allowed: the same pictures, or a new folder"
            )
        self.note(data=data)

    def flights_saved(self, vehicles: int) -> int:
        """Return how many flights are here, whoever planned them and when."""
        if (self.path / "plan.npz").exists():
            return vehicles
        return len(list((self.path / "plans").glob("vehicle-*.npz")))

    def subfolder(self, name: str) -> Path:
        """Return a folder inside, made if need be."""
        with storage_errors(self.path / name):
            (self.path / name).mkdir(parents=True, exist_ok=True)
        return self.path / name

    def _settle(self, config: Config, command: Sequence[str]) -> None:
        known = read_json_table(self.path / "manifest.json")
        if (self.path / "config.toml").exists():
            self.refuse_other(config)
        else:
            write_whole(self.path / "config.toml", config.to_toml().encode())
        self.refuse_changed()
        if named_code(config) and (signed := signature(self.identity())):
            self.note(signature=signed)
        if known is None:
            if any(path.is_dir() for path in self.path.iterdir()):  # not merely killed before it was first written
                self.complaints.append(f"{self.path / 'manifest.json'}: missing or damaged; written anew")
            self.note(**_circumstances(config, command), identity=self.identity())


def entries(place: Path, allowed: str) -> list[str]:
    """Make a folder for results unless it is there and return the names in it; refuse a file in its place."""
    with storage_errors(place):
        if place.exists() and not place.is_dir():
            raise BadInputError(f"--out {place}: is a file; {allowed}")
        place.mkdir(parents=True, exist_ok=True)
        return sorted(entry.name for entry in place.iterdir())


def refuse_links(path: Path) -> None:
    """Raise BadInputError if a run's folder has a link in it: what is behind it may be anybody's.

    W&B makes links in its own folder, of which skyfed follows none.
    """
    for place, folders, files in os.walk(path):
        for name in (*folders, *files):
            if os.path.islink(os.path.join(place, name)):
                raise BadInputError(f"{Path(place, name)}: a link; allowed in a run's folder: files and folders")
        folders[:] = [name for name in folders if (place, name) != (str(path), "wandb")]


def identity_of(tree: dict[str, Any]) -> str:
    """Return a hash of a config's settings, without workers, trackers and a fleet's patience: they change no result."""
    settings = {key: value for key, value in tree.items() if key not in ("track", "fleet")} | {"workers": 0}
    return hashlib.sha256(tomli_w.dumps(settings).encode()).hexdigest()[:16]


def run_identity(config: Config) -> str:
    """Return what marks the checkpoints of a new run of this config."""
    return identity_of(config.model_dump(mode="json", exclude_none=True))


def _circumstances(config: Config, command: Sequence[str]) -> dict[str, Any]:
    """Return what is needed to repeat a run: versions, machine, seed, command."""
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
