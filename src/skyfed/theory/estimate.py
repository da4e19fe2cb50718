"""The constants of Theorem 1, from what vehicles measured in a live round; and rounds of the bound made of them."""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from scipy.optimize import linprog

from skyfed.columns import Column
from skyfed.jobs import Reply
from skyfed.theory.bound import Round
from skyfed.types import Bools, Ints, Singles

Row = dict[str, Any]

COLUMNS = (
    Column("round", "int", "the round, from 0"),
    Column("kappa", "int", "mini-batches of a vehicle's round"),
    Column("eta", "float", "global learning rate", empty=True),
    Column("eta_local", "float", "local learning rate", empty=True),
    Column("curvature", "float", "largest curvature of a vehicle's loss", empty=True),
    Column("secant", "float", "largest change of a gradient over the change of the model", empty=True),
    Column("gradient2", "float", "squared norm of the masked mean gradient", empty=True),
    Column("whole_gradient2", "float", "squared norm of the mean gradient", empty=True),
    Column("mismatch", "float", "squared norm of what masks leave out where somebody trains", empty=True),
    Column("norm2", "float", "squared norm of the weights", empty=True),
    Column("now", "float", "loss before the step", empty=True),
    Column("kept", "float", "loss after the step, on the same data", empty=True),
    Column("after", "float", "loss after the step, on the next round's data", empty=True),
    Column("vehicles", "floats", "who took part"),
    Column("alpha", "floats", "their weights"),
    Column("sigma2", "floats", "variance of a mini-batch gradient, per vehicle"),
    Column("phi", "floats", "data shift, per vehicle"),
    Column("epsilon", "floats", "distance of its data from the fleet's, per vehicle"),
    Column("own2", "floats", "squared norm of its masked gradient, per vehicle"),
    Column("delta", "floats", "pruning ratio, per vehicle"),
    Column("raw", "floats", "probability of a raw upload, per vehicle"),
    Column("q", "floats", "bound on the quantiser's variance, per vehicle"),
    Column("variance", "floats", "measured variance of the quantiser, per vehicle"),
    Column("pruned", "floats", "squared norm of what was pruned, per vehicle"),
)


def histogram_distance(own: Ints, fleet: Ints) -> float:
    """Return the total variation distance between two data sets' shares of classes, 0..1: our epsilon (A3)."""
    return float(0.5 * np.abs(own / own.sum() - fleet / fleet.sum()).sum())


class Gathering:
    """Puts the vehicles' measurements of one round together; they come one by one, so that few are in memory."""

    def __init__(self, weights: Singles) -> None:
        """Start from the received weights, live entries only."""
        self._weights = weights.astype(np.float64)
        size = len(weights)
        self._masked, self._whole, self._trained = np.zeros(size), np.zeros(size), np.zeros(size, bool)
        self._rows: list[Row] = []

    def add(self, probed: Reply, mask: Bools | None, alpha: float, **known: float) -> None:
        """Add a vehicle that took part with this mask and weight, by what it measured.

        gradient   (n,) of f_u(. | D_u^t) at w^t, live entries      now        f_u(w^t | D_u^t)
        sigma2     variance of a mini-batch's gradient around it    kept       f_u(w^{t+1} | D_u^t)
        phi        squared gradient shift from D_u^{t-1} at w^t     after      f_u(w^{t+1} | D_u^{t+1})
        curvature  largest |eigenvalue| of the Hessian found        secant     ||gradient change|| / ||w^{t+1} - w^t||
        """
        measured, slope = probed.words, probed.arrays["gradient"].astype(np.float64)
        masked = slope if mask is None else slope * mask
        self._masked += alpha * masked
        self._whole += alpha * slope
        self._trained |= True if mask is None else mask
        lost = np.zeros(0) if mask is None else self._weights[~mask]
        self._rows.append({
            "vehicles": measured["vehicle"], "alpha": alpha, "sigma2": measured["sigma2"], "phi": measured["phi"],
            "own2": float(masked @ masked), "pruned": float(lost @ lost),
            **{name: measured[name] for name in ("curvature", "secant", "now", "kept", "after")}, **known,
        })  # fmt: skip

    def row(self, t: int, kappa: int, eta: float, eta_local: float) -> Row:
        """Return the round's row."""
        each = {name: [row[name] for row in self._rows] for name in self._rows[0]}
        alpha = np.array(each["alpha"])
        apart = (self._whole - self._masked) * self._trained
        row: Row = {"round": t, "kappa": kappa, "eta": eta, "eta_local": eta_local}
        for name in ("curvature", "secant"):
            row[name] = float(max(each.pop(name)))
        for name in ("now", "kept", "after"):
            row[name] = float(alpha @ np.array(each.pop(name)))
        row |= {
            "gradient2": float(self._masked @ self._masked), "whole_gradient2": float(self._whole @ self._whole),
            "mismatch": float(apart @ apart), "norm2": float(self._weights @ self._weights),
        }  # fmt: skip
        return row | {name: [float(value) for value in values] for name, values in each.items()}


def fit_dissimilarity(rows: Sequence[Row]) -> tuple[float, float]:
    """Return rho1 >= 1 and rho2 >= 0 for which A3 holds for all vehicles and rounds, with the least slack in all."""
    left = np.array([[row["gradient2"], eps] for row in rows for eps in row["epsilon"]])
    right = np.array([own for row in rows for own in row["own2"]])
    scale = right.max(initial=0.0)
    if scale == 0:
        return 1.0, 0.0
    best = linprog(left.sum(axis=0) / scale, A_ub=-left / scale, b_ub=-right / scale, bounds=[(1, None), (0, None)])
    if not best.success:  # a vehicle with the fleet's own data and a longer gradient, where the fleet's is zero
        return float("inf"), 0.0
    return float(best.x[0]), float(best.x[1])


def rounds_of(rows: Iterable[Row]) -> list[Round]:
    """Return the measured rounds as the bound needs them; beta is the largest curvature seen anywhere."""
    rows = list(rows)
    rho1, rho2 = fit_dissimilarity(rows)
    fitted = {"beta": max(max(row["curvature"], row["secant"]) for row in rows), "rho1": rho1, "rho2": rho2}
    measured = [field.name for field in fields(Round) if field.name not in fitted]
    return [Round(**fitted, **{name: _number_or_array(row[name]) for name in measured}) for row in rows]


def _number_or_array(value: Any) -> Any:
    """Return a list as an array, NaN where it has None; a number as it is."""
    return np.array(value, np.float64) if np.ndim(value) else value
