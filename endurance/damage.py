"""Checkpoints flipped, cut, zeroed, swapped, manifests that are gone: all noticed, said, and the one before taken."""

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from endurance.stage import (
    ALGORITHM,
    Process,
    Row,
    arguments,
    checkpoints,
    digest,
    import_all,
    rows_done,
    run_part,
    wait_for,
    whole_run,
    workshop,
)

if TYPE_CHECKING:
    from skyfed.onboard import Onboard
    from skyfed.world import World

ROUNDS = 40
REMEMBERS = "server.aggregate=consensus"  # its checkpoints hold who has agreed with whom besides
Change = Callable[[bytes, random.Random, "Spare"], bytes]


class Spare:
    """Checkpoints that are whole but do not belong: of another run, another algorithm, another round."""

    def __init__(self, own: Path, other_run: Path, other_algorithm: Path) -> None:
        self.run, self.algorithm, self.round = (path.read_bytes() for path in (other_run, other_algorithm, own))


def _flip(data: bytes, rng: random.Random, spare: Spare) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _zero(data: bytes, rng: random.Random, spare: Spare) -> bytes:
    start = rng.randrange(len(data))
    stop = min(len(data), start + rng.choice([1, 16, 512, 4096, len(data)]))
    return data[:start] + bytes(stop - start) + data[stop:]


def _agreement(data: bytes, rng: random.Random, spare: Spare) -> bytes:
    """Change one bit of the agreement."""
    body = 8 + int.from_bytes(data[:8], "little")  # safetensors: the header's length, the header, the arrays
    start, stop = json.loads(data[8:body])["state/agreement"]["data_offsets"]
    at = body + rng.randrange(start, stop)
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


CHANGES: dict[str, Change] = {
    "flipped": _flip,
    "truncated": lambda data, rng, spare: data[: rng.randrange(len(data))],
    "zeroed": _zero,
    "all zeros": lambda data, rng, spare: bytes(len(data)),
    "bytes added": lambda data, rng, spare: data + rng.randbytes(rng.randrange(1, 100)),
    "bytes moved": lambda data, rng, spare: data[(cut := rng.randrange(1, len(data))) :] + data[:cut],
    "agreement changed": _agreement,
    "of another run": lambda data, rng, spare: spare.run,
    "of another algorithm": lambda data, rng, spare: spare.algorithm,
    "of another round": lambda data, rng, spare: spare.round,
}


def stopped_run(place: Path, algorithm: str, *overrides: str) -> Path:
    """Return a run that was killed about half way."""
    process = Process(arguments(place, f"rounds={ROUNDS}", *overrides), place.parent / f"{place.name}.log")
    wait_for(lambda: rows_done(place, algorithm) >= ROUNDS // 2 or process.poll() is not None)
    process.kill()
    return place


def damage(count: int, seed: int) -> list[Row]:
    """Damage the checkpoints of a stopped run in `count` ways, one in fifty through the whole command."""
    import_all()
    rng = random.Random(seed)
    missed: list[str] = []
    kinds: Counter[str] = Counter()
    whole_command, manifests, said = 0, 0, 0
    with workshop() as place:
        whole = whole_run(place / "whole", f"rounds={ROUNDS}", REMEMBERS)
        run = stopped_run(place / "run", ALGORITHM, REMEMBERS)
        foreign = checkpoints(stopped_run(place / "foreign", ALGORITHM, REMEMBERS, "seed=1"))[-1]
        afl = stopped_run(place / "afl", "afl", REMEMBERS, 'algorithms=["afl"]') / "afl" / "checkpoints"
        for k in range(count):
            case = place / "case"
            shutil.rmtree(case, ignore_errors=True)
            shutil.copytree(run, case)
            good, newest = checkpoints(case)[-2:]
            if k % 20 == 19:
                manifests += 1
                wrong = _manifest_gone(case, rng)
                said += not wrong
            else:
                kind = rng.choice(list(CHANGES))
                spare = Spare(good, foreign, max(afl.glob("round-*")))
                data = newest.read_bytes()
                while (changed := CHANGES[kind](data, rng, spare)) == data:
                    pass
                newest.write_bytes(changed)
                kinds[kind] += 1
                full = k % max(1, min(50, count // 2)) == 0
                whole_command += full
                wrong = _through_command(case, newest, whole) if full else _through_recorder(case, good, newest)
                wrong = f"{kind}: {wrong}" if wrong else ""
            missed += [wrong] if wrong else []
    also: dict[str, Any] = {"kinds": dict(kinds), "through the whole command, same result": whole_command}
    also |= {"failures": missed[:5]} if missed else {}
    return [
        Row("checkpoints damaged or swapped, manifests gone: noticed, said, the one before taken",
            f"{count - len(missed)} of {count}", "100 %", not missed, also),
        Row("manifest missing or damaged: said and written anew", f"{said} of {manifests}", "all", said == manifests),
    ]  # fmt: skip


def _through_recorder(case: Path, good: Path, newest: Path) -> str:
    """Ask what a start asks: where does the run stand?"""
    from safetensors.numpy import load_file

    from skyfed.runs.folder import RunFolder
    from skyfed.runs.recorder import RowRecorder

    saved = {name.removeprefix("state/"): array for name, array in load_file(good).items() if "state/" in name}
    onboard, world = _equipment(case)
    with RunFolder.claim(case, onboard.config, ["resume"]) as folder:
        recorder = RowRecorder(folder, onboard, ALGORITHM, world, folder.identity(), after=lambda row: None)
        standing = recorder.standing()
    if not any(str(newest) in line for line in standing.complaints):
        return "not noticed"
    same = {name: array.tobytes() for name, array in standing.state.items()} == {
        name: array.tobytes() for name, array in saved.items()
    }
    if standing.first != int(good.stem[6:]) + 1 or not same:
        return f"went on at round {standing.first}"
    return ""


@cache
def _equipment(case: Path) -> "tuple[Onboard, World]":
    """Return what a start of the run builds first; all cases are copies of one run, so once is enough."""
    from skyfed.flight.fleet_plan import load_fleet_plan
    from skyfed.onboard import Onboard
    from skyfed.runs.folder import RunFolder
    from skyfed.runs.start import world_of
    from skyfed.tasks import load_task

    config = RunFolder(case).read_config()
    task = load_task(config.data)
    return Onboard(config, task), world_of(config, task, load_fleet_plan(case / "plan.npz"))


def _through_command(case: Path, newest: Path, whole: str) -> str:
    process = Process(["resume", str(case), "--plain"], case.parent / "case.log")
    if process.wait() or digest(case) != whole:
        return f"exit {process.code}, another result"
    return "" if sum(str(newest) in line for line in process.said().splitlines()) == 1 else "not said"


def _manifest_gone(case: Path, rng: random.Random) -> str:
    from skyfed.runs.folder import RunFolder

    path = case / "manifest.json"
    how = rng.choice(["gone", "empty", "cut", "zeros"])
    data = path.read_bytes()
    path.unlink()
    if how != "gone":
        path.write_bytes({"empty": b"", "cut": data[: len(data) // 2], "zeros": bytes(len(data))}[how])
    with RunFolder.claim(case, RunFolder(case).read_config(), ["resume"]) as folder:
        return "" if any("manifest.json" in line for line in folder.complaints) else f"manifest {how}: not noticed"


if __name__ == "__main__":
    run_part(damage, 1000, __doc__)
