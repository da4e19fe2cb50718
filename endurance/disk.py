"""Disks that are full or read-only, at many points: exit 3, one line, the last checkpoint whole, later to the end."""

import contextlib
import errno
import os
import random
import resource
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from endurance.stage import (
    ALGORITHM,
    Process,
    Row,
    arguments,
    checkpoints,
    digest,
    import_all,
    rows_done,
    run_part,
    wait_for,
    whole_run,
    workshop,
)

ROUNDS = 30
_SIZES = (0, 700, 2000, 3000, 5000, 9000)
_DISKS = (4, 16, 28, 40, 60, 80)  # kB
_LARGER = (100, 200, 400)  # kB: rounds fit, figures do not


@dataclass(frozen=True)
class Point:
    """A point of failure: what is done to the process, how large its disk is, where its output goes."""

    name: str
    before: Callable[[], None] | None = None
    kilobytes: int = 0
    read_only: int = -1  # after so many rounds
    output: str | None = None


def largest_file(size: int) -> Callable[[], None]:
    """Let no file grow beyond this size."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def failing(call: str, nth: int) -> Callable[[], None]:
    """Let the nth call of an operating system's function find the disk full, and all that follow."""

    def install() -> None:
        real, count = getattr(os, call), [0]

        def fails(*arguments: object, **names: object) -> object:
            count[0] += 1
            if count[0] >= nth:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*arguments, **names)

        setattr(os, call, fails)

    return install


def points(count: int, seed: int, mounts: bool) -> list[Point]:
    """Return this many points, no two alike, of every kind; without mounts the others take their place."""
    rng = random.Random(seed)
    kinds: list[Callable[[], Point]] = [
        lambda: Point(f"files of {(size := rng.choice(_SIZES))} bytes at most", largest_file(size)),
        lambda: Point(f"fsync {(nth := rng.randrange(1, 120))} finds the disk full", failing("fsync", nth)),
        lambda: Point(f"rename {(nth := rng.randrange(1, 30))} finds the disk full", failing("replace", nth)),
        lambda: Point("standard output on /dev/full", output="/dev/full"),
    ]  # fmt: skip
    if mounts:
        kinds += [
            lambda: Point(f"a disk of {(size := rng.choice(_DISKS))} kB", kilobytes=size),
            lambda: Point(f"a disk of {(size := rng.choice(_LARGER))} kB: not all figures fit", kilobytes=size),
            lambda: Point("a disk of 2500 kB: the page does not fit", kilobytes=2500),
            lambda: Point(f"read-only after {(after := rng.randrange(ROUNDS // 2))} rounds", None, 9000, after),
        ]  # fmt: skip
    found: dict[str, Point] = {}
    while len(found) < count:
        point = rng.choice(kinds)() if len(found) >= len(kinds) else kinds[len(found)]()
        found.setdefault(point.name, point)
    return list(found.values())


def disk(count: int, seed: int) -> list[Row]:
    """Let the disk fail at `count` points."""
    import_all()
    failures, seen = [], []
    with workshop() as place:
        mounts = _can_mount(place)
        whole = whole_run(place / "whole", f"rounds={ROUNDS}")
        for k, point in enumerate(points(count, seed, mounts)):
            with mounted(place / f"disk-{k}", point.kilobytes):
                wrong = _fails_and_recovers(place / f"disk-{k}", point, whole)
            seen.append(point.name)
            failures += [f"{point.name}: {wrong}"] if wrong else []
    held = count - len(failures)
    also: dict[str, object] = {"disks of their own (tmpfs)": "yes" if mounts else "not allowed here", "points": seen}
    return [
        Row("disk full or read-only: exit 3, one line, last checkpoint whole, resumed to the same result",
            f"{held} of {count}", "all", held == count, also | ({"failures": failures} if failures else {})),
    ]  # fmt: skip


def _fails_and_recovers(place: Path, point: Point, whole: str) -> str:
    """Run into the failure, look at what is left, mend the disk, go on; returns what was wrong."""
    from skyfed.errors import BadInputError
    from skyfed.runs.checkpoint import FORMAT, _unpack

    run, log = place / "run", place.parent / f"{place.name}.log"
    process = Process(arguments(run, f"rounds={ROUNDS}"), log, point.before, point.output, draws=True)
    if point.read_only >= 0:
        wait_for(lambda: (rows_done(run) >= point.read_only and run.exists()) or process.poll() is not None)
        _mount("--bind", run, run)  # over itself: whoever has a file open does not keep it from being read-only
        _mount("-o", "remount,bind,ro", run)
    code, said = process.wait(), process.said()
    lines = [line for line in said.splitlines() if line.startswith("skyfed:")]
    if code != 3 or len(lines) != 1 or "Traceback" in said:
        return f"exit {code}: {said[-400:]}"
    if point.read_only >= 0:
        subprocess.run(["umount", str(run)], check=True)
    elif point.kilobytes:
        _mount("-o", "remount,size=64m", place)
    rows = rows_done(run)
    kept = checkpoints(run)
    try:
        for path in kept:
            _unpack(path, (FORMAT,))
    except BadInputError as error:
        return str(error)
    if (int(kept[-1].stem[6:]) if kept else -1) < rows - 2:
        return f"{rows} rounds, but the last checkpoint is {kept[-1:]}"
    if any((run / ALGORITHM).glob("checkpoints/.*.part")) and point.before is None and point.read_only < 0:
        return "a part was left"
    code = (again := Process(arguments(run, f"rounds={ROUNDS}"), log)).wait()
    if code or digest(run) != whole:
        return f"afterwards exit {code}: {again.said()[-300:]}"
    return ""


def _mount(*words: str | Path) -> None:
    subprocess.run(["mount", *map(str, words)], check=True, capture_output=True)


@contextlib.contextmanager
def mounted(place: Path, kilobytes: int) -> Iterator[None]:
    """Give a folder a disk of its own, of this size; 0 leaves it on the disk it is on."""
    place.mkdir()
    if kilobytes:
        _mount("-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", place)
    try:
        yield
    finally:
        if kilobytes:
            subprocess.run(["umount", "-l", str(place)], check=True)


def _can_mount(place: Path) -> bool:
    try:
        with mounted(place / "probe", 16):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


if __name__ == "__main__":
    run_part(disk, 20, __doc__)
