"""Best flights under a speed limit by column generation: a proven bound, and a plan found by diving.

The relaxation mixes walks: maximise sum_c log(sum_w x_w y_w[c] + eps) with sum_w x_w <= 1 and C5 on average. Its dual
prices a visit; `WalkSearch` finds the walk of most worth at these prices, which is a proven bound for any prices and
a new column. Diving fixes visits that the mixture agrees on, one after the other, until a single walk is left.
"""

from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_matrix

from skyfed.flight.milp import Model
from skyfed.flight.problem import Problem
from skyfed.flight.walk_search import Walk, WalkSearch
from skyfed.types import IDLE, Floats, Ints

_FIXED = 30.0  # nats a fixed visit is worth: more than any walk could gain by skipping it
_SMOOTHING = 0.8  # how much of the best prices so far stays in the next (Wentges)
_TANGENTS = 40

Offer = Callable[[Ints, Walk], None]


class WalkMixture:
    """The master problem over the walks found so far."""

    def __init__(self, problem: Problem, search: WalkSearch, offer: Offer, seconds: float) -> None:
        """Let `offer` see every walk that meets C5, as association and walk."""
        self._problem, self._search, self._offer = problem, search, offer
        C, T = problem.psi.shape
        self._member = problem.window_rounds.astype(np.float64)  # (W, T)
        self._visits: list[Floats] = []
        self._fixed = np.zeros((C, T))
        level = problem.psi.sum(axis=1) / C + problem.epsilon
        self._prices = (1 / level, np.zeros(problem.imax.shape))
        # columns: y_c, z_c, then one per walk; rows: y_c, C5, the walks' shares, then tangents
        self._model = Model(np.empty(0), C, problem.epsilon, seconds, least=-100.0)
        limits = np.concatenate([np.zeros(C), problem.imax.ravel(), [1.0]])
        labels = np.arange(C)
        self._model.add_rows(csr_matrix((np.ones(C), (labels, labels)), shape=(len(limits), 2 * C)), limits)
        totals = [max(float(psi.sum()), 1e-8) for psi in problem.psi]
        points = [np.geomspace(min(0.01, total / 2), total, _TANGENTS) for total in totals]
        self._model.add_tangents(np.stack(points), labels[:, None])

    def generate(self, most: int, gap: float) -> float:
        """Add walks until the bound is within `gap` of the mixture; returns the best bound with what is fixed."""
        problem = self._problem
        bound, centre = np.inf, self._prices
        worth, rent = centre
        for _ in range(most):
            pay = worth[:, None] * problem.psi - rent @ self._member + _FIXED * self._fixed
            value, walk = self._search.best(pay)
            proven = float((worth * problem.epsilon - 1 - np.log(worth)).sum() + (rent * problem.imax).sum() + value)
            if proven < bound:
                bound, centre = proven, (worth, rent)
            self._add_walk(walk)
            mixed, next_worth, next_rent = self._mix()
            if bound - mixed < gap:
                break
            worth = centre[0] ** _SMOOTHING * next_worth ** (1 - _SMOOTHING)
            rent = _SMOOTHING * centre[1] + (1 - _SMOOTHING) * next_rent
        self._prices = centre
        return bound - _FIXED * float(self._fixed.sum())

    def dive(self, rng: np.random.Generator | None, steps: int, gap: float, enough: Callable[[float], bool]) -> None:
        """Fix visits the mixture agrees on until one walk is left or `enough` says a bound is not worth following.

        With a generator the first choices are drawn at random, weighted by agreement, so that dives differ. In the end
        all visits are released.
        """
        while True:
            share = self._agreement()
            undecided = np.where(self._fixed > 0, 0.0, share)
            if undecided.max() < 1e-6 or not ((share > 1e-6) & (share < 1 - 1e-6)).any():
                break  # one walk is left, or what was fixed does not go together
            agreed = undecided > 0.9
            if not agreed.any():
                weight = undecided if rng is None else undecided * rng.random(share.shape) ** 0.5
                agreed = np.zeros(share.shape, bool)
                agreed[np.unravel_index(int(weight.argmax()), share.shape)] = True
            self._fix(np.where(agreed, 1.0, self._fixed))
            if enough(self.generate(steps, gap)):
                break
        self._fix(np.zeros_like(self._fixed))
        self._mix()

    def _agreement(self) -> Floats:
        """Share of the mixture that visits class c in round t; (C, T)."""
        share = np.zeros(self._problem.psi.shape)
        for k in np.flatnonzero(self._model.added > 1e-7):
            share += self._model.added[k] * self._visits[k]
        return share

    def _fix(self, fixed: Floats) -> None:
        """Require these visits (C, T) from now on."""
        self._fixed = fixed
        for k, visits in enumerate(self._visits):
            self._model.set_cost(k, _FIXED * float((visits * fixed).sum()))

    def _add_walk(self, walk: Walk) -> None:
        problem = self._problem
        association = np.where(walk == IDLE, IDLE, self._search.network.label[walk])
        visits = (association == np.arange(problem.classes)[:, None]).astype(np.float64)
        counts = visits @ self._member.T
        entries = np.concatenate([-(visits * problem.psi).sum(axis=1), counts.ravel(), [1.0]])
        rows = np.flatnonzero(entries)
        self._model.add_column(_FIXED * float((visits * self._fixed).sum()), rows, entries[rows])
        self._visits.append(visits)
        if (counts <= problem.imax).all():
            self._offer(association, walk)

    def _mix(self) -> tuple[float, Floats, Floats]:
        """Solve over the walks so far; returns the value and the prices of classes and windows."""
        model = self._model
        C, W = self._problem.imax.shape
        while True:
            value = model.solve()
            above = np.flatnonzero((model.excess > 1e-3) & (model.collected > 1e-9))
            if not len(above):
                break
            model.add_tangents(model.collected[above], above)
        prices = np.abs(model.prices)
        return value, np.maximum(prices[:C], 1e-6), prices[C : C + C * W].reshape(C, W)
