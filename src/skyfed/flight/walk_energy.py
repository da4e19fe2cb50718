"""The walk of most worth where joules have a price: the search for walks of a battery's bound.

A walk pays `toll` for every joule, worked out from below (`ClassEnergy`). A round costs the same wherever it is flown,
so that part is paid at the end, by the round of the last visit: waiting stays free in the programme.
"""

import numpy as np

from skyfed.flight.energy import ClassEnergy
from skyfed.flight.problem import Problem
from skyfed.flight.travel import STATES, Network
from skyfed.flight.walk_search import Walk, WalkSearch
from skyfed.types import IDLE, Floats, Ints

_NEVER = -1e18
_FIRST = 1


class TolledWalkSearch(WalkSearch):
    """Finds best walks for changing worths and prices of joules."""

    def __init__(self, problem: Problem, network: Network, energy: ClassEnergy, states: int = STATES) -> None:
        super().__init__(problem, network, states)
        self._energy = energy
        self._ways = energy.ways[np.ix_(network.label, network.label)]
        # a visit after which the battery does not suffice to get home is as impossible as one that C5 forbids
        self._closed = self._closed | (np.arange(problem.rounds) > energy.latest[:, None])
        self._pairs: dict[int, tuple[Ints, Ints]] = {}

    def share(self, walk: Walk) -> float:
        """Return which part of the battery a walk takes, from below."""
        return self._energy.walk(np.where(walk == IDLE, IDLE, self._label[walk])) / self._energy.joules

    def best_tolled(self, worth: Floats, toll: float) -> tuple[float, Walk]:
        """Return the greatest worth of a walk less `toll` for each part of the battery, and such a walk."""
        energy, price = self._energy, toll / self._energy.joules
        gain = np.where(self._closed, _NEVER, worth)[self._label]
        N, M, T, pad = self._size, self._states, self._T, int(self._rounds.max())
        here = np.arange(N)
        fresh = here * M + _FIRST
        ways, begun = price * self._ways, -price * energy.first[self._label]
        value = np.full((T, N * M), _NEVER)
        before = np.full((T, N * M), _NEVER)
        recent = np.full((T + pad, N * M), _NEVER)
        ever = np.full((T + pad, N), _NEVER)
        start = 0
        for t in range(T):
            begins, window = self._begins[t], self._window[t]
            if window < 0:
                came = (ever[t + pad - self._rounds, here[:, None]] - ways).max(axis=0)
            else:
                source, group, target = self._links(window)
                self.work += len(source)
                arrived = np.full(N * M, _NEVER)
                paid = recent.ravel()[source + t * N * M] - price * self._way_of(window)
                arrived[target] = np.maximum.reduceat(paid, group)
                came = (ever[np.minimum(t - self._rounds, start - 1) + pad, here[:, None]] - ways).max(axis=0)
                if begins:
                    came = np.maximum(came, arrived.reshape(N, M).max(axis=1))
                else:
                    before[t] = arrived
            before[t, fresh] = np.maximum(before[t, fresh], np.maximum(came, begun))
            value[t] = before[t] + np.repeat(gain[:, t], M)
            if begins:
                recent[: t + pad] = _NEVER
                start = t
            recent[t + pad] = value[t] if begins else np.maximum(recent[t + pad - 1], value[t])
            ever[t + pad] = np.maximum(ever[t + pad - 1], value[t].reshape(N, M).max(axis=1))
        landing = price * (energy.each * np.arange(T)[:, None] + np.repeat(energy.home[self._label], M))
        net = value - landing
        end = int(net.argmax())
        if net.flat[end] <= 0:
            return 0.0, np.full(T, IDLE)  # the best is to stay on the ground
        return float(net.flat[end]), self._traced(value, before, end, begun, ways)

    def _way_of(self, window: int) -> Floats:
        """Joules of the moves inside a window, in their order."""
        source, group, target = self._links(window)
        key = id(source)  # moves are kept, so equal ones are the same array
        if key not in self._pairs:
            N, M = self._size, self._states
            i = source % (N * M) // M
            sizes = np.diff(np.append(group, len(source)))
            self._pairs[key] = (i, np.repeat(target // M, sizes))
        return np.asarray(self._ways[self._pairs[key]])

    def _traced(self, value: Floats, before: Floats, end: int, begun: Floats, ways: Floats) -> Walk:
        """Walk back from an end; stored maxima are differences of the same numbers, so equality is exact."""
        t, state = divmod(end, value.shape[1])
        walk: Walk = np.full(self._T, IDLE)
        while True:
            point, memory = divmod(state, self._states)
            walk[t] = point
            if before[t, state] == begun[point]:
                return walk
            t, state = self._came_from(value, t, point, memory, before[t, state], ways[:, point])

    def _came_from(
        self, value: Floats, t: int, point: int, memory: int, wanted: float, way: Floats
    ) -> tuple[int, int]:
        begins, window, c = self._begins[t], self._window[t], self._label[point]
        for s in range(t - 1, -1, -1):
            near = self._rounds[:, point] <= t - s
            same = (value[s].reshape(self._size, self._states) - way[:, None]) == wanted
            for i, m in np.argwhere(near[:, None] & same):
                a = self._label[i]
                remembered = window >= 0 and s >= self._opens[window]
                expected = self._next[a, c, m] if remembered and not begins else _FIRST
                if memory == expected and not (remembered and self._count[a, c, m] >= self._imax[c, window]):
                    return s, int(i * self._states + m)
        raise AssertionError("a walk's stored worth has no origin")
