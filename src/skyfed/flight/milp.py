"""A mixed-integer linear model that grows, on HiGHS: the few calls the planners need."""

from collections.abc import Sequence

import highspy
import numpy as np
from scipy.sparse import csc_matrix

from skyfed.types import Floats, Ints

INFINITY = float(highspy.kHighsInf)


class SolverError(Exception):
    """The solver ended without a usable answer; the message says how."""


class Model:
    """Maximise cost @ x subject to row bounds; columns and rows can be added and bounds changed between solves."""

    def __init__(self, cost: Floats, lower: Floats, upper: Floats, whole: int = 0, seconds: float = 300.0) -> None:
        """Start with columns only; the first `whole` of them are whole numbers once `integral` is asked for."""
        self._solver = highspy.Highs()
        for option, value in (("output_flag", False), ("threads", 1), ("random_seed", 0), ("time_limit", seconds)):
            self._solver.setOptionValue(option, value)
        self._columns, self._whole = len(cost), whole
        count = len(cost)
        none = np.empty(0, np.int32)
        self._solver.addCols(count, cost, lower, upper, 0, np.zeros(count, np.int32), none, np.empty(0))
        self._solver.changeObjectiveSense(highspy.ObjSense.kMaximize)

    def add_rows(self, matrix: csc_matrix, lower: Floats, upper: Floats) -> None:
        """Add rows lower <= matrix @ x <= upper."""
        rows = matrix.tocsr()
        self._solver.addRows(
            rows.shape[0], lower, upper, rows.nnz, rows.indptr[:-1].astype(np.int32), rows.indices.astype(np.int32),
            rows.data.astype(np.float64),
        )  # fmt: skip

    def add_row(self, columns: Sequence[int] | Ints, values: Sequence[float] | Floats, upper: float) -> None:
        """Add one row values @ x[columns] <= upper."""
        indices = np.asarray(columns, np.int32)
        self._solver.addRow(-INFINITY, upper, len(indices), indices, np.asarray(values, np.float64))

    def add_column(self, cost: float, rows: Ints, values: Floats) -> None:
        """Add one column x >= 0 that appears in the given rows."""
        self._solver.addCol(cost, 0.0, INFINITY, len(rows), rows.astype(np.int32), values)
        self._columns += 1

    def set_cost(self, column: int, cost: float) -> None:
        """Change one column's cost."""
        self._solver.changeColCost(column, cost)

    def set_bounds(self, columns: Ints, lower: Floats, upper: Floats) -> None:
        """Change the bounds of some columns."""
        self._solver.changeColsBounds(len(columns), columns.astype(np.int32), lower, upper)

    def solve(self, integral: bool = False, gap: float = 0.0, start: Floats | None = None) -> float:
        """Solve; returns the proven upper bound on the maximum. Raises SolverError when there is nothing to read."""
        kinds = highspy.HighsVarType
        if self._whole:
            kind = kinds.kInteger if integral else kinds.kContinuous
            self._solver.changeColsIntegrality(
                self._whole, np.arange(self._whole, dtype=np.int32), np.full(self._whole, kind.value, np.uint8)
            )
        if integral:
            # small models with good bounds: HiGHS's own searching costs more here than it finds
            for option, value in (
                ("mip_heuristic_effort", 0.0),
                ("mip_detect_symmetry", False),
                ("mip_allow_restart", False),
            ):
                self._solver.setOptionValue(option, value)
            self._solver.setOptionValue("presolve", "off")
            self._solver.setOptionValue("mip_rel_gap", 0.0)
            self._solver.setOptionValue("mip_abs_gap", gap)
            if start is not None:
                solution = highspy.HighsSolution()
                solution.col_value = list(start)
                self._solver.setSolution(solution)
        self._solver.run()
        status = self._solver.getModelStatus()
        self.timed_out = status == highspy.HighsModelStatus.kTimeLimit
        if status != highspy.HighsModelStatus.kOptimal:
            usable = self.timed_out and integral and np.isfinite(self._solver.getInfo().mip_dual_bound)
            if not usable or not len(self._solver.getSolution().col_value):
                raise SolverError(f"HiGHS ended with {self._solver.modelStatusToString(status)}")
        info = self._solver.getInfo()
        return float(info.mip_dual_bound if integral else info.objective_function_value)

    @property
    def values(self) -> Floats:
        """The columns of the last solution."""
        return np.asarray(self._solver.getSolution().col_value)

    @property
    def reduced_costs(self) -> Floats:
        """How the maximum would change with each column; of a continuous solve."""
        return np.asarray(self._solver.getSolution().col_dual)

    @property
    def prices(self) -> Floats:
        """The rows' dual values; of a continuous solve."""
        return np.asarray(self._solver.getSolution().row_dual)
