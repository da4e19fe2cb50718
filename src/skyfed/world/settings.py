"""Which world a run takes place in: its clock, its rounds, its links and its weather."""

from dataclasses import dataclass
from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, field_validator

from skyfed.faults import FaultSettings
from skyfed.flight.problem import FlightSettings
from skyfed.imports import check_path
from skyfed.settings import StrictSettings
from skyfed.world.arrivals import SensingSettings, SensorSettings
from skyfed.world.links import ChannelSettings
from skyfed.world.vehicle import VehicleSettings


class WorldSettings(StrictSettings):
    """The mission's clock, links and weather."""

    use: str = Field(
        "simulated",
        description="simulated, or your own: a class made from skyfed.World, as package.module:Name or file.py:Name",
    )
    time: Literal["mission", "law"] = Field(
        "mission",
        description="mission: fly, sense, receive, train, send, wait, in seconds and joules; "
        "law: the paper's abstract units, for training alone",
    )
    t_train: PositiveFloat = Field(1.0, description="law: t_tr, seconds of one dense local round")
    e_train: PositiveFloat = Field(1.0, description="law: e_tr, joules of one dense local round")
    round_time: PositiveFloat = Field(
        40.0, description="seconds that a round is planned to take; flights and batteries are planned with it"
    )
    flight_time: PositiveFloat = Field(
        20.0, description="seconds of a round for flying: the longest leg is vehicle.speed times this"
    )
    dwell: NonNegativeFloat = Field(10.0, description="seconds that the camera looks at a round's place")
    deadline: PositiveFloat | None = Field(
        None, description="seconds from the start of a round to the end of an upload; none: no deadline"
    )
    late: Literal["wait", "drop"] = Field("wait", description="what the station does with uploads after the deadline")
    battery: Literal["enforce", "ignore"] = Field(
        "enforce", description="enforce: a vehicle goes home before its reserve is touched; ignore: it flies on"
    )
    downlink: Literal["unicast", "broadcast"] = Field(
        "unicast", description="one message per vehicle, or equal messages sent once to all"
    )
    links: Literal["error-free", "fading"] = Field(
        "error-free", description="error-free: every message in range arrives; fading: packets get lost and sent again"
    )
    lost: Literal["drop", "keep"] = Field(
        "drop",
        description="what becomes of an upload that does not arrive; "
        "keep: it is sent in the next round instead of a new one",
    )
    wind: tuple[float, float] = Field((0.0, 0.0), description="where the air moves to, m/s east and north")
    channel: ChannelSettings = ChannelSettings()

    @field_validator("use")
    @classmethod
    def _known(cls, use: str) -> str:
        return use if use == "simulated" else check_path(use)

    @property
    def closes(self) -> float | None:
        """The second of a round at which the station stops to wait for uploads; None where it waits for all."""
        return self.deadline if self.late == "drop" and self.time == "mission" else None


@dataclass(frozen=True)
class Conditions:
    """All settings that a world follows.

    seed       of the run                       dirichlet  how unevenly samples are shared out; None: evenly
    follows    what psi follows: the number of the round, or mission time
    planned    whether flights go as planned: no battery sends anybody home, rounds last as planned
    flight     how vehicles plan again in flight; None: never
    shared     whether all vehicles fly over one field      zeta  a disc's radius over its cluster's deviation
    """

    world: WorldSettings
    vehicle: VehicleSettings
    sensor: SensorSettings
    sensing: SensingSettings
    faults: FaultSettings
    seed: int
    dirichlet: float | None = None
    follows: Literal["rounds", "mission"] = "mission"
    shared: bool = False
    zeta: float = 1.0
    planned: bool = False
    flight: FlightSettings | None = None
