"""Feeds damaged inputs to every decoder: each must be refused as documented, or be accepted with the meaning it has.

    python fuzz/mutate.py --inputs 1000000 --seed 1

Inputs start from valid ones; fields, sections, lengths, counts, names and numbers are changed, and mostly lengths and
checksums are repaired, so that the checks behind these are reached. What each decoder promises is said in its file.
An input follows from the seed, its decoder and its number alone, however the work is split. The first input that
breaks a promise is written to a file and ends the run with status 1.
"""

import argparse
import importlib
import multiprocessing
import os
import random
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

from damage import Decoder, Violation
from measure import CPU, MEMORY, Meter


class Row(NamedTuple):
    """A decoder: what reads, where its inputs are made and checked, and its share of a thousand inputs."""

    title: str
    module: str
    made: str
    share: int


DECODERS = {
    "uploads": Row("upload of one vector: decode", "uploads", "Uploads", 260),
    "vectors": Row("upload of several vectors: decode_parts", "several_vectors", "SeveralVectors", 130),
    "downlinks": Row("what is sent down: decode_content, decode_model", "downlinks", "Downlinks", 150),
    "changes": Row("changes that are sent down: decode_changes, Swift.follow", "changes", "Changes", 80),
    "replies": Row("reply of a vehicle: read_reply", "replies", "Replies", 150),
    "objects": Row("reply in parts: VehicleGrid", "reply_objects", "Objects", 80),
    "orders": Row("job for a vehicle: read_order, Vehicle.train", "orders", "Orders", 80),
    "handshakes": Row("request at the door: Guard", "handshakes", "Handshakes", 70),
}
_PIECE = 40_000  # inputs that one process takes
_NEWS = 500  # inputs after which it says how far it is


@dataclass
class Tally:
    """What came of inputs to one decoder."""

    inputs: int = 0
    accepted: int = 0
    cpu: float = 0.0
    memory: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Tally") -> None:
        """Take in another tally."""
        self.inputs += other.inputs
        self.accepted += other.accepted
        self.cpu, self.memory = max(self.cpu, other.cpu), max(self.memory, other.memory)
        self.reasons += other.reasons


def decoder_of(key: str) -> Decoder[Any]:
    """Make a decoder with its valid inputs."""
    row = DECODERS[key]
    made: Decoder[Any] = getattr(importlib.import_module(row.module), row.made)()
    return made


def input_of(decoder: Decoder[Any], key: str, seed: int, k: int) -> Any:
    """Return input k of a decoder: first the valid ones, then damaged ones."""
    if k < len(decoder.valid):
        return decoder.valid[k]
    return decoder.damaged(random.Random(f"{seed} {key} {k}"))


def feed(
    key: str, numbers: range, seed: int, out: Path, cpu: float | None = None, news: Callable[[int], None] | None = None
) -> Tally:
    """Feed these inputs to a decoder; raises Violation on the first that misbehaves.

    With `cpu`, the seconds that one input may take, this process gets limits, and what inputs cost is measured.
    """
    with warnings.catch_warnings(), closing(decoder_of(key)) as decoder:
        warnings.simplefilter("error")  # a warning is not what was promised either
        tally, meter = Tally(), None if cpu is None else Meter(cpu)
        for k in numbers:
            if news:
                news(k)
            given = input_of(decoder, key, seed, k)
            try:
                reason = _tried(decoder, given, meter)
                if reason is not None and k < len(decoder.valid):
                    raise Violation(f"a valid input is refused: {reason}")
            except Exception as error:
                words = str(error) if isinstance(error, Violation) else f"{type(error).__name__}: {error}"
                raise Violation(f"{_write(decoder, given, key, seed, k, out)}: {words}") from error
            tally.inputs += 1
            if reason is None:
                tally.accepted += 1
            else:
                tally.reasons[_kind(reason)] += 1
        if meter:
            tally.cpu, tally.memory = meter.cpu, meter.memory
    return tally


def _tried(decoder: Decoder[Any], given: Any, meter: Meter | None) -> str | None:
    """Return why an input is refused, if it is; raises Violation if it is too expensive as well."""
    if meter is None:
        return decoder.check(given)
    meter.start()
    reason = decoder.check(given)
    if broken := meter.stop():
        raise Violation(broken)
    return reason


def _write(decoder: Decoder[Any], given: Any, key: str, seed: int, k: int, out: Path) -> str:
    place = out / f"violation-{key}-{seed}-{k}.bin"
    place.write_bytes(decoder.written(given))
    return f"{key}, input {k} of seed {seed}, written to {place}"


def _kind(reason: str) -> str:
    """Return a reason without its numbers, quotations, and what a library said."""
    plain = re.sub(r"'[^']*'|\"[^\"]*\"", "…", reason.split(" (")[0])
    return re.sub(r"-?\b(\d[\w.+-]*|inf\b|nan\b)", "#", plain)[:80]


def shares(inputs: int, keys: Sequence[str]) -> dict[str, int]:
    """Split a number of inputs over decoders by their shares."""
    total = sum(DECODERS[key].share for key in keys)
    counts = {key: inputs * DECODERS[key].share // total for key in keys}
    counts[keys[0]] += inputs - sum(counts.values())
    return counts


class Crew:
    """Processes that work through pieces of all decoders, each with limits of its own."""

    def __init__(self, counts: dict[str, int], seed: int, out: Path, cpu: float, processes: int) -> None:
        self._left = [
            (key, range(first, min(first + _PIECE, count)))
            for key, count in counts.items() for first in range(0, count, _PIECE)
        ]  # fmt: skip
        self._left.sort(key=lambda piece: len(piece[1]))  # the last ones are small
        self._seed, self._out, self._cpu, self._processes = seed, out, cpu, processes
        self._total, self._done, self._begin = sum(counts.values()), 0, time.monotonic()
        self._running: dict[Connection, tuple[Any, Any, str, range, int]] = {}

    def work(self) -> dict[str, Tally]:
        """Do all pieces; raises Violation as soon as a promise is broken."""
        tallies = {key: Tally() for key in DECODERS}
        shown = 0.0
        try:
            while self._left or self._running:
                while self._left and len(self._running) < self._processes:
                    self._start(*self._left.pop())
                for line in wait(list(self._running), 5.0):
                    self._hear(line, tallies)  # type: ignore[arg-type]
                if time.monotonic() - shown > 10:
                    shown = time.monotonic()
                    self._say()
        finally:
            for process, *_ in self._running.values():
                process.kill()
                process.join()
        return {key: tally for key, tally in tallies.items() if tally.inputs}

    def _start(self, key: str, numbers: range) -> None:
        spawn = multiprocessing.get_context("spawn")
        here, there = spawn.Pipe(False)
        at = spawn.Value("q", -1, lock=False)
        process = spawn.Process(target=_piece, args=(key, numbers, self._seed, self._out, self._cpu, at, there))
        process.start()
        there.close()
        self._running[here] = process, at, key, numbers, 0

    def _hear(self, line: Connection, tallies: dict[str, Tally]) -> None:
        process, at, key, numbers, before = self._running[line]
        try:
            news = line.recv()
        except EOFError:
            process.join()
            k, decoder = at.value, decoder_of(key)
            given = input_of(decoder, key, self._seed, max(k, 0))
            words = _write(decoder, given, key, self._seed, k, self._out)
            raise Violation(f"{words}: it ended the process (exit code {process.exitcode})") from None
        if isinstance(news, int):
            self._done += news - before
            self._running[line] = process, at, key, numbers, news
            return
        del self._running[line]
        process.join()
        if isinstance(news, str):
            raise Violation(news)
        self._done += news.inputs - before
        tallies[key].add(news)

    def _say(self) -> None:
        taken, share = time.monotonic() - self._begin, self._done / self._total
        left = f", {taken / share * (1 - share) / 60:.1f} minutes left" if share > 0.01 else ""
        print(f"{self._done} of {self._total} inputs{left}", file=sys.stderr, flush=True)


def _piece(key: str, numbers: range, seed: int, out: Path, cpu: float, at: Any, line: Connection) -> None:
    """Work through one piece in a process of its own."""

    def news(k: int) -> None:
        at.value = k
        if (k - numbers.start) % _NEWS == _NEWS - 1:
            line.send(k - numbers.start)

    try:
        line.send(feed(key, numbers, seed, out, cpu, news))
    except Violation as violation:
        line.send(str(violation))


def table(tallies: dict[str, Tally]) -> str:
    """Return what came of all inputs as a table in Markdown."""
    rows = [
        "| decoder | inputs | refused | accepted | largest CPU, s | largest memory, MB |",
        "|---|---|---|---|---|---|",
    ]
    for key, tally in tallies.items():
        counts = f"{tally.inputs:,} | {tally.inputs - tally.accepted:,} | {tally.accepted:,}"
        rows.append(f"| {DECODERS[key].title} | {counts} | {tally.cpu:.3f} | {tally.memory / 1e6:.1f} |")
    total, accepted = (sum(getattr(tally, name) for tally in tallies.values()) for name in ("inputs", "accepted"))
    cpu, memory = max(tally.cpu for tally in tallies.values()), max(tally.memory for tally in tallies.values())
    rows.append(f"| all | {total:,} | {total - accepted:,} | {accepted:,} | {cpu:.3f} | {memory / 1e6:.1f} |")
    return "\n".join(rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=20_000, help="how many inputs to try in all")
    parser.add_argument("--seed", type=int, default=0, help="which damage is done")
    parser.add_argument("--out", type=Path, default=Path(), help="folder for an offending input")
    parser.add_argument("--only", choices=DECODERS, nargs="+", default=list(DECODERS), help="these decoders alone")
    parser.add_argument("--cpu", type=float, default=CPU, help="CPU seconds that one input may take")
    parser.add_argument("--reasons", action="store_true", help="say how often which reason was given")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, help="how many at once; 0: this one, without limits"
    )
    options = parser.parse_args(arguments)
    counts, begin = shares(options.inputs, options.only), time.monotonic()
    try:
        if options.processes:
            tallies = Crew(counts, options.seed, options.out, options.cpu, options.processes).work()
        else:
            tallies = {key: feed(key, range(count), options.seed, options.out) for key, count in counts.items()}
    except Violation as violation:
        print(violation, file=sys.stderr)
        return 1
    print(table(tallies))
    bounds = f"{options.cpu:g} s of CPU, {MEMORY / 1e6:.0f} MB of memory"
    minutes = (time.monotonic() - begin) / 60
    print(f"0 foreign exceptions, 0 wrong accepts; bounds per input: {bounds}; {minutes:.1f} minutes")
    if options.reasons:
        for key, tally in tallies.items():
            for reason, count in tally.reasons.most_common():
                print(f"{key}\t{count}\t{reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
