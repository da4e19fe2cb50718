"""A mixed-integer linear model that grows, on HiGHS: the few calls the planners need."""

from typing import Any

import highspy
import numpy as np
from scipy.sparse import csr_matrix

from skyfed.types import Floats, Ints

INFINITY = float(highspy.kHighsInf)


class SolverError(Exception):
    """The solver ended without a usable answer; the message says how."""


class Model:
    """Maximise cost @ x subject to row bounds; columns and rows can be added between solves.

    Of the last solve: timed_out, values (the columns), and after a continuous one reduced_costs (how the maximum would
    change with each column) and prices (the rows' dual values).
    """

    def __init__(self, cost: Floats, lower: Floats, upper: Floats, whole: int = 0, seconds: float = 300.0) -> None:
        """Start with columns only; the first `whole` of them are whole numbers once `integral` is asked for."""
        self._solver = highspy.Highs()
        self._set(output_flag=False, threads=1, random_seed=0, time_limit=seconds)
        self._whole = whole
        count = len(cost)
        none = np.empty(0, np.int32)
        self._solver.addCols(count, cost, lower, upper, 0, np.zeros(count, np.int32), none, np.empty(0))
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

    def add_tangents(self, amounts: Ints, logs: Ints, points: Floats, epsilon: float) -> None:
        """Bound columns `logs` by the tangents of log(x[amounts] + epsilon) at points; all (n,)."""
        slope = 1 / (points + epsilon)
        height = np.log(points + epsilon) - slope * points
        columns = np.stack([amounts, logs], axis=1).ravel()
        values = np.stack([-slope, np.ones(len(slope))], axis=1).ravel()
        self.add_rows(csr_matrix((values, columns, np.arange(0, len(columns) + 1, 2))), height)

    def add_column(self, cost: float, rows: Ints, values: Floats) -> None:
        """Add one column x >= 0 that appears in the given rows."""
        self._solver.addCol(cost, 0.0, INFINITY, len(rows), rows.astype(np.int32), values)

    def set_cost(self, column: int, cost: float) -> None:
        """Change one column's cost."""
        self._solver.changeColCost(column, cost)

    def solve(self, integral: bool = False, gap: float = 0.0) -> float:
        """Solve; returns the proven upper bound on the maximum. Raises SolverError when there is nothing to read."""
        if self._whole:
            kind = highspy.HighsVarType.kInteger if integral else highspy.HighsVarType.kContinuous
            self._solver.changeColsIntegrality(
                self._whole, np.arange(self._whole, dtype=np.int32), np.full(self._whole, kind.value, np.uint8)
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
        parts = (solution.col_value, solution.col_dual, solution.row_dual)
        self.values, self.reduced_costs, self.prices = (np.asarray(part) for part in parts)
        return float(info.mip_dual_bound if integral else info.objective_function_value)
