"""Checkpoints: what an algorithm's row is after a round, written whole, checked when read, the last three kept.

A checkpoint holds the station's state and the world's. Vehicles' memories are in files of their own, one per vehicle,
written only when they have changed; a checkpoint names the ones that belong to it.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from safetensors import SafetensorError

from skyfed.arrays import pack_arrays, view_arrays
from skyfed.errors import BadInputError
from skyfed.files import storage_errors, write_whole
from skyfed.types import Arrays, Singles

FORMAT, FIRST = "2", "1"  # FIRST holds a model alone: checkpoints of version 0.1.0, and what is saved in the end
_KEPT = 3
_STATE, _WORLD = "state/", "world/"


@dataclass(frozen=True)
class Saved:
    """What a row was after a round; before the first one there is nothing.

    world       named arrays of the world; None in checkpoints of version 0.1.0
    memories    of the vehicles that have any      kept  in which round each of these was written
    complaints  a line for each newer checkpoint that is damaged
    """

    round: int = -1
    state: Arrays = field(default_factory=dict)
    world: Arrays | None = field(default_factory=dict)
    memories: dict[int, Arrays] = field(default_factory=dict)
    kept: dict[int, int] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)


def save_checkpoint(
    folder: Path, round: int, state: Arrays, world: Arrays, run: str, label: str, kept: dict[int, int]
) -> None:
    """Write what a row is after `round` and drop what is no longer needed; memories were written before."""
    about = {"round": str(round), "run": run, "algorithm": label, "memories": json.dumps(kept)}
    arrays = {_STATE + name: array for name, array in state.items()}
    arrays |= {_WORLD + name: array for name, array in world.items()}
    write_whole(folder / f"round-{round:05d}.safetensors", _pack(arrays, about, FORMAT))
    with storage_errors(folder):
        for old in _in_order(folder)[:-_KEPT]:
            old.unlink()
    _drop_memories(folder)


def save_memory(folder: Path, vehicle: int, round: int, memory: Arrays, run: str, label: str) -> None:
    """Write a vehicle's memory as it is after a round."""
    about = {"round": str(round), "run": run, "algorithm": label, "vehicle": str(vehicle)}
    write_whole(_memory(folder, vehicle, round), _pack(memory, about, FORMAT))


def drop_checkpoints(folder: Path, after: int) -> None:
    """Remove checkpoints of rounds after this one: they are damaged, or of a future that will be made again."""
    with storage_errors(folder):
        for path in _in_order(folder):
            if _round_of(path) > after:
                path.unlink()
        for path in folder.glob("memory-*.safetensors"):
            if _numbers(path)[1] > after:
                path.unlink()


def last_checkpoint(
    folder: Path,
    run: str,
    label: str,
    start: Arrays,
    live: Callable[[Singles], Singles],
    whole: int,
    vehicles: int,
) -> Saved:
    """Return the newest good checkpoint of a row that started from `start`.

    live      gives the weights with a gradient of all `whole` weights, as version 0.1.0 saved them
    vehicles  that its agreement, where it has one, must be of
    """
    complaints: list[str] = []
    for path in reversed(_in_order(folder)):
        try:
            return _read(folder, path, run, label, start, live, whole, vehicles, complaints)
        except BadInputError as error:
            complaints.append(str(error))
    return Saved(complaints=complaints)


def _read(
    folder: Path,
    path: Path,
    run: str,
    label: str,
    start: Arrays,
    live: Callable[[Singles], Singles],
    whole: int,
    vehicles: int,
    complaints: list[str],
) -> Saved:
    arrays, about = _unpack(path, (FORMAT, FIRST))
    _belongs(path, about, {"run": run, "algorithm": label, "round": str(_round_of(path))})
    if about["format"] == FIRST:
        if len(arrays["weights"]) != whole:
            raise BadInputError(f"{path}: holds a model of another size")
        arrays = {_STATE + "weights": live(arrays["weights"]), _STATE + "buffers": arrays["buffers"]}
        arrays |= {_STATE + name: array for name, array in _agreement(path, about, vehicles).items()}
    state = {name.removeprefix(_STATE): array for name, array in arrays.items() if name.startswith(_STATE)}
    if any(name not in state or state[name].shape != array.shape for name, array in start.items()):
        raise BadInputError(f"{path}: holds a model of another size")
    world = {name.removeprefix(_WORLD): array for name, array in arrays.items() if name.startswith(_WORLD)}
    kept, memories = _kept(path, about), {}
    for vehicle, t in kept.items():
        file = _memory(folder, vehicle, t)
        memories[vehicle], said = _unpack(file, (FORMAT,))
        _belongs(file, said, {"run": run, "algorithm": label, "round": str(t), "vehicle": str(vehicle)})
    return Saved(int(about["round"]), state, None if about["format"] == FIRST else world, memories, kept, complaints)


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


def _unpack(path: Path, forms: Sequence[str]) -> tuple[Arrays, dict[str, str]]:
    """Read arrays and their description, or raise BadInputError."""
    try:
        found, said = view_arrays(path.read_bytes())
        about = json.loads(said["about"])
        if not isinstance(about, dict):
            raise TypeError("its description is no table")
    except (OSError, SafetensorError, KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise BadInputError(f"{path}: not a checkpoint ({error})") from None
    if about.get("format") not in forms:
        raise BadInputError(
            f"{path}: written in format {about.get('format')}, this version reads {' and '.join(forms)}"
        )
    hashed = about.pop("sha256", None)
    flat = about["format"] != FIRST or (
        found.keys() == {"weights", "buffers"}
        and all(part.dtype == np.float32 and part.ndim == 1 for part in found.values())
    )
    if not flat or hashed != _hash(found, about):
        raise BadInputError(f"{path}: damaged (its hash differs)")
    return {name: array.copy() for name, array in found.items()}, about


def _belongs(path: Path, about: dict[str, str], wanted: dict[str, str]) -> None:
    for key, value in wanted.items():
        if about.get(key) != value:
            raise BadInputError(f"{path}: belongs to another {key} ({about.get(key)}, not {value})")


def _agreement(path: Path, about: dict[str, str], vehicles: int) -> Arrays:
    """Read who has agreed with whom, as version 0.1.0 wrote it; nothing where aggregation did not ask."""
    import base64

    if "agreement" not in about:
        return {}
    try:
        found = np.frombuffer(base64.b64decode(about["agreement"], validate=True))
        if not np.isfinite(found).all():
            raise ValueError("a number is not finite")
        return {"agreement": found.reshape(2, vehicles, vehicles).copy()}
    except (ValueError, TypeError):
        raise BadInputError(f"{path}: its agreement is not one of {vehicles} vehicles") from None


def _kept(path: Path, about: dict[str, str]) -> dict[int, int]:
    try:
        return {int(vehicle): int(t) for vehicle, t in json.loads(about.get("memories", "{}")).items()}
    except (ValueError, TypeError, AttributeError):
        raise BadInputError(f"{path}: damaged (its memories are not named)") from None


def _drop_memories(folder: Path) -> None:
    """Remove memories that no checkpoint names."""
    with storage_errors(folder):
        there = list(folder.glob("memory-*.safetensors"))
        if not there:
            return
        named = {_memory(folder, *pair) for path in _in_order(folder) for pair in _named(path).items()}
        for path in there:
            if path not in named:
                path.unlink()


def _named(path: Path) -> dict[int, int]:
    """Return the memories that a checkpoint names, by its header alone; none where it is damaged."""
    try:
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        return _kept(path, json.loads(header["__metadata__"]["about"]))
    except (OSError, KeyError, ValueError, TypeError, AttributeError, RecursionError, BadInputError):
        return {}


def _memory(folder: Path, vehicle: int, round: int) -> Path:
    return folder / f"memory-{vehicle:05d}-{round:05d}.safetensors"


def _numbers(path: Path) -> tuple[int, int]:
    parts = path.stem.split("-")
    return (int(parts[1]), int(parts[2])) if len(parts) == 3 and parts[1].isdigit() and parts[2].isdigit() else (0, -1)


def _in_order(folder: Path) -> list[Path]:
    return sorted((path for path in folder.glob("round-*.safetensors") if path.stem[6:].isdigit()), key=_round_of)


def _round_of(path: Path) -> int:
    return int(path.stem.removeprefix("round-"))


def _hash(arrays: Arrays, about: dict[str, str]) -> str:
    digest = hashlib.sha256(json.dumps({k: v for k, v in sorted(about.items()) if k != "sha256"}).encode())
    if about.get("format") == FIRST:
        names = ["weights", "buffers"]
    else:
        names = sorted(arrays)
        digest.update(json.dumps([(n, arrays[n].dtype.str, list(arrays[n].shape)) for n in names]).encode())
    for name in names:
        digest.update(np.ascontiguousarray(arrays[name]).data if name in arrays else b"")
    return digest.hexdigest()
