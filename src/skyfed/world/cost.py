"""Modelled time and energy of a vehicle's round: the paper's law, or a device that flies, computes and sends.

Measured bytes go in, measured seconds are recorded beside; everything here says "modelled".
"""

from dataclasses import dataclass
from math import atan2, degrees, exp, hypot, isfinite, log2, log10, pi, sqrt
from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, model_validator

from skyfed.errors import BadInputError
from skyfed.learning.settings import TrainSettings
from skyfed.settings import StrictSettings

_LIGHT = 299_792_458.0  # metres per second
_USUAL = {  # small rotary-wing vehicles and their computers
    "battery": (3.6e4, 3.6e6, "J"),  # 10 to 1000 Wh
    "flight.speed": (1.0, 30.0, "m/s"),
    "cpu.frequency": (1e8, 1e10, "Hz"),
    "radio.power": (1e-3, 10.0, "W"),
}


class CpuSettings(StrictSettings):
    """The vehicle's processor: cycles = FLOPs x cycles_per_flop, seconds = cycles / f, joules = C cycles f^2."""

    frequency: PositiveFloat = Field(1.5e9, description="f, Hz (a small single-board computer)")
    cycles_per_flop: PositiveFloat = Field(0.25, description="cycles of one floating-point operation (four a cycle)")
    capacitance: PositiveFloat = Field(1e-28, description="C, switched capacitance, J s^2 (usual in edge computing)")


class FlightCostSettings(StrictSettings):
    """Propulsion of a rotary-wing vehicle: Zeng, Xu and Zhang, IEEE Trans. Wireless Commun. 18(4), 2019, Eq. 12."""

    speed: PositiveFloat = Field(10.0, description="cruising speed, m/s")
    blade_power: NonNegativeFloat = Field(79.86, description="P0, blade profile power in hover, W")
    induced_power: NonNegativeFloat = Field(88.63, description="Pi, induced power in hover, W")
    tip_speed: PositiveFloat = Field(120.0, description="tip speed of the blades, m/s")
    induced_velocity: PositiveFloat = Field(4.03, description="v0, mean induced velocity, m/s")
    drag: NonNegativeFloat = Field(0.0092, description="d0 rho s A / 2, parasite drag, kg/m (0.6, 1.225, 0.05, 0.503)")

    def power(self, speed: float) -> float:
        """Watts at this speed, m/s; hovering is speed 0."""
        ratio = speed**2 / (2 * self.induced_velocity**2)
        blades = self.blade_power * (1 + 3 * speed**2 / self.tip_speed**2)
        induced = self.induced_power * sqrt(max(0.0, sqrt(1 + ratio**2) - ratio))
        return blades + induced + self.drag * speed**3


class RadioSettings(StrictSettings):
    """Air-to-ground link: Al-Hourani, Kandeepan and Lardner, IEEE Wireless Commun. Lett. 3(6), 2014 (suburban)."""

    bandwidth: PositiveFloat = Field(1e6, description="Hz that one vehicle has for itself")
    power: PositiveFloat = Field(0.1, description="transmit power, W (20 dBm)")
    circuit_power: NonNegativeFloat = Field(0.1, description="power of the radio besides, W")
    efficiency: float = Field(0.35, gt=0, le=1, description="of the power amplifier")
    carrier: PositiveFloat = Field(2.4e9, description="carrier frequency, Hz")
    noise: float = Field(-174.0, description="noise density, dBm/Hz (room temperature)")
    noise_figure: float = Field(6.0, description="of the station's receiver, dB")
    los_a: NonNegativeFloat = Field(4.88, description="a of the probability of a line of sight")
    los_b: NonNegativeFloat = Field(0.43, description="b of the probability of a line of sight")
    loss_los: NonNegativeFloat = Field(0.1, description="loss beyond free space if there is one, dB")
    loss_blocked: NonNegativeFloat = Field(21.0, description="the same if there is none, dB")

    def rate(self, ground: float, altitude: float) -> float:
        """Bits per second from this ground distance and altitude, metres (Shannon, mean path loss)."""
        angle = degrees(atan2(altitude, ground))
        clear = 1 / (1 + self.los_a * exp(-self.los_b * (angle - self.los_a)))
        far = max(1.0, hypot(ground, altitude))
        loss = 20 * log10(4 * pi * self.carrier * far / _LIGHT)
        loss += clear * self.loss_los + (1 - clear) * self.loss_blocked
        received = 10 * log10(1000 * self.power) - loss
        floor = self.noise + 10 * log10(self.bandwidth) + self.noise_figure
        return self.bandwidth * log2(1 + 10 ** ((received - floor) / 10))

    @property
    def sending_power(self) -> float:
        """Watts that a vehicle draws while it sends."""
        return self.power / self.efficiency + self.circuit_power


class CostSettings(StrictSettings):
    """What a vehicle's round costs (modelled)."""

    model: Literal["law", "device"] = Field(
        "device", description="law: the paper's abstract units for training alone; device: flying, computing, sending"
    )
    t_train: PositiveFloat = Field(1.0, description="law: t_tr, seconds of one dense local round")
    e_train: PositiveFloat = Field(1.0, description="law: e_tr, joules of one dense local round")
    cpu: CpuSettings = CpuSettings()
    flight: FlightCostSettings = FlightCostSettings()
    radio: RadioSettings = RadioSettings()
    deadline: PositiveFloat | None = Field(
        None, description="device: seconds from the start of a round to the end of an upload"
    )
    late: Literal["wait", "drop"] = Field("wait", description="what the station does with uploads after the deadline")
    battery: PositiveFloat = Field(4.68e5, description="device: joules of a full battery (130 Wh)")

    @model_validator(mode="after")
    def _finite(self) -> "CostSettings":
        """A round far away and one near by must have a time and an energy."""
        try:
            places = [Where(1e3, ground, 100.0) for ground in (0.0, 1e4)]
            costs = [spend_at(self, where, Effort(5.0, 1e9, 10**6)) for where in places]
            good = all(isfinite(spent.seconds) and isfinite(spent.joules) for spent in costs)
        except (ArithmeticError, ValueError):
            good = False
        if not good:
            raise ValueError("cpu, flight, radio: allowed: values that give a finite time and energy at 10 km")
        return self


def implausible(cost: CostSettings) -> list[str]:
    """Return a line for every setting of the device that is far from what real ones have."""
    if cost.model == "law":
        return []
    given = {
        "battery": cost.battery,
        "flight.speed": cost.flight.speed,
        "cpu.frequency": cost.cpu.frequency,
        "radio.power": cost.radio.power,
    }
    return [
        f"warning: cost.{key} = {given[key]:g} {unit}; usual: {low:g} to {high:g} {unit}"
        for key, (low, high, unit) in _USUAL.items()
        if not low <= given[key] <= high
    ]


@dataclass(frozen=True)
class Where:
    """Where a vehicle is in a round, metres: flown to get there, ground distance to the station, height."""

    flown: float
    ground: float
    altitude: float


@dataclass(frozen=True)
class Effort:
    """What a vehicle did in a round: dense local rounds that its work amounts to, FLOPs of one, bytes that it sent."""

    rounds: float
    flops: float
    sent: int

    def after(self, before: "Effort | None") -> "Effort":
        """Return this work together with what the vehicle did before in the same round."""
        return self if before is None else Effort(before.rounds + self.rounds, self.flops, before.sent + self.sent)


@dataclass(frozen=True)
class Spending:
    """One vehicle's seconds and joules in one round, modelled.

    fly    flying to the round's place; its joules include hovering while training and sending
    train  the dense and the masked steps, by the paper's law of pruning
    send   the upload, from measured bytes; rate in bits per second, 0 where no radio is modelled
    """

    fly_seconds: float = 0.0
    train_seconds: float = 0.0
    send_seconds: float = 0.0
    fly_joules: float = 0.0
    train_joules: float = 0.0
    send_joules: float = 0.0
    rate: float = 0.0

    @property
    def seconds(self) -> float:
        """From the start of the round to the end of the upload."""
        return self.fly_seconds + self.train_seconds + self.send_seconds

    @property
    def joules(self) -> float:
        """All together, waiting for others not included."""
        return self.fly_joules + self.train_joules + self.send_joules


def round_flops(train: TrainSettings, multiplications: float, held: int) -> float:
    """FLOPs of one dense local round: forward and twice that backward, two for a multiply-add.

    held  pictures that the vehicle has; a mini-batch cannot have more
    """
    return 6.0 * multiplications * min(train.batch_size, held) * train.batches_per_round


def spend_at(cost: CostSettings, where: Where, effort: Effort) -> Spending:
    """Return what a round at a place costs."""
    if cost.model == "law":
        return Spending(train_seconds=effort.rounds * cost.t_train, train_joules=effort.rounds * cost.e_train)
    cpu, flight, radio = cost.cpu, cost.flight, cost.radio
    cycles = effort.rounds * effort.flops * cpu.cycles_per_flop
    fly, train = where.flown / flight.speed, cycles / cpu.frequency
    rate = radio.rate(where.ground, where.altitude)
    if rate <= 0:
        raise BadInputError(
            f"cost.radio: not a bit a second gets over {hypot(where.ground, where.altitude):.3g} m; allowed: a shorter "
            "way (field.region, sensor.altitude), a stronger radio, or cost.model = 'law'"
        )
    send = 8 * effort.sent / rate
    return Spending(
        fly_seconds=fly,
        train_seconds=train,
        send_seconds=send,
        fly_joules=fly * flight.power(flight.speed) + (train + send) * flight.power(0.0),
        train_joules=cpu.capacitance * cycles * cpu.frequency**2,
        send_joules=send * radio.sending_power,
        rate=rate,
    )


def lateness(settings: CostSettings, spent: Spending) -> float:
    """Return by how many seconds an upload misses the deadline; 0 where it does not or there is none."""
    if settings.model == "law" or settings.deadline is None:
        return 0.0
    return max(0.0, spent.seconds - settings.deadline)


def round_end(settings: CostSettings, spent: list[Spending]) -> float:
    """Return when a round ends: with the last upload, or at the deadline where late ones are dropped."""
    last = max((upload.seconds for upload in spent), default=0.0)
    if settings.deadline is not None and settings.late == "drop" and settings.model == "device":
        return min(last, settings.deadline)
    return last


def waiting(settings: CostSettings, spent: Spending, end: float) -> float:
    """Return the joules of hovering from a vehicle's own upload to the end of the round."""
    return 0.0 if settings.model == "law" else max(0.0, end - spent.seconds) * settings.flight.power(0.0)
