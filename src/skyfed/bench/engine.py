"""The engine's figures: ratios of interleaved measurements in one run, CPU seconds beside wall seconds.

Preset `paper`'s model on CIFAR-10. Every ratio is the median over pairs taken one right after the other, so that a busy
machine slows both sides.
"""

import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from skyfed.bench.peers import against_peers, student_round
from skyfed.bench.prepared import Prepared, prepare
from skyfed.bench.row import Progress, Row, load_average, timed
from skyfed.drivers.pool import PoolDriver
from skyfed.learning.batches import Batch, Batches
from skyfed.learning.infer import forward_of
from skyfed.learning.local import descend
from skyfed.learning.prune import magnitude_mask
from skyfed.learning.shapes import Conv, all_multiplications, multiplications
from skyfed.wire import accumulated, encode
from skyfed.workers import usable_cores

# vehicle-rounds in dense steps over delta: the deltas, the paper's law, and what was measured by kind of pruning
Law = tuple[Sequence[float], Sequence[float], dict[str, Sequence[float]]]

DELTAS = (0.0, 0.1, 0.3, 0.5, 0.7)
_JUDGED = (0.3, 0.5, 0.7)  # ratios by which the law's row is judged
_BASE = ("rounds=4", "flight.method=greedy", 'algorithms=["2ceoafl"]', "train.rho=1", "train.kappa=5")


def bench_engine(pairs: int, progress: Progress, flower: str, pfl: str) -> tuple[list[Row], Law]:
    """Measure every row over this many interleaved pairs; `flower` and `pfl` are Pythons that have these peers."""
    progress("loading CIFAR-10 and planning")
    fleet = prepare("paper", [*_BASE, "vehicles=4", "prune.delta=0.375", "quantise.raw_probability=0.0"])
    rows = [*_against_student(fleet, pairs, progress), _gemm(fleet, pairs, progress)]
    law, channels = _law(fleet, pairs, progress)
    rows += [channels, _overhead(fleet, pairs, progress), _evaluation(fleet, pairs, progress)]
    rows += against_peers(flower, pfl, progress)
    rows += [_many(fleet, progress), _help(pairs, progress)]
    return rows, law


def _ratios(
    pairs: int, one: Callable[[], object], other: Callable[[], object]
) -> tuple[float, float, list[float], list[float]]:
    """Return one's over other's wall and CPU seconds (medians), all wall ratios, and both's CPU seconds (medians)."""
    one(), other()
    times = np.array([[timed(one), timed(other)] for _ in range(pairs)])  # by pair, piece of work and clock
    ratios = times[:, 0] / times[:, 1]
    wall, cpu = np.median(ratios, axis=0).tolist()
    return wall, cpu, ratios[:, 0].tolist(), np.median(times[:, :, 1], axis=0).tolist()


def _against_student(fleet: Prepared, pairs: int, progress: Progress) -> list[Row]:
    theirs_round = student_round()
    if theirs_round is None:
        return []
    progress("vehicle-rounds against a straightforward PyTorch loop")
    cores, state, batches = usable_cores(), fleet.state(), Batches(fleet.onboard.task)
    module = fleet.onboard.engine.plain(state["weights"])
    data = [TensorDataset(*batches.take(fleet.world.schedule.train_set(u, 0))) for u in range(2)]
    cpu: list[float] = []

    def student() -> None:
        torch.set_num_threads(cores)
        for pictures in data:
            theirs_round(module, pictures, 1, 5, 0.375, 0.1)
        torch.set_num_threads(1)

    with PoolDriver(fleet.onboard, cores) as driver:

        def engine() -> None:
            cpu.extend(reply.words["cpu"] for reply in driver.call([fleet.job(state, u) for u in range(4)]))

        wall, _, each, (student_cpu, _) = _ratios(pairs, student, engine)
    # the engine does four vehicle-rounds where the student does two
    ratio, theirs, ours = 2 * wall, student_cpu / 2, median(cpu)
    also = {
        "worst pair": 2 * min(each), "best pair": 2 * max(each),
        "CPU seconds a vehicle-round, student": theirs, "CPU seconds a vehicle-round, engine": ours,
        "times less CPU": theirs / ours, "pairs": pairs, "load average": load_average(),
    }  # fmt: skip
    name = "`paper` model, vehicle-rounds per wall-second on 2 cores, against a straightforward PyTorch loop"
    return [Row(name, ratio, "times (median)", ">= 3.5x", ">= 6x", ratio >= 3.5, also)]


def _useful_flops(fleet: Prepared, pictures: int) -> float:
    """Return the FLOPs of a step with real pixels: forward, and twice that backward (once for the first layer)."""
    model = fleet.onboard.engine.model
    name, shapes = next(iter(model.seen.items()))
    first = model.module.get_submodule(name)
    assert isinstance(first, Conv)
    every = all_multiplications(model.module, model.seen)
    return (6.0 * every - 2.0 * multiplications(first, shapes[0])) * pictures


def _batches(fleet: Prepared, count: int) -> list[Batch]:
    batches = Batches(fleet.onboard.task, wide=True)
    samples = np.concatenate([fleet.world.schedule.train_set(u, 0) for u in range(fleet.world.vehicles)])
    return list(batches.draw(samples, 64, count, np.random.default_rng(0)))


def _train(fleet: Prepared, batches: list[Batch], mask: Tensor | None = None) -> None:
    """Take one step per mini-batch, so small that the model stays what it is."""
    descend(fleet.onboard.engine.model, iter(batches), 1e-6, fleet.onboard.task.loss, mask)


def _gemm(fleet: Prepared, pairs: int, progress: Progress) -> Row:
    progress("training step against the core's matrix product")
    torch.set_num_threads(1)
    side = 2048
    a, b = torch.randn(side, side), torch.randn(side, side)
    flops = _useful_flops(fleet, 3 * 64)
    wall, cpu, each, _ = _ratios(3 * pairs, lambda: a @ b, partial(_train, fleet, _batches(fleet, 3)))
    scale = flops / (2 * side**3)
    also = {"by wall time": wall * scale, "worst pair": min(each) * scale, "best pair": max(each) * scale,
            "pairs": 3 * pairs, "useful GFLOP a step": flops / 3e9, "load average": load_average()}  # fmt: skip
    name = "fraction of one core's float32 GEMM peak (2048³, same run) on useful FLOPs, training step"
    share, bar = cpu * scale, ">= 35 % by autograd"
    return Row(name, 100 * share, "% (median of CPU time)", bar, ">= 60 %", share >= 0.35, also)


def _law(fleet: Prepared, pairs: int, progress: Progress) -> tuple[Law, Row]:
    progress("measured vehicle-rounds over delta against the paper's law")
    state, batches = fleet.state(), _batches(fleet, 5)
    law = {delta: 1 + 5 * (1 - delta) for delta in DELTAS}
    wall: dict[tuple[str, float], float] = {}
    cpu: dict[tuple[str, float], float] = {}
    for kind in ("channel", "weight"):
        prune = {"granularity": kind, "budget": "flops"}
        rows = [{"use": "2ceoafl", "label": f"{delta}", "prune": prune | {"delta": delta}} for delta in DELTAS]
        own = fleet.with_rows(rows)
        for delta in DELTAS:
            over = _ratios(pairs, partial(own.do, state, label=f"{delta}"), partial(_train, own, batches))
            wall[kind, delta], cpu[kind, delta] = 5 * over[0], 5 * over[1]
    ratios = {delta: cpu["channel", delta] / law[delta] for delta in _JUDGED}
    also: dict[str, float | str] = {}
    for delta, ratio in ratios.items():
        also |= {f"delta {delta}": ratio, f"delta {delta}, wall": wall["channel", delta] / law[delta]}
    also |= {f"single weights, delta {delta}": cpu["weight", delta] / law[delta] for delta in DELTAS}
    also["load average"] = load_average()
    name = "channel pruning, budget flops, delta .3/.5/.7: measured vehicle-round over the paper's law"
    worst = max(ratios.values())
    row = Row(name, worst, "(worst of three, CPU)", "<= 1.2", "<= 1.0", worst <= 1.2, also)
    weight, channel = ([cpu[kind, delta] for delta in DELTAS] for kind in ("weight", "channel"))
    return (DELTAS, [*law.values()], {"single weights": weight, "channels": channel}), row


def _overhead(fleet: Prepared, pairs: int, progress: Progress) -> Row:
    progress("pruning, quantising and encoding")
    onboard, state = fleet.onboard, fleet.state()
    model, job = onboard.engine.model, fleet.job(state, 0)
    dense, masked = _batches(fleet, 1), _batches(fleet, 5)
    ones = torch.ones(model.layout.live_size)
    kit = onboard.kit(job)
    trained = kit.descend(state, kit.winning_ticket(state, 0.375), delta=0.375)
    scope = onboard.engine.scope(onboard.config.prune)

    def prune() -> None:
        mask, _, _ = magnitude_mask(model.live(), 0.375, scope.runs, scope.dead)
        model.mask(torch.from_numpy(mask).to(model.weights.dtype))
        places = np.flatnonzero(mask)
        accumulated(state["weights"][places], model.live()[places], 0.1)

    def pack() -> None:
        encode(kit.quantise(trained), onboard.reference_of(job.label, job.sent))

    def steps() -> None:
        _train(fleet, dense)
        _train(fleet, masked, ones)

    whole = partial(fleet.do, state)
    pruning_wall, pruning, *_ = _ratios(pairs, prune, whole)
    packing_wall, packing, *_ = _ratios(pairs, pack, whole)
    _, all_steps, *_ = _ratios(pairs, steps, whole)
    share = pruning + packing
    name = "pruning + quantising + encoding, share of a vehicle-round"
    also = {"pruning, %": 100 * pruning, "quantising and encoding, %": 100 * packing,
            "by wall time, %": 100 * (pruning_wall + packing_wall),
            "all that is not a training step, %": 100 * (1 - all_steps), "load average": load_average()}  # fmt: skip
    return Row(name, 100 * share, "% (median of CPU time)", "<= 12 %", "<= 5 %", share <= 0.12, also)


def _evaluation(fleet: Prepared, pairs: int, progress: Progress) -> Row:
    progress("evaluation")
    torch.set_num_threads(1)
    task, eager = fleet.onboard.task, fleet.onboard.engine.plain(fleet.state()["weights"]).eval()
    images = torch.from_numpy(task.test.inputs[:1000])
    plain, wide = (torch.split(Batches(task, wide=wide).ready(images), 250) for wide in (False, True))
    with torch.inference_mode():
        forward = forward_of(fleet.onboard.engine.model)
        wall, cpu, each, _ = _ratios(pairs, lambda: [eager(part) for part in plain], lambda: [*map(forward, wide)])
        seconds, _ = timed(lambda: [*map(forward, wide)])
    also = {
        "by wall time": wall, "worst pair": min(each), "pictures a second": 1000 / seconds,
        "load average": load_average(),
    }  # fmt: skip
    name = "evaluation, pictures per core-second against eager NCHW"
    return Row(name, cpu, "times (median of CPU time)", ">= 2x", "3x", cpu >= 2, also)


def _many(fleet: Prepared, progress: Progress) -> Row:
    progress("10 and 1000 vehicles")
    little = ("sensing.initial=20", "sensing.n_max=5", "sensing.initial_test=5", "sensing.n_max_test=2")
    fleets: dict[int, Prepared] = {}
    memory: dict[int, float] = {}
    for count in (10, 1000):
        before = _resident()
        overrides = [*_BASE, *little, "model.name=cnn", "model.width=16", f"vehicles={count}"]
        fleets[count] = prepare("quick", overrides, fleet.onboard.task)
        memory[count] = _resident() - before
    state = fleets[10].state()

    def rounds(own: Prepared) -> None:
        for u in range(10):
            own.do(state, u)

    _, ratio, _, (large, small) = _ratios(5, partial(rounds, fleets[1000]), partial(rounds, fleets[10]))
    also = {"CPU seconds a vehicle-round, U=10": small / 10, "U=1000": large / 10,
            "memory of 990 more vehicles, MB": memory[1000] - memory[10], "load average": load_average()}  # fmt: skip
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
