"""Entropy coding: small symbols, whole numbers and sorted places, by a range coder (asymmetric numeral systems).

Every array has exactly one encoding: decoding leaves the coder empty and the counts are those of what was decoded.
"""

import constriction
import numpy as np
from numpy.typing import NDArray

from skyfed.types import Ints
from skyfed.wire.reader import DecodeError, Reader, chunks, number

Symbols = NDArray[np.uint8]
Numbers = NDArray[np.uint32]

_FINE = 3  # bits after the leading one that are entropy-coded; the lower ones are sent as they are
_SMALL = 2 << _FINE  # numbers below are symbols themselves
_CLASSES = _SMALL + (31 - _FINE) * (1 << _FINE)  # of 32-bit numbers


def pack_symbols(symbols: Symbols) -> bytes:
    """Code symbols 0..255: for each chunk its counts, then the words of the coder."""
    parts = []
    for part in chunks(len(symbols)):
        chunk = symbols[part]
        counts = np.bincount(chunk)
        parts.append(number(len(counts)) + b"".join(number(int(count)) for count in counts))
        used = np.flatnonzero(counts)
        if len(used) > 1:
            coder = constriction.stream.stack.AnsCoder()
            ranks = (np.cumsum(counts > 0) - 1).astype(np.int32)
            coder.encode_reverse(ranks[chunk], _model(counts[used]))
            words = coder.get_compressed()
            parts.append(number(len(words)) + words.astype("<u4").tobytes())
    return b"".join(parts)


def unpack_symbols(reader: Reader, count: int, alphabet: int) -> Symbols:
    """Read what `pack_symbols` wrote: `count` symbols below `alphabet`."""
    symbols = np.empty(count, np.uint8)
    for part in chunks(count):
        chunk = symbols[part]
        counts = np.array([reader.number(len(chunk)) for _ in range(reader.number(alphabet))], np.int64)
        if not len(counts) or counts.sum() != len(chunk) or counts[-1] == 0:
            raise DecodeError(f"counts do not add up to {len(chunk)} symbols")
        used = np.flatnonzero(counts)
        if len(used) == 1:
            chunk[:] = used[0]
            continue
        words = np.frombuffer(reader.take(4 * reader.number(len(chunk) + 2)), "<u4").astype(np.uint32)
        try:
            coder = constriction.stream.stack.AnsCoder(words)
            ranks = coder.decode(_model(counts[used]), len(chunk))
        except (ValueError, AssertionError) as error:
            raise DecodeError(f"a range-coded part is damaged ({error})") from None
        if not coder.is_empty() or (np.bincount(ranks, minlength=len(used)) != counts[used]).any():
            raise DecodeError("a range-coded part is damaged")
        chunk[:] = used.astype(np.uint8)[ranks]
    return symbols


def pack_numbers(values: Numbers) -> bytes:
    """Code whole numbers: their classes as symbols, then the low bits of each size of class as bit planes."""
    wide = values.astype(np.float64).view(np.int64) >> 52  # the exponent: position of the leading one
    size = np.maximum(wide - 1023 - _FINE, 0).astype(np.uint32)
    classes = np.where(
        values < _SMALL, values, _SMALL + ((size - 1) << _FINE) + ((values >> size) & ((1 << _FINE) - 1))
    )
    parts = [pack_symbols(classes.astype(np.uint8))]
    for bits in range(1, int(size.max(initial=0)) + 1):
        members = values[size == bits]
        parts += [np.packbits((members >> plane) & 1).tobytes() for plane in range(bits)]
    return b"".join(parts)


def unpack_numbers(reader: Reader, count: int) -> Numbers:
    """Read what `pack_numbers` wrote."""
    classes = unpack_symbols(reader, count, _CLASSES).astype(np.uint32)
    size = np.where(classes < _SMALL, 0, ((classes - _SMALL) >> _FINE) + 1).astype(np.uint32)
    top = ((classes - _SMALL) & ((1 << _FINE) - 1)) | (1 << _FINE)
    values = np.where(classes < _SMALL, classes, top << size).astype(np.uint32)
    for bits in range(1, int(size.max(initial=0)) + 1):
        members = np.flatnonzero(size == bits)
        low = np.zeros(len(members), np.uint32)
        for plane in range(bits):
            low |= unpack_bits(reader, len(members)).astype(np.uint32) << plane
        values[members] |= low
    return values


def places_of(flags: NDArray[np.bool_]) -> Ints:
    """Return the places of what is true; faster than numpy's own where little is."""
    whole = len(flags) // 8 * 8
    words = np.flatnonzero(flags[:whole].view(np.uint64) != 0)
    row, column = np.nonzero(flags[:whole].reshape(-1, 8)[words])
    return np.concatenate([8 * words[row] + column, whole + np.flatnonzero(flags[whole:])])


def few(size: int) -> int:
    """Return how many of `size` entries are at most sent as places; of more, a bit or symbol each is shorter."""
    return max(64, size // 8)


def pack_places(places: Ints) -> bytes:
    """Code ascending places 0.. as the gaps between them."""
    return pack_numbers((np.diff(places, prepend=-1) - 1).astype(np.uint32))


def unpack_places(reader: Reader, count: int, size: int) -> Ints:
    """Read `count` ascending places below `size`."""
    places = np.cumsum(unpack_numbers(reader, count).astype(np.int64) + 1) - 1
    if count and int(places[-1]) >= size:
        raise DecodeError(f"a place is {places[-1]}, {size} are possible")
    return places


def unpack_bits(reader: Reader, count: int) -> Symbols:
    """Read `count` bits; those that fill the last byte must be 0."""
    bits = np.unpackbits(np.frombuffer(reader.take(-(-count // 8)), np.uint8))
    if bits[count:].any():
        raise DecodeError("padding is not zero")
    return bits[:count]


def entropy_bits(symbols: Ints | Symbols | NDArray[np.int8]) -> float:
    """Bits of symbols by the entropy of their counts (order 0)."""
    _, counts = np.unique(symbols, return_counts=True)
    return float(-(counts * np.log2(counts / counts.sum())).sum())


def _model(counts: Ints) -> constriction.stream.model.Categorical:
    return constriction.stream.model.Categorical(counts / counts.sum(), perfect=False)
