"""What all decoders' inputs are damaged with, what a decoder is here, and what it is to break a promise."""

import random
import struct
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import xxhash

from skyfed.errors import SkyfedError

SUM = struct.Struct("<Q")
INTERESTING = (0, 1, 2, 3, 4, 7, 8, 63, 64, 65, 126, 127, 128, 129, 192, 254, 255)
SINGLES = (0.0, -0.0, 1e-45, 1e-38, 1.0, -1.0, 3e38, float("inf"), -float("inf"), float("nan"), 0.05, 1e6)
NUMBERS = (
    0, 1, -1, 2, 3, 255, 256, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64, 10**18, 10**19,
    10**400, -(10**400), 0.0, -0.0, 0.5, 1.0, 1.5, -1.0, 5e-324, 1e18, 1.0000001e18, 1e21, 1e22, 1e308, -1e308,
    float("inf"), -float("inf"), float("nan"),
)  # fmt: skip
TEXTS = (
    "", " ", "\0", "a", "afl", "x" * 300, "\n", "a\nb", "\x1b[31mred\x1b[0m", "\u2028", "\u202e", "ä", "\ud800", "\x7f",
    "\U0001f600", "%s%n", "../../etc/passwd", "NaN", "null", "1e5", "\r\nset-cookie: x", "'\"\\", "\ufeff", "\x85",
)  # fmt: skip

T = TypeVar("T")


class Violation(Exception):  # noqa: N818
    """A decoder broke its promise."""


class Decoder(Generic[T]):
    """One decoder with inputs for it; `valid` are some that it must accept."""

    valid: Sequence[T]

    def damaged(self, rand: random.Random) -> T:
        """Return an input that may or may not be valid; it follows from the random numbers alone."""
        raise NotImplementedError

    def check(self, given: T) -> str | None:
        """Return why an input is refused, or None where it is accepted; raises Violation for a broken promise."""
        raise NotImplementedError

    def written(self, given: T) -> bytes:
        """Return an input as bytes, for a file."""
        return repr(given).encode("utf-8", "backslashreplace")

    def close(self) -> None:
        """Give back what it holds."""


def attempt(read: Callable[[], T], refusal: type[SkyfedError]) -> tuple[T | None, str | None]:
    """Return what is read, or the reason of the documented refusal; raises Violation for every other exception."""
    try:
        return read(), None
    except refusal as error:
        reason = str(error)
        if not reason.isprintable():
            raise Violation(f"a reason that is not one printable line: {reason!r}") from error
        return None, reason or "no reason"
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of compiled code is no Exception
        raise Violation(f"a foreign exception: {type(error).__name__}: {error}") from error


def sealed(body: bytes) -> bytes:
    """Give bytes a checksum that fits."""
    return body + SUM.pack(xxhash.xxh3_64_intdigest(body))


def junk(count: int, rand: random.Random) -> bytes:
    """Return so many bytes of no meaning."""
    how = rand.randrange(3)
    if how == 0:
        return rand.randbytes(count)
    if how == 1:
        return bytes([rand.choice(INTERESTING)]) * count
    return bytes(rand.choices(INTERESTING, k=count))


def change_field(head: bytearray, at: int, size: int, others: Sequence[bytes], rand: random.Random) -> None:
    """Change a number in a header: to anything, a neighbour, an extreme, or what other messages have there."""
    how = rand.randrange(4)
    old = int.from_bytes(head[at : at + size], "little")
    if how == 0:
        new = rand.randrange(256**size)
    elif how == 1:
        new = old + rand.choice((-2, -1, 1, 2))
    elif how == 2:
        new = rand.choice(INTERESTING) if rand.random() < 0.7 else 1 << rand.randrange(8 * size)
    elif size == 4:
        new = int.from_bytes(struct.pack("<f", rand.choice(SINGLES)), "little")
    else:
        new = int.from_bytes(rand.choice(others)[at : at + size], "little")
    head[at : at + size] = (new % 256**size).to_bytes(size, "little")


def change_bytes(part: bytearray, rand: random.Random) -> None:
    """Flip, overwrite, insert, cut or replace some bytes."""
    how, at = rand.randrange(6), rand.randrange(len(part) + 1)
    if how == 0 and part:
        part[at - 1] ^= 1 << rand.randrange(8)
    elif how == 1:
        count = min(rand.choice((1, 1, 2, 4)), len(part) - at)
        part[at : at + count] = junk(count, rand)
    elif how == 2 and len(part) >= 4:
        at = at // 4 * 4 % (len(part) - 3)
        part[at : at + 4] = struct.pack("<f", rand.choice(SINGLES))
    elif how == 3:
        part[at:at] = junk(rand.choice((1, 1, 2, 4, 8)), rand)
    elif how == 4:
        del part[at : rand.choice((at + 1, at + 4, len(part)))]
    else:
        part[:] = junk(rand.choice((0, 1, 2, 3, len(part), rand.randrange(40))), rand)


def odd_value(rand: random.Random, depth: int = 2) -> Any:
    """Return a value as JSON knows them: extreme numbers, odd texts, nested tables and lists."""
    how = rand.randrange(8 if depth else 5)
    if how < 2:
        return rand.choice(NUMBERS)
    if how < 4:
        return rand.choice(TEXTS)
    if how == 4:
        return rand.choice((None, True, False))
    count = rand.randrange(4)
    if how == 5:
        return {rand.choice(TEXTS): odd_value(rand, depth - 1) for _ in range(count)}
    return [odd_value(rand, depth - 1) for _ in range(count)]
