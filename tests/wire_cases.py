"""Small builders that the tests of the wire share."""

import importlib
import struct
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from pcodec import ChunkConfig, DeltaSpec, ModeSpec, standalone

from skyfed.types import Quantised, Raw, Update
from skyfed.wire import DecodeError, Expected, Reference, decode, encode, entries
from skyfed.wire.reader import number

sys.path.append(str(Path(__file__).parents[1] / "fuzz"))
mutate = importlib.import_module("mutate")
uploads = importlib.import_module("uploads")
vectors = importlib.import_module("vectors")
MASK, BODY, NORMS, BUFFERS = range(4)
MASKS, BODIES, SCHEMES = list(uploads.MASKS), list(uploads.BODIES), list(uploads.SCHEMES)
CODERS = {"plain": 0, "range": 1, "zstd": 2}
SIZES = [0, 1, 7, 8, 9, 63, 64, 65, 1000]
CHUNK = 2**18  # symbols that share a table, floats packed together
LARGE = 300_000  # more than one chunk
NAN, INF = float("nan"), float("inf")
PACKING = ChunkConfig(compression_level=6, delta_spec=DeltaSpec.no_op(), mode_spec=ModeSpec.classic())
model = cache(uploads.model)
upload, forced, joined, sealed, split = uploads.upload, uploads.forced, uploads.joined, uploads.sealed, uploads.split


def traced(read: Callable[[], object]) -> int:
    """Bytes allocated at most while something is read, accepted or not."""
    tracemalloc.start()
    try:
        read()
    except DecodeError:
        pass
    finally:
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return found


def few(size: int) -> int:
    """How many places of masks, of differences from a guess, and of levels in a range-coded part are at most sent."""
    return max(64, size // 8)


def expected(reference: Reference, **changes: object) -> Expected:
    return replace(Expected(uploads.ROUND, uploads.VEHICLE, reference, uploads.RATE), **changes)


def bits(value: object) -> object:
    """What makes two parts of an update the same, bit for bit."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    return struct.pack("<d", value) if isinstance(value, float) else value


def same(found: Raw | Quantised, sent: Raw | Quantised) -> bool:
    def parts(body: Raw | Quantised) -> dict[str, object]:
        known = {name: bits(value) for name, value in vars(body).items()}
        if isinstance(body, Raw):
            known["rate"] = bits(float(np.float32(body.rate)))
        return known

    return type(found) is type(sent) and parts(found) == parts(sent)


def dense(update: Update, reference: Reference) -> np.ndarray:
    whole = np.zeros(update.size, np.float32)
    whole[slice(None) if update.mask is None else update.mask] = entries(update, reference)
    return whole


def there_and_back(update: Update, reference: Reference) -> Update:
    """Send an upload, check that it is the same one and has one encoding only, and return what was read."""
    data = encode(update, reference)
    found = decode(data, expected(reference, rate=None))
    assert encode(found, reference) == data
    assert (found.round, found.vehicle, found.size, found.coder) == (
        update.round, update.vehicle, update.size, update.coder
    )  # fmt: skip
    assert bits(found.buffers) == bits(update.buffers)
    if found.mask is None and update.mask is not None:  # it was left out
        assert dense(found, reference).tobytes() == dense(update, reference).tobytes()
        return found
    assert bits(found.mask) == bits(update.mask)
    assert same(found.body, update.body)
    if found.forms[MASK] == uploads.MASKS["guess"]:
        assert found.threshold == np.float32(update.threshold)
    if found.forms[MASK] == uploads.MASKS["channels"]:
        assert bits(found.channels) == bits(update.channels)
    return found


def tampered(data: bytes, new: dict[int, bytes] | None = None, **fields: object) -> bytes:
    """Replace sections and rewrite fields of the header; lengths and checksum are made to fit."""
    head, sections = split(data)
    for section, content in (new or {}).items():
        sections[section] = content
    return joined(head._replace(**fields), sections)


def refused(data: bytes, reference: Reference, message: str, **changes: object) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(data, expected(reference, **changes))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


every_body = pytest.mark.parametrize("body", BODIES)
every_scheme = pytest.mark.parametrize("scheme", SCHEMES)
every_mask = pytest.mark.parametrize("mask", MASKS)
every_coder = pytest.mark.parametrize("coder", CODERS)


def with_mask(reference: Reference, mask: np.ndarray, threshold: float = NAN) -> Update:
    return Update(
        7, 3, reference.size, mask, Raw(np.zeros(int(mask.sum()), np.float32)), reference.buffers, threshold
    )  # fmt: skip


def allowed(update: Update, reference: Reference) -> list[str]:
    """Forms that a mask may go in, in the order in which the sender prefers them."""
    kept, size = update.kept, update.size
    forms = ["bitmap"] + ["places"] * (min(kept, size - kept) <= few(size))
    if 0 <= update.threshold < INF:
        forms += ["guess"] * (int((reference.guess(update.threshold) ^ update.mask).sum()) <= few(size))
    return forms


def plain_upload(scheme: str = "qsgd", mask: str = "bitmap", size: int = 20) -> tuple[bytes, Reference]:
    """A message whose sections are all in their plain forms, which is easy to change."""
    reference = model(size)
    return encode(forced(upload(reference, scheme, mask, "plain"), mask, None, 0, 0), reference), reference


def range_upload(scheme: str = "qsgd", mask: str = "places", size: int = 65) -> tuple[bytes, Reference]:
    """A message whose levels, norms and mask are range-coded."""
    reference = model(size)
    return encode(forced(upload(reference, scheme, mask), mask, 1, 1, 0), reference), reference


def packed(steps: np.ndarray, config: ChunkConfig = PACKING) -> bytes:
    """A chunk of floats: its length, then pcodec's bytes."""
    found = standalone.simple_compress(steps, config)
    return number(len(found)) + found
