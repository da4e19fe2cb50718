"""Everything in this process, one vehicle after the other."""

from collections.abc import Iterator

from skyfed.learning.evaluate import Scores
from skyfed.records import Probe, Singles
from skyfed.simulate import State
from skyfed.vehicle import Upload, Vehicles, chunks, joined


class InlineDriver:
    """Calls the vehicles' side directly."""

    def __init__(self, vehicles: Vehicles) -> None:
        self._vehicles = vehicles
        self.layout, self.schedule, self.pictures = vehicles.layout, vehicles.schedule, vehicles.pictures
        self.delivered = vehicles.delivered

    def train(self, algorithm: str, t: int, state: State, vehicles: list[int]) -> Iterator[Upload]:
        """Yield the uploads in order."""
        for u in vehicles:
            yield self._vehicles.train(algorithm, u, t, state.weights, state.buffers)

    def genie(self, t: int, state: State) -> tuple[Singles, Singles, float]:
        """Train centrally for one round."""
        return self._vehicles.genie(t, state.weights, state.buffers)

    def probe(self, t: int, state: State, after: State, vehicles: list[int]) -> Iterator[Probe]:
        """Measure the vehicles' losses in order."""
        now, later = (state.weights, state.buffers), (after.weights, after.buffers)
        for u in vehicles:
            yield self._vehicles.probe(u, t, now, later)

    def score(self, state: State) -> Scores:
        """Score every test picture."""
        total = len(self.pictures.test_labels)
        return joined([self._vehicles.score(a, b, state.weights, state.buffers) for a, b in chunks(total)])
