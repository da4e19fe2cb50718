"""The model that the planners solve, on HiGHS: mixed-integer and linear, with logarithms stated by tangents."""

from typing import Any

import highspy
import numpy as np
from scipy.sparse import csr_matrix

from skyfed.types import Floats, Ints

INFINITY = float(highspy.kHighsInf)


class SolverError(Exception):
    """The solver ended without a usable answer; the message says how."""


class Model:
    """Maximise sum_c value_c z_c with z_c <= log(y_c + epsilon_c) by tangents; columns and rows may be added later.

    Of the last solve: timed_out; share (the cells), collected (y_c), excess (how far z_c lies above the logarithm) and
    added (the columns added later); after a continuous one also reduced_costs (how the maximum would change with each
    cell) and prices (the rows' dual values).
    """

    def __init__(
        self,
        top: Floats,
        classes: int,
        epsilon: float | Floats,
        seconds: float,
        least: float = -INFINITY,
        value: Floats | None = None,
        most: Floats | None = None,
    ) -> None:
        """Start with columns only: cells from 0 to `top`, whole if `integral` is asked for; y_c >= 0; z_c >= least.

        value  (C,) worth of each logarithm, 1 without      most  (C,) y_c <= most
        """
        self._solver = highspy.Highs()
        self._set(output_flag=False, threads=1, random_seed=0, time_limit=seconds)
        self._cells, self._classes, self._epsilon = len(top), classes, np.broadcast_to(epsilon, classes)
        counts = (len(top) + classes, classes)
        cost, lower = np.repeat([0.0, 1.0], counts), np.repeat([0.0, least], counts)
        upper = np.append(top, np.full(2 * classes, INFINITY))
        if value is not None:
            cost[-classes:] = value
        if most is not None:
            upper[len(top) : len(top) + classes] = most
        none = np.empty(0, np.int32)
        self._solver.addCols(len(cost), cost, lower, upper, 0, np.zeros(len(cost), np.int32), none, np.empty(0))
        self._solver.changeObjectiveSense(highspy.ObjSense.kMaximize)

    def _set(self, **options: Any) -> None:
        for option, value in options.items():
            self._solver.setOptionValue(option, value)

    def add_rows(self, matrix: csr_matrix, upper: Floats, lower: Floats | None = None) -> None:
        """Add rows lower <= matrix @ x <= upper."""
        rows = matrix.tocsr()
        lower = np.full(len(upper), -INFINITY) if lower is None else lower
        starts, indices = rows.indptr[:-1].astype(np.int32), rows.indices.astype(np.int32)
        self._solver.addRows(len(upper), lower, upper, rows.nnz, starts, indices, rows.data.astype(np.float64))

    def add_tangents(self, points: Floats, labels: Ints | None = None) -> None:
        """Bound z_c by the tangents at points; `labels`, broadcast to them, are their classes, else (..., C)."""
        labels = np.broadcast_to(np.arange(self._classes) if labels is None else labels, points.shape).ravel()
        points = points.ravel()
        epsilon = self._epsilon[labels]
        slope = 1 / (points + epsilon)
        height = np.log(points + epsilon) - slope * points
        amounts = self._cells + labels
        columns = np.stack([amounts, amounts + self._classes], axis=1).ravel()
        values = np.stack([-slope, np.ones(len(slope))], axis=1).ravel()
        self.add_rows(csr_matrix((values, columns, np.arange(0, len(columns) + 1, 2))), height)

    def touch(self) -> float:
        """Add tangents where z lies above the logarithm; returns by how much it did in all."""
        if self.excess.max() > 1e-9:
            self.add_tangents(self.collected)
        return float(np.maximum(self.excess, 0).sum())

    def add_column(self, cost: float, rows: Ints, values: Floats) -> None:
        """Add one column x >= 0 that appears in the given rows."""
        self._solver.addCol(cost, 0.0, INFINITY, len(rows), rows.astype(np.int32), values)

    def set_cost(self, added: int, cost: float) -> None:
        """Change the cost of one of the added columns."""
        self._solver.changeColCost(self._cells + 2 * self._classes + added, cost)

    def solve(self, integral: bool = False, gap: float = 0.0) -> float:
        """Solve; returns the proven upper bound on the maximum. Raises SolverError when there is nothing to read."""
        if self._cells:
            kind = highspy.HighsVarType.kInteger if integral else highspy.HighsVarType.kContinuous
            self._solver.changeColsIntegrality(
                self._cells, np.arange(self._cells, dtype=np.int32), np.full(self._cells, kind.value, np.uint8)
            )
        if integral:
            # small models with good bounds: HiGHS's own searching costs more here than it finds
            self._set(mip_heuristic_effort=0.0, mip_detect_symmetry=False, mip_allow_restart=False, presolve="off")
            self._set(mip_rel_gap=0.0, mip_abs_gap=gap)
        self._solver.run()
        status, info, solution = self._solver.getModelStatus(), self._solver.getInfo(), self._solver.getSolution()
        self.timed_out = status == highspy.HighsModelStatus.kTimeLimit
        if status != highspy.HighsModelStatus.kOptimal:
            usable = self.timed_out and integral and np.isfinite(info.mip_dual_bound)
            if not usable or not len(solution.col_value):
                raise SolverError(f"HiGHS ended with {self._solver.modelStatusToString(status)}")
        parts = np.split(np.asarray(solution.col_value), np.cumsum([self._cells, self._classes, self._classes]))
        self.share, amounts, logs, self.added = parts
        self.collected = np.maximum(0.0, amounts)
        self.excess = logs - np.log(self.collected + self._epsilon)
        self.reduced_costs, self.prices = np.asarray(solution.col_dual)[: self._cells], np.asarray(solution.row_dual)
        return float(info.mip_dual_bound if integral else info.objective_function_value)
