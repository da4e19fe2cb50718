"""CPU seconds of the same job in skyfed and in its peers, from start to end; what is not installed is left out."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import torch

from skyfed.bench.flights import planned
from skyfed.bench.row import Row
from skyfed.config import load_config
from skyfed.errors import BadInputError
from skyfed.learning.local import Batches
from skyfed.runs.folder import RunFolder
from skyfed.sensing.datasets import Pictures
from skyfed.vehicle import Vehicles

_HERE = Path(__file__).parent
_SHORT, _LONG = 20, 60  # rounds: the job, and one that shows what more rounds take
PEERS = {"Flower": ("flower.py", "import flwr, ray", 0.35), "pfl": ("apple_pfl.py", "import pfl, torch", 0.95)}


def against_peers(
    pictures: Pictures, pythons: dict[str, str], pairs: int, progress: Callable[[str], None]
) -> list[Row]:
    """Return a row a peer; `pythons` says which interpreters have them."""
    overrides = [
        "vehicles=10", f"rounds={_LONG}", "flight.method=greedy", 'algorithms=["afl"]', "model.name=cnn",
        "model.width=16", "train.kappa=5", "train.batches_per_round=1", "eval_every=1000",
    ]  # fmt: skip
    config = load_config("quick", overrides)
    with TemporaryDirectory() as place:
        own, job = Path(place) / "run", Path(place) / "job"
        with RunFolder.claim(own, config, []) as folder:
            vehicles = Vehicles(config, pictures, planned(folder, config))
        job.mkdir()
        batches = Batches(pictures)
        for u in range(config.vehicles):
            samples = vehicles.schedule.train_set(u, _LONG - 1)
            images = batches.normalised(torch.from_numpy(pictures.train_images[samples])).numpy()
            np.savez(job / f"{u}.npz", images=images, labels=pictures.train_labels[samples].astype(np.int64))
        steps, batch = str(config.train.kappa), str(config.train.batch_size)
        rows = []
        for name, (script, needs, bar) in PEERS.items():
            python = pythons[name]
            title = f"same job in {name}, CPU-seconds, small CNN, 10 vehicles"
            if subprocess.run([python, "-c", needs], capture_output=True, check=False).returncode:
                rows.append(Row(title, None, f"not measured: {name} is not installed", f"<= {bar}", "", None, {}))
                continue
            commands: dict[str, Callable[[int], list[str]]] = {
                "skyfed": lambda rounds: [sys.executable, "-m", "skyfed.bench.peers.own", str(own), str(rounds)],
                name: lambda rounds, python=python, script=script: [  # type: ignore[misc]
                    python, str(_HERE / script), str(job), str(config.vehicles), str(rounds), steps, batch
                ],
            }  # fmt: skip
            seconds: dict[str, list[tuple[float, float]]] = {who: [] for who in commands}
            for k in range(pairs):
                progress(f"{name}, pair {k + 1} of {pairs}")
                for who, command in commands.items():
                    seconds[who].append((_reaped(command(_SHORT)), _reaped(command(_LONG))))
            rows.append(_row(title, name, bar, seconds))
    return rows


def _row(title: str, name: str, bar: float, seconds: dict[str, list[tuple[float, float]]]) -> Row:
    whole = {who: median(short for short, _ in each) for who, each in seconds.items()}
    more = {who: median((long - short) / (_LONG - _SHORT) for short, long in each) for who, each in seconds.items()}
    ratios = [own / other for (own, _), (other, _) in zip(seconds["skyfed"], seconds[name], strict=True)]
    also: dict[str, float | str] = {
        "rounds": _SHORT, "CPU seconds, skyfed": whole["skyfed"], f"CPU seconds, {name}": whole[name],
        "worst pair": max(ratios), "pairs": len(ratios), "CPU seconds a further round, skyfed": more["skyfed"],
        f"CPU seconds a further round, {name}": more[name], "of a further round alone": more["skyfed"] / more[name],
    }  # fmt: skip
    value = median(ratios)
    return Row(title, value, "of its CPU-seconds, start to end (median)", f"<= {bar}", "", value <= bar, also)


def _reaped(command: list[str]) -> float:
    done = subprocess.run(
        [sys.executable, str(_HERE / "reap.py"), *command], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BadInputError(f"{Path(command[1]).name} failed: {done.stderr.strip().splitlines()[-1:]}")
    return float(done.stdout.split()[-1])
