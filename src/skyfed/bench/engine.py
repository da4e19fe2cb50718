"""The engine's figures: ratios of interleaved measurements in one run, CPU seconds beside wall seconds.

Preset `paper`'s model on CIFAR-10. Every ratio is the median over pairs taken one right after the other, so that a busy
machine slows both sides.
"""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch.utils.data import TensorDataset

from skyfed.algorithms import find_recipe
from skyfed.bench.flights import planned
from skyfed.bench.peers.compare import against_peers
from skyfed.bench.row import Row
from skyfed.bench.student import student_round
from skyfed.config import Config, load_config
from skyfed.drivers.pool import PoolDriver
from skyfed.flight.fleet import FleetPlan
from skyfed.learning.flat import FlatModel
from skyfed.learning.infer import forward_of
from skyfed.learning.local import Batches, descend
from skyfed.learning.models import build_model
from skyfed.learning.prune import magnitude_mask
from skyfed.learning.shapes import Conv, all_multiplications, multiplications
from skyfed.runs.folder import RunFolder
from skyfed.sensing.datasets import Pictures, load_data
from skyfed.simulate import State
from skyfed.vehicle import Vehicles
from skyfed.wire import accumulated, encode

Progress = Callable[[str], None]
DELTAS = (0.0, 0.1, 0.3, 0.5, 0.7)
_BASE = ("rounds=4", "flight.method=greedy", 'algorithms=["2ceoafl"]', "train.rho=1", "train.kappa=5")


@dataclass(frozen=True)
class Law:
    """Measured seconds of a vehicle-round over delta, in units of a dense step, beside the paper's law."""

    deltas: tuple[float, ...]
    modelled: tuple[float, ...]
    channel: tuple[float, ...]
    weight: tuple[float, ...]


def bench_engine(pairs: int, progress: Progress, pythons: dict[str, str]) -> tuple[list[Row], Law]:
    """Measure every row over so many interleaved pairs; `pythons` are interpreters that have the peers."""
    progress("loading CIFAR-10 and planning")
    config = load_config("paper", [*_BASE, "vehicles=4", "prune.delta=0.375", "quantise.raw_probability=0.0"])
    pictures = load_data(config.data)
    with TemporaryDirectory() as place, RunFolder.claim(Path(place), config, []) as folder:
        plan = planned(folder, config)
        vehicles = Vehicles(config, pictures, plan)
        rows = [_against_student(vehicles, config, folder.path / "plan.npz", pairs, progress)]
        rows.append(_gemm(vehicles, pairs, progress))
        law, channels = _law(config, pictures, plan, pairs, progress)
        rows += [channels, _overhead(vehicles, pairs, progress), _evaluation(vehicles, pairs, progress)]
    rows += against_peers(pictures, pythons, 5, progress)
    rows += [_many(pictures, progress), _help(pairs, progress)]
    return rows, law


def _ratios(pairs: int, one: Callable[[], object], other: Callable[[], object]) -> tuple[float, float, list[float]]:
    """Return the median of one's over other's wall seconds, the same of CPU seconds, and all wall ratios."""
    wall, cpu = [], []
    one(), other()
    for _ in range(pairs):
        (wall_one, cpu_one), (wall_other, cpu_other) = _timed(one), _timed(other)
        wall.append(wall_one / wall_other)
        cpu.append(cpu_one / cpu_other)
    return median(wall), median(cpu), wall


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return wall and CPU seconds of this process and of children that have ended."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def _load() -> str:
    return " ".join(f"{value:.2f}" for value in os.getloadavg())


def _against_student(vehicles: Vehicles, config: Config, plan: Path, pairs: int, progress: Progress) -> Row:
    progress("vehicle-rounds against a straightforward PyTorch loop")
    pictures, cores = vehicles.pictures, os.cpu_count() or 1
    module = build_model(config.model, pictures.classes, 32, config.seed)
    batches = Batches(pictures)
    data = []
    for u in range(2):
        samples = vehicles.schedule.train_set(u, 0)
        images = batches.normalised(torch.from_numpy(pictures.train_images[samples]))
        data.append(TensorDataset(images, torch.from_numpy(pictures.train_labels[samples]).long()))
    state = State(*vehicles.initial())
    cpu: list[float] = []
    student_cpu: list[float] = []

    def student() -> None:
        torch.set_num_threads(cores)
        begin = time.process_time()
        for one in data:
            student_round(module, one, 1, 5, 0.375, 0.1)
        student_cpu.append((time.process_time() - begin) / 2)
        torch.set_num_threads(1)

    with PoolDriver(vehicles, config, plan, cores) as driver:

        def engine() -> None:
            cpu.extend(upload.cpu for upload in driver.train("2ceoafl", 0, state, [0, 1, 2, 3]))

        wall, _, each = _ratios(pairs, student, engine)
    ratio, seconds = 2 * wall, median(cpu)  # the engine does four vehicle-rounds where the student does two
    also = {
        "worst pair": 2 * min(each), "best pair": 2 * max(each),
        "CPU seconds a vehicle-round, student": median(student_cpu), "CPU seconds a vehicle-round, engine": seconds,
        "times less CPU": median(student_cpu) / seconds, "pairs": pairs, "load average": _load(),
    }  # fmt: skip
    name = "`paper` model, vehicle-rounds per wall-second on 2 cores, against a straightforward PyTorch loop"
    return Row(name, ratio, "times (median)", ">= 3.5x", ">= 6x", ratio >= 3.5, also)


def useful_flops(model: FlatModel, pictures: int) -> float:
    """Return the FLOPs of a step with real pixels: forward, and twice that backward (once for the first layer)."""
    name, shapes = next(iter(model.seen.items()))
    first = model.module.get_submodule(name)
    assert isinstance(first, Conv)
    every = all_multiplications(model.module, model.seen)
    return (6.0 * every - 2.0 * multiplications(first, shapes[0])) * pictures


def _batch(vehicles: Vehicles, count: int = 1) -> list[tuple[torch.Tensor, torch.Tensor]]:
    batches = Batches(vehicles.pictures, wide=True)
    samples = vehicles.schedule.union(0)
    return list(batches.draw(samples, 64, count, np.random.default_rng(0)))


def _gemm(vehicles: Vehicles, pairs: int, progress: Progress) -> Row:
    progress("training step against the core's matrix product")
    torch.set_num_threads(1)
    side = 2048
    a, b = torch.randn(side, side), torch.randn(side, side)
    steps = _batch(vehicles, 3)
    flops = useful_flops(vehicles.model, 3 * 64)
    wall, cpu, each = _ratios(3 * pairs, lambda: a @ b, lambda: descend(vehicles.model, iter(steps), 1e-6))
    scale = flops / (2 * side**3)
    also = {"by wall time": wall * scale, "worst pair": min(each) * scale, "best pair": max(each) * scale,
            "pairs": 3 * pairs, "useful GFLOP a step": flops / 3e9, "load average": _load()}  # fmt: skip
    name = "fraction of one core's float32 GEMM peak (2048³, same run) on useful FLOPs, training step"
    return Row(
        name, 100 * cpu * scale, "% (median of CPU time)", ">= 35 % by autograd", ">= 60 %", cpu * scale >= 0.35, also
    )


def _law(config: Config, pictures: Pictures, plan: FleetPlan, pairs: int, progress: Progress) -> tuple[Law, Row]:
    progress("measured vehicle-rounds over delta against the paper's law")
    kinds = {}
    for kind in ("channel", "weight"):
        prune = config.prune.model_copy(update={"granularity": kind, "budget": "flops"})
        kinds[kind] = Vehicles(config.model_copy(update={"prune": prune}), pictures, plan)
    initial = kinds["weight"].initial()
    steps = _batch(kinds["weight"], 5)
    found: dict[str, list[float]] = {"channel": [], "weight": []}
    walls, ratios = [], []
    for delta in DELTAS:
        law = 1 + 5 * (1 - delta)
        for kind, vehicles in kinds.items():

            def dense(vehicles: Vehicles = vehicles) -> None:
                descend(vehicles.model, iter(steps), 1e-6)

            def measured(vehicles: Vehicles = vehicles, delta: float = delta) -> None:
                vehicles.settings = config.model_copy(
                    update={"prune": vehicles.settings.prune.model_copy(update={"delta": delta})}
                )
                vehicles.train("2ceoafl", 0, 0, *initial)

            wall, cpu, _ = _ratios(pairs, measured, dense)
            found[kind].append(5 * cpu)
            if kind == "channel" and delta in (0.3, 0.5, 0.7):
                ratios.append(5 * cpu / law)
                walls.append(5 * wall / law)
    also: dict[str, float | str] = {}
    for delta, cpu, wall in zip((0.3, 0.5, 0.7), ratios, walls, strict=True):
        also |= {f"delta {delta}": cpu, f"delta {delta}, wall": wall}
    modelled = tuple(1 + 5 * (1 - delta) for delta in DELTAS)
    also |= {f"single weights, delta {d}": w / m for d, w, m in zip(DELTAS, found["weight"], modelled, strict=True)}
    also["load average"] = _load()
    name = "channel pruning, budget flops, delta .3/.5/.7: measured vehicle-round over the paper's law"
    row = Row(name, max(ratios), "(worst of three, CPU)", "<= 1.2", "<= 1.0", max(ratios) <= 1.2, also)
    return Law(DELTAS, modelled, tuple(found["channel"]), tuple(found["weight"])), row


def _overhead(vehicles: Vehicles, pairs: int, progress: Progress) -> Row:
    progress("pruning, quantising and encoding")
    initial, model, recipe = vehicles.initial(), vehicles.model, find_recipe("2ceoafl")
    dense, masked = _batch(vehicles, 1), _batch(vehicles, 5)
    ones = torch.ones_like(model.weights)
    local = vehicles.train_locally(recipe, 0, 0, *initial, 0.375)
    scope = vehicles.scope(initial[0])

    def prune() -> None:
        mask, _, _ = magnitude_mask(model.live(), 0.375, scope.runs, scope.dead)
        model.mask(torch.from_numpy(mask).to(model.weights.dtype))
        places = np.flatnonzero(mask)
        accumulated(model.start[places], model.live()[places], 0.1)

    def pack() -> None:
        encode(vehicles.update(0, 0, local, 0.0), vehicles.common(*initial))

    def whole() -> None:
        vehicles.train("2ceoafl", 0, 0, *initial)

    def steps() -> None:
        descend(model, iter(dense), 1e-6)
        descend(model, iter(masked), 1e-6, ones)

    pruning_wall, pruning, _ = _ratios(pairs, prune, whole)
    packing_wall, packing, _ = _ratios(pairs, pack, whole)
    _, all_steps, _ = _ratios(pairs, steps, whole)
    share = pruning + packing
    name = "pruning + quantising + encoding, share of a vehicle-round"
    also = {"pruning, %": 100 * pruning, "quantising and encoding, %": 100 * packing,
            "by wall time, %": 100 * (pruning_wall + packing_wall),
            "all that is not a training step, %": 100 * (1 - all_steps), "load average": _load()}  # fmt: skip
    return Row(name, 100 * share, "% (median of CPU time)", "<= 12 %", "<= 5 %", share <= 0.12, also)


def _evaluation(vehicles: Vehicles, pairs: int, progress: Progress) -> Row:
    progress("evaluation")
    torch.set_num_threads(1)
    pictures = vehicles.pictures
    eager = build_model(vehicles.settings.model, pictures.classes, 32, vehicles.settings.seed).eval()
    images = torch.from_numpy(pictures.test_images[:1000])
    plain, wide = Batches(pictures).normalised(images), Batches(pictures, wide=True).normalised(images)
    with torch.inference_mode():
        forward = forward_of(vehicles.model)
        wall, cpu, each = _ratios(
            pairs,
            lambda: [eager(part) for part in torch.split(plain, 250)],
            lambda: [forward(part) for part in torch.split(wide, 250)],
        )
        seconds, _ = _timed(lambda: [forward(part) for part in torch.split(wide, 250)])
    also = {"by wall time": wall, "worst pair": min(each), "pictures a second": 1000 / seconds, "load average": _load()}
    name = "evaluation, pictures per core-second against eager NCHW"
    return Row(name, cpu, "times (median of CPU time)", ">= 2x", "3x", cpu >= 2, also)


def _many(pictures: Pictures, progress: Progress) -> Row:
    progress("10 and 1000 vehicles")
    seconds: dict[int, list[float]] = {}
    memory: dict[int, float] = {}
    few = ("sensing.initial=20", "sensing.n_max=5", "sensing.initial_test=5", "sensing.n_max_test=2", "model.name=cnn")
    fleets = {}
    for count in (10, 1000):
        before = _resident()
        config = load_config("quick", [*_BASE, *few, "model.width=16", f"vehicles={count}"])
        with TemporaryDirectory() as place, RunFolder.claim(Path(place), config, []) as folder:
            fleets[count] = Vehicles(config, pictures, planned(folder, config))
        memory[count] = _resident() - before
    initial = fleets[10].initial()
    for count, vehicles in fleets.items():
        vehicles.train("2ceoafl", 0, 0, *initial)
        seconds[count] = []
    for _ in range(5):
        for count, vehicles in fleets.items():
            _, cpu = _timed(lambda v=vehicles: [v.train("2ceoafl", u, 0, *initial) for u in range(10)])  # type: ignore[misc]
            seconds[count].append(cpu / 10)
    ratio = median(b / a for a, b in zip(seconds[10], seconds[1000], strict=True))
    also = {"CPU seconds a vehicle-round, U=10": median(seconds[10]), "U=1000": median(seconds[1000]),
            "memory of 990 more vehicles, MB": memory[1000] - memory[10], "load average": _load()}  # fmt: skip
    name = "U = 10 → 1000 vehicles (small CNN): seconds per vehicle-round"
    return Row(name, ratio, "times (median)", "flat within 10 %", "", ratio <= 1.1, also)


def _resident() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1e6


def _help(pairs: int, progress: Progress) -> Row:
    progress("skyfed --help")
    times = []
    for _ in range(pairs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "skyfed", "--help"], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    value = median(times)
    return Row("`skyfed --help`, CPU", value, "s (median)", "<= 0.4 s", "", value <= 0.4, {"worst": max(times)})
