"""Which class in which round, without a speed limit: a MILP with tangent cuts on the logarithm (Eq. 4; C1, C4, C5).

Outer approximation: z_c <= log(y + eps) + (y_c - y) / (y + eps) holds for every y, so the model's optimum is a proven
upper bound; tangents are added where the last answer touched them. The relaxation is solved first; columns whose
reduced cost exceeds the distance to a rounded plan cannot change in a better one and are fixed; a small MILP is left.
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import block_diag, csc_matrix, csr_matrix, hstack, identity, kron

from skyfed.flight.discs import anchor, impossible_steps
from skyfed.flight.milp import INFINITY, Model
from skyfed.flight.problem import Problem
from skyfed.records import IDLE, Floats, Ints

GAP = 5e-6  # nats: proven distance at which the search ends
_TANGENTS = 24  # tangents a class to begin with
_CUTTING_ROUNDS = 40
_MILP_ROUNDS = 12
_LARGE, _LARGE_GAP = 20_000, 5e-4  # cells past which rounding is good enough at this gap, nats a class

Pattern = tuple[tuple[int, int], ...]  # (rounds after the first, class): visits that do not go together


@dataclass(frozen=True)
class Associated:
    """An association, the proven bound on any, and what limited the proof."""

    association: Ints
    bound: float
    note: str = ""


class AssociationModel:
    """The association problem of one vehicle; patterns found impossible to fly can be forbidden."""

    def __init__(self, problem: Problem, seconds: float = 300.0) -> None:
        self._problem = problem
        C, T = problem.psi.shape
        self._cells = C * T  # columns: I[c,t] at c*T+t, then y_c, then z_c
        spans = problem.spans
        rounds = np.arange(T)
        self._member = csr_matrix((rounds >= spans[:, :1]) & (rounds < spans[:, 1:]), dtype=np.int64)  # (W, T)
        unreachable = [c for c in range(C) if anchor(problem, c) is None]
        upper = np.ones((C, T))
        upper[unreachable] = 0.0
        free = np.full(C, INFINITY)
        self._top = upper.ravel()
        self._model = Model(
            cost=np.concatenate([np.zeros(self._cells + C), np.ones(C)]),
            lower=np.concatenate([np.zeros(self._cells + C), -free]),
            upper=np.concatenate([self._top, free, free]),
            whole=self._cells,
            seconds=seconds,
        )
        self._patterns: list[Pattern] = []
        self._add_structure()
        for a, b in impossible_steps(problem):
            self.forbid(((0, a), (1, b)))

    def forbid(self, pattern: Pattern) -> None:
        """Forbid visits at these distances in time from each other, wherever they begin."""
        T = self._problem.rounds
        length = max(offset for offset, _ in pattern)
        for start in range(T - length):
            columns = [label * T + start + offset for offset, label in pattern]
            self._model.add_row(columns, np.ones(len(columns)), len(pattern) - 1.0)
        self._patterns.append(pattern)

    def solve(self) -> Associated:
        """Return a best association with its proven bound."""
        bound, share, reduced = self._relax()
        best = self._improve(self._round(share))
        value = self._problem.objective(best)
        C, T = self._problem.psi.shape
        if bound - value <= (_LARGE_GAP * C if C * T > _LARGE else GAP):
            return Associated(best, bound)
        settled = np.flatnonzero(np.abs(reduced[: self._cells]) > bound - value + GAP)
        fixed = np.round(share.ravel()[settled])
        self._model.set_bounds(settled, fixed, fixed)
        bound, best, note = self._search(bound, best)
        self._model.set_bounds(settled, np.zeros(len(settled)), self._top[settled])
        return Associated(best, max(bound, self._problem.objective(best)), note)

    def _add_structure(self) -> None:
        problem = self._problem
        C, T = problem.psi.shape
        eye = identity(C, format="csc")
        one_class = hstack([identity(T)] * C, format="csc")
        visits = kron(eye, self._member, format="csc")
        collect = block_diag([row[None] for row in problem.psi], format="csc")
        nothing = csc_matrix((T, 2 * C))
        self._model.add_rows(hstack([one_class, nothing]), np.full(T, -INFINITY), np.ones(T))
        most = problem.imax.ravel().astype(np.float64)
        self._model.add_rows(hstack([visits, csc_matrix((len(most), 2 * C))]), np.full(len(most), -INFINITY), most)
        self._model.add_rows(hstack([collect, -eye, csc_matrix((C, C))]), np.zeros(C), np.zeros(C))
        total = problem.psi.sum(axis=1)
        for c in range(C):
            for y in np.geomspace(max(total[c] * 0.01, 1e-9), max(total[c], 1e-8), _TANGENTS):
                self._add_tangent(c, y)

    def _add_tangent(self, c: int, y: float) -> None:
        C, eps = self._problem.classes, self._problem.epsilon
        slope = 1 / (y + eps)
        self._model.add_row([self._cells + C + c, self._cells + c], [1.0, -slope], float(np.log(y + eps)) - slope * y)

    def _touch(self, values: Floats) -> float:
        """Add tangents where z lies above the logarithm; returns by how much it did in all."""
        C = self._problem.classes
        y, z = values[self._cells : self._cells + C], values[self._cells + C :]
        above = z - np.log(np.maximum(y, 0) + self._problem.epsilon)
        for c in np.flatnonzero(above > 1e-9):
            self._add_tangent(int(c), max(0.0, float(y[c])))
        return float(np.maximum(above, 0).sum())

    def _relax(self) -> tuple[float, Floats, Floats]:
        for _ in range(_CUTTING_ROUNDS):
            bound = self._model.solve()
            values, reduced = self._model.values, self._model.reduced_costs
            if self._touch(values) < GAP:
                break
        return bound, values[: self._cells].reshape(self._problem.psi.shape), reduced

    def _search(self, bound: float, best: Ints) -> tuple[float, Ints, str]:
        problem = self._problem
        note = ""
        value = problem.objective(best)
        for _ in range(_MILP_ROUNDS):
            bound = min(bound, self._model.solve(integral=True, gap=GAP / 2))
            values = self._model.values
            found = _labels(values[: self._cells].reshape(problem.psi.shape))
            if problem.objective(found) > value:
                best, value = found, problem.objective(found)
            if self._model.timed_out:
                note = "time limit: the gap is what was proven by then"
                break
            if bound - value <= GAP or self._touch(values) < GAP / 2:
                break
        return bound, best, note

    def _round(self, share: Floats) -> Ints:
        """Round a relaxed association: most certain rounds first, the likeliest class that is still allowed."""
        problem = self._problem
        found = np.full(problem.rounds, IDLE)
        counts = np.zeros(problem.imax.shape, np.int64)
        for t in np.argsort(-share.max(axis=0), kind="stable"):
            inside = self._member[:, [t]].toarray()[:, 0].astype(bool)
            for c in np.argsort(-share[:, t], kind="stable")[:3]:
                if share[c, t] < 1e-6 or not self._fits(found, int(t), int(c)):
                    break
                if (counts[c, inside] < problem.imax[c, inside]).all():
                    found[t] = c
                    counts[c, inside] += 1
                    break
        return found

    def _improve(self, found: Ints) -> Ints:
        """Change one round at a time while that helps."""
        problem = self._problem
        rounds = np.arange(problem.rounds)
        floor = problem.epsilon
        visitable = self._top.reshape(problem.psi.shape) > 0
        for _ in range(4 * problem.rounds):
            y = problem.collected(found) + floor
            visits = np.zeros(problem.psi.shape, np.int64)
            busy = found != IDLE
            visits[found[busy], rounds[busy]] = 1
            full = problem.imax <= (self._member @ visits.T).T
            blocked = (self._member.T @ full.T.astype(np.int64)).T > 0
            gain = np.log1p(problem.psi / y[:, None])
            loss = np.zeros(problem.rounds)
            loss[busy] = np.log1p(-problem.psi[found[busy], rounds[busy]] / y[found[busy]])
            change = np.where(blocked | (visits > 0) | ~visitable, -np.inf, gain + loss)
            for flat in np.argsort(-change, axis=None, kind="stable")[:20]:
                c, t = divmod(int(flat), problem.rounds)
                if change[c, t] > 1e-12 and self._fits(found, t, c):
                    found[t] = c
                    break
            else:
                return found
        return found

    def _fits(self, found: Ints, t: int, c: int) -> bool:
        """Tell whether visiting c at t completes no forbidden pattern."""
        for pattern in self._patterns:
            for offset, label in pattern:
                first = t - offset
                if label != c or first < 0 or first + pattern[-1][0] >= len(found):
                    continue
                if all(first + k == t or found[first + k] == other for k, other in pattern):
                    return False
        return True


def _labels(share: Floats) -> Ints:
    return np.where(share.max(axis=0) > 0.5, share.argmax(axis=0), IDLE)
