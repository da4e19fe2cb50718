"""CPU seconds a round of the same job in skyfed and in its peers; what is not installed is left out."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import torch

from skyfed.bench.flights import planned
from skyfed.bench.row import Row
from skyfed.config import Config, load_config
from skyfed.drivers.inline import InlineDriver
from skyfed.errors import BadInputError
from skyfed.learning.local import Batches
from skyfed.runs.folder import RunFolder
from skyfed.sensing.datasets import Pictures
from skyfed.simulate import Report, State, run
from skyfed.vehicle import Vehicles

_HERE = Path(__file__).parent
_SHORT, _LONG = 5, 55  # rounds; starting up is in both and cancels out
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
        with RunFolder.claim(Path(place) / "run", config, []) as folder:
            vehicles = Vehicles(config, pictures, planned(folder, config))
        job = Path(place) / "job"
        job.mkdir()
        batches = Batches(pictures)
        for u in range(config.vehicles):
            samples = vehicles.schedule.train_set(u, _LONG - 1)
            images = batches.normalised(torch.from_numpy(pictures.train_images[samples])).numpy()
            np.savez(job / f"{u}.npz", images=images, labels=pictures.train_labels[samples].astype(np.int64))
        numbers = [str(config.vehicles), str(config.train.kappa), str(config.train.batch_size)]
        rows = []
        for name, (script, needs, bar) in PEERS.items():
            python = pythons[name]
            title = f"same job in {name}, CPU-seconds, small CNN, 10 vehicles"
            if subprocess.run([python, "-c", needs], capture_output=True, check=False).returncode:
                rows.append(Row(title, None, f"not measured: {name} is not installed", f"<= {bar}", "", None, {}))
                continue
            ratios, own, other = [], [], []
            for k in range(pairs):
                progress(f"{name}, pair {k + 1} of {pairs}")
                own.append(_own_seconds(vehicles, config))
                other.append(_peer_seconds([python, str(_HERE / script), str(job)], numbers))
                ratios.append(own[-1] / other[-1])
            also: dict[str, float | str] = {
                "CPU seconds a round, skyfed": median(own), f"CPU seconds a round, {name}": median(other),
                "worst pair": max(ratios), "pairs": pairs,
            }  # fmt: skip
            value = median(own) / median(other)
            rows.append(Row(title, value, "of its CPU-seconds (medians)", f"<= {bar}", "", value <= bar, also))
    return rows


class _Nobody:
    def record(self, state: State, report: Report) -> None:
        """Keep nothing."""


def _own_seconds(vehicles: Vehicles, config: Config) -> float:
    """Return CPU seconds a round, packing and unpacking of all messages included."""

    def seconds(rounds: int) -> float:
        begin = time.process_time()
        short = config.model_copy(update={"rounds": rounds})
        run(short, "afl", InlineDriver(vehicles), _Nobody(), State(*vehicles.initial()))
        return time.process_time() - begin

    return _slope(seconds)


def _peer_seconds(command: list[str], numbers: list[str]) -> float:
    vehicles, steps, batch = numbers
    return _slope(lambda rounds: _reaped([*command, vehicles, str(rounds), steps, batch]))


def _slope(seconds: Callable[[int], float]) -> float:
    short, long = seconds(_SHORT), seconds(_LONG)
    return (long - short) / (_LONG - _SHORT)


def _reaped(command: list[str]) -> float:
    done = subprocess.run(
        [sys.executable, str(_HERE / "reap.py"), *command], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BadInputError(f"{Path(command[1]).name} failed: {done.stderr.strip().splitlines()[-1:]}")
    return float(done.stdout.split()[-1])
