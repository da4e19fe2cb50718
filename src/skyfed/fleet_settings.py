"""How long a station waits for real vehicles; nothing here changes what a simulation gives."""

from pydantic import Field

from skyfed.settings import StrictSettings


class FleetSettings(StrictSettings):
    """Rounds across machines (docs/fleet.md)."""

    deadline: float = Field(600, gt=0, le=1e6, description="seconds after which a round closes with who is there")
    grace: float = Field(
        10,
        ge=0,
        le=1e6,
        description="seconds that a round stays open for vehicles out of touch once all others have answered",
    )
    least: int = Field(1, ge=1, description="fewest uploads with which a round closes; below, it is tried again")
    tries: int = Field(2, ge=1, le=100, description="how often a vehicle is asked in a round before it is left out")
    patience: int = Field(
        10, ge=1, description="deadlines with fewer than `least` uploads after which the station gives up for now"
    )
    poll: float = Field(3, ge=0.05, le=3, description="seconds between a vehicle's looks for work; Flower's own is 3")
    largest: float = Field(256e6, ge=1e5, le=2e9, description="bytes of the largest request that the station reads")
