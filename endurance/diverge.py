"""Losses, weights and buffers that are no longer finite, in one vehicle or in all."""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from endurance.stage import ALGORITHM, Process, Row, arguments, import_all, run_part, workshop

ROUNDS = 6
PARTS = ("loss", "values", "buffers")


def poison(part: str, number: float, vehicles: set[int], rounds: set[int]) -> Callable[[], None]:
    """Let what these vehicles train in these rounds hold a number that is not finite."""

    def install() -> None:
        from skyfed.kit import Kit

        real = Kit.descend

        def poisoned(self: Any, *words: Any, **named: Any) -> Any:
            trained = real(self, *words, **named)
            if self.vehicle not in vehicles or self.round not in rounds:
                return trained
            if part == "loss":
                self.loss = number
                return replace(trained, loss=number)
            array = getattr(trained, part).copy()
            array[len(array) // 2] = number
            return replace(trained, **{part: array})

        Kit.descend = poisoned  # type: ignore[method-assign]

    return install


def cases(count: int, seed: int) -> Iterator[tuple[str, float, set[int], set[int]]]:
    """Give this many poisonings of one vehicle of three, in one round or more."""
    rng = random.Random(seed)
    for k in range(count):
        rounds = {rng.randrange(ROUNDS)} if k % 2 else set(rng.sample(range(ROUNDS), 3))
        yield PARTS[k % len(PARTS)], (math.nan, math.inf, -math.inf)[k // 3 % 3], {rng.randrange(3)}, rounds


def diverge(count: int, seed: int) -> list[Row]:
    """Poison one vehicle `count` times, and all of them in each way."""
    import_all()
    gone_on: list[str] = []
    ended: list[str] = []
    words = ("vehicles=3", f"rounds={ROUNDS}", "model.norm=batch")
    with workshop() as place:
        for k, (part, number, vehicles, rounds) in enumerate(cases(count, seed)):
            run = place / f"one-{k}"
            process = Process(arguments(run, *words), place / "log", poison(part, number, vehicles, rounds))
            code = process.wait()
            wanted = {(t, u) for t in rounds for u in vehicles}
            lines = [line for line in process.said().splitlines() if "upload(s) dropped" in line]
            if code or _dropped(run) != wanted or len(lines) != len(rounds) or not _finite(run):
                gone_on.append(f"{part} {number} of {vehicles} in {rounds}: exit {code}: {process.said()[-300:]}")
        for part in PARTS[: max(1, min(3, count // 2))]:
            at = 2
            process = Process(
                arguments(place / f"all-{part}", *words), place / "log", poison(part, math.nan, {0, 1, 2}, {at})
            )
            code, said = process.wait(), process.said()
            if code != 1 or f"stops at round {at}" not in said or "likely" not in said or "Traceback" in said:
                ended.append(f"{part} of all: exit {code}: {said[-300:]}")
        process = Process(arguments(place / "real", *words, "train.eta_local=1e30"), place / "log")
        code, said = process.wait(), process.said()
        if code != 1 or "stops at round 0" not in said:
            ended.append(f"a learning rate of 1e30: exit {code}: {said[-300:]}")
        says = next((line for line in said.splitlines() if "stops at round" in line), "")
    held = count - len(gone_on)
    return [
        Row("NaN or Inf in one vehicle's loss, weights or buffers: dropped with a line, the run goes on",
            f"{held} of {count}", "all", not gone_on, {"failures": gone_on[:3]} if gone_on else {}),
        Row("in all vehicles: stops with the round and the likely cause", "all" if not ended else "NOT ALL", "all",
            not ended, {"says": says} | ({"failures": ended} if ended else {})),
    ]  # fmt: skip


def _dropped(run: Path) -> set[tuple[int, int]]:
    """Return the rounds and vehicles whose uploads were dropped."""
    from skyfed.runs.tables import read_parquet

    rows = read_parquet(run / ALGORITHM / "uplink.parquet")
    return {(row["round"], row["vehicle"]) for row in rows if row["dropped"]}


def _finite(run: Path) -> bool:
    """Tell whether the model in the end holds numbers alone."""
    import numpy as np

    from skyfed.runs.checkpoint import unpack_model

    weights, buffers, _ = unpack_model(run / ALGORITHM / "model.safetensors")
    return bool(np.isfinite(weights).all() and np.isfinite(buffers).all())


if __name__ == "__main__":
    run_part(diverge, 9, __doc__)
