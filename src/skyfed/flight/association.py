"""Which class in which round, without a speed limit: a MILP with tangent cuts on the logarithm (Eq. 4; C1, C4, C5).

Outer approximation: z_c <= log(y + eps) + (y_c - y) / (y + eps) holds for every y, so the model's optimum is a proven
upper bound; tangents are added where the last answer touched them. The relaxation is solved first; columns whose
reduced cost exceeds the distance to a rounded plan cannot change in a better one and are fixed; a small MILP is left.
"""

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix, hstack, identity, kron, vstack

from skyfed.flight.discs import anchor, impossible_steps
from skyfed.flight.milp import Model
from skyfed.flight.problem import Problem, labels_of
from skyfed.types import IDLE, Floats, Ints

GAP = 5e-5  # nats: proven distance at which the search ends
_TANGENTS = 24  # tangents per class to begin with
_CUTTING_ROUNDS = 40
_MILP_ROUNDS = 12
_NEAR, _SPACING = 8, 5e-3  # tangents on either side of the relaxed answer, and their distance in log(y)
_LARGE, _LARGE_GAP = 20_000, 5e-4  # cells past which rounding is good enough at this gap, nats per class

Pattern = tuple[tuple[int, int], ...]  # (rounds after the first, class): visits that do not go together


class AssociationModel:
    """The association problem of one vehicle; patterns found impossible to fly can be forbidden."""

    def __init__(self, problem: Problem, seconds: float = 300.0) -> None:
        self._problem, self._seconds = problem, seconds
        C, T = problem.psi.shape
        self._member = csr_matrix(problem.window_rounds, dtype=np.int64)  # (W, T)
        self._top = np.repeat([float(anchor(problem, c) is not None) for c in range(C)], T)  # cell c*T+t is I[c,t]
        self._rows = vstack([hstack([identity(T)] * C), kron(identity(C), self._member)], format="csr")  # C4, C5
        self._limits = np.concatenate([np.ones(T), problem.imax.ravel().astype(np.float64)])
        self._patterns: list[Pattern] = []
        for a, b in impossible_steps(problem):
            self.forbid(((0, a), (1, b)))

    def forbid(self, pattern: Pattern) -> None:
        """Forbid visits at these distances in time from each other, wherever they begin."""
        T = self._problem.rounds
        starts = np.arange(T - max(offset for offset, _ in pattern))
        cells = np.concatenate([label * T + starts + offset for offset, label in pattern])
        rows = np.tile(np.arange(len(starts)), len(pattern))
        added = csr_matrix((np.ones(len(cells)), (rows, cells)), shape=(len(starts), len(self._top)))
        self._rows = vstack([self._rows, added], format="csr")
        self._limits = np.concatenate([self._limits, np.full(len(starts), len(pattern) - 1.0)])
        self._patterns.append(pattern)

    def solve(self) -> tuple[Ints, float, str]:
        """Return a best association, the proven bound on any, and a note on what limited the proof."""
        problem = self._problem
        C, T = problem.psi.shape
        everything = np.arange(len(self._top))
        relaxed = self._model(cells=everything, ones=everything[:0])
        total = problem.psi.sum(axis=1)
        relaxed.add_tangents(np.geomspace(np.maximum(total * 0.01, 1e-9), np.maximum(total, 1e-8), _TANGENTS))
        for _ in range(_CUTTING_ROUNDS):
            bound = relaxed.solve()
            if relaxed.touch() < GAP / 10:
                break
        share = relaxed.share
        best = self._improve(self._round(share.reshape(C, T)))
        value = problem.objective(best)
        if bound - value <= (_LARGE_GAP * C if C * T > _LARGE else GAP):
            return best, bound, ""
        settled = np.abs(relaxed.reduced_costs) > bound - value + GAP
        free, ones = np.flatnonzero(~settled), np.flatnonzero(settled & (share > 0.5))
        search = self._model(cells=free, ones=ones)
        near = np.exp(_SPACING * np.arange(-_NEAR, _NEAR + 1))
        search.add_tangents(relaxed.collected * near[:, None])
        note = ""
        for _ in range(_MILP_ROUNDS):
            bound = min(bound, search.solve(integral=True, gap=GAP / 3))
            share = np.isin(everything, ones).astype(np.float64)
            share[free] = search.share
            association = labels_of(share.reshape(C, T))
            if problem.objective(association) > value:
                best, value = association, problem.objective(association)
            if search.timed_out:
                note = "time limit: the gap is what was proven by then"
                break
            if bound - value <= GAP or search.touch() < GAP / 10:
                break
        return best, max(bound, value), note

    def _model(self, cells: Ints, ones: Ints) -> Model:
        """Return the model over some cells, without tangents; the others are settled at 1 (`ones`) or 0."""
        problem = self._problem
        C, T = problem.psi.shape
        model = Model(self._top[cells], C, problem.epsilon, self._seconds)
        columns = csc_matrix(self._rows)
        left = self._limits - np.asarray(columns[:, ones].sum(axis=1)).ravel()
        inside = columns[:, cells].tocsr()
        tight = np.flatnonzero(np.diff(inside.indptr) > 0)
        model.add_rows(hstack([inside[tight], csc_matrix((len(tight), 2 * C))]), left[tight])
        worth = csr_matrix((problem.psi.ravel()[cells], (cells // T, np.arange(len(cells)))), shape=(C, len(cells)))
        had = np.asarray(np.bincount(ones // T, problem.psi.ravel()[ones], C), np.float64)
        model.add_rows(hstack([worth, -identity(C), csc_matrix((C, C))]), -had, lower=-had)
        return model

    def _round(self, share: Floats) -> Ints:
        """Round a relaxed association: most certain rounds first, the likeliest class that is still allowed."""
        association = np.full(self._problem.rounds, IDLE)
        left = self._problem.imax.copy()
        for t in np.argsort(-share.max(axis=0), kind="stable"):
            windows = self._problem.window_rounds[:, t]
            for c in np.argsort(-share[:, t], kind="stable")[:3]:
                if share[c, t] < 1e-6 or not self._fits(association, int(t), int(c)):
                    break
                if (left[c, windows] > 0).all():
                    association[t] = c
                    left[c, windows] -= 1
                    break
        return association

    def _improve(self, association: Ints) -> Ints:
        """Change one round at a time while that helps."""
        problem = self._problem
        visitable = self._top.reshape(problem.psi.shape) > 0
        for _ in range(4 * problem.rounds):
            y = problem.collected(association) + problem.epsilon
            busy = np.flatnonzero(association != IDLE)
            visited = (association[busy], busy)
            visits = np.zeros(problem.psi.shape, np.int64)
            visits[visited] = 1
            full = problem.imax <= (self._member @ visits.T).T
            blocked = (self._member.T @ full.T.astype(np.int64)).T > 0
            gain = np.log1p(problem.psi / y[:, None])
            loss = np.zeros(problem.rounds)
            loss[busy] = np.log1p(-problem.psi[visited] / y[association[busy]])
            change = np.where(blocked | (visits > 0) | ~visitable, -np.inf, gain + loss)
            for flat in np.argsort(-change, axis=None, kind="stable")[:20]:
                c, t = divmod(int(flat), problem.rounds)
                if change[c, t] > 1e-12 and self._fits(association, t, c):
                    association[t] = c
                    break
            else:
                break
        return association

    def _fits(self, association: Ints, t: int, c: int) -> bool:
        """Tell whether visiting c at t completes no forbidden pattern."""
        for pattern in self._patterns:
            for offset, label in pattern:
                first = t - offset
                if label != c or first < 0 or first + pattern[-1][0] >= len(association):
                    continue
                if all(first + k == t or association[first + k] == other for k, other in pattern):
                    return False
        return True
