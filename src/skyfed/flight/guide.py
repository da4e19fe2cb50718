"""What the rest of a stretch of flight can still be worth at given prices: the guide of the search for flights.

A visit of class c in round t pays price[c] * psi[c, t] less the rents of its windows. A class that was never visited
so far pays a bonus with its first visit: log(y + eps) <= price * (y + eps) - 1 - log(price) for a visited class,
log(eps) for one that is left out. The programme therefore remembers which of
the `tracked` classes were visited, as bits.
C5 is left to the rents. So without rents the value is a proven upper bound for any prices.
"""

from dataclasses import dataclass

import numpy as np

from skyfed.flight.problem import Problem
from skyfed.flight.travel import Network
from skyfed.types import IDLE, Floats, Ints

NEVER = -1e9
_BYTES = 2**28  # memory for the tables of one guide
_FEW = 16  # sets up to which all points are worked out at once: quicker than one by one
_TRACKED = 10  # classes whose first visit is remembered, at most: 2^10 sets


@dataclass(frozen=True)
class Stretch:
    """Rounds first..stop-1 to be planned; `end` is the round and point of the next visit after them, if any."""

    first: int
    stop: int
    end: tuple[int, int] | None = None

    @property
    def length(self) -> int:
        """Number of rounds."""
        return self.stop - self.first


class Guide:
    """Values of the rest of a stretch, worked out backwards from its end.

    arrive[t, j, s]  of visiting point j in round t of the stretch or later, with set s visited so far
    after[t, i, s]   after a visit of point i in round t, with set s that includes it
    """

    def __init__(
        self, problem: Problem, network: Network, stretch: Stretch, price: Floats, rent: Floats, tracked: Ints
    ) -> None:
        self._problem, self._network, self.stretch = problem, network, stretch
        label, rounds = network.label, network.rounds
        N, L, pad = len(label), stretch.length, int(rounds.max())
        tracked = tracked[: most_tracked(network, L)]
        self.sets = 2 ** len(tracked)
        self.bit = np.zeros(problem.classes, np.int64)  # of a class in a set, 0 where it is not tracked
        self.bit[tracked] = 2 ** np.arange(len(tracked))
        sets = np.arange(self.sets)
        worth, base = problem.value, problem.base
        bonus = price * base - worth - worth * np.log(price) - worth * np.log(base) + worth * np.log(worth)
        now = slice(stretch.first, stretch.stop)
        gain = (price[:, None] * problem.psi - rent @ problem.window_rounds)[:, now].astype(np.float32)
        gain[problem.closed[:, now]] = NEVER
        self.arrive = np.full((L + pad + 1, N, self.sets), NEVER, np.float32)
        self.after = np.zeros((L, N, self.sets), np.float32)
        if stretch.end is not None:
            far = stretch.first + np.arange(L)[:, None] + rounds[:, stretch.end[1]] > stretch.end[0]
            self.after[far] = NEVER
        joined = [sets | self.bit[c] for c in range(problem.classes)]
        first = [np.where((sets & self.bit[c] == 0) & (self.bit[c] > 0), bonus[c], 0.0) for c in range(problem.classes)]
        extra = [each.astype(np.float32) for each in first]
        points, few = np.arange(N), self.sets <= _FEW
        moved, added = np.stack(joined)[label], np.stack(extra)[label]  # (N, sets)
        for t in range(L - 1, -1, -1):
            best = self.after[t]
            if few:
                np.maximum(best, self.arrive[t + rounds, points].max(axis=1), out=best)
                here = np.take_along_axis(best, moved, axis=1) + added + gain[label, t][:, None]
                np.maximum(self.arrive[t + 1], here, out=self.arrive[t])
                continue
            for j in range(N):
                np.maximum(best, self.arrive[t + rounds[:, j], j], out=best)
            for j in range(N):
                here = best[j][moved[j]] + added[j] + gain[label[j], t]
                np.maximum(self.arrive[t + 1, j], here, out=self.arrive[t, j])
        self.work = L * N * N * self.sets

    def walk(self) -> tuple[float, Ints]:
        """Return the best value from the beginning and a walk that has it: the point in each round, IDLE for none."""
        label, rounds = self._network.label, self._network.rounds
        points = np.arange(len(label))
        walk = np.full(self.stretch.length, IDLE)
        t, visited = 0, 0
        j = int(self.arrive[0, :, 0].argmax())
        value = best = float(self.arrive[0, j, 0])
        while best > 0:
            while t + 1 < len(walk) and self.arrive[t + 1, j, visited] == np.float32(best):
                t += 1
            walk[t] = j
            visited |= int(self.bit[label[j]])
            onward = self.arrive[t + rounds[j], points, visited]
            k = int(onward.argmax())
            best = float(onward[k])
            t, j = t + int(rounds[j, k]), k
        return max(0.0, value), walk


def most_tracked(network: Network, length: int) -> int:
    """How many classes a guide has memory to track."""
    cells = len(network.label) * (2 * length + int(network.rounds.max()))
    return int(np.clip(np.log2(max(1.0, _BYTES / 4 / cells)), 0, _TRACKED))
