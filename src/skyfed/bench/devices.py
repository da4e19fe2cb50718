"""The modelled vehicles against what was measured: watts of their computers, memory of a round, power of the airframe.

Watts and speeds are compared with published measurements of real boards. Memory is measured on this machine, in a
fresh process for each preset. The last row says how much a mission's energy depends on each constant.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from skyfed.bench.row import Progress, Row
from skyfed.errors import SkyfedError
from skyfed.world.airframe import AirframeSettings, hovering, landing, leg, take_off
from skyfed.world.computers import COMPUTERS, MEASURED, Computer, training_cost

_PRINTED = {"hover, W": 168.49, "best endurance, m/s": 10.2, "best range, m/s": 18.3}  # by the paper of the airframe
_STEP = 0.2
_PLAIN = AirframeSettings()


@dataclass(frozen=True)
class Mission:
    """A mission of one vehicle, by which constants are compared: rounds along a square, training in each.

    flops  operations of one AFL round of preset `paper`: 5 mini-batches of 64 pictures (row `peak memory`)
    """

    airframe: AirframeSettings = _PLAIN
    computer: Computer = COMPUTERS["raspberry-pi-5"]
    speed: float = 10.0
    wind: tuple[float, float] = (0.0, 0.0)
    rounds: int = 48
    side: float = 150.0
    altitude: float = 100.0
    flops: float = 4.16e10

    def joules(self) -> float:
        """Return the energy from take-off to landing; the computer idles where it does not train."""
        corners = [(0.0, 0.0), (self.side, 0.0), (self.side, self.side), (0.0, self.side), (0.0, 0.0)]
        flown = [leg(self.airframe, self.speed, *ends, self.wind) for ends in pairwise(corners)]
        ends = [vertical(self.airframe, self.altitude, self.wind) for vertical in (take_off, landing)]
        training, spent = training_cost(self.computer, self.flops * self.rounds)
        laps = self.rounds / len(flown)
        idle = laps * sum(part.seconds for part in flown) + sum(part.seconds for part in ends)
        flight = laps * sum(part.joules for part in flown) + sum(part.joules for part in ends)
        return flight + hovering(self.airframe, training, self.wind) + spent + idle * self.computer.idle_watts


def sensitivity(mission: Mission | None = None) -> dict[str, tuple[float, float]]:
    """Return by how many per cent the energy of a mission changes with 20 % less and more of each constant."""
    plain = mission or Mission()
    less, more = (_changed(plain, factor) for factor in (1 - _STEP, 1 + _STEP))
    return {name: (_percent(less[name], plain), _percent(more[name], plain)) for name in less}


def wind_effect(speed: float = 5.0, mission: Mission | None = None) -> float:
    """Return by how many per cent a steady wind changes the energy of a mission."""
    plain = mission or Mission()
    return _percent(replace(plain, wind=(speed, 0.0)), plain)


def _percent(changed: Mission, plain: Mission) -> float:
    return 100 * (changed.joules() / plain.joules() - 1)


def sensitivity_table() -> str:
    """Return the table of docs/vehicles.md."""
    rows = [f"| {name} | {low:+.2f} % | {high:+.2f} % |" for name, (low, high) in sensitivity().items()]
    return "\n".join(["| constant | 20 % less | 20 % more |", "|---|---|---|", *rows])


def _changed(plain: Mission, factor: float) -> dict[str, Mission]:
    """Return the mission with each of its constants multiplied by a factor."""
    airframe, computer = plain.airframe, plain.computer

    def frame(name: str) -> Mission:
        update = {name: getattr(airframe, name) * factor}
        return replace(plain, airframe=airframe.model_copy(update=update))

    return {
        "speed over ground": replace(plain, speed=plain.speed * factor),
        "mass (with induced power and velocity)": replace(plain, airframe=airframe.heavier(factor)),
        "blade power": frame("blade_power"),
        "induced power": frame("induced_power"),
        "induced velocity": frame("induced_velocity"),
        "tip speed": frame("tip_speed"),
        "drag": frame("drag"),
        "climb speed": frame("climb_speed"),
        "descent speed": frame("descent_speed"),
        "computer's watts": replace(plain, computer=replace(computer, watts=computer.watts * factor)),
        "computer's idle watts": replace(plain, computer=replace(computer, idle_watts=computer.idle_watts * factor)),
        "computer's speed": replace(plain, computer=replace(computer, flops=computer.flops * factor)),
    }


def bench_devices(progress: Progress) -> list[Row]:
    """Compare what is modelled with what was measured."""
    rows = [_watts(computer) for computer in COMPUTERS.values()]
    for preset, model in (("quick", "ResNet18 of width 16"), ("paper", "ResNet18 of width 64")):
        progress(f"memory of a round of preset {preset}")
        rows.append(_memory(preset, model))
    return [*rows, _airframe(), _mission()]


def _watts(computer: Computer) -> Row:
    errors = [100 * (computer.watts / measured.watts - 1) for measured in MEASURED[computer.name]]
    worst = max(errors, key=abs)
    also: dict[str, Any] = {f"measured, {one.doing}, W": one.watts for one in MEASURED[computer.name]}
    also |= {
        "largest error, %": worst,
        "idle, W": computer.idle_watts,
        "speed in training, GFLOP/s": computer.flops / 1e9,
    }
    bar = "within 30 % of every cited measurement"
    return Row(f"modelled watts of {computer.name}", computer.watts, "W", bar, "-", abs(worst) <= 30, also)


def _memory(preset: str, model: str) -> Row:
    measured = _in_a_process(preset)
    peak = measured["round"]
    also: dict[str, Any] = {
        "Python with torch, MB": measured["torch"] / 1e6,
        "with the model and all data, MB": measured["ready"] / 1e6,
        "more than Python with torch, MB": (peak - measured["torch"]) / 1e6,
        "operations of the round, GFLOP": measured["flops"] / 1e9,
    }
    for computer in COMPUTERS.values():
        seconds, joules = training_cost(computer, measured["flops"])
        also[f"{computer.name}: share of its memory, %"] = 100 * peak / computer.memory
        also[f"{computer.name}: modelled seconds"], also[f"{computer.name}: modelled joules"] = seconds, joules
    fits = all(peak < computer.memory for computer in COMPUTERS.values())
    name = f"peak memory of one vehicle's AFL round, preset `{preset}` ({model})"
    return Row(name, peak / 1e6, "MB", "below the RAM of every board", "-", fits, also)


def _in_a_process(preset: str) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-m", "skyfed.bench.round_memory", preset]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise SkyfedError(f"round of preset {preset}: {last[0]}")
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def _airframe() -> Row:
    modelled = (_PLAIN.hover, _PLAIN.best_endurance_speed, _PLAIN.best_range_speed)
    found = dict(zip(_PRINTED, modelled, strict=True))
    errors = {name: 100 * (found[name] / printed - 1) for name, printed in _PRINTED.items()}
    also: dict[str, Any] = {name: value for name, value in found.items() if name != "hover, W"}
    also |= {f"error of {name.split(',')[0]}, %": error for name, error in errors.items()}
    bar = "168.49 W, 10.2 m/s, 18.3 m/s, each within 5 %"
    holds = all(abs(error) <= 5 for error in errors.values())
    return Row("power of the airframe in hover, and its best speeds", _PLAIN.hover, "W", bar, "-", holds, also)


def _mission() -> Row:
    plain = Mission()
    also: dict[str, Any] = {"wind of 5 m/s, %": wind_effect()}
    for name, both in sensitivity().items():
        also[f"{name}, 20 % less and more, %"] = [round(percent, 2) for percent in both]
    name = f"energy of a mission of {plain.rounds} rounds, and how it changes with each constant"
    return Row(name, plain.joules() / 1e3, "kJ (modelled)", "-", "-", True, also)
