"""The planner under a speed limit: how long commands take, and how far flights are from their proven bounds."""

import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np

from skyfed.bench.row import Progress, Row, load_average
from skyfed.flight.problem import Problem
from skyfed.flight.travel import optimistic_network
from skyfed.flight.visited import most_visited
from skyfed.types import IDLE, Plan

Planned = Callable[[Sequence[Problem]], tuple[list[Plan], bool]]
Missions = Callable[..., list[Problem]]

_LIMITS = (150, 250, 300)  # m per round
_SLOW_AND_FAST = (50.0, 100.0, 300.0)
_ROUNDS = (25, 50, 100, 200)


def commands(progress: Progress) -> Row:
    """Measure `skyfed plan` as a user runs it, process start included."""
    walls: dict[str, dict[int, float]] = {"smoke": {}, "quick": {}}
    for preset, seconds in walls.items():
        for vmax in _LIMITS:
            progress(f"skyfed plan {preset}, vmax {vmax}")
            with tempfile.TemporaryDirectory() as folder:
                arguments = ["plan", preset, "--set", f"flight.vmax={vmax}", "--out", f"{folder}/run", "--plain"]
                begin = time.perf_counter()
                subprocess.run([sys.executable, "-m", "skyfed", *arguments], check=True, capture_output=True)
                seconds[vmax] = time.perf_counter() - begin
    also: dict[str, Any] = {f"{p}, vmax {v}, s": s for p, seconds in walls.items() for v, s in seconds.items()}
    smoke, quick = max(walls["smoke"].values()), max(walls["quick"].values())
    return Row(
        "skyfed plan with a speed limit, smoke / quick, wall", smoke, "s (worst of smoke)", "<= 5 s / <= 30 s",
        "2 s / 10 s", smoke <= 5 and quick <= 30, {"quick, worst, s": quick, **also, "load": load_average()},
    )  # fmt: skip


def paper_size(seeds: int, missions: Missions, planned: Planned, progress: Progress) -> Row:
    """Measure the loss at 150 m per round, T=100, C=10."""
    progress("speed limit 150 m a round")
    plans, verified = planned([missions(seed, 1, vmax=150.0)[0] for seed in range(seeds)])
    losses, seconds = [100 * flight.loss(10) for flight in plans], [flight.seconds for flight in plans]
    middle, worst, slowest = median(losses), max(losses), max(seconds)
    also = {"worst, %": worst, "CPU s, median": median(seconds), "CPU s, worst": slowest, "verified": verified}
    return Row(
        "vmax = 150 m a round, T=100: geometric-mean loss against the proven bound", middle, "% (median)",
        "median <= 2 %, worst <= 4 %, <= 15 CPU-s", "<= 0.5 %",
        middle <= 2 and worst <= 4 and slowest <= 15 and verified, also,
    )  # fmt: skip


def slow_and_fast(seeds: int, missions: Missions, planned: Planned, progress: Progress) -> Row:
    """Measure visited classes and loss from 50 to 300 m per round and from 25 to 200 rounds."""
    also: dict[str, Any] = {}
    losses: list[float] = []
    seconds: list[float] = []
    as_many, verified, count = 0, True, 0
    for vmax in _SLOW_AND_FAST:
        for rounds in _ROUNDS:
            progress(f"speed limit {vmax:g} m a round, T={rounds}")
            problems = [missions(seed, 1, rounds, vmax=vmax)[0] for seed in range(seeds)]
            plans, fine = planned(problems)
            pairs = list(zip(problems, plans, strict=True))
            full = [pair for pair in pairs if visited(pair[1]) >= most_visited(pair[0], optimistic_network(pair[0]))]
            own = [100 * loss_of_visited(*pair) for pair in full]
            verified &= fine
            as_many, count = as_many + len(full), count + len(pairs)
            losses += own
            seconds += [flight.seconds for flight in plans]
            said = f"{median(own):.2f} %, worst {max(own):.2f} %" if own else "-"
            also[f"vmax {vmax:g}, T={rounds}"] = f"{said}; as many classes as the bound: {len(full)} of {len(pairs)}"
    share = 100 * as_many / count
    middle, worst = median(losses), max(losses)
    also |= {"worst, %": worst, "as many classes as the bound, %": share, "CPU s, worst": max(seconds)}
    also |= {"verified": verified, "instances": count}
    return Row(
        "vmax 50, 100, 300 m a round, T=25 to 200: loss over the visited classes", middle, "% (median)",
        "median <= 4 %, worst <= 10 %, classes as many as the bound's in >= 90 %, <= 30 CPU-s", "1 %",
        middle <= 4 and worst <= 10 and share >= 90 and max(seconds) <= 30 and verified, also,
    )  # fmt: skip


def visited(plan: Plan) -> int:
    """Return how many classes a flight visits."""
    return len(np.unique(plan.association[plan.association != IDLE]))


def loss_of_visited(problem: Problem, plan: Plan) -> float:
    """Return the geometric-mean loss over the visited classes, where the bound visits as many."""
    return -math.expm1(-plan.gap / max(1, visited(plan)))
