"""What the station sends down: a model alone (version 1) or named arrays (version 2), whole and as differences.

Header, table of contents and data are changed; mostly lengths, the digest of what is sent and the checksum are
repaired, so that the checks behind these are reached. Or the arrays are changed before they are packed. A foreign
exception is anything but DecodeError. A wrong accept is a message whose arrays, packed again in the forms that it has,
are other bytes; that `encode_content` would not send; or that has more entries than allowed, or some that are not
finite.
"""

import random
import struct
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from damage import SINGLES, Decoder, Violation, attempt, change_bytes, change_field, junk, sealed

from skyfed.types import Arrays, same_arrays
from skyfed.wire import DecodeError, Reference, decode_content, decode_model, digest_of, encode_content
from skyfed.wire.floats import pack_floats, unpack_floats

ROUND = 5
MOST = 64 * (11_000_000 + 1024)  # entries that a vehicle with ResNet18 lets pass
MODEL_HEAD, HEAD = struct.Struct("<4sBBBIQQQQQ"), struct.Struct("<4sBBIQQ")
NAME, ENTRY = 24, struct.Struct("<24sBBB4IQ")
DTYPES = ("<f4", "|u1", "|i1", "<i4", "<i8", "<f8", "|b1")
_MODEL_FIELDS = ((0, 4), (4, 1), (5, 1), (6, 1), (7, 4), (11, 8), (19, 8), (27, 8), (35, 8), (43, 8))
_FIELDS = ((0, 4), (4, 1), (5, 1), (6, 4), (10, 8), (18, 8))
_ENTRY_FIELDS = ((24, 1), (25, 1), (26, 1), (27, 4), (31, 4), (35, 4), (39, 4), (43, 8))
_AXES = (0, 0, 1, 2, 3, 7, 2**16, 2**31 - 1, 2**31, 2**32 - 1)
_NAMES = (b"", b"\0", b"weights", b"buffers", b"a b", b"\xff", b"a\0b", b"\n", b"x" * NAME, b"\x7f", b"control")


@dataclass(frozen=True)
class Sent:
    """A valid message taken apart, and what its receiver has."""

    sizes: tuple[int, int]
    base: Arrays | None
    arrays: Arrays
    data: bytes
    most: int = MOST

    @property
    def pieces(self) -> list[bytes]:
        """The header; for named arrays their entries in the table; then the data of every array."""
        data = self.data[:-8]
        if data[4] == 1:
            length = MODEL_HEAD.unpack_from(data)[-1]
            return [data[:51], data[51 : 51 + length], data[51 + length :]]
        at = HEAD.size + data[5] * ENTRY.size
        pieces = [data[: HEAD.size], *(data[k : k + ENTRY.size] for k in range(HEAD.size, at, ENTRY.size))]
        for entry in pieces[1:]:
            size = ENTRY.unpack(entry)[-1]
            pieces.append(data[at : at + size])
            at += size
        return pieces


class Downlinks(Decoder[tuple[bytes, Sent]]):
    """What is sent down, read by `skyfed.wire.decode_content` and `decode_model`."""

    def __init__(self) -> None:
        self._cases = list(_corpus())
        self.valid = [(case.data, case) for case in self._cases]

    def damaged(self, rand: random.Random) -> tuple[bytes, Sent]:
        """Damage a message or the arrays that it is made from."""
        case, other = rand.choice(self._cases), rand.choice(self._cases)
        if rand.random() < 0.15:
            return _other_arrays(case, other, rand), case
        if case.data[4] == 1:
            return _damaged_model(case, other, rand), case
        return _damaged_arrays(case, other, rand), case

    def check(self, given: tuple[bytes, Sent]) -> str | None:
        """Read a message."""
        data, case = given
        arrays, reason = attempt(lambda: decode_content(data, ROUND, case.sizes, case.most, case.base), DecodeError)
        base = None if case.base is None else _model_in(case.base, case.sizes)
        model, other = attempt(lambda: decode_model(data, ROUND, case.sizes, base), DecodeError)
        if data[4:5] == b"\1" and (model is None) != (arrays is None):
            raise Violation(f"decode_content says {reason}, decode_model {other}")
        if arrays is None:
            return reason
        _check_arrays(arrays, case)
        try:
            again = encode_content(ROUND, arrays, case.base)
            back = decode_content(again, ROUND, case.sizes, case.most, case.base)
        except Exception as error:
            raise Violation(f"what was read cannot be sent: {type(error).__name__}: {error}") from error
        if not same_arrays(arrays, back) or list(arrays) != list(back):
            raise Violation("what was read is packed to a message of another meaning")
        if _repacked(data, arrays, case.base) != data:
            raise Violation("what was read is packed to other bytes")
        return None

    def written(self, given: tuple[bytes, Sent]) -> bytes:
        """Return the message."""
        return given[0]


def _corpus() -> Any:
    """Yield models alone and with other arrays, whole and as differences."""
    for size, buffers in ((0, 0), (9, 0), (20, 3), (200, 40), (20_000, 40)):
        rng = np.random.default_rng([size, buffers])
        base = {"weights": _singles(rng, size), "buffers": _singles(rng, buffers)}
        sent = {name: array * np.float32(1.001) for name, array in base.items()}
        sizes = size, buffers
        yield Sent(sizes, None, sent, encode_content(ROUND, sent, None))
        yield Sent(sizes, base, sent, encode_content(ROUND, sent, base))
        if size > 200:
            continue
        more = _more(rng)
        for names in (["control"], ["weights", "buffers", *more], [*more], ["none", "one"], []):
            held, now = ({name: {**part, **more}[name] for name in names} for part in (base, sent))
            held = {name: array * 2 if name == "control" else array for name, array in held.items()}
            for known in (None, held, base):
                yield Sent(sizes, known, now, encode_content(ROUND, now, known))
            yield Sent(sizes, None, now, encode_content(ROUND, now, None), sum(array.size for array in now.values()))


def _more(rng: np.random.Generator) -> Arrays:
    """Return arrays of every type, and of no to four axes."""
    return {
        "control": _singles(rng, 20).reshape(5, 4),
        "table": rng.integers(-9, 9, (3, 2, 2, 2)),
        "one": np.array(2.5),
        "flags": rng.random(9) < 0.5,
        "none": np.empty((0, 4), np.int32),
        "x" * NAME: np.arange(5, dtype=np.uint8),
        "small": np.arange(-3, 3, dtype=np.int8),
        "counts": np.arange(7, dtype=np.int32),
        "wide": rng.normal(size=3),
    }


def _singles(rng: np.random.Generator, count: int) -> np.ndarray:
    return (0.05 * rng.normal(size=count)).astype(np.float32)


def _other_arrays(case: Sent, other: Sent, rand: random.Random) -> bytes:
    """Pack arrays with numbers changed, left out, renamed or of another type; they may be more than is allowed."""
    arrays = {name: array.copy() for name, array in case.arrays.items()}
    for _ in range(rand.choice((1, 1, 2))):
        name = rand.choice(list(arrays)) if arrays else "weights"
        array, how = arrays.pop(name, np.zeros(3, np.float32)), rand.randrange(5)
        if how == 0 and array.size and array.dtype.kind == "f":
            array.reshape(-1)[rand.randrange(array.size)] = rand.choice(SINGLES)
        elif how == 1 and array.size:
            with np.errstate(all="ignore"):
                array = array.astype(rand.choice(DTYPES))
        elif how == 2:
            name = rand.choice(_NAMES).decode("latin-1")
        elif how == 3:
            array = array.reshape(-1)[: rand.randrange(array.size + 1)]
        elif other.arrays:
            name = rand.choice(list(other.arrays))
            array = other.arrays[name]
        arrays[name] = array
    try:
        return encode_content(rand.choice((ROUND, ROUND, ROUND, 4)), arrays, rand.choice((case.base, None, other.base)))
    except ValueError:  # it cannot be sent
        return case.data


def _damaged_model(case: Sent, other: Sent, rand: random.Random) -> bytes:
    head, *parts = (bytearray(piece) for piece in case.pieces)
    for _ in range(rand.choice((1, 1, 1, 2, 3))):
        how = rand.randrange(5)
        if how == 0:
            change_field(head, *rand.choice(_MODEL_FIELDS), [other.data], rand)
        elif how == 1:
            head[rand.choice((5, 6))] = rand.choice((0, 1, 2, 255))
        elif how == 2 and other.data[4] == 1:
            k = rand.randrange(2)
            parts[k][:] = other.pieces[k + 1]
            head[5 + k] = other.data[5 + k]
        else:
            change_bytes(rand.choice(parts), rand)
    if rand.random() < 0.9:
        head[43:51] = len(parts[0]).to_bytes(8, "little")
    if rand.random() < 0.7:
        model = _model_in(case.base or {}, case.sizes)
        values = [
            _floats(head[5 + k], bytes(parts[k]), None if model is None else (model.weights, model.buffers)[k])
            for k in range(2)
        ]
        if values[0] is not None and values[1] is not None:
            head[19:27] = digest_of({"weights": values[0], "buffers": values[1]}).to_bytes(8, "little")
    return _sealed(bytes(head) + b"".join(parts), rand)


def _damaged_arrays(case: Sent, other: Sent, rand: random.Random) -> bytes:
    pieces = [bytearray(piece) for piece in case.pieces]
    count = (len(pieces) - 1) // 2
    head, rows = pieces[0], [[pieces[1 + k], pieces[1 + count + k]] for k in range(count)]
    for _ in range(rand.choice((1, 1, 1, 2, 3))):
        how = rand.randrange(9)
        row = rand.choice(rows) if rows else [bytearray(ENTRY.size), bytearray()]
        if how == 0:
            change_field(head, *rand.choice(_FIELDS), [other.data], rand)
        elif how == 1:
            change_field(row[0], *rand.choice(_ENTRY_FIELDS), [bytes(row[0])], rand)
        elif how == 2:
            row[0][:NAME] = rand.choice(_NAMES).ljust(NAME, b"\0")
        elif how == 3:
            lengths = [rand.choice(_AXES) for _ in range(rand.randrange(1, 5))]
            row[0][25] = len(lengths)
            row[0][27:43] = struct.pack("<4I", *lengths, *[0] * (4 - len(lengths)))
            if not prod(lengths) and rand.random() < 0.7:
                row[1][:] = b""
        elif how == 4:
            row[0][24], row[0][26] = rand.randrange(8), rand.choice((0, 0, 1, 2))
        elif how == 5 and other.data[4] == 2 and other.data[5]:
            taken, at = other.pieces, rand.randrange(other.data[5])
            rows.insert(
                rand.randrange(len(rows) + 1), [bytearray(taken[1 + at]), bytearray(taken[1 + other.data[5] + at])]
            )
        elif how == 6 and rows:
            change = rand.randrange(3)
            if change == 0:
                rows.insert(0, [bytearray(part) for part in row])
            else:
                del rows[-1 if change == 1 else 2 :]
        else:
            change_bytes(row[1], rand)
    if rand.random() < 0.95:
        head[5] = len(rows) % 256
    for entry, part in rows:
        if rand.random() < 0.95:
            entry[43:51] = len(part).to_bytes(8, "little")
    if rand.random() < 0.7 and (digest := _digest(rows, case.base or {})) is not None:
        head[18:26] = digest.to_bytes(8, "little")
    body = bytes(head) + b"".join(entry for entry, _ in rows) + b"".join(part for _, part in rows)
    return _sealed(body, rand)


def _sealed(body: bytes, rand: random.Random) -> bytes:
    how = rand.random()
    if how < 0.96:
        return sealed(body)
    return body + junk(8, rand) if how < 0.98 else sealed(body)[: rand.randrange(len(body) + 8)]


def _digest(rows: list[list[bytearray]], base: Arrays) -> int | None:
    """Return the digest of damaged arrays as far as they can be read at all."""
    arrays: Arrays = {}
    try:
        for entry, part in rows:
            raw, kind, axes, form, *lengths, _ = ENTRY.unpack(entry)
            name = raw.rstrip(b"\0").decode("ascii")
            near = base.get(name)
            if kind == 0:
                values = _floats(form, bytes(part), None if near is None else near.reshape(-1))
            else:
                values = np.frombuffer(part, DTYPES[kind])
            arrays[name] = np.asarray(values).reshape(lengths[:axes])
        return digest_of(arrays)
    except (ValueError, IndexError, TypeError):
        return None


def _floats(form: int, data: bytes, near: np.ndarray | None) -> np.ndarray | None:
    """Return float32 numbers of either form, or None."""
    if form == 0:
        return np.frombuffer(data[: len(data) // 4 * 4], "<f4")
    try:
        return None if near is None else unpack_floats(form, memoryview(data), near)
    except DecodeError:
        return None


def _model_in(base: Arrays, sizes: tuple[int, int]) -> Reference | None:
    """Return the model of these sizes that a vehicle has."""
    weights, buffers = (base.get(name, np.empty(0)) for name in ("weights", "buffers"))
    if {"weights", "buffers"} <= set(base) and (weights.shape, buffers.shape) == (sizes[:1], sizes[1:]):
        return Reference(weights, buffers, np.array([0, len(weights)]))
    return None


def _check_arrays(arrays: Arrays, case: Sent) -> None:
    if sum(array.size for array in arrays.values()) > case.most + sum(case.sizes):
        raise Violation("more entries than allowed")
    for name, array in arrays.items():
        if array.dtype.str not in DTYPES or (array.dtype.kind == "f" and not np.isfinite(array).all()):
            raise Violation(f"{name!r} is of another type, or not finite")
        if array.dtype == bool and array.size and array.view(np.uint8).max() > 1:
            raise Violation(f"{name!r} has truth values other than 0 and 1")


def _repacked(data: bytes, arrays: Arrays, base: Arrays | None) -> bytes:
    """Pack arrays again in the forms that a message has, by the layout in docs/wire.md spelt out here once more."""
    digest = digest_of(arrays)
    if data[4] == 1:
        weights, buffers = arrays["weights"], arrays["buffers"]
        model = None if base is None else _model_in(base, (len(weights), len(buffers)))
        near = (None, None) if model is None else (model.weights, model.buffers)
        packed = [pack_floats(part, near[k], data[5 + k])[1] for k, part in enumerate((weights, buffers))]
        sizes = len(weights), len(buffers), len(packed[0])
        before = 0 if model is None else model.digest
        return sealed(MODEL_HEAD.pack(b"SKYM", 1, data[5], data[6], ROUND, before, digest, *sizes) + b"".join(packed))
    entries, parts = [], []
    for k, (name, array) in enumerate(arrays.items()):
        form = data[HEAD.size + k * ENTRY.size + 26]
        flat = np.ascontiguousarray(array).reshape(-1)
        part = flat.tobytes() if form == 0 else pack_floats(flat, (base or {})[name].reshape(-1), form)[1]
        shape = [*array.shape, *[0] * (4 - array.ndim)]
        entries.append(ENTRY.pack(name.encode(), DTYPES.index(array.dtype.str), array.ndim, form, *shape, len(part)))
        parts.append(part)
    before = 0 if base is None else digest_of(base)
    return sealed(HEAD.pack(b"SKYM", 2, len(arrays), ROUND, before, digest) + b"".join(entries) + b"".join(parts))
