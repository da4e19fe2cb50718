"""Uploads that did not arrive and are kept on board to be sent again (world.lost = "keep")."""

from dataclasses import dataclass

import numpy as np

from skyfed.types import Arrays

_SENT = "sent/"


@dataclass(frozen=True)
class Kept:
    """An upload on board: the round it was made in, its bytes, what it was made from, and what is known about it."""

    round: int
    data: bytes
    sent: Arrays
    samples: int
    buffer_bytes: int


def pack_kept(kept: dict[int, Kept]) -> Arrays:
    """Return kept uploads as named arrays."""
    arrays: Arrays = {}
    for u, upload in kept.items():
        arrays[f"kept/{u}/data"] = np.frombuffer(upload.data, np.uint8)
        arrays[f"kept/{u}/about"] = np.array([upload.round, upload.samples, upload.buffer_bytes])
        arrays |= {f"kept/{u}/{_SENT}{name}": array for name, array in upload.sent.items()}
    return arrays


def unpack_kept(arrays: Arrays) -> dict[int, Kept]:
    """Return what `pack_kept` wrote."""
    parts: dict[int, Arrays] = {}
    for name, array in arrays.items():
        if name.startswith("kept/"):
            _, vehicle, part = name.split("/", 2)
            parts.setdefault(int(vehicle), {})[part] = array
    kept = {}
    for u, own in sorted(parts.items()):
        made, samples, buffer_bytes = map(int, own["about"])
        sent = {name.removeprefix(_SENT): array for name, array in own.items() if name.startswith(_SENT)}
        kept[u] = Kept(made, own["data"].tobytes(), sent, samples, buffer_bytes)
    return kept
