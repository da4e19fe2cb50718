"""The search for flights: all promising ways to fly a stretch at once, round by round, the best few kept (a beam).

A label is one way to have flown so far: the last point, rounds since, what each class has collected, and what C5 has
left. In every round it idles or visits a point that can be reached by then. Labels are compared by the objective with
what they have, plus what a `Guide` says the rest of the stretch can be worth.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skyfed.flight.guide import NEVER, Guide, Stretch
from skyfed.flight.problem import Problem
from skyfed.flight.travel import Network, rounds_from
from skyfed.types import IDLE, Bools, Floats, Ints

Walk = Ints  # (T,) the point of the network in each round, IDLE where none

_LOST = -1e18  # score of what cannot be flown; a guide's NEVER is above it
_SURE = 1e-9


@dataclass
class _Labels:
    """One row per label: last point, rounds since, tracked set, amounts (n, C), visits left (n, C, W), identity.

    last  (n, C) round of the last visit of each class, IDLE for none; only kept where a visit takes from the next
    """

    point: Ints
    since: Ints
    visited: Ints
    amount: Floats
    left: NDArray[np.int8]
    key: Ints
    last: Ints | None = None


@dataclass(frozen=True)
class Cut:
    """A tangent plane of the objective at a known walk: what a walk must exceed at these prices to be better.

    price  (C,) value / amount of the known walk      guide  at these prices, without rents
    known  the known walk's amounts at these prices
    """

    price: Floats
    guide: Guide
    known: float


class Beam:
    """Finds good walks on one network again and again."""

    def __init__(self, problem: Problem, network: Network) -> None:
        self.problem, self.network = problem, network
        C, T, N = problem.classes, problem.rounds, len(network.label)
        begin = np.zeros(N, np.int64) if problem.start is None else rounds_from(problem, problem.start, network.points)
        self._longest = int(max(network.rounds.max(), begin.max()))
        self._rounds = np.vstack([network.rounds, begin[None]])  # row N: nothing was visited yet
        self._share = None if problem.pictures is None else problem.share(network.points, network.label)
        self._takes = problem.pictures is not None and bool(problem.pictures.ends.size)
        self._member = problem.window_rounds.astype(np.int64)
        draws = np.random.default_rng(0)  # identities only: which numbers they are does not matter
        self._visit_key = draws.integers(0, 2**62, (C, T))
        self._place_key = draws.integers(0, 2**62, (N + 1, self._longest + 1))
        self.work = 0  # ways looked at so far: a measure of effort that no clock disturbs

    def association(self, walk: Walk) -> Ints:
        """Return the class in each round of a walk."""
        return np.where(walk == IDLE, IDLE, self.network.label[walk])

    def amounts(self, walk: Walk) -> Floats:
        """Return what each round of a walk collects; (T,)."""
        return self.problem.amounts(self.association(walk), self.network.points[walk])

    def objective(self, walk: Walk) -> float:
        """Return the objective of a walk."""
        return self.problem.objective(self.association(walk), self.network.points[walk])

    def stretch(self, walk: Walk, first: int, stop: int) -> Stretch:
        """Return rounds first..stop-1 as a stretch that ends where the walk goes on."""
        later = np.flatnonzero(walk[stop:] != IDLE)
        return Stretch(first, stop, (int(later[0]) + stop, int(walk[later[0] + stop])) if len(later) else None)

    def fly(
        self, walk: Walk, guide: Guide, future: Floats, width: int, psi: Floats | None = None, cut: Cut | None = None
    ) -> tuple[float, Walk] | None:
        """Plan the guide's stretch of a walk anew; returns the objective and the walk, None where no way was found.

        future  (rounds of the stretch, C) amounts to count on after each round, as far as labels are compared
        width   labels kept
        psi     what to collect instead of the problem's own: so that searches differ
        cut     drops the labels that are proven to end no better than a known walk
        """
        problem, stretch = self.problem, guide.stretch
        psi = problem.psi if psi is None else psi
        kept = walk.copy()
        kept[stretch.first : stretch.stop] = IDLE
        windows = np.flatnonzero(self._member[:, stretch.first : stretch.stop].any(axis=1))
        labels = self._start(kept, stretch.first, windows, psi)
        history: list[tuple[Ints, Ints]] = []
        for t in range(stretch.first, stretch.stop):
            here = np.flatnonzero(self._member[windows, t])
            score = self._scores(labels, guide, t, here, future[t - stretch.first], psi)
            if cut is not None:
                score[self._proven_worse(labels, cut, t)] = _LOST
            self.work += score.size
            origin, action = self._select(labels, score, t, width)
            if not len(origin):
                return None
            labels = self._advance(labels, guide, origin, action, t, here, psi)
            history.append((origin, action))
        if labels.last is not None:
            self._take_from_later(labels, walk, stretch, psi)
        value = (problem.value * np.log(labels.amount)).sum(axis=1)
        if stretch.end is not None:
            arrival = stretch.stop - 1 - labels.since + self._rounds[labels.point, stretch.end[1]]
            value = np.where(arrival <= stretch.end[0], value, _LOST)
        best = int(value.argmax())
        if value[best] <= NEVER:
            return None
        total = float(value[best])
        for t, (origin, action) in zip(range(stretch.stop - 1, stretch.first - 1, -1), reversed(history), strict=True):
            kept[t], best = action[best], int(origin[best])
        return total, kept

    def _start(self, kept: Walk, first: int, windows: Ints, psi: Floats) -> _Labels:
        """Return the one label that a stretch begins with."""
        problem = self.problem
        association = self.association(kept)
        busy = np.flatnonzero(association != IDLE)
        each = psi[association[busy], busy]
        if self._share is not None:
            full = problem.psi[association[busy], busy]
            each = self.amounts(kept)[busy] * np.divide(each, full, out=np.ones_like(each), where=full > 0)
        amount: Floats = np.bincount(association[busy], each, problem.classes).astype(np.float64)
        used = np.stack([self._member[windows] @ (association == c) for c in range(problem.classes)])
        before = busy[busy < first]
        point, since = (len(self.network.label), self._longest) if not len(before) else (kept[before[-1]], -1)
        if len(before):
            since = min(self._longest, first - 1 - int(before[-1]))
        elif problem.start is not None:
            since = min(self._longest, first)  # it was at the start in round -1
        return _Labels(
            np.array([point]), np.array([since]), np.zeros(1, np.int64), amount[None] + problem.base,
            np.minimum(problem.imax[:, windows] - used, 100).astype(np.int8)[None], np.zeros(1, np.int64),
            self._last_visits(association, first)[None] if self._takes else None,
        )  # fmt: skip

    def _scores(self, labels: _Labels, guide: Guide, t: int, here: Ints, future: Floats, psi: Floats) -> Floats:
        """Score idling (column 0) and visiting each point, for each label."""
        label, step = self.network.label, t - guide.stretch.first
        expected = labels.amount + future
        now = (self.problem.value * np.log(expected)).sum(axis=1)
        room = np.asarray((labels.left[:, :, here] > 0).all(axis=2))
        gain = self._gains(labels, expected, room, t, psi)
        reached = self._rounds[labels.point] <= (labels.since + 1)[:, None]
        points = np.arange(len(label))
        after = guide.after[step][points, labels.visited[:, None] | guide.bit[label]]
        visit = np.where(reached, now[:, None] + gain + after, _LOST)
        since = np.minimum(labels.since + 1, self._longest)
        return np.column_stack([now + self._rest(guide, step, labels.point, since, labels.visited), visit])

    def _gains(self, labels: _Labels, expected: Floats, room: Bools, t: int, psi: Floats) -> Floats:
        """What a visit of each point in round t adds to the objective of each label; (n, N)."""
        label, value = self.network.label, self.problem.value
        if self._share is None:
            return np.where(room, value * np.log1p(psi[:, t] / expected), _LOST)[:, label]
        part = (self._brings(labels, t, psi) / expected)[:, label] * self._share
        return np.where(room[:, label], value[label] * np.log1p(part), _LOST)

    def _brings(self, labels: _Labels, t: int, psi: Floats) -> Floats:
        """What a visit of each class's centre in round t brings each label; (n, C) or (1, C)."""
        fresh = None if labels.last is None else self.problem.fresh(t, labels.last)
        return psi[None, :, t] if fresh is None else np.minimum(psi[:, t], fresh)

    def _last_visits(self, association: Ints, first: int) -> Ints:
        rounds = np.arange(first)
        visits = association[:first] == np.arange(self.problem.classes)[:, None]
        return np.asarray(np.where(visits, rounds, IDLE).max(axis=1, initial=IDLE))

    def _take_from_later(self, labels: _Labels, walk: Walk, stretch: Stretch, psi: Floats) -> None:
        """Lower the amounts by what the stretch's visits took from each class's first visit after it."""
        assert labels.last is not None
        association = self.association(walk)
        before = self._last_visits(association, stretch.first)
        for c in np.unique(association[stretch.stop :]):
            if c == IDLE:
                continue
            t = stretch.stop + int(np.flatnonzero(association[stretch.stop :] == c)[0])
            share = self.problem.share(self.network.points[walk[t : t + 1]], np.array([c]))[0]
            new, old = (self.problem.fresh(t, last) for last in (labels.last, before[None]))
            assert new is not None
            assert old is not None
            labels.amount[:, c] += share * (np.minimum(psi[c, t], new[:, c]) - np.minimum(psi[c, t], old[:, c]))
        np.maximum(labels.amount, self.problem.base, out=labels.amount)

    def _proven_worse(self, labels: _Labels, cut: Cut, t: int) -> Bools:
        """Tell of idling and of visiting each point whether the tangent plane's best end is below the known walk's."""
        label, step = self.network.label, t - cut.guide.stretch.first
        so_far = labels.amount @ cut.price
        visit = so_far[:, None] + (cut.price * self.problem.psi[:, t])[label] + cut.guide.after[step, :, 0]
        since = np.minimum(labels.since + 1, self._longest)
        idle = so_far + self._rest(cut.guide, step, labels.point, since, np.zeros_like(since))
        return np.asarray(np.column_stack([idle, visit]) <= cut.known + _SURE)

    def _rest(self, guide: Guide, step: int, point: Ints, since: Ints, visited: Ints) -> Floats:
        """What the guide says of idling in a round; last visit `since` rounds ago."""
        length, end, first = guide.stretch.length, guide.stretch.end, guide.stretch.first
        N, ages = len(self.network.label), self._longest + 1
        cells, which = np.unique((visited * (N + 1) + point) * ages + since, return_inverse=True)  # few are unlike
        rest, since = np.divmod(cells, ages)
        visited, point = np.divmod(rest, N + 1)
        when = np.minimum(np.maximum(step + 1, step - since[:, None] + self._rounds[point]), length)
        value: Floats = guide.arrive[when, np.arange(N), visited[:, None]].max(axis=1).astype(np.float64)
        in_time = end is None or first + step - since + self._rounds[point, end[1]] <= end[0]
        return np.where(in_time, np.maximum(value, 0.0), value)[which]

    def _select(self, labels: _Labels, score: Floats, t: int, width: int) -> tuple[Ints, Ints]:
        """Return the best ways on, as label and point (IDLE: none); of equal ones, one."""
        flat = score.ravel()
        alive = np.flatnonzero(flat > NEVER / 2)
        if len(alive) > 2 * width:
            alive = alive[np.argpartition(-flat[alive], 2 * width)[: 2 * width]]
        alive = alive[np.argsort(-flat[alive], kind="stable")]
        origin, action = np.divmod(alive, score.shape[1])
        action -= 1
        point, since, key = self._moved(labels, origin, action, t)
        _, unlike = np.unique(key ^ self._place_key[point, since], return_index=True)
        chosen = np.sort(unlike)[:width]
        return origin[chosen], action[chosen]

    def _moved(self, labels: _Labels, origin: Ints, action: Ints, t: int) -> tuple[Ints, Ints, Ints]:
        idle: Bools = action == IDLE
        since = np.where(idle, np.minimum(labels.since[origin] + 1, self._longest), 0)
        added = np.where(idle, 0, self._visit_key[self.network.label[action], t])
        return np.where(idle, labels.point[origin], action), since, labels.key[origin] ^ added

    def _advance(
        self, labels: _Labels, guide: Guide, origin: Ints, action: Ints, t: int, here: Ints, psi: Floats
    ) -> _Labels:
        point, since, key = self._moved(labels, origin, action, t)
        amount, left, visited = labels.amount[origin], labels.left[origin], labels.visited[origin]
        busy = np.flatnonzero(action != IDLE)
        label = self.network.label[action[busy]]
        last = None if labels.last is None else labels.last[origin]
        if self._share is None:
            amount[busy, label] += psi[label, t]
        else:
            brings = np.broadcast_to(self._brings(labels, t, psi), (len(labels.point), len(psi)))
            amount[busy, label] += brings[origin[busy], label] * self._share[action[busy]]
        if last is not None:
            last[busy, label] = t
        visited[busy] |= guide.bit[label]
        for w in here:
            left[busy, label, w] -= 1
        return _Labels(point, since, visited, amount, left, key, last)
