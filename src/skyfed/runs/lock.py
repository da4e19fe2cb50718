"""Locks: which process may write to a folder, on one machine or on several nodes that share it.

All are flock(2). The kernel frees them when their process ends, however it ends. Linux turns them into locks at the
server on NFS, so they hold between nodes; `only_on_this_node` tells the mounts where they do not.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from skyfed.errors import StorageError
from skyfed.files import storage_errors

_MOUNTS = Path("/proc/self/mounts")
_LOCAL = ("nolock", "local_lock=flock", "local_lock=all", "localflock")  # of NFS, and the last one of Lustre


@contextlib.contextmanager
def locked(path: Path, shared: bool = False) -> Iterator[None]:
    """Hold a folder's lock, alone or beside others who share it; raises StorageError if somebody has it otherwise."""
    with storage_errors(path):
        descriptor = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        for wait in (0.02, 0.05, 0.1, None):  # somebody may only be asking whether the folder is in use
            with storage_errors(path):
                if take(descriptor, shared):
                    break
            if wait is None:
                raise StorageError(f"{path}: in use by another process")
            time.sleep(wait)
        yield
    finally:
        os.close(descriptor)  # the kernel frees the lock, as it does when a process is killed


@contextlib.contextmanager
def in_turn(file: Path) -> Iterator[None]:
    """Wait until nobody else holds the lock of a file that is there for nothing else, then hold it."""
    with storage_errors(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        with storage_errors(file):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def take(descriptor: int, shared: bool = False) -> bool:
    """Lock an open file unless somebody else has it; tells whether it is locked."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def in_use(path: Path, shared: bool = False) -> bool:
    """Tell whether a process holds a folder's lock; with `shared`, also one that shares it."""
    try:
        descriptor = os.open(path / ".lock", os.O_RDWR if shared else os.O_RDONLY)  # NFS wants it so
    except OSError:
        return False
    try:
        return not take(descriptor, not shared)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def only_on_this_node(path: Path, mounts: Path = _MOUNTS) -> str:
    """Return the mount option by which locks below a path are unknown to other nodes; empty where there is none."""
    try:
        lines = [line.split(" ") for line in mounts.read_text(encoding="utf-8").splitlines()]
    except OSError:  # not Linux
        return ""
    here = path.resolve()
    above = [(mount, options) for _, mount, _, options, *_ in lines if here.is_relative_to(mount)]
    options = max(above, key=lambda each: len(each[0]), default=("", ""))[1].split(",")
    return next((option for option in options if option in _LOCAL), "")
