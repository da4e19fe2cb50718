"""The central baseline `sgd`: plain SGD on the union of all vehicles' data, which no real fleet could run."""

from typing import TYPE_CHECKING

from skyfed.algorithms.base import Algorithm
from skyfed.types import Arrays

if TYPE_CHECKING:
    from skyfed.kit import Kit


class Central(Algorithm):
    """Trains at one place on everything that was sensed; nothing is sent."""

    title = "SGD"
    central = True
    station_columns = ()

    def train(self, kit: "Kit", state: Arrays) -> Arrays:
        """Return the state after a round of central training."""
        model = kit.central(state, self.settings.train.central_batches(self.fleet.vehicles))
        return {**state, "weights": model.weights, "buffers": model.buffers}
