"""Checkpoints: the state of an algorithm's row after a round; written whole, checked when read, the last three kept.

A checkpoint holds the station's state and the world's. Vehicles' memories are in files of their own, one per vehicle,
written only when they have changed. A checkpoint names the ones that belong to it.
"""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from skyfed.arrays import pack_arrays, view_arrays
from skyfed.errors import BadInputError
from skyfed.files import storage_errors, write_whole
from skyfed.types import Arrays, Singles

FORMAT, FIRST = "2", "1"  # FIRST holds a model alone: checkpoints of version 0.1.0, and what is saved in the end
_KEPT = 3
_STATE, _WORLD = "state/", "world/"
_NAME = re.compile(r"(?:round|memory-\d+)-(\d+)")  # of a file, without its suffix


@dataclass(frozen=True)
class Saved:
    """The state of a row after a round; empty before the first one.

    world       named arrays of the world; None in checkpoints of version 0.1.0
    memories    of the vehicles that have any
    kept        the round in which each of these was written
    complaints  one line per newer checkpoint that is damaged
    """

    round: int = -1
    state: Arrays = field(default_factory=dict)
    world: Arrays | None = field(default_factory=dict)
    memories: dict[int, Arrays] = field(default_factory=dict)
    kept: dict[int, int] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)

    @property
    def first(self) -> int:
        """The next round."""
        return self.round + 1


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one row in a folder of their own; `run` and `label` say whose they are."""

    folder: Path
    run: str
    label: str

    def about(self, round: int, **more: str) -> dict[str, str]:
        """Return the description of what is saved after a round."""
        return {"run": self.run, "algorithm": self.label, "round": str(round), **more}

    def save(self, round: int, state: Arrays, world: Arrays, kept: dict[int, int]) -> None:
        """Write the state of the row after `round` and drop what is no longer needed; memories were written before."""
        arrays = {_STATE + name: array for name, array in state.items()}
        arrays |= {_WORLD + name: array for name, array in world.items()}
        about = self.about(round, memories=json.dumps(kept))
        write_whole(self.folder / f"round-{round:05d}.safetensors", _pack(arrays, about, FORMAT))
        with storage_errors(self.folder):
            for old in self._in_order()[:-_KEPT]:
                old.unlink()
            if memories := set(self.folder.glob("memory-*.safetensors")):
                named = {self._memory(*pair) for path in self._in_order() for pair in _named(path).items()}
                for path in memories - named:
                    path.unlink()

    def save_memory(self, vehicle: int, round: int, memory: Arrays) -> None:
        """Write a vehicle's memory as it is after a round."""
        write_whole(self._memory(vehicle, round), _pack(memory, self.about(round, vehicle=str(vehicle)), FORMAT))

    def drop(self, after: int) -> None:
        """Remove checkpoints and memories of later rounds: they are damaged, or those rounds will be trained again."""
        with storage_errors(self.folder):
            for path in self.folder.glob("*.safetensors"):
                if _round_of(path) > after:
                    path.unlink()

    def last(self, start: Arrays, live: Callable[[Singles], Singles], whole: int, vehicles: int) -> Saved:
        """Return the newest good checkpoint of a row that started from `start`.

        live      picks the weights with a gradient from all `whole` weights, which version 0.1.0 saved
        vehicles  the number of vehicles that a saved agreement must have
        """
        complaints: list[str] = []
        for path in reversed(self._in_order()):
            try:
                arrays, about = _unpack(path, (FORMAT, FIRST), self.about(_round_of(path)))
                world = None
                if about["format"] == FIRST:
                    if len(arrays["weights"]) != whole:
                        raise BadInputError(f"{path}: holds a model of another size")
                    state = {"weights": live(arrays["weights"]), "buffers": arrays["buffers"]}
                    state |= _agreement(path, about, vehicles)
                else:
                    state, world = _part(arrays, _STATE), _part(arrays, _WORLD)
                if any(name not in state or state[name].shape != array.shape for name, array in start.items()):
                    raise BadInputError(f"{path}: holds a model of another size")
                kept = _kept(path, about)
                memories = {
                    u: _unpack(self._memory(u, t), (FORMAT,), self.about(t, vehicle=str(u)))[0] for u, t in kept.items()
                }
                return Saved(int(about["round"]), state, world, memories, kept, complaints)
            except BadInputError as error:
                complaints.append(str(error))
        return Saved(complaints=complaints)

    def _memory(self, vehicle: int, round: int) -> Path:
        return self.folder / f"memory-{vehicle:05d}-{round:05d}.safetensors"

    def _in_order(self) -> list[Path]:
        paths = self.folder.glob("round-*.safetensors")
        return sorted((path for path in paths if _round_of(path) >= 0), key=_round_of)


def pack_model(weights: Singles, buffers: Singles, about: dict[str, str]) -> bytes:
    """Pack a model as safetensors with its description and a hash over both."""
    return _pack({"weights": weights, "buffers": buffers}, about, FIRST)


def unpack_model(path: Path) -> tuple[Singles, Singles, dict[str, str]]:
    """Read what `pack_model` wrote; raises BadInputError for anything damaged."""
    arrays, about = _unpack(path, (FIRST,))
    return arrays["weights"], arrays["buffers"], about


def _pack(arrays: Arrays, about: dict[str, str], form: str) -> bytes:
    about = {**about, "format": form}
    about["sha256"] = _hash(arrays, about)
    # one entry, since safetensors writes several in no fixed order
    return pack_arrays(arrays, {"about": json.dumps(about, sort_keys=True)})


def _unpack(path: Path, forms: Sequence[str], wanted: dict[str, str] | None = None) -> tuple[Arrays, dict[str, str]]:
    """Read arrays and their description, which must say what is `wanted`; or raise BadInputError."""
    try:
        arrays, header = view_arrays(path.read_bytes())
        about = json.loads(header["about"])
        if not isinstance(about, dict):
            raise TypeError("its description is no table")
    except (OSError, KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise BadInputError(f"{path}: not a checkpoint ({error})") from None
    if about.get("format") not in forms:
        raise BadInputError(
            f"{path}: written in format {about.get('format')}, this version reads {' and '.join(forms)}"
        )
    hashed = about.pop("sha256", None)
    flat = about["format"] != FIRST or (
        arrays.keys() == {"weights", "buffers"}
        and all(array.dtype == np.float32 and array.ndim == 1 for array in arrays.values())
    )
    if not flat or hashed != _hash(arrays, about):
        raise BadInputError(f"{path}: damaged (its hash differs)")
    for key, value in (wanted or {}).items():
        if about.get(key) != value:
            raise BadInputError(f"{path}: belongs to another {key} ({about.get(key)}, not {value})")
    return {name: array.copy() for name, array in arrays.items()}, about


def _part(arrays: Arrays, prefix: str) -> Arrays:
    """Return the arrays whose names begin with a prefix, by their names without it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _agreement(path: Path, about: dict[str, str], vehicles: int) -> Arrays:
    """Read who has agreed with whom, in the form of version 0.1.0; nothing where aggregation did not ask."""
    if "agreement" not in about:
        return {}
    try:
        agreement = np.frombuffer(base64.b64decode(about["agreement"], validate=True))
        if not np.isfinite(agreement).all():
            raise ValueError("a number is not finite")
        return {"agreement": agreement.reshape(2, vehicles, vehicles).copy()}
    except (ValueError, TypeError):
        raise BadInputError(f"{path}: its agreement is not one of {vehicles} vehicles") from None


def _kept(path: Path, about: dict[str, str]) -> dict[int, int]:
    """Return the vehicles whose memories belong to a checkpoint, and the round in which each was written."""
    try:
        return {int(vehicle): int(t) for vehicle, t in json.loads(about.get("memories", "{}")).items()}
    except (ValueError, TypeError, AttributeError):
        raise BadInputError(f"{path}: damaged (its memories are not named)") from None


def _named(path: Path) -> dict[int, int]:
    """Return the memories that a checkpoint names, by its header alone; none where it is damaged."""
    try:
        with safe_open(path, "numpy") as file:
            return _kept(path, json.loads(file.metadata()["about"]))
    except (OSError, SafetensorError, KeyError, ValueError, TypeError, AttributeError, RecursionError, BadInputError):
        return {}


def _round_of(path: Path) -> int:
    """Return the round of a checkpoint or a memory; -1 for any other file."""
    match = _NAME.fullmatch(path.stem)
    return int(match[1]) if match else -1


def _hash(arrays: Arrays, about: dict[str, str]) -> str:
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    names = ["weights", "buffers"] if about["format"] == FIRST else sorted(arrays)
    if about["format"] != FIRST:
        digest.update(json.dumps([(n, arrays[n].dtype.str, list(arrays[n].shape)) for n in names]).encode())
    for name in names:
        digest.update(np.ascontiguousarray(arrays[name]).data)
    return digest.hexdigest()
