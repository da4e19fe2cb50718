"""What every part stands on: small runs, processes that start without importing again, results as one hash, rows.

A process under test is forked from one that has imported everything and has computed nothing but the generated
pictures; it runs the real command with real files, and real signals end it.
"""

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"})
os.environ.setdefault("TERM", "dumb")
SOURCES = Path(__file__).parents[1] / "src"  # of this checkout, whatever else is installed
sys.path.insert(0, str(SOURCES))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(SOURCES), os.environ.get("PYTHONPATH", "")]))

LONG = 1500.0  # seconds that no machine needs for what is waited for here; only what hangs is given up
ALGORITHM = "2ceoafl"
TIMES = {"seconds", "measured_seconds", "measured_cpu_seconds"}
SMALL = (
    "vehicles=2", "eval_every=5", "workers=1", "flight.method=greedy", f'algorithms=["{ALGORITHM}"]', "model.width=4",
    "sensing.initial=24", "sensing.n_max=12", "train.batch_size=8", "train.kappa=2",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A measured figure beside its bar."""

    name: str
    value: str
    bar: str
    holds: bool
    also: dict[str, Any] = field(default_factory=dict)


def run_part(part: Callable[[int, int], list[Row]], count: int, about: str | None) -> None:
    """Run a part from the command line: count and seed in, rows out as JSON; ends with 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--count", type=int, default=count, help=f"how many cases ({count})")
    parser.add_argument("--seed", type=int, default=0, help="every choice follows from it (0)")
    chosen = parser.parse_args()
    rows = part(chosen.count, chosen.seed)
    print(json.dumps([asdict(row) for row in rows], indent=2))
    sys.exit(not all(row.holds for row in rows))


def arguments(out: Path, *overrides: str) -> list[str]:
    """Return the command of a small run."""
    chosen = [part for setting in (*SMALL, *overrides) for part in ("--set", setting)]
    return ["run", "smoke", "--plain", "--out", str(out), *chosen]


def import_all() -> None:
    """Import and generate once what a run needs, so that every process forked from here has it."""
    import skyfed.cli
    import skyfed.drivers.execute
    import skyfed.drivers.tracking
    import skyfed.flight.greedy
    import skyfed.report.curves
    import skyfed.report.figures
    import skyfed.report.page
    import skyfed.report.terminal_tables
    import skyfed.report.view
    import skyfed.runs.flights
    import skyfed.world.mission  # noqa: F401
    from skyfed.tasks import synthetic

    pictures = synthetic.generate()  # takes longer than a small run
    synthetic.generate = lambda: pictures


class Process:
    """A command in a process of its own; what it says goes to a file."""

    def __init__(
        self,
        words: Sequence[str],
        log: Path,
        before: Callable[[], None] | None = None,
        output: str | None = None,
        draws: bool = False,
    ) -> None:
        """Fork; `before` is called in the new process first, `output` names another file for standard output.

        Figures and the page come when all else is safe and take longer than all else; they are drawn on demand.
        """
        self._log, self.code = log, None
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _become(words, log, before, output, draws)

    code: int | None

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal, None while it runs."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code

    def wait(self, seconds: float = LONG) -> int:
        """Wait for the end."""
        end = time.monotonic() + seconds
        while self.poll() is None:
            if time.monotonic() > end:
                self.kill()
                raise TimeoutError(f"not over after {seconds} s: {self.said()[-500:]}")
            time.sleep(0.005)
        assert self.code is not None
        return self.code

    def is_stopped(self) -> bool:
        """Tell whether SIGSTOP has been obeyed."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def signal(self, number: int) -> None:
        """Send a signal."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill -9 and wait."""
        if self.poll() is None:
            self.signal(signal.SIGKILL)
            self.wait()

    def said(self) -> str:
        """Return all that was said so far."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""


def _become(
    words: Sequence[str], log: Path, before: Callable[[], None] | None, output: str | None, draws: bool
) -> None:
    """Be the command, from here to the end of this process."""
    code = 70
    try:
        said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(output or os.devnull, os.O_WRONLY), 1)
        os.dup2(said, 2)
        sys.stdout, sys.stderr = text_stream(1), text_stream(2)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # nohup and shells let some be ignored
            signal.signal(number, signal.SIG_DFL)
        if before:
            before()
        code = command(words, draws)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def text_stream(descriptor: int) -> TextIO:
    """Return a text stream that leaves its descriptor open when it goes: the next file opened would take its number."""
    by_line = descriptor == 2 or os.isatty(descriptor)  # as Python does it
    return os.fdopen(descriptor, "w", buffering=1 if by_line else -1, closefd=False)


def command(words: Sequence[str], draws: bool) -> int:
    """Do what the program `skyfed` does with these words; returns its exit code, that of the last flush included."""
    from skyfed.cli import execution, main
    from skyfed.report import draw

    if not draws:
        for name in ("draw_flights", "draw_training", "write_report"):
            for module in (draw, execution):
                setattr(module, name, lambda *_: None)
    sys.argv = ["skyfed", *words]
    try:
        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    try:
        sys.stdout.flush()
    except OSError:
        return 120  # Python's own code for it
    sys.stderr.flush()
    return code


def digest(run: Path) -> str:
    """Return one hash of all that a finished run has to give: weights, metrics without times, flights."""
    import numpy as np

    from skyfed.runs.tables import read_parquet

    found = hashlib.sha256((run / ALGORITHM / "model.safetensors").read_bytes())
    for table in ("rounds", "uplink", "vehicles"):
        for row in read_parquet(run / ALGORITHM / f"{table}.parquet"):
            found.update(json.dumps({k: v for k, v in row.items() if k not in TIMES}, sort_keys=True).encode())
    with np.load(run / "plan.npz", allow_pickle=False) as plan:
        for name in ("positions", "association", "objective", "bound", "psi"):
            found.update(np.ascontiguousarray(plan[name]).tobytes())
    return found.hexdigest()


def rows_done(run: Path, algorithm: str = ALGORITHM) -> int:
    """Return how many rounds have their row."""
    lines = run / algorithm / "rounds.jsonl"
    return lines.read_bytes().count(b"\n") if lines.exists() else 0


def checkpoints(run: Path) -> list[Path]:
    """Return the checkpoints, oldest first."""
    return sorted((run / ALGORITHM / "checkpoints").glob("round-*.safetensors"))


def whole_run(place: Path, *overrides: str) -> str:
    """Run without any fault; returns the hash of the result."""
    process = Process(arguments(place, *overrides), place.parent / f"{place.name}.log")
    if process.wait():
        raise RuntimeError(process.said())
    return digest(place)


@contextlib.contextmanager
def workshop() -> Iterator[Path]:
    """A folder for all of a part's runs, removed at the end."""
    place = Path(tempfile.mkdtemp(prefix="endurance-"))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def wait_for(holds: Callable[[], bool], seconds: float = LONG, pause: float = 0.002) -> bool:
    """Wait until something holds; tells whether it does."""
    end = time.monotonic() + seconds
    while not (done := holds()) and time.monotonic() < end:
        time.sleep(pause)
    return done
