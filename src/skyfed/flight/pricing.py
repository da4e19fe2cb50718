"""A proven bound on flights under a speed limit, by column generation.

The relaxation mixes walks: maximise sum_c log(sum_w x_w y_w[c] + eps) with sum_w x_w <= 1 and C5 on average. With the
objective "pictures" a logarithm has a value, and what is held stands in eps's place. The dual prices a visit;
`WalkSearch` finds the walk of most worth at these prices, which is a proven bound for any prices and a new column.
"""

import numpy as np
from scipy.sparse import csr_matrix

from skyfed.flight.milp import Model
from skyfed.flight.problem import Problem
from skyfed.flight.walk_search import Walk, WalkSearch
from skyfed.types import IDLE, Floats

_SMOOTHING = 0.8  # how much of the best prices so far stays in the next (Wentges)
_TANGENTS = 40


class WalkMixture:
    """The master problem over the walks found so far."""

    def __init__(
        self, problem: Problem, search: WalkSearch, seconds: float, prices: tuple[Floats, Floats] | None = None
    ) -> None:
        """Begin with these prices of classes (C,) and windows (C, W), if given."""
        self._problem, self._search = problem, search
        C = problem.classes
        self._member = problem.window_rounds.astype(np.float64)  # (W, T)
        self._visits: list[Floats] = []
        level = problem.psi.sum(axis=1) / C + problem.base
        self._prices = prices or (problem.value / level, np.zeros(problem.imax.shape))
        # columns: y_c, z_c, then one per walk; rows: y_c, C5, the walks' shares, then tangents
        counts = {} if problem.pictures is None else {"value": problem.value, "most": problem.most}
        self._model = Model(np.empty(0), C, problem.base, seconds, least=-100.0, **counts)
        limits = np.concatenate([np.zeros(C), problem.imax.ravel(), [1.0]])
        labels = np.arange(C)
        self._model.add_rows(csr_matrix((np.ones(C), (labels, labels)), shape=(len(limits), 2 * C)), limits)
        totals = [max(float(psi.sum()), 1e-8) for psi in problem.psi]
        points = [np.geomspace(min(0.01, total / 2), total, _TANGENTS) for total in totals]
        self._model.add_tangents(np.stack(points), labels[:, None])

    def generate(self, most: int, gap: float, work: float) -> float:
        """Add up to `most` walks until the bound is within `gap` of the mixture or `work` is done; returns it."""
        problem = self._problem
        bound, centre = np.inf, self._prices
        worth, rent = centre
        for _ in range(most):
            pay = worth[:, None] * problem.psi - rent @ self._member
            value, walk = self._search.best(pay)
            proven = float(self._free(worth).sum() + (rent * problem.imax).sum() + value)
            if proven < bound:
                bound, centre = proven, (worth, rent)
            self._add_walk(walk)
            mixed, next_worth, next_rent = self._mix()
            if bound - mixed < gap or self._search.work > work:
                break
            worth = centre[0] ** _SMOOTHING * next_worth ** (1 - _SMOOTHING)
            rent = _SMOOTHING * centre[1] + (1 - _SMOOTHING) * next_rent
        self._prices = centre
        return bound

    def _free(self, worth: Floats) -> Floats:
        """The most that value * log(y + base) - worth * y can be over the amounts y; (C,)."""
        value, base = self._problem.value, self._problem.base
        anything = worth * base - value - value * np.log(worth) + value * np.log(value)
        if self._problem.pictures is None:
            return anything
        most = self._problem.most  # what pictures are worth ends where all are taken
        all_there_is = value * np.log(most + base) - worth * most
        return np.where(value / worth - base > most, all_there_is, anything)

    @property
    def prices(self) -> tuple[Floats, Floats]:
        """The prices of classes (C,) and windows (C, W) that prove the bound."""
        return self._prices

    @property
    def agreement(self) -> Floats:
        """Share of the mixture that visits class c in round t; (C, T)."""
        share = np.zeros(self._problem.psi.shape)
        for k in np.flatnonzero(self._model.added > 1e-7):
            share += self._model.added[k] * self._visits[k]
        return share

    def _add_walk(self, walk: Walk) -> None:
        problem = self._problem
        association = np.where(walk == IDLE, IDLE, self._search.network.label[walk])
        visits = (association == np.arange(problem.classes)[:, None]).astype(np.float64)
        counts = visits @ self._member.T
        entries = np.concatenate([-(visits * problem.psi).sum(axis=1), counts.ravel(), [1.0]])
        rows = np.flatnonzero(entries)
        self._model.add_column(0.0, rows, entries[rows])
        self._visits.append(visits)

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
