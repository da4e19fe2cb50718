"""Reading bytes that anybody may have written."""

from skyfed.errors import SkyfedError


class DecodeError(SkyfedError, ValueError):
    """The bytes are not a valid upload, or not the expected one."""


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

    def number(self, most: int) -> int:
        """Return the next number (LEB128, in its shortest form), at most `most`."""
        found, shift = 0, 0
        while shift < 64:
            byte = self.take(1)[0]
            found |= (byte & 127) << shift
            if byte < 128:
                if found > most or (byte == 0 and shift):
                    raise DecodeError(f"a number is {found}, at most {most} is possible")
                return found
            shift += 7
        raise DecodeError("a number is too long")

    def end(self) -> None:
        """Make sure that nothing is left."""
        if self._at != len(self._view):
            raise DecodeError(f"{len(self._view) - self._at} bytes too many")


def number(value: int) -> bytes:
    """Write a number from 0 on as LEB128."""
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)
