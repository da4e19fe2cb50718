"""What a driver carries: jobs to vehicles and testers, replies back. Training, testing and probing are all jobs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from skyfed.types import Arrays

Do = Literal["local", "central", "score", "probe"]


@dataclass(frozen=True)
class Job:
    """One piece of work; its reply follows from it and the config alone.

    sent    named arrays that the work starts from; jobs of one round share them
    data    named arrays of its own, such as the samples that a vehicle holds
    memory  the vehicle's memory
    words   small values, such as where a vehicle is
    changes what leads to `sent` from what the vehicle has, as bytes; empty where it is sent whole or as a difference
    """

    do: Do
    sent: Arrays
    label: str = ""
    round: int = 0
    vehicle: int | None = None
    data: Arrays = field(default_factory=dict)
    memory: Arrays = field(default_factory=dict)
    words: dict[str, float | int] = field(default_factory=dict)
    changes: bytes = b""


@dataclass(frozen=True)
class Reply:
    """What came of a job: a message as bytes, named arrays, the vehicle's memory if it has changed, small values."""

    words: dict[str, Any] = field(default_factory=dict)
    data: bytes = b""
    arrays: Arrays = field(default_factory=dict)
    memory: Arrays | None = None


@dataclass(frozen=True)
class Missing:
    """A vehicle that gave nothing of use in a round, and why; real fleets have such."""

    vehicle: int
    reason: str


Jobs = Sequence[Job]


class Driver(Protocol):
    """Carries jobs."""

    def call(self, jobs: Jobs) -> Iterator[Reply | Missing]:
        """Yield the replies in the order of the jobs."""


@dataclass(frozen=True)
class Upload:
    """A vehicle's bytes of one round with what it reports about them; the report is for the tables only.

    data           the message; empty where training diverged
    facts          the algorithm's own figures             samples  training samples that it holds
    work, flops    dense local rounds that its work amounts to, and floating-point operations of one
    loss           mean training loss                      buffer_bytes  of the message, for batch-norm buffers
    seconds, cpu   measured on board
    """

    vehicle: int
    data: bytes
    facts: dict[str, Any]
    samples: int
    work: float
    flops: float
    loss: float
    buffer_bytes: int
    seconds: float
    cpu: float
