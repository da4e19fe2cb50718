"""The links of one row: what is to be received, who has which part of the band, and how long messages take."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from skyfed.rng import stream
from skyfed.types import Arrays, Floats
from skyfed.world.links import Transfer, broadcast, downlink, uplink
from skyfed.world.settings import Conditions

_ROUNDING = 1e-9
OUT_OF_RANGE, LOST = "out of range", "lost on its way"


class Radios:
    """The station's and the vehicles' radios.

    Who takes part in a round shares the band equally, and sends with the power of its settings, unless the algorithm
    says otherwise.
    """

    def __init__(self, conditions: Conditions, vehicles: int) -> None:
        """Start with nothing to be received: the first model follows from the seed."""
        self._channel, self._radio = conditions.world.channel, conditions.vehicle.radio
        self._broadcast, self._seed = conditions.world.downlink == "broadcast", conditions.seed
        self._altitude, self._fading = conditions.sensor.altitude, conditions.world.links == "fading"
        self.pending, self._group = np.zeros(vehicles, np.int64), np.zeros(vehicles, np.int64)
        self._share, self._power = np.full(vehicles, 1 / vehicles), np.full(vehicles, self._radio.power)

    def announce(self, sizes: Mapping[int, tuple[int, int]]) -> None:
        """Take note of what vehicles are to receive next: bytes, and a number that equal messages share."""
        self.pending[:], self._group[:] = 0, 0
        for u, (size, group) in sizes.items():
            self.pending[u], self._group[u] = size, group

    def tune(self, chosen: list[int], use: Mapping[int, tuple[float, float]]) -> None:
        """Share the band out among those who take part; `use` has watts and shares that an algorithm has chosen."""
        self._share[:], self._power[:] = 1 / max(1, len(chosen)), self._radio.power
        for u, (power, share) in use.items():
            if u not in chosen or not (0 < power < np.inf and 0 < share <= 1):
                raise ValueError(
                    f"vehicle {u}: {power:g} W, share {share:g}; allowed: who takes part, watts and share above 0"
                )
            self._power[u], self._share[u] = power, share
        if (shared := float(self._share[chosen].sum())) > 1 + _ROUNDING:
            raise ValueError(f"shares of the band add up to {shared:g}; allowed: at most 1")

    def receive(self, t: int, grounds: Floats, to: list[int]) -> dict[int, Transfer]:
        """Bring everybody of `to` what is pending; grounds (U,) are distances to the station."""
        due = [u for u in to if self.pending[u]]
        if not self._broadcast:
            return {u: self._down(t, u, grounds[u]) for u in due}
        arrived: dict[int, Transfer] = {}
        begins = 0.0  # messages that differ follow each other: each has the whole band
        for group in np.unique(self._group[due]):
            own = [u for u in due if self._group[u] == group]
            rng = self._rng("broadcast", t, own[0])
            sent = broadcast(
                self._channel, self._radio, list(grounds[own]), self._altitude, int(self.pending[own].max()), rng
            )
            heard = [replace(each, seconds=begins + each.seconds) if each.rate else each for each in sent]
            arrived |= dict(zip(own, heard, strict=True))
            begins += max(each.seconds for each in sent)
        return arrived

    def send(self, t: int, vehicle: int, ground: float, size: int) -> Transfer:
        """Send an upload."""
        rng = self._rng("uplink", t, vehicle)
        share, power = float(self._share[vehicle]), float(self._power[vehicle])
        return uplink(self._channel, self._radio, ground, self._altitude, size, share, rng, power)

    def rates(self, grounds: Floats) -> Floats:
        """Return the mean rate of every vehicle's uplink if all share the band equally, bits per second."""
        share = 1 / len(grounds)
        each = [uplink(self._channel, self._radio, float(far), self._altitude, 0, share).rate for far in grounds]
        return np.array(each)

    def watts(self, vehicle: int) -> float:
        """Return what a vehicle's radio draws while it sends."""
        return self._radio.drawn_power(float(self._power[vehicle]))

    def state(self) -> Arrays:
        """Return what must be kept to go on later."""
        return {"pending": self.pending.copy(), "group": self._group.copy()}

    def restore(self, state: Arrays) -> None:
        """Go on from what `state` returned."""
        self.pending[:], self._group[:] = state["pending"], state["group"]

    def _rng(self, way: str, t: int, vehicle: int) -> np.random.Generator | None:
        """Return the random numbers of a fading link; None where links are error-free."""
        return stream(self._seed, way, t, vehicle) if self._fading else None

    def _down(self, t: int, vehicle: int, ground: float) -> Transfer:
        rng = self._rng("downlink", t, vehicle)
        size, share = int(self.pending[vehicle]), float(self._share[vehicle])
        return downlink(self._channel, self._radio, ground, self._altitude, size, share, rng)


def why_not(transfer: Transfer) -> str:
    """Say why a transfer did not arrive; empty if it did."""
    return "" if transfer.delivered else LOST if transfer.rate > 0 else OUT_OF_RANGE
