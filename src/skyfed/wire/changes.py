"""Changes as bytes: what a vehicle is sent instead of a model if it has an earlier one and can repeat what came since.

A message holds the changes of some rounds, each a message of its own, and 64 bits that stand for the result. A change
is read by the algorithm that wrote it. Anything that is not such a message raises DecodeError.
"""

import struct
from collections.abc import Sequence

from skyfed.wire.downlink import MAGIC
from skyfed.wire.reader import DecodeError, Reader, number, seal, unpack_head, unseal

CHANGES = 3  # version
MOST_CHANGES = 32
_HEAD = struct.Struct("<4sBBIIQ")  # magic, version, changes, round, round of the model they start from, digest after


def is_changes(data: bytes) -> bool:
    """Tell whether a message from the station holds changes."""
    return data[:5] == MAGIC + bytes([CHANGES])


def encode_changes(round: int, since: int, changes: Sequence[bytes], digest: int) -> bytes:
    """Pack the changes that lead from the content of round `since` to that of `round`, which has this digest."""
    if len(changes) > MOST_CHANGES:
        raise ValueError(f"{len(changes)} changes; allowed: at most {MOST_CHANGES}")
    head = _HEAD.pack(MAGIC, CHANGES, len(changes), round, since, digest)
    return seal(head, *(number(len(change)) + change for change in changes))


def decode_changes(data: bytes, round: int) -> tuple[int, list[bytes], int]:
    """Read the round that changes start from, the changes, and the digest of the result."""
    magic, version, count, t, since, digest = unpack_head(_HEAD, data)
    if (magic, version) != (MAGIC, CHANGES) or t != round or since > t or count > min(MOST_CHANGES, t - since):
        raise DecodeError(f"not changes up to round {round}")
    message = unseal(data)
    reader = Reader(message[_HEAD.size :])
    changes = [bytes(reader.take(reader.number(len(message)))) for _ in range(count)]
    reader.end()
    return since, changes, digest
