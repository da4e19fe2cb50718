"""Better flights by large-neighbourhood search: stretches of the best walk so far are planned anew by a beam."""

import numpy as np

from skyfed.flight.beam import Beam, Cut, Walk
from skyfed.flight.guide import Guide, Stretch, most_tracked
from skyfed.flight.problem import Problem
from skyfed.flight.travel import Network
from skyfed.types import IDLE, Floats

_LENGTH = 20  # rounds of a stretch, about
_NOISE = 0.5  # spread of log(psi) in a search that is to find something else
_WORSE = 0.03  # nats that the walk worked on may lose, at first
_FAR = 0.1  # nats behind the best at which work goes back to it
_HIGHEST = 10.0  # most a class is priced at: past that a first visit's bonus says more


class Improvement:
    """The best walk so far, and the ways to improve it; all draws come from `rng`, all effort is counted in `work`."""

    def __init__(self, problem: Problem, network: Network, rent: Floats, width: int, rng: np.random.Generator) -> None:
        self._problem, self._network, self._rent, self._width, self._rng = problem, network, rent, width, rng
        self.beam = Beam(problem, network)
        self._known: list[tuple[float, Walk]] = []
        self.begin()

    @property
    def work(self) -> int:
        """Ways looked at so far."""
        return self.beam.work

    def begin(self) -> None:
        """Begin a new search from a flight without visits; what was found stays known."""
        self.walk: Walk = np.full(self._problem.rounds, IDLE)
        self.value = self._problem.objective(self.walk)
        self._known.append((self.value, self.walk))

    def resume(self) -> None:
        """Go on from the best walk that any search found."""
        self.value, self.walk = max(self._known, key=lambda known: known[0])

    def walks(self) -> list[Walk]:
        """Return the walks found, best first."""
        return [walk for _, walk in sorted(self._known, key=lambda known: -known[0])]

    def fly_all(self, price: Floats, rent: Floats, future: Floats, width: int) -> None:
        """Plan the whole flight; the best walk so far is replaced where that is better.

        Classes of which no amount is counted on (`future` is zero in the end as well as before) are tracked.
        """
        problem = self._problem
        tracked = np.flatnonzero(future.max(axis=0) <= 0)
        guide = Guide(problem, self._network, Stretch(0, problem.rounds), price, rent, tracked)
        self._keep(self.beam.fly(self.walk, guide, future, width))

    def polish(self, sweeps: int = 1) -> None:
        """Plan every stretch anew, in random order."""
        for _ in range(sweeps):
            before = self.value
            self._keep(self._polished(self.value, self.walk, 0, self._problem.rounds))
            if self.value <= before:
                return

    def search(self, most: float, enough: float) -> None:
        """Leave the walk and come back, until `most` work is done or the objective is `enough`."""
        T, begun = self._problem.rounds, self.work
        value, walk = self.value, self.walk
        while self.work - begun < most and self.value < enough:
            length = int(self._rng.integers(_LENGTH // 2, 2 * _LENGTH))
            first = int(self._rng.integers(-length // 2, max(1, T - length // 2)))
            first, stop = max(0, first), min(T, first + length)
            noise = np.exp(_NOISE * self._rng.standard_normal(self._problem.psi.shape))
            other = self._fly(walk, first, stop, max(50, self._width // 2), self._problem.psi * noise)
            if other is None:
                self.beam.work += T  # so that the search ends
                continue
            found, changed = self._polished(self._worth(other[1]), other[1], first, stop)
            if found > value - _WORSE * (1 - (self.work - begun) / most):
                value, walk = found, changed
            self._keep((value, walk))
            if value < self.value - _FAR:
                value, walk = self.value, self.walk

    def _keep(self, other: tuple[float, Walk] | None) -> None:
        if other is not None and other[0] > self.value + 1e-9:
            self.value, self.walk = other
            self._known.append(other)

    def _worth(self, walk: Walk) -> float:
        return self.beam.objective(walk)

    def _polished(self, value: float, walk: Walk, first: int, stop: int) -> tuple[float, Walk]:
        T = self._problem.rounds
        for start in self._rng.permutation(np.arange(first - _LENGTH // 2, stop - _LENGTH // 2, _LENGTH // 3)):
            a, b = max(0, int(start)), min(T, int(start) + _LENGTH)
            other = self._fly(walk, a, b, self._width) if b > a else None
            if other is not None and other[0] > value + 1e-9:
                value, walk = other
        return value, walk

    def _fly(
        self, walk: Walk, first: int, stop: int, width: int, psi: Floats | None = None
    ) -> tuple[float, Walk] | None:
        problem = self._problem
        association = self.beam.association(walk)
        stretch = self.beam.stretch(walk, first, stop)
        inside = self._amounts(walk, slice(first, stop), psi)
        outside = association.copy()
        outside[first:stop] = IDLE
        missing = np.flatnonzero(problem.collected(outside) <= 0)
        total = problem.collected(association, self._network.points[walk]) + problem.base
        price = problem.value / np.maximum(total, 1 / _HIGHEST)
        tracked = missing[: most_tracked(self._network, stretch.length)]
        future = np.maximum(0.0, inside.sum(axis=1)[None] - np.cumsum(inside, axis=1).T)
        future[:, tracked] = 0.0
        guide = Guide(problem, self._network, stretch, price, self._rent, tracked)
        cut = None
        if psi is None and not len(missing):
            plane = problem.value / total
            free = Guide(problem, self._network, stretch, plane, np.zeros_like(self._rent), tracked)
            cut = Cut(plane, free, float(problem.value.sum()))  # each class's amount times its price is its value
        return self.beam.fly(walk, guide, future, width, psi, cut)

    def _amounts(self, walk: Walk, rounds: slice, psi: Floats | None) -> Floats:
        """What each class collects in each of these rounds; (C, rounds)."""
        problem = self._problem
        visits = self.beam.association(walk)[rounds] == np.arange(problem.classes)[:, None]
        if psi is None and problem.pictures is not None:
            return np.where(visits, self.beam.amounts(walk)[rounds], 0.0)
        return np.where(visits, (problem.psi if psi is None else psi)[:, rounds], 0.0)
