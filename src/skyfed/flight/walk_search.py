"""The walk of most worth on a travel network, by dynamic programming with a memory of recent visits.

A walk is a sequence of (round, point); between two points pass at least the rounds the flight takes. C5 would need the
memory of every class's visits in the window; the programme remembers only those of the classes near the present one,
as long as the walk stays among them (an "ng" memory). So it allows every feasible walk and some that break C5: the
worth it finds is an upper bound, and the prices of C5 in `pricing` keep the others in check.
"""

import numpy as np

from skyfed.flight.discs import distances
from skyfed.flight.problem import Problem
from skyfed.flight.travel import STATES, Network
from skyfed.types import Bools, Floats, Ints

Walk = list[tuple[int, int]]  # (round, point of the network), in time order

_MOST_COUNT = 3  # visits counted up to this
_NEVER = -1e18


class WalkSearch:
    """Finds best walks on one network again and again for changing worths."""

    def __init__(self, problem: Problem, network: Network) -> None:
        self.network = network
        self._label, self._rounds = network.label, network.rounds
        self._size, self._T = len(network.label), problem.rounds
        self._imax = problem.imax
        self._window, self._shared = _memory_windows(problem)
        # visits that C5 forbids outright: a window around the round allows none; (C, T)
        self._closed = (problem.imax == 0).astype(np.int64) @ problem.window_rounds > 0
        self._remember(problem)
        self._moves: dict[tuple[int, ...], tuple[Ints, Ints, Ints]] = {}
        self.work = 0  # links looked at so far: a measure of effort that no clock disturbs

    def best(self, worth: Floats) -> tuple[float, Walk]:
        """Return the greatest total worth of a walk and such a walk; worth (C, T) is earned by a visit."""
        gain = np.where(self._closed, _NEVER, worth)[self._label]
        N, M, T, pad = self._size, self._states, self._T, int(self._rounds.max())
        here = np.arange(N)
        fresh = here * M + self._first[self._label]
        value = np.full((T, N * M), _NEVER)  # of being at a point with a memory
        before = np.full((T, N * M), _NEVER)  # the same without the present visit's worth
        recent = np.full((T + pad, N * M), _NEVER)  # best so far in the present window, flat in time
        ever = np.full((T + pad, N), _NEVER)  # best so far of any memory and window
        start = 0
        for t in range(T):
            begins = t == 0 or self._window[t] != self._window[t - 1]
            if self._window[t] < 0 or (begins and not self._shared[t]):
                came = ever[t + pad - self._rounds, here[:, None]].max(axis=0)
            else:
                window = self._window[t] - (1 if begins else 0)
                source, group, target = self._links(window)
                self.work += len(source)
                arrived = np.full(N * M, _NEVER)
                arrived[target] = np.maximum.reduceat(recent.ravel()[source + t * N * M], group)
                came = ever[np.minimum(t - self._rounds, start - 1) + pad, here[:, None]].max(axis=0)
                if begins:
                    came = np.maximum(came, arrived.reshape(N, M).max(axis=1))
                else:
                    before[t] = arrived
            before[t, fresh] = np.maximum(before[t, fresh], np.maximum(came, 0.0))
            value[t] = before[t] + np.repeat(gain[:, t], M)
            if begins:
                recent[: t + pad] = _NEVER
                start = t
            recent[t + pad] = value[t] if begins else np.maximum(recent[t + pad - 1], value[t])
            ever[t + pad] = np.maximum(ever[t + pad - 1], value[t].reshape(N, M).max(axis=1))
        return float(ever[T - 1 + pad].max()), self._trace(value, before)

    def _trace(self, value: Floats, before: Floats) -> Walk:
        """Walk back from the best end; stored maxima are copies, so equality is exact."""
        M = self._states
        t = int(value.max(axis=1).argmax())
        state = int(value[t].argmax())
        walk: Walk = []
        while True:
            point, memory = divmod(state, M)
            walk.append((t, point))
            if before[t, state] <= 0.0:
                return walk[::-1]
            t, state = self._previous(value, t, point, memory, before[t, state])

    def _previous(self, value: Floats, t: int, point: int, memory: int, wanted: float) -> tuple[int, int]:
        label, M = self._label, self._states
        begins = t == 0 or self._window[t] != self._window[t - 1]
        free = self._window[t] < 0 or (begins and not self._shared[t])
        window = -1 if free else self._window[t] - (1 if begins else 0)
        opened = 0 if free else int(np.flatnonzero(self._window == window)[0])
        c = label[point]
        for s in range(t - 1, -1, -1):
            near = self._rounds[:, point] <= t - s
            for i, m in np.argwhere(near[:, None] & (value[s].reshape(self._size, M) == wanted)):
                a = label[i]
                if free or s < opened:
                    fits = memory == self._first[c]
                else:
                    fits = self._count[a, c, m] < self._imax[c, window]
                    fits &= memory == (self._first[c] if begins else self._next[a, c, m])
                if fits:
                    return s, int(i * M + m)
        raise AssertionError("a walk's stored worth has no origin")

    def _links(self, window: int) -> tuple[Ints, Ints, Ints]:
        """Moves inside a window by where they lead: source cells of `recent` at round 0, group starts, targets."""
        most = self._imax[:, window]
        key = tuple(int(k) for k in np.minimum(most, _MOST_COUNT + 1))
        if key not in self._moves:
            N, M = self._size, self._states
            i, j, m = (a.ravel() for a in np.meshgrid(np.arange(N), np.arange(N), np.arange(M), indexing="ij"))
            a, c = self._label[i], self._label[j]
            fits = self._held[a, m] & (self._count[a, c, m] < most[c])
            i, j, m, a, c = i[fits], j[fits], m[fits], a[fits], c[fits]
            target = j * M + self._next[a, c, m]
            order = np.argsort(target, kind="stable")
            target = target[order]
            group = np.flatnonzero(np.r_[True, target[1:] != target[:-1]])
            source = (int(self._rounds.max()) - self._rounds[i, j]) * (N * M) + i * M + m
            self._moves[key] = (source[order], group, target[group])
        return self._moves[key]

    def _remember(self, problem: Problem) -> None:
        """Lay out the memory: counts of visits of the present class and its nearest, as digits of one number.

        _next[a, c, m]   memory at c after coming from a with memory m
        _count[a, c, m]  visits of c that memory m at a knows of
        _first[c]        memory after a first visit of c
        _held[a, m]      whether memory m can occur at a (its own class was visited)
        """
        C = problem.classes
        top = int(min(_MOST_COUNT, max(1, problem.imax.max(initial=1))))
        base = top + 1
        slots = 1
        while slots < C and base ** (slots + 1) <= STATES:
            slots += 1
        M = self._states = base**slots
        apart = distances(problem.centres, problem.centres) - np.eye(C)  # its own class comes first
        near = np.argsort(apart, axis=1, kind="stable")[:, :slots]
        slot = np.full((C, C), -1)
        np.put_along_axis(slot, near, np.arange(slots)[None], axis=1)
        power = base ** np.arange(slots)
        digits = np.arange(M)[:, None] // power % base  # (M, slots)
        self._first = np.full(C, power[0])
        self._held = np.tile(digits[:, 0] >= 1, (C, 1))
        self._next = np.zeros((C, C, M), np.int64)
        self._count = np.zeros((C, C, M), np.int64)
        for a in range(C):
            for c in range(C):
                if slot[a, c] >= 0:
                    self._count[a, c] = digits[:, slot[a, c]]
                self._next[a, c] = np.minimum(self._count[a, c] + 1, top) * power[0]
                for k, other in enumerate(near[a]):
                    if other != c and slot[c, other] >= 0:
                        self._next[a, c] += digits[:, k] * power[slot[c, other]]


def _memory_windows(problem: Problem) -> tuple[Ints, Bools]:
    """For each round the window its visits are remembered in (-1: none), and whether it also ends the one before.

    With rolling windows a tiling of them is remembered, the rest is left to prices.
    """
    spans = problem.spans
    window = np.full(problem.rounds, -1)
    shared = np.zeros(problem.rounds, bool)
    step = 1 if problem.windows == "paper" else problem.classes
    for number in range(0, len(spans), step):
        first, stop = spans[number]
        shared[first] = window[first] >= 0
        window[first:stop] = number
    return window, shared
