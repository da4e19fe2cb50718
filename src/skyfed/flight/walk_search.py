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
from skyfed.types import IDLE, Bools, Floats, Ints

Walk = Ints  # (T,) the point of the network in each round, IDLE where none

_MOST_COUNT = 3  # visits counted up to this
_LINKS = 400_000  # links that may be looked at in a round: where there are more, less is remembered
_LEAST_STATES = 9
_NEVER = -1e18
_FIRST = 1  # memory after a first visit: the lowest digit counts the present class


class WalkSearch:
    """Finds best walks on one network again and again for changing worths."""

    def __init__(self, problem: Problem, network: Network, states: int = STATES) -> None:
        """Remember up to `states` states per point, fewer where there are many points."""
        self.network = network
        self._most_states = min(states, max(_LEAST_STATES, _LINKS // len(network.label) ** 2))
        self._label, self._rounds = network.label, network.rounds
        self._size, self._T = len(network.label), problem.rounds
        self._imax, self._opens = problem.imax, problem.spans[:, 0]
        self._begins, self._window = _memory_windows(problem)
        # visits that C5 forbids outright: a window around the round allows none; (C, T)
        self._closed = (problem.imax == 0).astype(np.int64) @ problem.window_rounds > 0
        self._closed |= problem.closed  # and those that the way from the start forbids
        self._remember(problem)
        self._moves: dict[tuple[int, ...], tuple[Ints, Ints, Ints]] = {}
        self.work = 0  # links looked at so far: a measure of effort that no clock disturbs

    @property
    def states(self) -> int:
        """Memory states per point."""
        return int(self._states)

    def best(self, worth: Floats) -> tuple[float, Walk]:
        """Return the greatest total worth of a walk and such a walk; worth (C, T) is earned by a visit."""
        gain = np.where(self._closed, _NEVER, worth)[self._label]
        N, M, T, pad = self._size, self._states, self._T, int(self._rounds.max())
        here = np.arange(N)
        fresh = here * M + _FIRST
        value = np.full((T, N * M), _NEVER)  # of being at a point with a memory
        before = np.full((T, N * M), _NEVER)  # the same without the present visit's worth
        recent = np.full((T + pad, N * M), _NEVER)  # best so far in the present window, flat in time
        ever = np.full((T + pad, N), _NEVER)  # best so far of any memory and window
        start = 0
        for t in range(T):
            begins, window = self._begins[t], self._window[t]
            if window < 0:
                came = ever[t + pad - self._rounds, here[:, None]].max(axis=0)
            else:
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
        walk: Walk = np.full(self._T, IDLE)
        while True:
            point, memory = divmod(state, M)
            walk[t] = point
            if before[t, state] <= 0.0:
                return walk
            t, state = self._previous(value, t, point, memory, before[t, state])

    def _previous(self, value: Floats, t: int, point: int, memory: int, wanted: float) -> tuple[int, int]:
        begins, window = self._begins[t], self._window[t]
        c = self._label[point]
        for s in range(t - 1, -1, -1):
            near = self._rounds[:, point] <= t - s
            for i, m in np.argwhere(near[:, None] & (value[s].reshape(self._size, self._states) == wanted)):
                a = self._label[i]
                remembered = window >= 0 and s >= self._opens[window]
                expected = self._next[a, c, m] if remembered and not begins else _FIRST
                if memory == expected and not (remembered and self._count[a, c, m] >= self._imax[c, window]):
                    return s, int(i * self._states + m)
        raise AssertionError("a walk's stored worth has no origin")

    def _links(self, window: int) -> tuple[Ints, Ints, Ints]:
        """Moves inside a window by where they lead: source cells of `recent` at round 0, group starts, targets."""
        most = self._imax[:, window]
        key = tuple(int(k) for k in np.minimum(most, _MOST_COUNT + 1))
        if key not in self._moves:
            N, M = self._size, self._states
            i, j, m = np.indices((N, N, M)).reshape(3, -1)
            a, c = self._label[i], self._label[j]
            fits = self._held[m] & (self._count[a, c, m] < most[c])
            i, j, m = i[fits], j[fits], m[fits]
            target = j * M + self._next[a[fits], c[fits], m]
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
        _held[m]         whether memory m can occur: the present class was visited
        """
        C = problem.classes
        top = int(min(_MOST_COUNT, max(1, problem.imax.max(initial=1))))
        base = top + 1
        slots = 1
        while slots < C and base ** (slots + 1) <= self._most_states:
            slots += 1
        M = self._states = base**slots
        apart = distances(problem.centres, problem.centres) - np.eye(C)  # its own class comes first
        near = np.argsort(apart, axis=1, kind="stable")[:, :slots]
        slot = np.full((C, C), -1)  # slot[a, c]: where memory at a counts visits of c, -1 where it does not
        np.put_along_axis(slot, near, np.arange(slots)[None], axis=1)
        power = base ** np.arange(slots)
        digits = np.arange(M)[:, None] // power % base  # (M, slots)
        self._held = digits[:, 0] >= 1
        self._count = np.moveaxis(np.column_stack([digits, np.zeros(M, np.int64)])[:, slot], 0, 2)
        classes = np.arange(C)[:, None]
        carried = np.append(power, 0)[slot[classes, near[:, None]]]  # (C, C, slots): what a digit at a is worth at c
        carried[near[:, None] == classes] = 0
        self._next = np.minimum(self._count + 1, top) + carried @ digits.T


def _memory_windows(problem: Problem) -> tuple[Bools, Ints]:
    """For each round whether a window begins there, and the window whose visits it remembers on arrival (-1: none).

    A round that ends one window and begins the next remembers the one that ends. With rolling windows a tiling of
    them is remembered; the rest is left to prices.
    """
    window = np.full(problem.rounds, -1)
    shared = np.zeros(problem.rounds, bool)
    step = 1 if problem.windows == "paper" else problem.classes
    for number in range(0, len(problem.spans), step):
        first, stop = problem.spans[number]
        shared[first] = window[first] >= 0
        window[first:stop] = number
    begins = np.append(True, window[1:] != window[:-1])
    return begins, np.where(begins & ~shared, -1, window - begins)
