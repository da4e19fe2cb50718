"""Computers that vehicles carry: watts, speed and memory of real boards, each with the measurements it comes from.

`flops` is what a board sustains while it trains a small CNN in float32. It is far below a data sheet's peak. The
multiply-adds of the model count as two operations, and a backward pass as two forward ones (`cost.round_flops`).
"""

from dataclasses import dataclass

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from skyfed.settings import StrictSettings

_MEBIBYTE = 2**20

# ResNet-18 training on a Raspberry Pi 5, measured by Fernandez-Marques for Flower's blog of 7 December 2023
# (github.com/jafermarq/federated-embedded-vision, README): 20 mini-batches of 16 in 116.85 s, 1.80e9 multiply-adds.
_PI_TRAINING = 6 * 1.80e9 * 16 * 20 / 116.850590  # 29.6e9 operations per second
# The same board's Linpack, 37.888e9 in float64 (measurement below), is twice as fast in float32: a NEON instruction
# holds four numbers instead of two. Training reaches this share of it. With the 30.249e9 of the first firmware the
# share would be 0.49; the lower one is used for other boards.
_TRAINING_SHARE = _PI_TRAINING / (2 * 37.888e9)  # 0.39
_ORIN_GEMM = (
    1.31e12  # float32 matrix product in PyTorch, 8192 x 8192, github.com/zzc0721/torch-performance-test-data #110
)


@dataclass(frozen=True)
class Measurement:
    """Watts that somebody measured on a real board, what it was doing, and where that is published."""

    doing: str
    watts: float
    source: str


@dataclass(frozen=True)
class Computer:
    """A computer on board.

    watts       whole board while it trains
    idle_watts  whole board while it does nothing
    flops       float32 operations per second that it sustains while it trains a small CNN
    memory      bytes of RAM that its operating system sees
    source      what was measured, by whom, and what follows from it
    """

    name: str
    title: str
    watts: float
    idle_watts: float
    flops: float
    memory: int
    source: str


class ComputerSettings(StrictSettings):
    """A computer of your own: measure its watts and its speed while it trains."""

    name: str = Field(min_length=1, description="what reports call it")
    watts: PositiveFloat = Field(description="whole board while it trains, W")
    idle_watts: NonNegativeFloat = Field(description="whole board while it does nothing, W")
    flops: PositiveFloat = Field(description="float32 operations per second that it sustains while it trains")
    memory: PositiveInt = Field(description="bytes of RAM")

    @model_validator(mode="after")
    def _idle_is_less(self) -> "ComputerSettings":
        if self.idle_watts > self.watts:
            raise ValueError(f"idle_watts = {self.idle_watts:g}: allowed: at most watts = {self.watts:g}")
        return self


_BOARDS = (
    Computer(
        "raspberry-pi-5", "Raspberry Pi 5, 8 GB", 11.0, 2.8, round(_PI_TRAINING, -8), 8048 * _MEBIBYTE,
        "Watts at the wall by Geerling: Linpack on four cores draws 11 W (top500-benchmark #18), idle 2.8 W "
        "(sbc-reviews #21). Speed: ResNet-18 at 224 x 224 trained in PyTorch, 20 batches of 16 in 116.85 s "
        "(Fernandez-Marques, federated-embedded-vision, README). RAM that Linux sees: sbc-reviews #60, same chip.",
    ),
    Computer(
        "jetson-orin-nano", "NVIDIA Jetson Orin Nano Super, 8 GB, 25 W mode", 14.6, 5.5,
        round(_ORIN_GEMM * _TRAINING_SHARE, -10), 7619 * _MEBIBYTE,
        "Watts by PicoCluster (picocluster-claw.com/reference/benchmarks, 2 April 2026), 25 W mode, headless: 14.6 W "
        "while its GPU runs Phi-3, idle 5.5 W. The page does not say whether the carrier board is included. Speed: "
        "no measurement of training was found. It is a float32 matrix product in PyTorch, 1.31e12 "
        "(torch-performance-test-data #110), times the share of it that training reaches on a Raspberry Pi 5, 0.39. "
        "To compare: YOLOv8n in PyTorch, 8.7e9 operations in 21 ms (Choi, hokwangchoi.com/blog/vision-benchmarks, "
        "fastest mode), is 4.2e11. RAM that Linux sees, 7.44 GiB: beszel #286.",
    ),
    Computer(
        "phone", "Qualcomm QCS6490, a phone's chip (Radxa Dragon Q6A, 8 GB)", 10.1, 2.9, 30e9, 7604 * _MEBIBYTE,
        "The chip of the Fairphone 5 without its modem, on a board without a screen. Watts at the wall by Geerling "
        "(sbc-reviews #85): Linpack on eight cores draws 10.1 W, idle 2.9 W. Speed: no measurement of training on this "
        "chip was found. Das, Kwon, Chauhan and Mascolo (on-device training, arXiv 2202.10100) report 15e9 to 30e9 for "
        "CPUs of the Snapdragon 8 series; the upper end is used. Its Linpack, 48.4e9 in float64, times twice the "
        "Raspberry Pi 5's share gives 38e9. RAM that Linux sees: sbc-reviews #85.",
    ),
)  # fmt: skip

COMPUTERS: dict[str, Computer] = {board.name: board for board in _BOARDS}

# What each board's watts are compared with (`skyfed bench devices`). Several loads: none of them is skyfed's training.
MEASURED: dict[str, tuple[Measurement, ...]] = {
    "raspberry-pi-5": (
        Measurement("Linpack, 30.249e9 operations per second", 11.0, "geerlingguy/top500-benchmark #18"),
        Measurement("Linpack, 37.888e9 operations per second", 13.8, "geerlingguy/sbc-reviews, web/data/results.yml"),
        Measurement("stress-ng --matrix 0", 9.7, "geerlingguy/sbc-reviews, web/data/results.yml"),
        Measurement("language model llama3.2:3b on the CPU, peak", 11.9, "geerlingguy/sbc-reviews #21"),
    ),
    "jetson-orin-nano": (
        Measurement("language model Phi-3 on the GPU, 25 W mode", 14.6, "picocluster-claw.com/reference/benchmarks"),
        Measurement(
            "language model Llama 3.2 on the GPU, 25 W mode", 13.4, "picocluster-claw.com/reference/benchmarks"
        ),
        Measurement(
            "language model TinyLlama on the GPU, 25 W mode", 12.7, "picocluster-claw.com/reference/benchmarks"
        ),
        Measurement("CPU and GPU together, 25 W mode, peak", 17.0, "picocluster-claw.com/reference/benchmarks"),
    ),
    "phone": (
        Measurement("Linpack, 48.408e9 operations per second", 10.1, "geerlingguy/sbc-reviews #85"),
        Measurement("stress-ng --matrix 0", 9.3, "geerlingguy/sbc-reviews, web/data/results.yml"),
        Measurement("Geekbench 6", 9.5, "geerlingguy/sbc-reviews, web/data/results.yml"),
    ),
}


def computer_of(entry: str | ComputerSettings) -> Computer:
    """Return the computer with this name, or the one that these settings describe."""
    if isinstance(entry, ComputerSettings):
        return Computer(title=entry.name, source="your own settings", **entry.model_dump())
    if entry not in COMPUTERS:
        raise ValueError(f"computer {entry!r}: allowed: {', '.join(COMPUTERS)}, or a table of your own")
    return COMPUTERS[entry]


def fleet_computers(
    given: str | ComputerSettings | list[str | ComputerSettings], vehicles: int
) -> tuple[Computer, ...]:
    """Return one computer per vehicle: the same for all, or those of a list."""
    if not isinstance(given, list):
        return (computer_of(given),) * vehicles
    if len(given) != vehicles:
        raise ValueError(f"computer: {len(given)} in the list; allowed: one for all, or one for each of {vehicles}")
    return tuple(map(computer_of, given))


def training_cost(computer: Computer, flops: float) -> tuple[float, float]:
    """Return seconds and joules of so many float32 operations of training."""
    seconds = flops / computer.flops
    return seconds, seconds * computer.watts
