"""Judge whether a tree's runs give the same bits as another commit's; `.ci/same-bits --help`.

Both trees run a fixed matrix of small runs through the command line, on this machine and with this interpreter. Then
their plans, uploads, models and tables are compared. Nothing of skyfed is imported here.
"""

import argparse
import importlib.util
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import tomli_w
from compare import (
    BadFileError,
    Difference,
    Folder,
    Found,
    Intended,
    Renames,
    compare_runs,
    read,
    read_intended,
    read_renames,
)

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RUNS = HERE / "runs"
RENAMES = ".ci/bits/renames.toml"
_STOP_AT = 3  # rounds of the last algorithm after which a run is stopped
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STOPPED = 128 + signal.SIGINT
_POLL = 0.02
_ENDING = ((signal.SIGTERM, 1), (signal.SIGTERM, 8), (signal.SIGKILL, 60))  # how runs are ended, seconds to do so
_SHOWN = 20  # differences shown of a run


class BadInputError(Exception):
    """What was asked for cannot be done; the message is one line."""


class StoppedError(BaseException):
    """A signal ends the judge."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@dataclass(frozen=True)
class Entry:
    """One run of the matrix (matrix.toml).

    covers  what it is there for           how    run; stop (by SIGINT, then resume); fleet (fleet try)
    config  the name of its config         exit   the exit code it must have
    needs   cifar10, or modules            like   a run of the same tree that must give the same
    """

    name: str
    covers: str
    how: str = "run"
    config: str = ""
    exit: int = 0
    needs: tuple[str, ...] = ()
    like: str = ""

    @property
    def frozen(self) -> dict[str, Any]:
        """The frozen config."""
        return tomllib.loads((RUNS / f"{self.config or self.name}.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Tree:
    """Sources to run: label is old or new, source the folder with the package, scratch a folder for what is passing."""

    label: str
    source: Path
    renames: Renames
    scratch: Path


@dataclass(frozen=True)
class Outcome:
    """How a run ended: exit code, seconds, and the last line it said."""

    code: int
    seconds: float
    line: str


class Runner:
    """Runs the command line of a tree, each run in a folder of its own; ends all of them when it is closed."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._children: set[subprocess.Popen[bytes]] = set()
        self._closed = False

    def folder(self, tree: Tree, entry: Entry) -> Folder:
        """Return where a run's files are."""
        return Folder(self._place / tree.label / entry.name, tree.renames)

    def run(self, tree: Tree, entry: Entry) -> Outcome:
        """Run one entry of the matrix; returns how it ended."""
        folder, frozen, begin = self.folder(tree, entry), entry.frozen, time.monotonic()
        config = self._place / "configs" / tree.label / f"{entry.name}.toml"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(tomli_w.dumps(tree.renames.config(frozen)), encoding="utf-8")
        log, out = config.with_suffix(".log"), ["--out", str(folder.path), "--plain"]
        if entry.how == "fleet":
            code = self._call(tree, ["fleet", "try", str(config), "--vehicles", str(frozen["vehicles"]), *out], log)
        else:
            stop = folder.file(f"{frozen['algorithms'][-1]}/rounds.jsonl") if entry.how == "stop" else None
            code = self._call(tree, ["run", str(config), *out], log, stop)
            if stop is not None and code == _STOPPED:
                code = self._call(tree, ["resume", str(folder.path), "--plain"], log)
            elif stop is not None:
                code = code or -1
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        line = "ended before it was stopped" if code == -1 else lines[-1] if lines else ""
        return Outcome(code, time.monotonic() - begin, line)

    def _call(self, tree: Tree, words: list[str], log: Path, stop: Path | None = None) -> int:
        """Run a command; with `stop`, interrupt it when that file has some lines."""
        with log.open("ab") as said:
            with self._lock:
                if self._closed:
                    return -signal.SIGTERM
                child = subprocess.Popen(
                    [sys.executable, "-m", "skyfed", *words], cwd=log.parent, env=environment(tree),
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True,
                )  # fmt: skip
                self._children.add(child)
            while stop is not None and child.poll() is None:
                if _lines(stop) >= _STOP_AT:
                    child.send_signal(signal.SIGINT)
                    break
                time.sleep(_POLL)
            code = child.wait()
        with self._lock:
            self._children.discard(child)
        return code

    def close(self) -> None:
        """End what still runs and start nothing more."""
        with self._lock:
            self._closed = True
            children = list(self._children)
        for number, patience in _ENDING:
            for child in children:
                if child.poll() is None:
                    with suppress(ProcessLookupError):
                        os.killpg(child.pid, number)
            end = time.monotonic() + patience
            for child in children:
                with suppress(subprocess.TimeoutExpired):
                    child.wait(max(0.0, end - time.monotonic()))


def main(words: Sequence[str]) -> int:
    """Judge; returns 0 if nothing differs, 1 if something does, 2 for bad input."""
    for number in _SIGNALS:
        if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)  # SIGINT in any case: runs that are to be stopped by it would ignore it too
    try:
        asked = _arguments(words)
        matrix = read_matrix()
        if asked.list:
            for entry in matrix.values():
                print(f"{entry.name:<22} {entry.covers}")
            return 0
        strange = [name for name in asked.only if name not in matrix]
        if strange:
            raise BadInputError(f"--only {strange[0]}: allowed: {', '.join(matrix)}")
        chosen = [entry for entry in matrix.values() if not asked.only or entry.name in asked.only]
        intended = read_intended((HERE / "intended.toml").read_text(encoding="utf-8"))
        with workplace(asked.keep) as place:
            trees = make_trees(asked.rev, place)
            return judge(trees, matrix, chosen, intended, Runner(place / "runs"), asked.jobs, bool(asked.only))
    except (BadInputError, BadFileError, OSError) as error:
        print(f"same-bits: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except StoppedError as stopped:
        print("same-bits: stopped", file=sys.stderr)
        return 128 + stopped.number


def judge(
    trees: tuple[Tree, Tree],
    matrix: dict[str, Entry],
    chosen: list[Entry],
    intended: list[Intended],
    runner: Runner,
    jobs: int,
    part: bool,
) -> int:
    """Run the chosen entries with both trees and say for each whether it gives the same."""
    begin, ready = time.monotonic(), list[Entry]()
    for entry in chosen:
        lacking = [need for need in entry.needs if not available(need, trees[0])]
        if lacking:
            print(f"skipped  {entry.name}: {lacking[0]} is not here", flush=True)
        else:
            ready.append(entry)
    wanted = [(tree, entry) for entry in ready for tree in trees]
    wanted += [(trees[1], matrix[entry.like]) for entry in ready if entry.like and matrix[entry.like] not in ready]
    failed, used = list[str](), set[Intended]()
    with ThreadPoolExecutor(jobs) as pool:
        try:
            order = dict.fromkeys((tree.label, entry.name) for tree, entry in wanted)
            known = {(tree.label, entry.name): (tree, entry) for tree, entry in wanted}
            running = {key: pool.submit(runner.run, *known[key]) for key in order}
            for entry, outcomes in _as_ready(ready, running):
                found = verdict(entry, trees, matrix, outcomes, runner)
                reasons = {each: next((x for x in intended if x.covers(each)), None) for each in found}
                used |= {reason for reason in reasons.values() if reason is not None}
                if _say(entry, reasons, outcomes, runner.folder(trees[0], entry)):
                    failed.append(entry.name)
        finally:
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_IGN)  # what follows ends by itself
            runner.close()
            pool.shutdown(cancel_futures=True)
    for change in intended:
        if change not in used and not part:
            print(f"note: no difference is left for intended.toml: {change.reason}")
    minutes = (time.monotonic() - begin) / 60
    runs = f"{len(ready)} run{'s' if len(ready) != 1 else ''}"
    closing = f"{len(failed)} of {runs} differ: {', '.join(failed)}" if failed else f"the same bits in {runs}"
    closing += ", but for what is intended" if used and not failed else ""
    print(f"{closing} ({minutes:.1f} minutes)")
    return 1 if failed else 0


def verdict(
    entry: Entry,
    trees: tuple[Tree, Tree],
    matrix: dict[str, Entry],
    outcomes: dict[str, Outcome],
    runner: Runner,
) -> list[Difference]:
    """Return what differs between the trees, and between a run of the new tree and the one that it must be like."""
    old, new = outcomes["old"], outcomes["new"]
    if old.code != entry.exit:
        return [
            Difference(
                entry.name, "exit code", Found("", "of the old tree", str(entry.exit), f"{old.code}: {old.line}")
            )
        ]
    if new.code != entry.exit:
        return [Difference(entry.name, "exit code", Found("", "", str(old.code), f"{new.code}: {new.line}"))]
    before, after = (runner.folder(tree, entry) for tree in trees)
    algorithms = entry.frozen["algorithms"]
    try:
        found = compare_runs(entry.name, algorithms, before, after)
        if entry.like:
            other = runner.folder(trees[1], matrix[entry.like])
            beside = compare_runs(entry.name, algorithms, other, after)
            found += [Difference(entry.name, f"{each.file} beside {entry.like}", each.found) for each in beside]
    except BadFileError as error:
        return [Difference(entry.name, "a file", Found("", "", "readable", str(error)))]
    return found


def read_matrix() -> dict[str, Entry]:
    """Read matrix.toml."""
    try:
        rows = tomllib.loads((HERE / "matrix.toml").read_text(encoding="utf-8"))["run"]
        entries = [Entry(**{**row, "needs": tuple(row.get("needs", ()))}) for row in rows]
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise BadInputError(f"matrix.toml: {error}") from None
    return {entry.name: entry for entry in entries}


def make_trees(rev: str | None, place: Path) -> tuple[Tree, Tree]:
    """Put both trees' sources into folders of their own, so that work may go on meanwhile."""
    baseline = (HERE / "baseline").read_text(encoding="utf-8").strip()
    named = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{rev or baseline}^{{commit}}")
    if named is None:
        raise BadInputError(f"{rev or baseline}: not a commit of this repository")
    commit = named.decode().strip()
    if _git("merge-base", "--is-ancestor", baseline, commit) is None:
        raise BadInputError(f"{rev}: records no digests; allowed: {baseline[:7]} and what came after it")
    with tarfile.open(fileobj=io.BytesIO(_git("archive", commit, "src") or b"")) as archive:
        archive.extractall(place / "old", filter="data")
    shutil.copytree(ROOT / "src", place / "new" / "src", ignore=shutil.ignore_patterns("__pycache__"))
    then = (_git("show", f"{commit}:{RENAMES}") or b"").decode()
    now = (ROOT / RENAMES).read_text(encoding="utf-8")
    scratch = place / "tmp"
    scratch.mkdir()
    trees = (
        Tree("old", place / "old" / "src", read_renames(then, f"{RENAMES} of {commit[:7]}"), scratch),
        Tree("new", place / "new" / "src", read_renames(now), scratch),
    )
    for tree in trees:
        told = _output(tree, ["-c", "import skyfed; print(skyfed.__file__)"])
        if not told.startswith(str(tree.source)):
            raise BadInputError(f"{sys.executable} does not take skyfed from the {tree.label} tree ({told})")
    print(f"old: {commit[:7]}; new: the working tree; {Path(sys.executable).name} {sys.version.split()[0]}", flush=True)
    return trees


def environment(tree: Tree) -> dict[str, str]:
    """Return the environment in which a tree's command runs."""
    path = os.pathsep.join([str(tree.source), str(RUNS)])
    # the baseline let BLAS use all cores in its main process, so that sums of the diagnostics depended on their number
    threads = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return {**os.environ, **threads, "PYTHONPATH": path, "TMPDIR": str(tree.scratch)}


def available(need: str, tree: Tree) -> bool:
    """Tell whether a data set or a module is here."""
    if need == "cifar10":
        return (Path(_output(tree, ["-m", "skyfed", "data", "path"])) / "cifar10.safetensors").exists()
    return importlib.util.find_spec(need) is not None


@contextmanager
def workplace(keep: Path | None) -> Iterator[Path]:
    """Give a folder for trees and runs; it is removed in the end unless it is to be kept."""
    if keep is not None:
        if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
            raise BadInputError(f"--keep {keep}: allowed: a new or empty folder")
        keep.mkdir(parents=True, exist_ok=True)
        yield keep.resolve()
        return
    place = Path(tempfile.mkdtemp(prefix="same-bits-")).resolve()
    try:
        yield place
    finally:
        for _ in range(3):  # a vehicle of a fleet may write its last line while it ends
            shutil.rmtree(place, ignore_errors=True)
            if not place.exists():
                break
            time.sleep(1)


def _as_ready(
    entries: list[Entry], running: dict[tuple[str, str], "Future[Outcome]"]
) -> Iterator[tuple[Entry, dict[str, Outcome]]]:
    """Yield entries as soon as all runs that they need have ended."""
    left = list(entries)
    while left:
        for entry in list(left):
            keys = [("old", entry.name), ("new", entry.name), *([("new", entry.like)] if entry.like else [])]
            if all(running[key].done() for key in keys):
                left.remove(entry)
                yield entry, {label: running[label, entry.name].result() for label in ("old", "new")}
        wait([future for future in running.values() if not future.done()], 1.0, FIRST_COMPLETED)


def _say(
    entry: Entry, reasons: dict[Difference, Intended | None], outcomes: dict[str, Outcome], old: Folder
) -> list[Difference]:
    """Print a run's line and what differs; returns what is not intended."""
    open_ones = [each for each, reason in reasons.items() if reason is None]
    word = "DIFFERS" if open_ones else "intended" if reasons else "same"
    took = " and ".join(f"{outcomes[label].seconds:.0f} s" for label in ("old", "new"))
    beside = f", beside {entry.like}" if entry.like else ""
    print(f"{word:<8} {entry.name:<22} {_uploads(entry, old)} uploads{beside} ({took})")
    for each in open_ones[:_SHOWN]:
        print(f"  {each}")
    if len(open_ones) > _SHOWN:
        print(f"  ... and {len(open_ones) - _SHOWN} more columns")
    for each, reason in reasons.items():
        if reason is not None:
            print(f"  intended: {reason.reason}: {each}")
    sys.stdout.flush()
    return open_ones


def _uploads(entry: Entry, folder: Folder) -> int:
    """Count the uploads with a digest that a run left."""
    count = 0
    for algorithm in entry.frozen["algorithms"]:
        for suffix in ("parquet", "jsonl"):
            path = folder.file(f"{algorithm}/uplink.{suffix}")
            with suppress(OSError, ValueError):
                digests = folder.renames.old_names("uplink", read(path)).get("digest", []) if path.exists() else []
                count += sum(digest is not None for digest in digests)
    return count


def _lines(path: Path) -> int:
    try:
        return path.read_bytes().count(b"\n")
    except OSError:
        return 0


def _git(*words: str) -> bytes | None:
    """Return what a git command prints, or None if it fails."""
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else None


def _output(tree: Tree, words: list[str]) -> str:
    """Return the last line that Python prints with a tree's sources."""
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment(tree), check=False)
    if done.returncode:
        raise BadInputError(f"the {tree.label} tree does not start: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    return (done.stdout.strip().splitlines() or [""])[-1]


def _stop(number: int, frame: object) -> NoReturn:
    raise StoppedError(number)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadInputError(f"{message} (see --help)")


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(
        prog="same-bits",
        description="Run a matrix of small runs with a commit and with the working tree; say whether any bit differs.",
        epilog="Exit codes: 0 nothing differs, 1 something does, 2 bad input.",
    )
    parser.add_argument("rev", nargs="?", metavar="REV", help="the commit to compare with; else the baseline's")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="a part of the matrix")
    parser.add_argument("--jobs", type=_positive, default=2, metavar="N", help="runs at a time (2)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep trees, configs and runs in this new folder")
    parser.add_argument("--list", action="store_true", help="list the runs and what they cover")
    return parser.parse_args(words)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: allowed: 1 and more")
    return int(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
