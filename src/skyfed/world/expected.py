"""What a flight is expected to bring, for the objective "pictures": the sensing model, as the planner needs it."""

from dataclasses import dataclass, field

import numpy as np

from skyfed.field import Mixture
from skyfed.flight.pictures import Pictures
from skyfed.types import Floats
from skyfed.world.arrivals import SensingSettings, SensorSettings, footprint_side
from skyfed.world.footprint import beginnings, in_square
from skyfed.world.settings import WorldSettings


@dataclass(frozen=True)
class Camera:
    """How and when vehicles sense; a class's sensing settings with the camera's and the clock's."""

    sensing: SensingSettings = field(default_factory=SensingSettings)
    sensor: SensorSettings = field(default_factory=SensorSettings)
    world: WorldSettings = field(default_factory=WorldSettings)

    @property
    def side(self) -> float:
        """Side of the square in view, m; 0 where samples fade with distance (Eq. 6)."""
        return 0.0 if self.sensing.model == "eq6" else footprint_side(self.sensor.altitude, self.sensor.fov)

    def expected(
        self,
        psi: Floats,
        starts: Floats,
        mixture: Mixture,
        occurring: float | Floats,
        held: Floats,
        value: Floats,
        seen: float | Floats = -np.inf,
    ) -> tuple[Floats, Pictures]:
        """Return what visits of the centres bring (C, n), all else being new, and what the objective needs besides.

        psi        (C, T) of the whole mission        starts     (n,) mission seconds at which the rounds ahead start
        occurring  (C,) samples of the whole mission  seen       (C,) seconds until which a class's centre was watched
        """
        held = np.maximum(held, 1.0)
        round_time, stay = self.world.round_time, self.sensing.stay
        if not self.side:
            rounds = np.minimum(starts / round_time, psi.shape[1] - 1)
            now = np.stack([np.interp(rounds, np.arange(psi.shape[1]), own) for own in psi])
            return self.sensing.n_max * now, Pictures(held, value, mixture.deviations)
        knots, mass = beginnings(psi, round_time, stay)
        arrive = starts + self.world.flight_time
        seen = np.broadcast_to(seen, len(psi))
        ends = np.stack([np.interp(arrive + self.world.dwell, knots, own) for own in mass])
        begun = np.stack(
            [np.interp(np.maximum(arrive - stay, last), knots, own) for own, last in zip(mass, seen, strict=True)]
        )
        whole = np.where(mass[:, -1] > 0, mass[:, -1], 1.0)
        each = occurring * in_square(np.zeros((1, 2)), self.side, np.zeros((1, 2)), mixture.deviations)[0] / whole
        new = np.maximum(0.0, ends - begun)
        return each[:, None] * new, Pictures(held, value, mixture.deviations, self.side, each[:, None] * ends)
