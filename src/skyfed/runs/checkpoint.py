"""Checkpoints: the global model after a round, written whole, checked when read, the last three kept."""

import hashlib
import json
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from skyfed.errors import BadInputError
from skyfed.files import storage_errors, write_whole
from skyfed.records import Floats, Singles
from skyfed.robust import pack, unpack

FORMAT = "1"
_KEPT = 3


def save_checkpoint(
    folder: Path,
    round: int,
    weights: Singles,
    buffers: Singles,
    run: str,
    algorithm: str,
    agreement: Floats | None = None,
) -> None:
    """Write the model after `round` and drop the checkpoints that are no longer needed."""
    about = {"round": str(round), "run": run, "algorithm": algorithm}
    if agreement is not None:
        about["agreement"] = pack(agreement)
    data = pack_model(weights, buffers, about)
    write_whole(folder / f"round-{round:05d}.safetensors", data)
    with storage_errors(folder):
        for old in _in_order(folder)[:-_KEPT]:
            old.unlink()


def drop_checkpoints(folder: Path, after: int) -> None:
    """Remove checkpoints of rounds after this one: they are damaged, or of a future that will be made again."""
    with storage_errors(folder):
        for path in _in_order(folder):
            if _round_of(path) > after:
                path.unlink()


def last_checkpoint(
    folder: Path, run: str, algorithm: str, sizes: tuple[int, int], vehicles: int = 0
) -> tuple[int, Singles, Singles, list[str], Floats | None] | None:
    """Return the newest good checkpoint: round, weights, buffers, a line for each newer one that is bad, agreement."""
    complaints: list[str] = []
    for path in reversed(_in_order(folder)):
        try:
            weights, buffers, about = unpack_model(path)
            wanted = {"run": run, "algorithm": algorithm, "round": str(_round_of(path))}
            for key, value in wanted.items():
                if about.get(key) != value:
                    raise BadInputError(f"{path}: belongs to another {key} ({about.get(key)}, not {value})")
            if (len(weights), len(buffers)) != sizes:
                raise BadInputError(f"{path}: holds a model of another size")
            agreement = _agreement(path, about, vehicles)
        except BadInputError as error:
            complaints.append(str(error))
            continue
        return int(about["round"]), weights, buffers, complaints, agreement
    if complaints:
        return -1, np.empty(0, np.float32), np.empty(0, np.float32), complaints, None
    return None


def pack_model(weights: Singles, buffers: Singles, about: dict[str, str]) -> bytes:
    """Pack a model as safetensors with its description and a hash over both."""
    about = {**about, "format": FORMAT}
    about["sha256"] = _hash(weights, buffers, about)
    # one entry, since safetensors writes several in no fixed order
    return bytes(save({"weights": weights, "buffers": buffers}, {"about": json.dumps(about, sort_keys=True)}))


def unpack_model(path: Path) -> tuple[Singles, Singles, dict[str, str]]:
    """Read what `pack_model` wrote; raises BadInputError for anything damaged."""
    try:
        data = path.read_bytes()
        length = int.from_bytes(data[:8], "little")
        about = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["about"])
        tensors = load(data)
        weights, buffers = tensors["weights"], tensors["buffers"]
        if not isinstance(about, dict):
            raise TypeError("its description is no table")
    except (OSError, SafetensorError, KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise BadInputError(f"{path}: not a checkpoint ({error})") from None
    if about.get("format") != FORMAT:
        raise BadInputError(f"{path}: written in format {about.get('format')}, this version reads {FORMAT}")
    said = about.pop("sha256", None)
    flat = all(part.dtype == np.float32 and part.ndim == 1 for part in (weights, buffers))
    if len(tensors) != 2 or not flat or said != _hash(weights, buffers, about):
        raise BadInputError(f"{path}: damaged (its hash differs)")
    return weights, buffers, about


def _agreement(path: Path, about: dict[str, str], vehicles: int) -> Floats | None:
    """Read who has agreed with whom; None where aggregation did not ask."""
    if "agreement" not in about:
        return None
    try:
        return unpack(about["agreement"], vehicles)
    except (ValueError, TypeError):
        raise BadInputError(f"{path}: its agreement is not one of {vehicles} vehicles") from None


def _in_order(folder: Path) -> list[Path]:
    return sorted((path for path in folder.glob("round-*.safetensors") if path.stem[6:].isdigit()), key=_round_of)


def _round_of(path: Path) -> int:
    return int(path.stem.removeprefix("round-"))


def _hash(weights: Singles, buffers: Singles, about: dict[str, str]) -> str:
    digest = hashlib.sha256(json.dumps({k: v for k, v in sorted(about.items()) if k != "sha256"}).encode())
    digest.update(np.ascontiguousarray(weights).data)
    digest.update(np.ascontiguousarray(buffers).data)
    return digest.hexdigest()
