"""Memory that a process keeps between steps."""

import ctypes
from contextlib import suppress

_TRIM, _MMAP = -1, -3  # glibc's names for what follows: M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
_KEPT, _LARGE = 1 << 28, 1 << 25  # bytes


def keep_memory() -> None:
    """Let this process keep what it frees.

    The C library gives large pieces back to the system and takes them again at every step, page by page; with a small
    model that takes long beside the training. Where it is another library than glibc nothing changes.
    """
    with suppress(AttributeError, OSError, TypeError):
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP, _LARGE)
        library.mallopt(_TRIM, _KEPT)
