"""The fleet's batteries: joules used, who is on the ground, and who can still fly a round and get home."""

import numpy as np

from skyfed.types import Arrays, Bools, Floats
from skyfed.world.vehicle import VehicleSettings

NEVER = np.inf  # when a vehicle that has landed for good is ready again


class Batteries:
    """One row's batteries.

    used     (U,) joules taken so far                  charged  (U,) joules put back on the ground
    ready    (U,) mission seconds at which a vehicle on the ground can take off; NaN while it flies
    """

    def __init__(self, settings: VehicleSettings, vehicles: int) -> None:
        """Start with full batteries on the ground."""
        self._settings = settings
        self.used, self.charged = np.zeros(vehicles), np.zeros(vehicles)
        self.ready = np.zeros(vehicles)

    @property
    def left(self) -> Floats:
        """Joules left in each battery; below 0 only where batteries are ignored."""
        return np.asarray(self._settings.battery + self.charged - self.used)

    @property
    def aloft(self) -> Bools:
        """Which vehicles are in the air."""
        return np.isnan(self.ready)

    def affords(self, vehicle: int, joules: float) -> bool:
        """Tell whether a vehicle can spend this and still land with its reserve."""
        return bool(self.left[vehicle] - joules >= self._settings.reserve * self._settings.battery)

    def ready_at(self, vehicle: int, now: float) -> bool:
        """Tell whether a vehicle is in the air, or can take off by now."""
        return bool(np.isnan(self.ready[vehicle]) or self.ready[vehicle] <= now)

    def charge(self, vehicle: int) -> None:
        """Fill the battery of a vehicle that has been on the ground for long enough."""
        self.charged[vehicle] = self.used[vehicle]

    def take_off(self, vehicle: int) -> None:
        """Let a vehicle leave the ground."""
        self.ready[vehicle] = np.nan

    def land(self, vehicle: int, now: float) -> None:
        """Put a vehicle on the ground: to be recharged, or for good."""
        self.ready[vehicle] = NEVER if self._settings.recharge is None else now + self._settings.recharge

    def state(self) -> Arrays:
        """Return what must be kept to go on later."""
        return {"used": self.used.copy(), "charged": self.charged.copy(), "ready": self.ready.copy()}

    def restore(self, state: Arrays) -> None:
        """Go on from what `state` returned; the first versions kept `used` alone."""
        self.used = np.array(state["used"], np.float64)
        self.charged = np.array(state.get("charged", np.zeros_like(self.used)), np.float64)
        self.ready = np.array(state.get("ready", np.full_like(self.used, np.nan)), np.float64)
