"""CPU seconds of the same job in skyfed and in its peers, from start to end, as rows of `skyfed bench engine`.

python reproduce/peers/compare.py --flower PYTHON --pfl PYTHON

PYTHON is an interpreter that has flwr[simulation] or pfl. A peer that is not installed gets a row without a figure.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

from skyfed.bench.prepared import planned
from skyfed.bench.row import Row, to_json
from skyfed.config import Config, load_config
from skyfed.learning.batches import Batches
from skyfed.runs.folder import RunFolder
from skyfed.runs.start import world_of
from skyfed.tasks import load_task

_HERE = Path(__file__).parent
_PAIRS = 5
_SHORT, _LONG = 20, 60  # rounds: the job, and one that shows what more rounds take
PEERS = {"Flower": ("flower.py", "import flwr, ray", 0.35), "pfl": ("apple_pfl.py", "import pfl, torch", 0.95)}


def against_peers(pythons: dict[str, str]) -> list[Row]:
    """Return one row per peer; `pythons` says which interpreters have them."""
    overrides = [
        "vehicles=10", f"rounds={_LONG}", "flight.method=greedy", 'algorithms=["afl"]', "model.name=cnn",
        "model.width=16", "train.kappa=5", "train.batches_per_round=1", "eval_every=1000",
    ]  # fmt: skip
    config = load_config("quick", overrides)
    there = [name for name, (_, needs, _) in PEERS.items() if not _exit_code([pythons[name], "-c", needs])]
    with TemporaryDirectory() as place:
        own, job = Path(place) / "run", Path(place) / "job"
        if there:
            _prepare(config, own, job)
        return [_measure(name, pythons[name], config, own, job) if name in there else _missing(name) for name in PEERS]


def _exit_code(command: list[str]) -> int:
    return subprocess.run(command, capture_output=True, check=False).returncode


def _prepare(config: Config, own: Path, job: Path) -> None:
    """Write a planned run for skyfed, and the pictures that its vehicles have in the end for the peers."""
    task = load_task(config.data)
    with RunFolder.claim(own, config, []) as folder:
        world = world_of(config, task, planned(folder, config))
    job.mkdir()
    batches = Batches(task)
    for u in range(config.vehicles):
        images, labels = batches.take(world.schedule.train_set(u, _LONG - 1))
        np.savez(job / f"{u}.npz", images=images.numpy(), labels=labels.numpy())


def _measure(name: str, python: str, config: Config, own: Path, job: Path) -> Row:
    """Measure skyfed and a peer in turns."""
    script, _, bar = PEERS[name]
    steps, batch = str(config.train.kappa), str(config.train.batch_size)
    commands: dict[str, Callable[[int], list[str]]] = {
        "skyfed": lambda rounds: [sys.executable, str(_HERE / "own.py"), str(own), str(rounds)],
        name: lambda rounds: [
            python, str(_HERE / script), str(job), str(config.vehicles), str(rounds), steps, batch
        ],
    }  # fmt: skip
    seconds: dict[str, list[tuple[float, float]]] = {who: [] for who in commands}
    for k in range(_PAIRS):
        print(f"bench: {name}, pair {k + 1} of {_PAIRS}", file=sys.stderr)
        for who, command in commands.items():
            seconds[who].append((_reaped(command(_SHORT)), _reaped(command(_LONG))))
    return _row(name, bar, seconds)


def _title(name: str) -> str:
    return f"same job in {name}, CPU-seconds, small CNN, 10 vehicles"


def _missing(name: str) -> Row:
    return Row(_title(name), None, f"not measured: {name} is not installed", f"<= {PEERS[name][2]}", "", None)


def _row(name: str, bar: float, seconds: dict[str, list[tuple[float, float]]]) -> Row:
    whole = {who: median(short for short, _ in each) for who, each in seconds.items()}
    more = {who: median((long - short) / (_LONG - _SHORT) for short, long in each) for who, each in seconds.items()}
    ratios = [own / other for (own, _), (other, _) in zip(seconds["skyfed"], seconds[name], strict=True)]
    also: dict[str, float | str] = {
        "rounds": _SHORT, "CPU seconds, skyfed": whole["skyfed"], f"CPU seconds, {name}": whole[name],
        "worst pair": max(ratios), "pairs": len(ratios), "CPU seconds a further round, skyfed": more["skyfed"],
        f"CPU seconds a further round, {name}": more[name], "of a further round alone": more["skyfed"] / more[name],
    }  # fmt: skip
    value = median(ratios)
    return Row(_title(name), value, "of its CPU-seconds, start to end (median)", f"<= {bar}", "", value <= bar, also)


def _reaped(command: list[str]) -> float:
    done = subprocess.run(
        [sys.executable, str(_HERE / "reap.py"), *command], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{Path(command[1]).name} failed: {done.stderr.strip().splitlines()[-1:]}")
    return float(done.stdout.split()[-1])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flower", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--pfl", default=sys.executable, metavar="PYTHON")
    asked = parser.parse_args()
    print(to_json(against_peers({"Flower": asked.flower, "pfl": asked.pfl})))
