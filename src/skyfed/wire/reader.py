"""Frame messages with a checksum, and read bytes that anybody may have written."""

import struct
from typing import Any

import xxhash

from skyfed.errors import SkyfedError

SUM = struct.Struct("<Q")  # checksum at the end of every message
CHUNK = 1 << 18  # entries that are packed or handled at a time; part of the format where a chunk has a head of its own


class DecodeError(SkyfedError, ValueError):
    """The bytes are not a valid upload, or not the expected one."""


def seal(*parts: bytes) -> bytes:
    """Join the parts of a message and append their checksum (XXH3)."""
    message = b"".join(parts)
    return message + SUM.pack(xxhash.xxh3_64_intdigest(message))


def unseal(data: bytes) -> memoryview:
    """Return a message without its checksum, which must be right."""
    message = memoryview(data)[: -SUM.size]
    if xxhash.xxh3_64_intdigest(message) != SUM.unpack(data[-SUM.size :])[0]:
        raise DecodeError("checksum differs")
    return message


def unpack_head(head: struct.Struct, data: bytes, table: int = 0) -> tuple[Any, ...]:
    """Return the fields of a message's header; `table` bytes and the checksum must follow it at least."""
    if len(data) < head.size + table + SUM.size:
        raise DecodeError(f"truncated: {len(data)} bytes")
    return head.unpack_from(data)


def chunks(count: int) -> list[slice]:
    """Return where the chunks of so many entries are."""
    return [slice(start, start + CHUNK) for start in range(0, count, CHUNK)]


class Reader:
    """Takes a message apart from front to back; asking for more than there is raises DecodeError."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._view, self._at = memoryview(data), 0

    def take(self, count: int) -> memoryview:
        """Return the next `count` bytes."""
        if count > len(self._view) - self._at:
            raise DecodeError(f"truncated: {count} bytes wanted, {len(self._view) - self._at} left")
        self._at += count
        return self._view[self._at - count : self._at]

    def rest(self) -> memoryview:
        """Return all that is left."""
        return self.take(len(self._view) - self._at)

    def number(self, most: int) -> int:
        """Return the next number (LEB128, in its shortest form), at most `most`."""
        value = 0
        for shift in range(0, 64, 7):
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            if byte < 128:
                if value > most or (byte == 0 and shift):
                    raise DecodeError(f"a number is {value}, at most {most} is possible")
                return value
        raise DecodeError("a number is too long")

    def end(self) -> None:
        """Make sure that nothing is left."""
        if self._at != len(self._view):
            raise DecodeError(f"{len(self._view) - self._at} bytes too many")


def number(value: int) -> bytes:
    """Write a number from 0 on as LEB128."""
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    written.append(value)
    return bytes(written)
